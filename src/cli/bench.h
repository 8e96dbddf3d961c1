// Parts of several benchmarks: flags, the modes to compare, the loaded model, the head of a report.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/tracer.h"
#include "base/json.h"
#include "cli/options.h"
#include "config/settings.h"
#include "engine/engine.h"
#include "measure/timing.h"
#include "planning/step_log_writer.h"

namespace encore::cli {

// Tokens of a step in a benchmark, where no flag says how many.
constexpr int64_t kDefaultMaxNumTokens = 2048;

struct BenchOptions {
  config::Settings settings;  // without graphs: every mode, side by side
  int64_t batch = 1;
  int64_t context = 512;
  std::optional<int> runs;
  bool json = false;
};

void add_bench_decode(Command& bench);
void add_bench_drafts(Command& bench);
void add_bench_ladder(Command& bench);
void add_bench_mixed(Command& bench);
void add_bench_prefill(Command& bench);
void add_bench_serve(Command& bench);
void add_bench_sleep(Command& bench);
void add_bench_speculate(Command& bench);
void add_bench_stack(Command& bench);
// How many runs a benchmark of steps has where --runs does not say.
constexpr measure::ByDevice kBenchRuns{.gpu = 5, .cpu = 3};

// The flags of BenchOptions.
void add_bench_options(Command& verb, BenchOptions& options,
                       std::initializer_list<config::Group> more = {});
// Adds the options that name a model and how it is loaded, the context and --json, and more of the
// table's groups, without the options in `but`.
void add_bench_model_options(Command& verb, BenchOptions& options,
                             const std::vector<config::Group>& more = {},
                             std::vector<std::string_view> but = {});
void add_batch_option(Command& verb, BenchOptions& options);  // --batch
// Adds --runs. `otherwise`: the number of runs where the option is not given.
void add_runs_option(Command& verb, BenchOptions& options, const measure::ByDevice& otherwise);
// Adds --steps, the number of steps of a run. `otherwise`: that number where the option is not
// given.
void add_steps_option(Command& verb, std::optional<int64_t>& steps,
                      const measure::ByDevice& otherwise);
// Adds --runs, for a benchmark that replays one op's launches.
void add_replays_option(Command& verb, std::optional<int>& runs);

// A device with a model on it that can run every mode to be compared.
struct Bench {
  std::unique_ptr<Device> device;
  std::unique_ptr<loader::LoadedModel> model;
  std::unique_ptr<planning::StepLogWriter> step_log;  // null: none was asked for
  engine::EngineOptions loop;                         // of every engine on the model
  double read_bandwidth = 0;  // bytes/s, measured before loading; 0: the device cannot

  // The options of `loop` without bursts, as a tracer sees no single steps within a burst.
  [[nodiscard]] engine::EngineOptions step_by_step() const {
    engine::EngineOptions options = loop;
    options.burst_steps = 1;
    return options;
  }
};
// Options of loading for steps of `batch` sequences that decode after prompts: every mode is
// recorded, at that size alone unless a larger --max-batch-size was given.
loader::LoadOptions decode_load_options(const BenchOptions& options);
// Loads with `load`, whose limits and ladders are set. Sequences may grow to `longest` tokens.
Bench open_bench(const BenchOptions& options, loader::LoadOptions load, int64_t longest);

// Loads a model as open_bench() does, on a device that is there.
std::unique_ptr<loader::LoadedModel> load_model(Device& device, const BenchOptions& options,
                                                loader::LoadOptions load, int64_t longest);

// The modes to compare: the one named, or each of `all`.
std::vector<runtime::Graphs> bench_modes(const BenchOptions& options,
                                         std::vector<runtime::Graphs> all);
std::string_view mode_name(runtime::Graphs graphs);
// The mode in which most steps were really run.
std::string ran_as(const engine::Engine& engine);

// The device's tracer, or null and a line in `why_not` of what is missing and how to get it.
std::unique_ptr<Tracer> open_tracer(Device& device, TraceDetail detail, std::string& why_not);
// The keys that every benchmark's JSON has: verb, model, device, dtype, batch, context, read
// bandwidth, memory, recordings.
json::object bench_json(std::string_view verb, const BenchOptions& options, Bench& bench);
// The facts of bench_json() as text, for the head of a report.
std::string bench_title(std::string_view verb, const BenchOptions& options, Bench& bench);

}  // namespace encore::cli
