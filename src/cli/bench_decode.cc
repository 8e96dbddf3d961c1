// encore bench decode: the time of one decode step, in every mode.
#include <algorithm>
#include <map>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>

#include "base/error.h"
#include "cli/bench.h"
#include "cli/interrupt.h"
#include "cli/open.h"
#include "cli/output.h"

namespace encore::cli {
namespace {

constexpr int64_t kDefaultMaxNumTokens = 2048;
constexpr int kEnqueueRepeats = 20;

constexpr const char* kFooter =
    R"(How a step is timed: BATCH distinct random prompts of CONTEXT tokens, greedy, nothing shared. The wall time
from token WARMUP of the sequence that started last to token WARMUP + STEPS, with the tokens on the host, over
STEPS; the median of RUNS such figures. All sequences decode throughout.
GB/s counts the least traffic: every weight once, every activation once, and the KV really read. `of read` is that
over what this device reads at best, measured in the same run. `host us` is the time the host takes to enqueue a step.)";

struct Options {
  BenchOptions bench;
  std::optional<int64_t> steps;
  std::optional<int64_t> warmup_tokens;
};

// Filled in by the device's defaults.
struct Protocol {
  int runs = 0;
  int64_t steps = 0;
  int64_t warmup_tokens = 0;
  int64_t max_tokens = 0;  // of each sequence, so that none ends while the last is timed
};

struct Run {
  double step_ms = 0;     // (end - start) / steps
  double median_ms = 0;   // of the single steps
  int64_t kv_tokens = 0;  // read by attention, over all steps
};

struct ModeResult {
  std::string mode;
  std::string walked;
  std::vector<double> runs_ms;
  double median_single_ms = 0;
  std::optional<double> enqueue_us;  // absent on the CPU, which runs what it enqueues
  double kv_tokens_per_step = 0;

