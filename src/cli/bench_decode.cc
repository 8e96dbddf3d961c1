// Implements `encore bench decode`, which times one decode step in every mode.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/statistics.h"
#include "base/table.h"
#include "cli/bench.h"
#include "cli/bench_adapters.h"
#include "cli/command.h"
#include "cli/output.h"
#include "measure/decoding.h"
#include "measure/drawn_experts.h"
#include "measure/expert_counts.h"
#include "measure/step_times.h"
#include "measure/timing.h"
#include "model/draft_model.h"
#include "planning/floor.h"
#include "setup/open.h"

namespace encore::cli {
namespace {

constexpr const char* kBenchDecodeFooter =
    R"(How a step is timed: BATCH distinct random prompts of CONTEXT tokens, greedy, nothing shared, pages shuffled. The
wall time from token WARMUP of the sequence that started last to token WARMUP + STEPS, with the tokens on the host, over
STEPS (in bursts, where some tokens come together, from and to the next that is the last of those, so give or take a
step); the median of RUNS such figures. All sequences decode throughout. `top-p ms` is the same, of one run, with
temperature 0.8 and top-p 0.95. With drafts (--speculative-tokens) a step stands for each of the tokens that come
together, tokens/s counts those of all sequences, and `device ms` is that of a step without any. `speed-up` is over eager
steps; `device ms` is what of a step passes on the device, by its own clock.
GB/s counts the least traffic: every weight once, every activation once, and the KV really read. `of read` is that
over what this device reads at best, measured in the same run.
Of the host, in us a step: `enqueue` until a step is enqueued; `cpu` the thread's time, with what it costs to sleep
until a step is due. `idle` is the device's, from a step's last kernel to the next step's first, in traced steps after
the timed ones: half of all are below p50.)";

struct BenchDecodeOptions {
  BenchOptions bench;
  std::optional<int64_t> steps;
  std::optional<int64_t> warmup_tokens;
  std::string routing = "model";
  std::optional<std::string> expert_counts;  // the file to write; absent: experts are not counted
  BenchAdapterOptions adapters;
};

// Holds the settings of a measurement, with the device's defaults filled in.
struct Protocol {
  int runs = 0;
  measure::DecodingOptions decoding;
};

struct Run {
  double step_ms = 0;    // time of the run divided by its steps
  double median_ms = 0;  // median of the single steps
  double cpu_us = 0;     // CPU time of this thread per step
  double kv_tokens = 0;  // tokens whose K and V attention reads per step
  double tokens_per_s = 0;
};

struct DecodeModeResult {
  runtime::Graphs graphs = runtime::Graphs::kNone;
  std::string mode;
  std::string ran_as;
  std::vector<double> runs_ms;
  double median_single_ms = 0;
  double sampled_ms = 0;
  double device_ms = 0;
  // enqueue_us and cpu_us are absent on the CPU, which executes each launch while enqueuing it.
  std::optional<double> enqueue_us;
  std::optional<double> cpu_us;
  // idle_p50_us and idle_p95_us are absent where there is no tracer.
  std::optional<double> idle_p50_us;
  std::optional<double> idle_p95_us;
  double kv_tokens_per_step = 0;
  // The fields below are set only where steps have drafts.
  std::optional<double> tokens_per_s;  // tokens of all sequences, whose speeds differ
  double share_right = 0;              // share of the drafts that are right

