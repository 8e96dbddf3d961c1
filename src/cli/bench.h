// What the benchmarks share: the flags, the modes to compare, clocks, and what a step must read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/tracer.h"
#include "base/json.h"
#include "cli/options.h"
#include "engine/engine.h"

namespace encore::cli {

struct BenchOptions {
  CommonOptions common;  // graphs empty: every mode, side by side
  int64_t batch = 1;
  int64_t context = 512;
  std::optional<int> runs;
  std::string step_log;  // a file; the steps of all runs and modes, in order
  bool json = false;
};

void add_bench_decode(CLI::App& bench);
void add_bench_ladder(CLI::App& bench);
void add_bench_prefill(CLI::App& bench);
void add_bench_sleep(CLI::App& bench);
// The flags of BenchOptions.
void add_bench_options(CLI::App& verb, BenchOptions& options);
// Of them, what names a model and how it is loaded, the context and --json.
void add_bench_model_options(CLI::App& verb, BenchOptions& options);
void add_batch_option(CLI::App& verb, BenchOptions& options);  // --batch
void add_runs_option(CLI::App& verb, BenchOptions& options);   // --runs
// --runs of a benchmark that replays one op's launches, and how many it is on that device.
void add_replays_option(CLI::App& verb, std::optional<int>& runs);
int num_replays(std::optional<int> runs, const Device& device);
// Copies of operands that such a benchmark reads in turn, so that caches hold none of them: what
// makes up `rotation_mb` MiB, within limits.
int64_t num_copies(int64_t rotation_mb, int64_t bytes);

// A device with a model on it that can walk every mode to be compared.
struct Bench {
  std::unique_ptr<Device> device;
  std::unique_ptr<engine::LoadedModel> model;
  std::unique_ptr<runtime::StepLogWriter> step_log;  // null: none was asked for
  engine::EngineOptions loop;                        // of every engine on the model
  double read_bandwidth = 0;  // bytes/s, measured before loading; 0: the device cannot

  // `loop` without bursts, in which a tracer sees no steps.
  [[nodiscard]] engine::EngineOptions step_by_step() const {
    engine::EngineOptions options = loop;
    options.burst_steps = 1;
    return options;
  }
};
// For steps of `batch` sequences that decode after prompts: every mode recorded, at that size alone
// unless a larger --max-batch-size was given.
engine::LoadOptions decode_load_options(const BenchOptions& options);
// Loads with `load`, whose limits and ladders are set. Sequences may grow to `longest` tokens.
Bench open_bench(const BenchOptions& options, engine::LoadOptions load, int64_t longest);

// The modes to compare: the one named, or each of `all`.
std::vector<runtime::Graphs> bench_modes(const BenchOptions& options,
                                         std::vector<runtime::Graphs> all);
std::string_view mode_name(runtime::Graphs graphs);
// How the steps that matter were really walked: that of the most steps.
std::string walked(const engine::Engine& engine);

// Distinct prompts of random tokens, a function of the seed.
std::vector<std::vector<int32_t>> random_prompts(int64_t count, int64_t length, int64_t vocab_size,
                                                 uint64_t seed);

// Least memory traffic and arithmetic of one step, without the KV that attention reads.
// Units: bytes, operations.
struct StepCost {
  int64_t bytes = 0;
  int64_t flops = 0;
  int64_t weight_bytes = 0;  // of `bytes`: weights that are read whole
};
StepCost step_cost(const ir::Graph& graph, const ir::Sizes& sizes);

double now_seconds();
double thread_cpu_seconds();  // of the calling thread, waiting that spins included

// The device's tracer, or null and a line in `why_not` of what is missing and how to get it.
std::unique_ptr<Tracer> open_tracer(Device& device, TraceDetail detail, std::string& why_not);
// A number, or null.
json::value optional_json(const std::optional<double>& number);
// A number with that many decimals, or "-".
std::string optional_text(const std::optional<double>& number, int decimals);

// What every benchmark's JSON has: verb, model, device, dtype, batch, context, read bandwidth,
// memory, recordings.
json::object bench_json(std::string_view verb, const BenchOptions& options, Bench& bench);
// The same for people.
std::string bench_title(std::string_view verb, const BenchOptions& options, Bench& bench);

}  // namespace encore::cli
