#include "cli/graphs_measure.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "base/log.h"
#include "cli/bench.h"
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

// A ladder of decode sizes, and how its recordings are made.
struct Strategy {
  std::string name;
  runtime::Ladder ladder;
  runtime::Graphs graphs = runtime::Graphs::kFullDecodeOnly;
  runtime::RecordOrder order = runtime::RecordOrder::kDescending;
};

struct Measured {
  std::string name;
  int recordings = 0;
  int nodes = 0;
  int64_t bytes = 0;  // that the driver's figure grew by
  int64_t predicted_bytes = 0;
  double record_ms = 0;
  double predicted_ms = 0;
  double waste = 0;         // padding over rows launched, every size from 1 to the largest once
  double first_use_ms = 0;  // of a size that was not recorded at start-up
  double mean_step_ms = 0;  // over the sample sizes
  int64_t arena_bytes = 0;
  runtime::MemoryPlan plan;
  std::optional<int64_t> used_bytes;        // by the driver's count, at start
  std::optional<int64_t> used_bytes_after;  // after the replays
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
    for (int64_t i = 0; i < replays; ++i) {
      begin(model, *step, kSeed);
      model.executor().launch(step->lengths());
    }
    model.executor().synchronize();
  }
}

Measured measure(Device& device, const engine::ModelSource& source, const engine::LoadOptions& base,
                 const Strategy& strategy, int64_t replays) {
  engine::LoadedModel model(device, source, strategy_options(base, strategy));
  const runtime::RecordingStats& stats = model.recording_stats();
  Measured measured{.name = strategy.name,
                    .recordings = stats.full.recordings,
                    .nodes = stats.full.nodes,
                    .record_ms = stats.full.ms(),
                    .plan = model.memory_plan(),
                    .used_bytes = device.used_bytes()};
  measured.bytes = measured.plan.recordings;
  measured.arena_bytes = measured.plan.arena;
  if (strategy.graphs != runtime::Graphs::kNone) {
    runtime::RecordingEstimate estimate;
    for (const auto& cost :
         estimate_recordings(model.compiled().program, strategy.ladder, runtime::Ladder()).full) {
      if (std::ssize(estimate.full) < stats.full.recordings) estimate.full.push_back(cost);
    }
    measured.predicted_bytes = estimate.total().bytes();
    measured.predicted_ms = estimate.total().milliseconds();
  }
  const int64_t max = base.limits.max_batch_size;
  measured.waste = runtime::price(every_size_once(max), strategy.ladder).waste();
  fill_kv(model, kSeed);
  const std::vector<int64_t> sizes = sample_sizes(max);
  if (strategy.ladder.lru()) {
    const auto largest = trial_step(model, {sizes.back(), sizes.back(), 1});
    const double start = now_seconds();
    if (largest) begin(model, *largest, kSeed);
    measured.first_use_ms = (now_seconds() - start) * 1e3;
  }
  for (const int64_t size : sizes) {
    const auto step = trial_step(model, {size, size, 1});
    if (step) measured.mean_step_ms += step_ms(model, *step) / static_cast<double>(sizes.size());
  }
  if (replays > 0) {
    replay_all(model, replays);
    measured.used_bytes_after = device.used_bytes();
  }
  return measured;
}

std::vector<Strategy> strategies(int64_t max) {
  const auto named = [&](const char* schedule) {
    return Strategy{schedule, runtime::Ladder::named_or_list(schedule, max)};
  };
  const std::string lru = fmt::format("lru:{}", kLruSizes);
  return {named("pow2"),
          named("step:8"),
          named("vllm"),
          named(lru.c_str()),
          {"no recordings", runtime::Ladder::named_or_list("step:1", max), runtime::Graphs::kNone}};
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
std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}
std::string optional_bytes(bool known, int64_t bytes) {
  return known ? bytes_text(bytes) : "-";
}

std::string table_text(const std::vector<Measured>& rows, double eager_ms) {
  Table table({"decode ladder", "recordings", "memory", "predicted", "recorded in ms", "predicted",
               "padding", "first use ms", "mean step ms", "speed-up"});
  for (const Measured& row : rows) {
    table.add({row.name, std::to_string(row.recordings),
               optional_bytes(row.used_bytes.has_value(), row.bytes),
               bytes_text(row.predicted_bytes), milliseconds(row.record_ms),
               milliseconds(row.predicted_ms), percent(row.waste), milliseconds(row.first_use_ms),
               milliseconds(row.mean_step_ms),
               fmt::format("{:.2f}x", eager_ms / row.mean_step_ms)});
  }
  return table.text();
}

