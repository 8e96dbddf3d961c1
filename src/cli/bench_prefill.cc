// Implements `encore bench prefill`, which times the reading of prompts in every mode that mixed
// steps have.
#include <algorithm>

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
#include "measure/timing.h"
#include "planning/floor.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr const char* kBenchPrefillFooter =
    R"(BATCH distinct random prompts of CONTEXT tokens, from the moment they are all queued until the last has its first
token on the host; the median of RUNS, which the modes take by turns. TFLOP/s counts the matrix products, without
attention and without padding.)";

struct BenchPrefillOptions {
  BenchOptions bench;
  BenchAdapterOptions adapters;
};

loader::LoadOptions prefill_load_options(const BenchOptions& options) {
  loader::LoadOptions load = setup::load_options(options.settings);
  load.record_all_modes = !options.settings.graphs;
  const int64_t all_tokens = options.batch * options.context;
  const int64_t most = options.settings.max_num_tokens.value_or(kDefaultMaxNumTokens);
  const runtime::Ladder ladder = runtime::Ladder::tokens(most);
  std::vector<int64_t> sizes{*ladder.bucket(std::min(all_tokens, most))};
  if (all_tokens > most && all_tokens % most > 0)
    sizes.push_back(*ladder.bucket(all_tokens % most));
  load.tokens = runtime::Ladder(sizes);
  load.limits.max_batch_size = options.settings.max_batch_size.value_or(options.batch);
  load.limits.max_num_tokens = std::max(load.tokens.sizes().back(), options.batch);
  load.sequences = runtime::Ladder({load.limits.max_batch_size});
  return load;
}

double run_once(engine::Engine& engine, const BenchOptions& options, uint64_t seed,
                bool has_adapters) {
  const auto prompts = measure::random_prompts(options.batch, options.context,
                                               engine.model().config().vocab_size, seed);
  for (size_t i = 0; i < prompts.size(); ++i) {
    engine::Request request{.prompt = prompts[i], .max_tokens = 1};
    const auto adapter = measure::adapter_of(engine.model(), static_cast<int64_t>(i));
    if (has_adapters && adapter != nullptr) request.adapter = adapter->name;
    const auto added = engine.add(std::move(request));
    if (const auto* rejection = std::get_if<engine::Rejection>(&added))
      fail(ErrorKind::kUsage, "{}", rejection->why);
  }
  int64_t num_done = 0;
  const double start = measure::now_seconds();
  while (engine.step([&](const engine::Generated&) { ++num_done; })) {
  }
  ENCORE_CHECK(num_done == options.batch);
  return measure::now_seconds() - start;
}

struct PrefillModeResult {
  runtime::Graphs graphs;
  std::string ran_as;
  std::vector<double> runs_s;
};

// Measures the modes in turn within each run, so that a change of the device's clock, which depends
// on its temperature, affects all modes alike.
std::vector<PrefillModeResult> run_modes(Bench& bench, const BenchOptions& options,
                                         const std::vector<runtime::Graphs>& modes,
                                         bool has_adapters = true) {
  std::vector<PrefillModeResult> results;
  for (const runtime::Graphs graphs : modes)
    results.push_back({graphs, {}, {}});
  const int runs = options.runs.value_or(static_cast<int>(kBenchRuns.on(bench.device->kind())));
  for (int i = 0; i <= runs; ++i) {
    for (PrefillModeResult& result : results) {
      bench.model->executor().set_graphs(result.graphs);
      engine::Engine engine(*bench.model, bench.loop);
      const double seconds = run_once(engine, options, static_cast<uint64_t>(i) + 1, has_adapters);
      if (i > 0) result.runs_s.push_back(seconds);  // the first run only warms up
      result.ran_as = ran_as(engine);
    }
  }
  return results;
}

// Returns the median time of reading the prompts in one mode. Units: milliseconds.
double median_ms(Bench& bench, const BenchOptions& options, runtime::Graphs graphs,
                 bool has_adapters) {
  return median(run_modes(bench, options, {graphs}, has_adapters).front().runs_s) * 1e3;
}

