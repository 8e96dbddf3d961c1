// Implements `encore bench sleep`, which gives device memory back between the steps of a decode and
// takes it again.
#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/statistics.h"
#include "base/table.h"
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/output.h"
#include "loader/memory_plan.h"
#include "measure/decoding.h"
#include "measure/timing.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr const char* kBenchSleepFooter =
    R"(BATCH distinct random prompts of CONTEXT tokens, greedy. Once all decode, the model sleeps and wakes after each of
TIMES steps; an uninterrupted run must have given the same tokens, else the exit code is not 0. Free memory is as the
device's driver counts it, around the first sleep; on the CPU it is the host's, others use it too, and what is saved lies
in it. GB/s counts the bytes of the pages in use, and on waking those of the weights that were loaded again.)";

struct BenchSleepOptions {
  BenchOptions bench;
  std::string depth;  // empty: all depths are compared
  int times = 20;
};

struct SleepResult {
  std::string depth;
  std::vector<double> sleep_ms;
  std::vector<double> wake_ms;
  int64_t free_before = 0;  // free bytes of the device before the first sleep
  int64_t free_asleep = 0;  // free bytes of the device during the first sleep
  int64_t free_after = 0;   // free bytes of the device after the first sleep
  int64_t released_bytes = 0;
  int64_t saved_bytes = 0;  // bytes saved at the last sleep, when sequences are longest
  int64_t loaded_bytes = 0;
  int64_t recordings_made = 0;
  bool same_tokens = false;

  [[nodiscard]] double sleep_gb_per_s() const {
    return static_cast<double>(saved_bytes) / median(sleep_ms) / 1e6;
  }
  [[nodiscard]] double wake_gb_per_s() const {
    return static_cast<double>(saved_bytes + loaded_bytes) / median(wake_ms) / 1e6;
  }
};

// Holds the tokens of each sequence, in the order in which the sequences were added.
using Tokens = std::vector<std::vector<int32_t>>;

// Decodes BATCH sequences and returns their tokens. Calls `between` after each step that has one
// token of every sequence.
Tokens decode(engine::Engine& engine, const BenchSleepOptions& options, int64_t max_tokens,
              const std::function<void()>& between) {
  const BenchOptions& bench = options.bench;
  std::map<engine::SequenceId, size_t> index;
  for (auto& prompt :
       measure::random_prompts(bench.batch, bench.context, engine.model().config().vocab_size, 1)) {
    const auto added = engine.add({.prompt = std::move(prompt), .max_tokens = max_tokens});
    if (const auto* rejection = std::get_if<engine::Rejection>(&added))
      fail(ErrorKind::kUsage, "{}", rejection->why);
    index.emplace(std::get<engine::SequenceId>(added), index.size());
  }
  Tokens tokens(index.size());
  const auto on_token = [&](const engine::Generated& generated) {
    tokens[index.at(generated.sequence)].push_back(generated.token);
  };
  while (engine.step(on_token)) {
    if (engine.last_plan().num_tokens() == bench.batch) between();
  }
  return tokens;
}

int64_t num_recordings(loader::LoadedModel& model) {
  const runtime::RecordingStats& stats = model.executor().loaded().recordings.stats();
  return stats.full.recordings + stats.pieces.recordings;
}

SleepResult run(Bench& bench, const BenchSleepOptions& options, loader::SleepDepth depth,
                int64_t max_tokens, const Tokens& expected) {
  loader::LoadedModel& model = *bench.model;
  engine::Engine engine(model, bench.loop);
  SleepResult result;
  result.depth = depth == loader::SleepDepth::kKv ? "kv" : "weights";
  const loader::MemoryPlan plan = loader::memory_plan(model);
  if (depth == loader::SleepDepth::kKvAndWeights) result.loaded_bytes = plan.weights;
  result.released_bytes = plan.kv + result.loaded_bytes;
  const int64_t recordings = num_recordings(model);
  const auto nap = [&] {
    const bool is_first = result.sleep_ms.empty();
    if (static_cast<int>(result.sleep_ms.size()) == options.times) return;
    if (is_first) result.free_before = bench.device->info().free_bytes;
    const double start = measure::now_seconds();
    engine.sleep(depth);
    result.sleep_ms.push_back((measure::now_seconds() - start) * 1e3);
    result.saved_bytes = model.saved_bytes();
    if (is_first) result.free_asleep = bench.device->info().free_bytes;
    const double asleep = measure::now_seconds();
    engine.wake();
    result.wake_ms.push_back((measure::now_seconds() - asleep) * 1e3);
    if (is_first) result.free_after = bench.device->info().free_bytes;
  };
  result.same_tokens = decode(engine, options, max_tokens, nap) == expected;
  result.recordings_made = num_recordings(model) - recordings;
  ENCORE_CHECK(static_cast<int>(result.sleep_ms.size()) == options.times);
  return result;
}