  [[nodiscard]] double step_ms() const { return median(runs_ms); }
};

constexpr measure::ByDevice kDecodeSteps{.gpu = 128, .cpu = 16};
constexpr measure::ByDevice kDecodeWarmUpTokens{.gpu = 33, .cpu = 4};

Protocol protocol(const BenchDecodeOptions& options, DeviceKind device) {
  Protocol protocol;
  protocol.runs = options.bench.runs.value_or(static_cast<int>(kBenchRuns.on(device)));
  protocol.decoding.batch = options.bench.batch;
  protocol.decoding.context = options.bench.context;
  protocol.decoding.burst_steps = options.bench.settings.serving.engine.burst_steps;
  protocol.decoding.steps = options.steps.value_or(kDecodeSteps.on(device));
  protocol.decoding.warmup_tokens = options.warmup_tokens.value_or(kDecodeWarmUpTokens.on(device));
  return protocol;
}

// Returns the options with at least two traced steps, between which the device's idle time is
// measured.
measure::DecodingOptions traced(measure::DecodingOptions options) {
  options.steps = std::max<int64_t>(options.steps, measure::kTracerWarmUpSteps + 2);
  return options;
}

// Times the steps of one run, in the way that the footer of --help describes.
Run run_once(engine::Engine& engine, const measure::DecodingOptions& options) {
  measure::Decoding decoding(engine, options);
  Run run;
  std::vector<double> steps_ms;
  const double cpu_start = measure::thread_cpu_seconds();
  const double start = measure::now_seconds();
  double last = start;
  const int64_t generated = decoding.num_generated();
  int64_t num_steps = 0;
  int64_t kv_tokens = 0;
  while (num_steps < options.steps) {
    const int64_t count = decoding.step();
    const double now = measure::now_seconds();
    steps_ms.insert(steps_ms.end(), count, (now - last) * 1e3 / static_cast<double>(count));
    last = now;
    num_steps += count;
    kv_tokens += decoding.kv_tokens(count);
  }
  const auto steps = static_cast<double>(num_steps);
  run.step_ms = (last - start) * 1e3 / steps;
  run.cpu_us = (measure::thread_cpu_seconds() - cpu_start) * 1e6 / steps;
  run.kv_tokens = static_cast<double>(kv_tokens) / steps;
  run.tokens_per_s = static_cast<double>(decoding.num_generated() - generated) / (last - start);
  run.median_ms = median(steps_ms);
  return run;
}

// Returns the median over the runs of one mode; run_once() times the steps of each run. Units:
// milliseconds per step.
double step_ms(Bench& bench, const Protocol& protocol, runtime::Graphs graphs) {
  bench.model->executor().set_graphs(graphs);
  std::vector<double> runs_ms;
  measure::DecodingOptions decoding = protocol.decoding;
  for (int i = 0; i < protocol.runs; ++i) {
    engine::Engine engine(*bench.model, bench.loop);
    decoding.seed = static_cast<uint64_t>(i) + 1;
    runs_ms.push_back(run_once(engine, decoding).step_ms);
  }
  return median(runs_ms);
}

DecodeModeResult run_mode(Bench& bench, const Protocol& protocol, runtime::Graphs graphs) {
  bench.model->executor().set_graphs(graphs);
  DecodeModeResult result;
  result.graphs = graphs;
  result.mode = mode_name(graphs);
  std::vector<double> singles;
  std::vector<double> cpu_us;
  std::vector<double> tokens_per_s;
  measure::DecodingOptions decoding = protocol.decoding;
  for (int i = 0; i < protocol.runs; ++i) {
    engine::Engine engine(*bench.model, bench.loop);
    decoding.seed = static_cast<uint64_t>(i) + 1;
    const Run run = run_once(engine, decoding);
    result.runs_ms.push_back(run.step_ms);
    singles.push_back(run.median_ms);
    cpu_us.push_back(run.cpu_us);
    result.kv_tokens_per_step = run.kv_tokens;
    result.ran_as = ran_as(engine);
    tokens_per_s.push_back(run.tokens_per_s);
    result.share_right = engine.draft_counts().share_right();
  }
  if (bench.model->limits().num_drafts > 0) result.tokens_per_s = median(tokens_per_s);
  result.median_single_ms = median(singles);
  if (bench.device->kind() != DeviceKind::kCpu) result.cpu_us = median(cpu_us);

  decoding.sampling.temperature = 0.8F;
  decoding.sampling.top_p = 0.95F;
  engine::Engine engine(*bench.model, bench.loop);
  result.sampled_ms = run_once(engine, decoding).step_ms;
  return result;
}

// Traces a mode. Call it after everything is timed, because a tracer slows down the steps.
void trace_mode(Bench& bench, Tracer& tracer, const measure::DecodingOptions& options,
                DecodeModeResult& result) {
  engine::Engine engine(*bench.model, bench.step_by_step());
  measure::Decoding decoding(engine, options);
  const int64_t steps = options.steps - measure::kTracerWarmUpSteps;
  const measure::StepTimes times = measure::step_times(measure::trace_steps(
                                                           tracer, [&] { decoding.step(); }, steps),
                                                       {});
  result.idle_p50_us = quantile(times.between_us, 0.5);
  result.idle_p95_us = quantile(times.between_us, 0.95);
}

// Holds figures derived from a mode's time.
struct DecodeSpeed {
  double tokens_per_s = 0;
  double gb_per_s = 0;
  double fraction = 0;             // share of the read bandwidth
  double weight_fraction = 0;      // share of the read bandwidth that reading weights alone reaches
  std::optional<double> speed_up;  // speed-up over eager steps; absent where these were not timed
};

// Returns the sizes of a decode step with the most drafts that it may have.
ir::Sizes sizes_of_step(const Bench& bench, int64_t batch) {
  const int64_t num_drafts = bench.model->limits().num_drafts;
  return StepKey::uniform(batch, 1 + num_drafts).sizes();
}

// Returns the bytes of K and V that a step reads per token of context: the model's, and the draft
// model's in each of its passes.
double kv_bytes_per_token(const Bench& bench) {
  const loader::LoadedModel& model = *bench.model;
  const auto own = model::kv_bytes_per_token(model.config(), model.kv_dtype());
  int64_t of_draft = 0;
  for (const ir::Value& value : model.program().graph.values()) {
    if (value.kind == ir::ValueKind::kState && value.name.starts_with(model::kDraftPrefix))
      of_draft += value.type.num_bytes({}) / (value.type.dims[0].value * model.page_size());
  }
  return static_cast<double>(own + (1 + model.limits().num_drafts) * of_draft);
}

DecodeSpeed speed_of(const DecodeModeResult& result, const std::vector<DecodeModeResult>& all,
                     const Bench& bench, int64_t batch, const planning::StepCost& cost) {
  const double kv_bytes = result.kv_tokens_per_step * kv_bytes_per_token(bench);
  const double seconds = result.step_ms() / 1e3;
  DecodeSpeed speed;
  speed.tokens_per_s = result.tokens_per_s.value_or(static_cast<double>(batch) / seconds);
  speed.gb_per_s = (static_cast<double>(cost.bytes) + kv_bytes) / seconds / 1e9;
  if (bench.read_bandwidth > 0) {
    speed.fraction = speed.gb_per_s * 1e9 / bench.read_bandwidth;
    speed.weight_fraction = static_cast<double>(cost.weight_bytes) / seconds / bench.read_bandwidth;
  }
  if (all.front().graphs == runtime::Graphs::kNone)
    speed.speed_up = all.front().step_ms() / result.step_ms();
  return speed;
}

json::object result_json(const DecodeModeResult& result, const DecodeSpeed& speed) {
  json::array runs(result.runs_ms.begin(), result.runs_ms.end());
  return {{"mode", result.mode},
          {"ran", result.ran_as},
          {"step_ms", result.step_ms()},
          {"runs_ms", std::move(runs)},
          {"median_single_step_ms", result.median_single_ms},
          {"sampled_step_ms", result.sampled_ms},
          {"device_ms", result.device_ms},
          {"speed_up", json::optional_number(speed.speed_up)},
          {"tokens_per_s", speed.tokens_per_s},
          {"share_of_drafts_right",
           result.tokens_per_s ? json::value(result.share_right) : json::value(nullptr)},
          {"gb_per_s", speed.gb_per_s},
          {"fraction_of_read_bandwidth", speed.fraction},
          {"weight_fraction_of_read_bandwidth", speed.weight_fraction},
          {"host_enqueue_us", json::optional_number(result.enqueue_us)},
          {"host_cpu_us", json::optional_number(result.cpu_us)},
          {"device_idle_p50_us", json::optional_number(result.idle_p50_us)},
          {"device_idle_p95_us", json::optional_number(result.idle_p95_us)}};
}

std::string speed_table(const std::vector<DecodeModeResult>& results, const Bench& bench,
                        int64_t batch, const planning::StepCost& cost) {
  Table table({"mode", "ran", "step ms", "speed-up", "best", "worst", "top-p ms", "device ms",
               "tokens/s", "GB/s", "of read", "weights"});
  for (const DecodeModeResult& result : results) {
    const DecodeSpeed speed = speed_of(result, results, bench, batch, cost);
    const auto [best, worst] = std::minmax_element(result.runs_ms.begin(), result.runs_ms.end());
    table.add({result.mode, result.ran_as, fmt::format("{:.3f}", result.step_ms()),
               speed.speed_up ? fmt::format("{:.2f}x", *speed.speed_up) : "-",
               fmt::format("{:.3f}", *best), fmt::format("{:.3f}", *worst),
               fmt::format("{:.3f}", result.sampled_ms), fmt::format("{:.3f}", result.device_ms),
               fmt::format("{:.1f}", speed.tokens_per_s), fmt::format("{:.1f}", speed.gb_per_s),
               fmt::format("{:.0f} %", speed.fraction * 100),
               fmt::format("{:.0f} %", speed.weight_fraction * 100)});
  }
  return table.text();
}

std::string host_table(const std::vector<DecodeModeResult>& results) {
  Table table({"mode", "enqueue us", "cpu us", "idle p50 us", "idle p95 us"});
  for (const DecodeModeResult& result : results) {
    table.add({result.mode, optional_text(result.enqueue_us, 1), optional_text(result.cpu_us, 1),
               optional_text(result.idle_p50_us, 2), optional_text(result.idle_p95_us, 2)});
  }
  return table.text();
}

json::value distinct_json(const std::optional<measure::DistinctExperts>& experts,
                          const std::optional<double>& counted) {
  if (!experts) return nullptr;
  return json::object{{"num_experts", experts->num_experts},
                      {"expected", experts->expected},
                      {"drawn", json::optional_number(experts->drawn)},
                      {"counted", json::optional_number(counted)}};
}

std::string distinct_text(const measure::DistinctExperts& experts) {
  if (experts.drawn) {
    return fmt::format(
        "  experts drawn at random: {:.1f} of {} distinct ones a layer, {:.1f} expected\n",
        *experts.drawn, experts.num_experts, experts.expected);
  }
  return fmt::format(
      "  experts chosen by the model; bytes are those of {:.1f} of {} distinct ones a layer, which "
      "rows "
      "are expected to choose at random (--routing uniform has them do so)\n",
      experts.expected, experts.num_experts);
}

// Returns the counts by which rows draw their experts, or nothing if --routing names no file of
// counts.
std::optional<measure::ExpertCounts> recorded_routing(const BenchDecodeOptions& options) {
  if (options.routing == "model" || options.routing == "uniform") return std::nullopt;
  return measure::read_expert_counts_file(options.routing);
}

// Adds the passes that draw or count experts, as the options say.
void add_expert_passes(const BenchDecodeOptions& options, passes::CompileOptions& compile) {
  if (options.routing == "uniform") {
    compile.add_pass(measure::drawn_experts_pass());
  } else if (options.routing != "model") {
    compile.add_pass(measure::recorded_experts_pass());
  }
  if (options.expert_counts) compile.add_pass(measure::count_experts_pass());
}

// Writes the expert counts of all steps since the start to the file that the options name. Returns
// the mean number of distinct experts of a layer, or nothing if the options name no file.
std::optional<double> write_expert_counts(const BenchDecodeOptions& options, Bench& bench) {
  if (!options.expert_counts) return std::nullopt;
  const measure::ExpertCounts counts =
      measure::read_expert_counts(bench.model->executor().loaded());
  write_file(*options.expert_counts, measure::expert_counts_text(counts));
  return counts.distinct();
}

// Times steps of the last mode on a model without room for adapters. The model is unloaded when
// this returns.
double step_ms_without_adapters(const BenchDecodeOptions& options, loader::LoadOptions load,
                                const Protocol& longest, runtime::Graphs graphs) {
  load.adapters = {};
  Bench bench =
      open_bench(options.bench, load,
                 options.bench.context + traced(longest.decoding).max_tokens(load.limits));
  return step_ms(bench, protocol(options, bench.device->kind()), graphs);
}

void bench_decode(const BenchDecodeOptions& options) {
  using runtime::Graphs;
  loader::LoadOptions load = decode_load_options(options.bench);
  const std::optional<measure::ExpertCounts> recorded = recorded_routing(options);
  add_expert_passes(options, load.compile);
  add_adapters(options.adapters, load.adapters);
  const std::vector<Graphs> modes =
      bench_modes(options.bench, {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull});
  // The default numbers of runs and steps depend on the device, which is not open yet. So the
  // limits are computed for a GPU, whose defaults have the most steps.
  const Protocol longest = protocol(options, DeviceKind::kCuda);
  std::optional<AdapterTimes> adapter_times;
  if (load.adapters.has_room()) {
    adapter_times = {.without_ms = step_ms_without_adapters(options, load, longest, modes.back())};
  }
  Bench bench =
      open_bench(options.bench, load,
                 options.bench.context + traced(longest.decoding).max_tokens(load.limits));
  const Protocol plan = protocol(options, bench.device->kind());
  if (recorded) measure::draw_by(*recorded, bench.model->executor().loaded());
  const std::optional<measure::DistinctExperts> experts = measure::distinct_experts(
      bench.model->program().graph, plan.decoding.batch, 16, recorded ? &*recorded : nullptr);
  if (options.routing != "model" && !experts)
    fail(ErrorKind::kUsage, "the model has no experts that rows could draw: leave --routing out");
  if (options.expert_counts && !experts) {
    fail(ErrorKind::kUsage,
         "the model has no experts that could be counted: leave --expert-counts out");
  }
  if (bench.device->kind() == DeviceKind::kCpu && bench.loop.burst_steps > 1) {
    fail(ErrorKind::kUsage,
         "bursts cannot be timed on the CPU, which has run one when its launch returns: leave "
         "--burst-steps out, or take --device cuda");
  }

  std::vector<DecodeModeResult> results;
  for (const Graphs graphs : modes)
    results.push_back(run_mode(bench, plan, graphs));
  if (adapter_times) {
    if (!bench.model->adapters()->all().empty()) adapter_times->used_ms = results.back().step_ms();
    Protocol idle = plan;
    idle.decoding.has_adapters = false;
    adapter_times->idle_ms = step_ms(bench, idle, modes.back());
  }
  std::optional<measure::AdapterLoads> adapter_loads;
  if (options.adapters.num_loads > 0) {
    bench.model->executor().set_graphs(modes.back());
    engine::Engine engine(*bench.model, bench.step_by_step());
    adapter_loads = measure::time_adapter_loads(engine, plan.decoding, options.adapters.num_loads,
                                                options.adapters.rank);
  }
  if (bench.step_log) bench.step_log->flush();
  std::string no_tracer;
  measure::FilledKv kv(*bench.model);
  // The last mode is traced first: only the first mode, eager, needs a profiler, which stays active
  // in the process.
  for (auto place = results.rbegin(); place != results.rend(); ++place) {
    DecodeModeResult& result = *place;
    bench.model->executor().set_graphs(result.graphs);
    const measure::SingleStep single =
        measure::time_single_steps(kv, kv.step(plan.decoding.batch, plan.decoding.middle()));
    result.device_ms = single.device_us / 1e3;
    if (bench.device->kind() != DeviceKind::kCpu) result.enqueue_us = single.enqueue_us;
    // The trace of eager steps must show single kernels, because eager steps have no replays.
    const auto tracer = open_tracer(
        *bench.device, result.ran_as == "eager" ? TraceDetail::kLaunches : TraceDetail::kReplays,
        no_tracer);
    if (tracer) trace_mode(bench, *tracer, traced(plan.decoding), result);
  }

  const std::optional<double> counted = write_expert_counts(options, bench);
  const planning::StepCost cost =
      planning::step_cost(bench.model->program().graph, sizes_of_step(bench, options.bench.batch),
                          experts ? experts->drawn : std::nullopt);
  if (options.bench.json) {
    json::object out = bench_json("decode", options.bench, bench);
    out["steps"] = plan.decoding.steps;
    out["warmup_tokens"] = plan.decoding.warmup_tokens;
    out["weight_bytes"] = cost.weight_bytes;
    out["distinct_experts"] = distinct_json(experts, counted);
    json::array rows;
    for (const DecodeModeResult& result : results)
      rows.push_back(
          result_json(result, speed_of(result, results, bench, options.bench.batch, cost)));
    out["modes"] = std::move(rows);
    out["adapters"] = adapter_times ? json::value(to_json(*adapter_times)) : json::value(nullptr);
    out["adapter_loads"] =
        adapter_loads ? json::value(to_json(*adapter_loads)) : json::value(nullptr);
    out["no_tracer"] = no_tracer.empty() ? json::value(nullptr) : json::value(no_tracer);
    return print(json::to_text(out) + "\n");
  }
  print(bench_title("decode", options.bench, bench) +
        speed_table(results, bench, options.bench.batch, cost) + "\n" + host_table(results));
  print(fmt::format("\n  {} of weights a step; {} runs of {} steps after {} tokens\n",
                    bytes_text(cost.weight_bytes), plan.runs, plan.decoding.steps,
                    plan.decoding.warmup_tokens));
  if (experts) print(distinct_text(*experts));
  if (counted) {
    print(fmt::format("  counted: {:.1f} distinct experts a layer in a step; {} says which\n",
                      *counted, *options.expert_counts));
  }
  if (adapter_times) print(to_text(*adapter_times));
  if (adapter_loads) print(to_text(*adapter_loads));
  if (results.back().tokens_per_s) {
    print(fmt::format("  {} drafts a row of a step, {:.0f} % of them right\n",
                      bench.model->limits().num_drafts, results.back().share_right * 100));
  }
  if (!no_tracer.empty()) print(fmt::format("  not traced: {}\n", no_tracer));
}

}  // namespace

