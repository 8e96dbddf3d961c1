#include "cli/graphs_measure.h"

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <unistd.h>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/statistics.h"
#include "cli/bench.h"
#include "cli/ladder_report.h"
#include "cli/open.h"
#include "cli/output.h"
#include "cli/report.h"
#include "engine/trial_step.h"
#include "runtime/cost_model.h"
#include "runtime/tune.h"

namespace encore::cli {
namespace {

constexpr int kTimedSteps = 9;
constexpr int kLruSizes = 32;
constexpr int64_t kTokensOfASequence = 256;
constexpr uint64_t kSeed = 7;
constexpr size_t kLongestError = 1000;

// A ladder of decode sizes, and how its recordings are made.
struct Strategy {
  std::string name;
  runtime::Ladder ladder;
  runtime::Graphs graphs = runtime::Graphs::kFullDecodeOnly;
  runtime::RecordOrder order = runtime::RecordOrder::kDescending;
};

struct Measured {
  int recordings = 0;
  int64_t predicted_bytes = 0;
  double record_ms = 0;
  double predicted_ms = 0;
  double waste = 0;         // padding over rows launched, every size from 1 to the largest once
  double first_use_ms = 0;  // of a size that was not recorded at start-up
  double mean_step_ms = 0;  // over the sample sizes
  runtime::MemoryPlan plan;
  int64_t used_bytes = 0;        // by the driver's count, at start; 0: it has none
  int64_t used_bytes_after = 0;  // after the replays
};

struct Row {
  std::string name;
  Measured measured;
};

// Sizes that no schedule was made for, a factor of two apart.
std::vector<int64_t> sample_sizes(int64_t max) {
  std::vector<int64_t> sizes = {1};
  for (int64_t size = 3; size < max; size = 2 * size + 1)
    sizes.push_back(size);
  return sizes;
}

runtime::Histogram every_size_once(int64_t max) {
  runtime::Histogram histogram;
  for (int64_t size = 1; size <= max; ++size)
    histogram.push_back({size, 1});
  return histogram;
}

double step_ms(engine::LoadedModel& model, const engine::TrialStep& step) {
  std::vector<double> times;
  for (int i = 0; i < kTimedSteps; ++i) {
    const double start = now_seconds();
    begin(model, step, kSeed);
    model.executor().launch(step.lengths());
    model.executor().synchronize();
    times.push_back((now_seconds() - start) * 1e3);
  }
  return median(times);
}

const runtime::RecordingStats& stats_now(engine::LoadedModel& model) {
  return model.executor().recordings().stats();
}

engine::LoadOptions strategy_options(const engine::LoadOptions& base, const Strategy& strategy) {
  engine::LoadOptions load = base;
  load.graphs = strategy.graphs;
  load.record_order = strategy.order;
  load.sequences = strategy.ladder;
  load.tokens = runtime::Ladder({load.limits.max_num_tokens});
  load.kv_tokens = load.limits.max_batch_size * kTokensOfASequence;
  return load;
}

// Every size `replays` times.
void replay_all(engine::LoadedModel& model, int64_t replays) {
  for (const int64_t size : model.executor().coverage().sequences.sizes()) {
    const auto step = trial_step(model, {size, size, 1});
    if (!step) continue;
    begin(model, *step, kSeed);
    for (int64_t i = 0; i < replays; ++i)
      model.executor().launch(step->lengths());  // of the same inputs, copied anew
    model.executor().synchronize();
  }
}

Measured measure_here(const CommonOptions& common, const engine::ModelSource& source,
                      const engine::LoadOptions& base, const Strategy& strategy, int64_t replays) {
  const auto device = open_device(common);
  engine::LoadedModel model(*device, source, strategy_options(base, strategy));
  const runtime::RecordingStats& stats = model.recording_stats();
  Measured measured{.recordings = stats.full.recordings,
                    .record_ms = stats.full.ms(),
                    .plan = model.memory_plan(),
                    .used_bytes = device->used_bytes().value_or(0)};
  if (strategy.graphs != runtime::Graphs::kNone) {
    runtime::RecordingEstimate estimate;
    for (const auto& cost :
         estimate_recordings(model.compiled().program, strategy.ladder, runtime::Ladder()).full) {
      if (std::ssize(estimate.full) < stats.full.recordings) estimate.full.push_back(cost);
    }
    measured.predicted_bytes = estimate.total().bytes();
    measured.predicted_ms = estimate.total().milliseconds();
  }
  fill_kv(model, kSeed);
  const std::vector<int64_t> sizes = sample_sizes(base.limits.max_batch_size);
  std::vector<double> first_uses;
  for (const int64_t size : sizes) {
    const auto step = trial_step(model, {size, size, 1});
    if (!step) continue;
    const int before = stats_now(model).full.recordings;
    const double start = now_seconds();
    begin(model, *step, kSeed);
    const double ms = (now_seconds() - start) * 1e3;
    if (stats_now(model).full.recordings > before) first_uses.push_back(ms);
    measured.mean_step_ms += step_ms(model, *step) / static_cast<double>(sizes.size());
  }
  if (!first_uses.empty()) measured.first_use_ms = median(first_uses);
  replay_all(model, replays);
  measured.used_bytes_after = device->used_bytes().value_or(0);
  return measured;
}

// In a process of its own: a driver keeps memory that recordings once had, so of two measurements
// in one process the second would see none. REQUIRES: this process has not opened a device.
Measured measure(const CommonOptions& common, const engine::ModelSource& source,
                 const engine::LoadOptions& base, const Strategy& strategy, int64_t replays) {
  log::info("measuring {}", strategy.name);
  // What the child sends back.
  struct Answer {
    Measured measured;
    ErrorKind kind;
    char error[kLongestError];  // empty: none
  };
  static_assert(std::is_trivially_copyable_v<Answer>);
  auto* answer = static_cast<Answer*>(
      mmap(nullptr, sizeof(Answer), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (answer == MAP_FAILED) fail(ErrorKind::kMemory, "no memory to measure in another process");
  const pid_t child = fork();
  if (child < 0) fail(ErrorKind::kMemory, "cannot start another process to measure in");
  if (child == 0) {
    try {
      answer->measured = measure_here(common, source, base, strategy, replays);
    } catch (const Error& error) {
      answer->kind = error.kind();
      std::string_view(error.what()).copy(answer->error, kLongestError - 1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const Answer received = *answer;
  munmap(answer, sizeof(Answer));
  if (received.error[0] != 0) fail(received.kind, "{}: {}", strategy.name, received.error);
  if (status != 0) fail(ErrorKind::kDevice, "{}: the process that measured it died", strategy.name);
  Measured measured = received.measured;
  measured.waste =
      runtime::price(every_size_once(base.limits.max_batch_size), strategy.ladder).waste();
  return measured;
}

// What the others are compared with.
Strategy without_recordings(int64_t max) {
  return {"no recordings", runtime::Ladder::named_or_list("step:1", max), runtime::Graphs::kNone};
}

std::vector<Strategy> strategies(int64_t max) {
  const auto named = [&](const char* schedule) {
    return Strategy{schedule, runtime::Ladder::named_or_list(schedule, max)};
  };
  const std::string lru = fmt::format("lru:{}", kLruSizes);
  return {named("pow2"), named("step:8"), named("vllm"), named(lru.c_str()),
          without_recordings(max)};
}

// The ladders of 10, 32, 64 and 128 sizes that pad least.
std::vector<Strategy> by_number(int64_t max) {
  std::vector<Strategy> list;
  for (const int64_t count : {10, 32, 64, 128}) {
    if (count > max) break;
    list.push_back({fmt::format("{} sizes", count),
                    runtime::optimal_ladder(every_size_once(max), max, count)});
  }
  return list;
}

std::string milliseconds(double value) {
  return fmt::format("{:.2f}", value);
}
std::string recordings_bytes(const Measured& measured) {
  return measured.used_bytes > 0 ? bytes_text(measured.plan.recordings) : "-";
}

std::string table_text(const std::vector<Row>& rows, double eager_ms) {
  Table table({"decode ladder", "recordings", "memory", "predicted", "ms to record", "predicted ms",
               "padding", "first use ms", "mean step ms", "speed-up"});
  for (const auto& [name, row] : rows) {
    table.add({name, std::to_string(row.recordings), recordings_bytes(row),
               bytes_text(row.predicted_bytes), milliseconds(row.record_ms),
               milliseconds(row.predicted_ms), percent(row.waste), milliseconds(row.first_use_ms),
               milliseconds(row.mean_step_ms),
               fmt::format("{:.2f}x", eager_ms / row.mean_step_ms)});
  }
  return table.text();
}

json::object row_json(const Row& row, double eager_ms) {
  const Measured& measured = row.measured;
  return {{"ladder", row.name},
          {"recordings", measured.recordings},
          {"bytes", measured.plan.recordings},
          {"predicted_bytes", measured.predicted_bytes},
          {"record_ms", measured.record_ms},
          {"predicted_ms", measured.predicted_ms},
          {"padding_waste", measured.waste},
          {"first_use_ms", measured.first_use_ms},
          {"mean_step_ms", measured.mean_step_ms},
          {"speed_up", eager_ms / measured.mean_step_ms},
          {"plan", memory_json(measured.plan)},
          {"driver_bytes", measured.used_bytes},
          {"driver_bytes_after", measured.used_bytes_after}};
}

json::array table_json(const std::vector<Row>& rows, double eager_ms) {
  json::array array;
  for (const Row& row : rows)
    array.push_back(row_json(row, eager_ms));
  return array;
}

std::string orders_text(const std::vector<Row>& rows) {
  Table table({"recorded", "recordings", "memory", "arena"});
  for (const auto& [name, row] : rows) {
    table.add(
        {name, std::to_string(row.recordings), recordings_bytes(row), bytes_text(row.plan.arena)});
  }
  return table.text();
}

// How much more or less the driver counts than the plan says.
std::string plan_text(const Row& row, int64_t replays) {
  const Measured& measured = row.measured;
  if (measured.used_bytes == 0) {
    return "  memory: the device's is the host's, which has no count of its own\n";
  }
  return fmt::format(
      "  memory plan ({})\n{}  driver at start: {}, {} from the plan; after {} steps of every "
      "size: "
      "{} more\n",
      row.name, memory_table(measured.plan), bytes_text(measured.used_bytes),
      bytes_text(measured.used_bytes - measured.plan.total()), replays,
      bytes_text(measured.used_bytes_after - measured.used_bytes));
}

// What --decode-ladder names, alone.
void print_ladder(const GraphsOptions& options, const Row& row, double eager_ms) {
  if (options.json) {
    print(to_text(json::object{{"strategies", table_json({row}, eager_ms)},
                               {"replays", options.replays}}) +
          "\n");
    return;
  }
  print(table_text({row}, eager_ms) + "\n" + plan_text(row, options.replays));
}

void print_all(const GraphsOptions& options, int64_t max, const std::vector<Row>& named,
               const std::vector<Row>& counted, const std::vector<Row>& orders) {
  const double eager_ms = named.back().measured.mean_step_ms;
  if (options.json) {
    print(to_text(json::object{{"strategies", table_json(named, eager_ms)},
                               {"by_number", table_json(counted, eager_ms)},
                               {"orders", table_json(orders, eager_ms)},
                               {"replays", options.replays}}) +
          "\n");
    return;
  }
  print(fmt::format(
      "decode ladders up to {} sequences, {}\n{}\n{}\n{}\n{}\n"
      "  memory predicted: recordings x {:.0f} kB + nodes x {:.1f} kB; padding: every size from 1 "
      "to {} once; mean step: of "
      "{} sizes between;\n  speed-up: over no recordings, where every size runs unpadded\n",
      max, options.common.model.empty() ? "stories" : options.common.model,
      table_text(named, eager_ms), table_text(counted, eager_ms), orders_text(orders),
      plan_text(orders.front(), options.replays), runtime::kBytesPerExecutable / 1e3,
      runtime::kBytesPerNode / 1e3, max, sample_sizes(max).size()));
}

}  // namespace

void measure_graphs(const GraphsOptions& options) {
  const engine::ModelSource source = open_source(options.common);
  engine::LoadOptions load = graphs_load_options(options);
  const int64_t max = load.limits.max_batch_size;
  load.limits.max_seq_len =
      std::min(longest_sequence(source.config),
               std::max(kTokensOfASequence, options.common.max_seq_len.value_or(0)));
  const auto measure_one = [&](const Strategy& strategy, int64_t replays) {
    return Row{strategy.name, measure(options.common, source, load, strategy, replays)};
  };
  const auto measure_all = [&](const std::vector<Strategy>& list, int64_t replays) {
    std::vector<Row> rows(list.size());
    std::transform(list.begin(), list.end(), rows.begin(),
                   [&](const Strategy& strategy) { return measure_one(strategy, replays); });
    return rows;
  };
  if (!options.common.decode_ladder.empty()) {
    const std::string& name = options.common.decode_ladder;
    const Row row =
        measure_one({name, parse_ladder("--decode-ladder", name, max)}, options.replays);
    const Row eager = measure_one(without_recordings(max), 0);
    return print_ladder(options, row, eager.measured.mean_step_ms);
  }
  const runtime::Ladder vllm = runtime::Ladder::named_or_list("vllm", max);
  const std::vector<Row> named = measure_all(strategies(max), 0);
  const std::vector<Row> counted = measure_all(by_number(max), 0);
  const std::vector<Row> orders =
      measure_all({{"vllm, largest first", vllm},
                   {"vllm, smallest first", vllm, runtime::Graphs::kFullDecodeOnly,
                    runtime::RecordOrder::kAscending},
                   {"one size", runtime::Ladder({max})}},
                  options.replays);
  print_all(options, max, named, counted, orders);
}

}  // namespace encore::cli