json::array table_json(const std::vector<Measured>& rows, double eager_ms) {
  json::array array;
  for (const Measured& row : rows) {
    array.push_back(json::object{{"ladder", row.name},
                                 {"recordings", row.recordings},
                                 {"nodes", row.nodes},
                                 {"bytes", row.used_bytes ? json::value(row.bytes) : nullptr},
                                 {"predicted_bytes", row.predicted_bytes},
                                 {"record_ms", row.record_ms},
                                 {"predicted_ms", row.predicted_ms},
                                 {"padding_waste", row.waste},
                                 {"first_use_ms", row.first_use_ms},
                                 {"mean_step_ms", row.mean_step_ms},
                                 {"speed_up", eager_ms / row.mean_step_ms}});
  }
  return array;
}

// How much more or less the driver counts than the plan says.
std::string plan_text(const Measured& measured, int64_t replays) {
  if (!measured.used_bytes) return "  memory: the device's is the host's; no figure of its own\n";
  std::string text =
      fmt::format("  memory plan ({})\n{}  driver at start: {}, {} from the plan\n", measured.name,
                  memory_table(measured.plan), bytes_text(*measured.used_bytes),
                  bytes_text(*measured.used_bytes - measured.plan.total()));
  if (measured.used_bytes_after) {
    text += fmt::format("  after {} steps of every size: {} more\n", replays,
                        bytes_text(*measured.used_bytes_after - *measured.used_bytes));
  }
  return text;
}

json::object plan_json(const Measured& measured) {
  const auto figure = [](const std::optional<int64_t>& bytes) {
    return bytes ? json::value(*bytes) : json::value(nullptr);
  };
  return {{"plan", memory_json(measured.plan)},
          {"driver", figure(measured.used_bytes)},
          {"driver_after", figure(measured.used_bytes_after)}};
}

}  // namespace

void measure_graphs(const GraphsOptions& options) {
  const engine::ModelSource source = open_source(options.common);
  const auto device = open_device(options.common);
  engine::LoadOptions load = graphs_load_options(options);
  const int64_t max = load.limits.max_batch_size;
  load.limits.max_seq_len =
      std::min(longest_sequence(source.config),
               std::max(kTokensOfASequence, options.common.max_seq_len.value_or(0)));
  const auto measure_all = [&](const std::vector<Strategy>& list) {
    std::vector<Measured> rows;
    for (const Strategy& strategy : list) {
      log::info("measuring {}", strategy.name);
      rows.push_back(measure(*device, source, load, strategy, 0));
    }
    return rows;
  };
  const std::vector<Measured> named = measure_all(strategies(max));
  const std::vector<Measured> counted = measure_all(by_number(max));
  const runtime::Ladder vllm = runtime::Ladder::named_or_list("vllm", max);
  const Measured descending =
      measure(*device, source, load, {"vllm, largest first", vllm}, options.replays);
  const Measured ascending =
      measure(*device, source, load,
              {"vllm, smallest first", vllm, runtime::Graphs::kFullDecodeOnly,
               runtime::RecordOrder::kAscending},
              0);
  const Measured single = measure(*device, source, load, {"one size", runtime::Ladder({max})}, 0);
  const double eager_ms = named.back().mean_step_ms;
  if (options.json) {
    print(to_text(json::object{{"strategies", table_json(named, eager_ms)},
                               {"by_number", table_json(counted, eager_ms)},
                               {"descending_bytes", descending.bytes},
                               {"ascending_bytes", ascending.bytes},
                               {"arena_bytes_all_sizes", descending.arena_bytes},
                               {"arena_bytes_one_size", single.arena_bytes},
                               {"replays", options.replays},
                               {"memory", plan_json(descending)}}) +
          "\n");
    return;
  }
  Table orders({"recorded", "recordings", "memory", "arena"});
  for (const Measured* row : {&descending, &ascending, &single}) {
    orders.add({row->name, std::to_string(row->recordings),
                optional_bytes(row->used_bytes.has_value(), row->bytes),
                bytes_text(row->arena_bytes)});
  }
  print(fmt::format(
      "decode ladders up to {} sequences on {}\n{}\n{}\n{}\n{}\n"
      "  memory predicted: nodes x {:.2f} kB; padding: every size from 1 to {} once; mean step: of "
      "{} sizes between\n",
      max, device->info().name, table_text(named, eager_ms), table_text(counted, eager_ms),
      orders.text(), plan_text(descending, options.replays), runtime::kRecordingBytesPerNode / 1e3,
      max, sample_sizes(max).size()));
}

}  // namespace encore::cli