void add_bench_decode(Command& bench) {
  Command* verb = bench.add_subcommand("decode", "The time of one decode step, in every mode");
  auto options =
      std::make_shared<BenchDecodeOptions>();  // shared by the parser's options and the callback
  add_bench_options(*verb, options->bench, {config::Group::kSpeculation});
  add_steps_option(*verb, options->steps, kDecodeSteps);
  verb->add_option("--warmup-tokens", options->warmup_tokens,
                   "Tokens of the last sequence before timing starts. Default: " +
                       kDecodeWarmUpTokens.text())
      ->range(int64_t{1}, int64_t{1} << 20)
      ->type_name("N");
  verb->add_option(
          "--routing", options->routing,
          "Experts of a token: those that the model chooses, or drawn at random behind the "
          "router's work, all as likely (uniform) or as often as FILE of --expert-counts says")
      ->type_name("model|uniform|FILE")
      ->capture_default_str();
  verb->add_option(
          "--expert-counts", options->expert_counts,
          "Write how often each expert of each layer was chosen in all steps, those of prompts "
          "too, as JSON. "
          "Counting takes a launch a layer")
      ->type_name("FILE");
  add_bench_adapter_options(*verb, options->adapters, kWithRoomAndWithout);
  add_loads_option(*verb, options->adapters);
  verb->group("Measurement: what is timed, and how often",
              {"--runs", "--warmup-tokens", "--routing", "--expert-counts", "--adapters", "--rank",
               "--targets", "--loads"});
  verb->footer(kBenchDecodeFooter);
  verb->callback([options] { bench_decode(*options); });
}

}  // namespace encore::cli