  [[nodiscard]] double step_ms() const { return median(runs_ms); }
};

// Sequences that started first generate on until the last has been timed.
Protocol protocol(const Options& options, DeviceKind device, const runtime::Limits& limits) {
  const bool is_cpu = device == DeviceKind::kCpu;
  Protocol protocol;
  protocol.runs = options.bench.runs.value_or(is_cpu ? 3 : 5);
  protocol.steps = options.steps.value_or(is_cpu ? 16 : 128);
  protocol.warmup_tokens = options.warmup_tokens.value_or(is_cpu ? 4 : 33);
  const int64_t prompt_tokens_per_step =
      std::max<int64_t>(1, limits.max_num_tokens - options.bench.batch);
  const int64_t prompt_steps =
      options.bench.batch * options.bench.context / prompt_tokens_per_step + 2;
  protocol.max_tokens = protocol.warmup_tokens + protocol.steps + prompt_steps;
  return protocol;
}

engine::LoadOptions decode_load_options(const Options& options) {
  const BenchOptions& bench = options.bench;
  CommonOptions common = bench.common;
  if (common.graphs.empty()) common.graphs = "auto";
  engine::LoadOptions load = load_options(common);
  load.record_all_modes = bench.common.graphs.empty();
  load.limits.max_batch_size =
      std::max(bench.batch, bench.common.max_batch_size.value_or(bench.batch));
  load.limits.max_num_tokens = bench.common.max_num_tokens.value_or(
      std::max(std::min(bench.batch * bench.context, kDefaultMaxNumTokens), 2 * bench.batch));
  if (!bench.common.max_batch_size) load.sequences = runtime::Ladder({bench.batch});
  load.tokens = runtime::Ladder({load.limits.max_num_tokens});
  return load;
}

// One run; see the footer.
Run run_once(engine::Engine& engine, const Options& options, const Protocol& protocol,
             uint64_t seed) {
  const BenchOptions& bench = options.bench;
  const auto prompts =
      random_prompts(bench.batch, bench.context, engine.model().config().vocab_size, seed);
  std::vector<engine::SequenceId> sequences;
  for (const auto& prompt : prompts) {
    const auto added = engine.add({prompt, protocol.max_tokens, {}, {}});
    if (const auto* rejection = std::get_if<engine::Rejection>(&added))
      fail(ErrorKind::kUsage, "{}", rejection->why);
    sequences.push_back(std::get<engine::SequenceId>(added));
  }

  int64_t generated = 0;  // by the sequence that started last
  const auto on_token = [&](const engine::Generated& token) {
    generated += token.sequence == sequences.back() ? 1 : 0;
  };
  while (generated < protocol.warmup_tokens)
    engine.step(on_token);

  Run run;
  std::vector<double> steps_ms;
  const double start = now_seconds();
  double last = start;
  while (generated < protocol.warmup_tokens + protocol.steps) {
    engine.step(on_token);
    const double now = now_seconds();
    steps_ms.push_back((now - last) * 1e3);
    last = now;
    const sched::Plan& plan = engine.last_plan();
    ENCORE_CHECK(plan.num_tokens() == bench.batch, "a timed step of {} tokens", plan.num_tokens());
    for (const sched::Run& row : plan.runs)
      run.kv_tokens += row.first + row.count;
  }
  run.step_ms = (last - start) * 1e3 / static_cast<double>(protocol.steps);
  run.median_ms = median(steps_ms);
  for (const engine::SequenceId sequence : sequences)
    engine.abort(sequence);
  return run;
}

// How long the host takes to enqueue a step like the last ones, whose inputs still lie in the
// twins.
double enqueue_us(engine::LoadedModel& model, int64_t batch, int64_t kv_len) {
  runtime::Executor& executor = model.executor();
  std::vector<double> times;
  for (int i = 0; i < kEnqueueRepeats; ++i) {
    executor.begin({batch, batch, 1});
    const double start = now_seconds();
    executor.launch({1, kv_len});
    times.push_back((now_seconds() - start) * 1e6);
    executor.synchronize();
  }
  return median(times);
}

ModeResult run_mode(Bench& bench, const Options& options, const Protocol& protocol,
                    runtime::Graphs graphs) {
  bench.model->executor().set_graphs(graphs);
  ModeResult result;
  result.mode = mode_name(graphs);
  std::vector<double> singles;
  for (int i = 0; i < protocol.runs; ++i) {
    engine::Engine engine(*bench.model, bench.step_log.get());
    const Run run = run_once(engine, options, protocol, static_cast<uint64_t>(i) + 1);
    result.runs_ms.push_back(run.step_ms);
    singles.push_back(run.median_ms);
    result.kv_tokens_per_step =
        static_cast<double>(run.kv_tokens) / static_cast<double>(protocol.steps);
    result.walked = walked(engine);
  }
  result.median_single_ms = median(singles);
  if (bench.device->kind() == DeviceKind::kCpu) return result;
  result.enqueue_us =
      enqueue_us(*bench.model, options.bench.batch, options.bench.context + protocol.max_tokens);
  return result;
}

// A mode's figures derived from its time.
struct Speed {
  double tokens_per_s = 0;
  double gb_per_s = 0;
  double fraction = 0;         // of the read bandwidth
  double weight_fraction = 0;  // the same for weights alone
};

Speed speed_of(const ModeResult& result, const Bench& bench, const BenchOptions& options) {
  const auto& program = bench.model->compiled().program;
  const StepCost cost = step_cost(program.graph, {options.batch, options.batch});
  const DType dtype = options.common.dtype.empty() ? bench.model->config().dtype
                                                   : *parse_dtype(options.common.dtype);
  const double kv_bytes = result.kv_tokens_per_step * static_cast<double>(model::kv_bytes_per_token(
                                                          bench.model->config(), dtype));
  const double seconds = result.step_ms() / 1e3;
  Speed speed;
  speed.tokens_per_s = static_cast<double>(options.batch) / seconds;
  speed.gb_per_s = (static_cast<double>(cost.bytes) + kv_bytes) / seconds / 1e9;
  if (bench.read_bandwidth > 0) {
    speed.fraction = speed.gb_per_s * 1e9 / bench.read_bandwidth;
    speed.weight_fraction = static_cast<double>(cost.weight_bytes) / seconds / bench.read_bandwidth;
  }
  return speed;
}

json::object result_json(const ModeResult& result, const Speed& speed) {
  json::array runs(result.runs_ms.begin(), result.runs_ms.end());
  return {{"mode", result.mode},
          {"walked", result.walked},
          {"step_ms", result.step_ms()},
          {"runs_ms", std::move(runs)},
          {"median_single_step_ms", result.median_single_ms},
          {"tokens_per_s", speed.tokens_per_s},
          {"gb_per_s", speed.gb_per_s},
          {"fraction_of_read_bandwidth", speed.fraction},
          {"weight_fraction_of_read_bandwidth", speed.weight_fraction},
          {"host_enqueue_us",
           result.enqueue_us ? json::value(*result.enqueue_us) : json::value(nullptr)}};
}

void bench_decode(const Options& options) {
  using runtime::Graphs;
  const engine::LoadOptions load = decode_load_options(options);
  // The device decides the defaults, so ask as for the longest protocol.
  const Protocol longest = protocol(options, DeviceKind::kCuda, load.limits);
  Bench bench = open_bench(options.bench, load, options.bench.context + longest.max_tokens);
  const Protocol plan = protocol(options, bench.device->kind(), load.limits);

  std::vector<ModeResult> results;
  for (const Graphs graphs :
       bench_modes(options.bench, {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull})) {
    results.push_back(run_mode(bench, options, plan, graphs));
  }

  if (bench.step_log) bench.step_log->flush();

  const StepCost cost =
      step_cost(bench.model->compiled().program.graph, {options.bench.batch, options.bench.batch});
  Table table({"mode", "walked", "step ms", "best", "worst", "tokens/s", "GB/s", "of read",
               "weights", "host us"});
  json::array rows;
  for (const ModeResult& result : results) {
    const Speed speed = speed_of(result, bench, options.bench);
    const auto [best, worst] = std::minmax_element(result.runs_ms.begin(), result.runs_ms.end());
    table.add({result.mode, result.walked, fmt::format("{:.3f}", result.step_ms()),
               fmt::format("{:.3f}", *best), fmt::format("{:.3f}", *worst),
               fmt::format("{:.1f}", speed.tokens_per_s), fmt::format("{:.1f}", speed.gb_per_s),
               fmt::format("{:.0f} %", speed.fraction * 100),
               fmt::format("{:.0f} %", speed.weight_fraction * 100),
               result.enqueue_us ? fmt::format("{:.1f}", *result.enqueue_us) : "-"});
    rows.push_back(result_json(result, speed));
  }
  if (options.bench.json) {
    json::object out = bench_json("decode", options.bench, bench);
    out["steps"] = plan.steps;
    out["warmup_tokens"] = plan.warmup_tokens;
    out["weight_bytes"] = cost.weight_bytes;
    out["modes"] = std::move(rows);
    return print(to_text(out) + "\n");
  }
  print(bench_title("decode", options.bench, bench) + table.text());
  print(fmt::format("\n  {} of weights a step; {} runs of {} steps after {} tokens\n",
                    bytes_text(cost.weight_bytes), plan.runs, plan.steps, plan.warmup_tokens));
}

}  // namespace

void add_bench_decode(CLI::App& bench) {
  CLI::App* verb = bench.add_subcommand("decode", "The time of one decode step, in every mode");
  auto options = std::make_shared<Options>();  // shared by the parser's options and the callback
  add_bench_options(*verb, options->bench);
  verb->add_option("--steps", options->steps,
                   "Steps that are timed in a run. Default: 128, on the CPU 16")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->type_name("N");
  verb->add_option("--warmup-tokens", options->warmup_tokens,
                   "Tokens of the last sequence before timing starts. Default: 33, on the CPU 4")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->type_name("N");
  verb->footer(kFooter);
  verb->callback([options, verb] {
    apply_config(*verb, options->bench.common.config);
    bench_decode(*options);
  });
}

}  // namespace encore::cli