// Returns the time of reading the prompts with a model without room for adapters. The model is
// unloaded when this returns. Units: milliseconds.
double ms_without_adapters(const BenchOptions& options, loader::LoadOptions load,
                           runtime::Graphs graphs) {
  load.adapters = {};
  Bench bench = open_bench(options, load, options.context + 1);
  return median_ms(bench, options, graphs, false);
}

void bench_prefill(const BenchPrefillOptions& given) {
  using runtime::Graphs;
  const BenchOptions& options = given.bench;
  loader::LoadOptions load = prefill_load_options(options);
  add_adapters(given.adapters, load.adapters);
  const std::vector<Graphs> modes =
      bench_modes(options, {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull});
  std::optional<AdapterTimes> adapter_times;
  if (load.adapters.has_room())
    adapter_times = {.without_ms = ms_without_adapters(options, load, modes.back())};
  Bench bench = open_bench(options, load, options.context + 1);
  const int64_t tokens = options.batch * options.context;
  const planning::StepCost cost = planning::step_cost(
      bench.model->program().graph, StepKey::mixed(tokens, options.batch).sizes());

  Table table({"mode", "ran", "ms", "best", "worst", "tokens/s", "TFLOP/s"});
  json::array rows;
  const std::vector<PrefillModeResult> results = run_modes(bench, options, modes);
  if (adapter_times) {
    if (!bench.model->adapters()->all().empty())
      adapter_times->used_ms = median(results.back().runs_s) * 1e3;
    adapter_times->idle_ms = median_ms(bench, options, modes.back(), false);
  }
  for (const PrefillModeResult& result : results) {
    const std::string mode(mode_name(result.graphs));
    const double seconds = median(result.runs_s);
    const double tokens_per_s = static_cast<double>(tokens) / seconds;
    const double tflops = static_cast<double>(cost.flops) / seconds / 1e12;
    const auto [best, worst] = std::minmax_element(result.runs_s.begin(), result.runs_s.end());
    table.add({mode, result.ran_as, fmt::format("{:.3f}", seconds * 1e3),
               fmt::format("{:.3f}", *best * 1e3), fmt::format("{:.3f}", *worst * 1e3),
               fmt::format("{:.1f}", tokens_per_s), fmt::format("{:.2f}", tflops)});
    json::array runs_ms;
    for (const double run : result.runs_s)
      runs_ms.push_back(run * 1e3);
    rows.push_back(json::object{{"mode", mode},
                                {"ran", result.ran_as},
                                {"ms", seconds * 1e3},
                                {"runs_ms", std::move(runs_ms)},
                                {"tokens_per_s", tokens_per_s},
                                {"tflop_per_s", tflops}});
  }
  if (bench.step_log) bench.step_log->flush();
  if (options.json) {
    json::object out = bench_json("prefill", options, bench);
    out["modes"] = std::move(rows);
    out["adapters"] = adapter_times ? json::value(to_json(*adapter_times)) : json::value(nullptr);
    return print(json::to_text(out) + "\n");
  }
  print(bench_title("prefill", options, bench) + table.text());
  if (adapter_times) print(to_text(*adapter_times));
}

}  // namespace

void add_bench_prefill(Command& bench) {
  Command* verb = bench.add_subcommand("prefill", "How fast prompts are read, in every mode");
  auto options =
      std::make_shared<BenchPrefillOptions>();  // shared by the parser's options and the callback
  add_bench_options(*verb, options->bench);
  add_bench_adapter_options(*verb, options->adapters, kWithRoomAndWithout);
  verb->group("Measurement: what is timed, and how often", {"--adapters", "--rank", "--targets"});
  verb->footer(kBenchPrefillFooter);
  verb->callback([options] { bench_prefill(*options); });
}

}  // namespace encore::cli
