// Declares what several benchmarks share: flags, the modes to compare, the loaded model, and the
// head of a report.
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

// Sets the default of --max-num-tokens, the most tokens that a step may have, in benchmarks.
constexpr int64_t kDefaultMaxNumTokens = 2048;

struct BenchOptions {
  config::Settings settings;  // if `graphs` is not set, every mode is timed
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
// Sets how many runs a benchmark of steps has where --runs is not given.
constexpr measure::ByDevice kBenchRuns{.gpu = 5, .cpu = 3};

// Adds the flags of BenchOptions and of the groups in `more`.
void add_bench_options(Command& verb, BenchOptions& options,
                       std::initializer_list<config::Group> more = {});
// Adds the options that name a model and how it is loaded, the context, and --json. It also adds
// the options of the groups in `more`, and leaves out the options in `but`.
void add_bench_model_options(Command& verb, BenchOptions& options,
                             const std::vector<config::Group>& more = {},
                             std::vector<std::string_view> but = {});
void add_batch_option(Command& verb, BenchOptions& options);  // --batch
// Adds --runs. `otherwise` is the number of runs where the option is not given.
void add_runs_option(Command& verb, BenchOptions& options, const measure::ByDevice& otherwise);
// Adds --steps, the number of steps of a run. `otherwise` is that number where the option is not
// given.
void add_steps_option(Command& verb, std::optional<int64_t>& steps,
                      const measure::ByDevice& otherwise);
// Adds --runs, the number of replays, for a benchmark that replays one op's launches.
void add_replays_option(Command& verb, std::optional<int>& runs);

// Holds a device and a model on it that can run every mode to be compared.
struct Bench {
  std::unique_ptr<Device> device;
  std::unique_ptr<loader::LoadedModel> model;
  std::unique_ptr<planning::StepLogWriter> step_log;  // null where no log was asked for
  engine::EngineOptions loop;                         // options for every engine on the model
  double read_bandwidth = 0;  // bytes/s, measured before loading; 0: the device cannot measure it

  // Returns the options of `loop` without bursts, because a tracer sees no single steps within a
  // burst.
  [[nodiscard]] engine::EngineOptions step_by_step() const {
    engine::EngineOptions options = loop;
    options.burst_steps = 1;
    return options;
  }
};
// Returns the options for loading a model whose steps decode `batch` sequences after prompts. Where
// the user named no mode, every mode is recorded. Decode steps are recorded only for `batch`
// sequences unless --max-batch-size was given.
loader::LoadOptions decode_load_options(const BenchOptions& options);
// Opens the device and loads the model with `load`, whose limits and ladders must be set. Sequences
// may grow to `longest` tokens.
Bench open_bench(const BenchOptions& options, loader::LoadOptions load, int64_t longest);

// Loads a model as open_bench() does, on a device that is already open.
std::unique_ptr<loader::LoadedModel> load_model(Device& device, const BenchOptions& options,
                                                loader::LoadOptions load, int64_t longest);

// Returns the modes to compare: only the mode that the user named, or, where none was named, each
// of `all`.
std::vector<runtime::Graphs> bench_modes(const BenchOptions& options,
                                         std::vector<runtime::Graphs> all);
std::string_view mode_name(runtime::Graphs graphs);
// Returns the name of the mode in which most steps were really run.
std::string ran_as(const engine::Engine& engine);

// Opens the device's tracer. If that fails, returns null and writes a line to `why_not` about what
// is missing and how to get it.
std::unique_ptr<Tracer> open_tracer(Device& device, TraceDetail detail, std::string& why_not);
// Returns the keys that every benchmark's JSON has: verb, model, device, dtype, batch, context,
// read bandwidth, memory, recordings.
json::object bench_json(std::string_view verb, const BenchOptions& options, Bench& bench);
// Returns the facts of bench_json() as text, for the head of a report.
std::string bench_title(std::string_view verb, const BenchOptions& options, Bench& bench);

}  // namespace encore::cli