json::object to_json(const SleepResult& result) {
  const auto numbers = [](const std::vector<double>& values) {
    return json::array(values.begin(), values.end());
  };
  return {{"depth", result.depth},
          {"free_bytes_before", result.free_before},
          {"free_bytes_asleep", result.free_asleep},
          {"free_bytes_after", result.free_after},
          {"released_bytes", result.released_bytes},
          {"saved_bytes", result.saved_bytes},
          {"loaded_bytes", result.loaded_bytes},
          {"sleep_ms", median(result.sleep_ms)},
          {"wake_ms", median(result.wake_ms)},
          {"sleeps_ms", numbers(result.sleep_ms)},
          {"wakes_ms", numbers(result.wake_ms)},
          {"sleep_gb_per_s", result.sleep_gb_per_s()},
          {"wake_gb_per_s", result.wake_gb_per_s()},
          {"recordings_made", result.recordings_made},
          {"same_tokens", result.same_tokens}};
}

loader::LoadOptions sleep_load_options(const BenchOptions& options) {
  loader::LoadOptions load = setup::load_options(options.settings);
  load.limits.max_batch_size = options.settings.max_batch_size.value_or(options.batch);
  load.limits.max_num_tokens = options.settings.max_num_tokens.value_or(
      std::max(std::min(options.batch * options.context, kDefaultMaxNumTokens), 2 * options.batch));
  load.sequences = runtime::Ladder({load.limits.max_batch_size});
  load.tokens = runtime::Ladder({load.limits.max_num_tokens});
  return load;
}

void bench_sleep(const BenchSleepOptions& options) {
  using loader::SleepDepth;
  const BenchOptions& bench_options = options.bench;
  const loader::LoadOptions load = sleep_load_options(bench_options);
  // Sequences that start earlier must go on decoding until the last one has slept TIMES times, so
  // every sequence gets enough tokens for that.
  const int64_t prompt_steps =
      bench_options.batch * bench_options.context /
          std::max<int64_t>(1, load.limits.max_num_tokens - bench_options.batch) +
      2;
  const int64_t max_tokens = options.times + prompt_steps + 1;
  Bench bench = open_bench(bench_options, load, bench_options.context + max_tokens);

  engine::Engine awake(*bench.model, bench.loop);
  const Tokens expected = decode(awake, options, max_tokens, [] {});
  std::vector<SleepResult> results;
  if (options.depth != "weights")
    results.push_back(run(bench, options, SleepDepth::kKv, max_tokens, expected));
  if (options.depth != "kv")
    results.push_back(run(bench, options, SleepDepth::kKvAndWeights, max_tokens, expected));

  if (bench.step_log) bench.step_log->flush();

  Table table({"depth", "times", "released", "free before", "asleep", "after", "saved", "sleep ms",
               "GB/s", "wake ms", "GB/s", "tokens"});
  json::array rows;
  for (const SleepResult& result : results) {
    table.add({result.depth, std::to_string(options.times), bytes_text(result.released_bytes),
               bytes_text(result.free_before), bytes_text(result.free_asleep),
               bytes_text(result.free_after), bytes_text(result.saved_bytes),
               fmt::format("{:.1f}", median(result.sleep_ms)),
               fmt::format("{:.2f}", result.sleep_gb_per_s()),
               fmt::format("{:.1f}", median(result.wake_ms)),
               fmt::format("{:.2f}", result.wake_gb_per_s()),
               result.same_tokens ? "same" : "DIFFERENT"});
    rows.push_back(to_json(result));
  }
  if (bench_options.json) {
    json::object out = bench_json("sleep", bench_options, bench);
    out["times"] = options.times;
    out["depths"] = std::move(rows);
    print(json::to_text(out) + "\n");
  } else {
    print(bench_title("sleep", bench_options, bench) + table.text());
  }
  for (const SleepResult& result : results) {
    if (result.same_tokens && result.recordings_made == 0) continue;
    fail(ErrorKind::kDevice,
         "a run that slept gave other tokens, or made recordings anew: report this with the "
         "command line and the output of encore doctor");
  }
}

}  // namespace

void add_bench_sleep(Command& bench) {
  Command* verb = bench.add_subcommand(
      "sleep", "Device memory given back between the steps of a decode, and taken again");
  auto options =
      std::make_shared<BenchSleepOptions>();  // shared by the parser's options and the callback
  options->bench.batch = 32;
  add_bench_options(*verb, options->bench);
  verb->remove_option("--runs");  // each sleep counts as a run
  verb->add_option("--depth", options->depth, "What is released. Default: each, side by side")
      ->one_of({"kv", "weights"})
      ->type_name("kv|weights");
  verb->add_option("--times", options->times, "Sleeps, a step apart")
      ->range(1, 10000)
      ->type_name("N")
      ->capture_default_str();
  verb->group("Measurement: what is timed, and how often", {"--times"});
  verb->footer(kBenchSleepFooter);
  verb->callback([options] { bench_sleep(*options); });
}

}  // namespace encore::cli
