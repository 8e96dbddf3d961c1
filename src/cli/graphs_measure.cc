#include "cli/graphs_measure.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/log.h"
#include "base/table.h"
#include "cli/options.h"
#include "cli/output.h"
#include "measure/measured_ladder.h"
#include "measure/report.h"
#include "planning/cost_model.h"
#include "planning/ladder_report.h"
#include "planning/schedules.h"
#include "setup/open.h"
#include "setup/options.h"

namespace encore::cli {
namespace {

constexpr int kLruSizes = 32;
// Sets the most ranges that a ladder's sizes are printed as.
constexpr size_t kMostRanges = 6;
// Are the headings of the two tables of token ladders. In the first table, a step with prompts is
// one whole recording where it can be; in the second, it is recorded in pieces.
constexpr const char* kWhole = "token ladder, whole";
constexpr const char* kPieces = "token ladder, pieces";

struct Row {
  measure::Strategy strategy;
  measure::Measured measured;
};

// Holds the rows of all ladders of one kind, and the mean time of the same steps without
// recordings.
struct Rows {
  std::vector<Row> rows;
  double eager_ms = 0;
};

// Returns the largest size that a ladder of this kind may have: the most tokens, or the most
// sequences, of a step.
int64_t largest(const runtime::Limits& limits, measure::LadderOf of) {
  return measure::counts_tokens(of) ? limits.max_num_tokens : limits.max_batch_size;
}

measure::Strategy without_recordings(measure::LadderOf of, int64_t max) {
  return {"no recordings", of, planning::named_or_list("step:1", max), false};
}

// Returns a ladder of the multiples of `step` below `max`, and `max`.
runtime::Ladder every(int64_t step, int64_t max) {
  std::vector<int64_t> sizes{max};
  for (int64_t size = step; size < max; size += step)
    sizes.push_back(size);
  return runtime::Ladder(std::move(sizes));
}

// Returns a ladder of the sizes 1 to 7, the multiples of 8, and `max`.
runtime::Ladder step_8(int64_t max) {
  std::vector<int64_t> sizes = every(8, max).sizes();
  for (int64_t size = 1; size < std::min<int64_t>(8, max); ++size)
    sizes.push_back(size);
  return runtime::Ladder(std::move(sizes));
}

std::vector<measure::Strategy> strategies(measure::LadderOf of, int64_t max) {
  const auto named = [&](const std::string& schedule) {
    return measure::Strategy{schedule, of, planning::named_or_list(schedule, max)};
  };
  if (measure::counts_tokens(of))
    return {named("pow2"), named("trtllm"), named("sglang"), without_recordings(of, max)};
  std::vector<measure::Strategy> list{named("pow2")};
  for (const int64_t step : {16, 8, 4})
    list.push_back({fmt::format("every {}", step), of, every(step, max)});
  list.push_back({"step-8", of, step_8(max)});
  list.push_back(named("vllm"));
  list.push_back(named(fmt::format("lru:{}", kLruSizes)));
  list.push_back(without_recordings(of, max));
  return list;
}

// Returns the decode ladders of 10, 32, 64 and 128 sizes that have the least padding.
std::vector<measure::Strategy> by_number(int64_t max) {
  std::vector<measure::Strategy> list;
  for (const int64_t count : {10, 32, 64, 128}) {
    if (count > max) break;
    list.push_back({fmt::format("{} sizes", count), measure::LadderOf::kSequences,
                    planning::optimal_ladder(measure::every_size_once(max), max, count)});
  }
  return list;
}

std::vector<measure::Strategy> orders(measure::LadderOf of, int64_t max) {
  const std::string name = measure::counts_tokens(of) ? "sglang" : "vllm";
  const runtime::Ladder ladder = planning::named_or_list(name, max);
  return {{name + ", largest first", of, ladder},
          {name + ", smallest first", of, ladder, true, runtime::RecordOrder::kAscending},
          {"one size", of, runtime::Ladder({max})}};
}

// Returns the sizes as ranges, such as "1 to 4 doubling, 8 to 512 by 8". If there are too many
// ranges, returns the first three sizes and the last.
std::string sizes_covered(const runtime::Ladder& ladder) {
  const std::vector<int64_t>& sizes = ladder.sizes();
  // Returns the end of the range that begins at `first` and in which `next` gives each following
  // size.
  const auto range_end = [&](size_t first, const auto& next) {
    size_t last = first;
    while (last + 1 < sizes.size() && sizes[last + 1] == next(sizes[last]))
      ++last;
    return last;
  };
  std::vector<std::string> ranges;
  for (size_t first = 0; first < sizes.size();) {
    const int64_t step = first + 1 < sizes.size() ? sizes[first + 1] - sizes[first] : 0;
    const size_t by_step = range_end(first, [&](int64_t size) { return size + step; });
    const size_t doubling = range_end(first, [&](int64_t size) { return 2 * size; });
    const size_t last = std::max(by_step, doubling);
    if (last < first + 2) {
      ranges.push_back(std::to_string(sizes[first++]));
      continue;
    }
    ranges.push_back(fmt::format("{} to {} {}", sizes[first], sizes[last],
                                 by_step == last ? fmt::format("by {}", step) : "doubling"));
    first = last + 1;
  }
  if (ranges.size() > kMostRanges)
    return fmt::format("{}, {}, {} ... {}", sizes[0], sizes[1], sizes[2], sizes.back());
  return fmt::format("{}", fmt::join(ranges, ", "));
}

// Returns the bytes that arenas would take if each size of the ladder had its own arena.
int64_t arenas_apart(const model::ModelSource& source, loader::LoadOptions load,
                     const measure::Strategy& strategy) {
  int64_t bytes = 0;
  const runtime::Limits limits = load.limits;
  for (const int64_t size : strategy.ladder.sizes()) {
    load.limits.max_num_tokens = size;
    load.limits.max_batch_size = std::min(size, limits.max_batch_size);
    bytes += loader::compile_model(source, load, 1).arena.bytes;
  }
  return bytes;
}

std::string milliseconds(double value) {
  return fmt::format("{:.2f}", value);
}
// Returns `text`, or "-" where the driver does not count memory: without its count, the memory of
// recordings is unknown.
std::string if_counted(const measure::Measured& measured, std::string text) {
  return measured.used_bytes > 0 ? std::move(text) : "-";
}

// Logs a row's figures as soon as they are measured: measuring all ladders takes long, and a run
// may be interrupted.
void log_row(const Row& row) {
  const measure::Measured& measured = row.measured;
  log::info("{}: {} recordings, memory {} ({} predicted), {} ms to record, mean step {} ms",
            row.strategy.name, measured.recordings,
            if_counted(measured, bytes_text(measured.plan.recordings)),
            bytes_text(measured.predicted_bytes), milliseconds(measured.record_ms),
            milliseconds(measured.mean_step_ms));
}

// Returns a table and an empty line, or an empty text if there are no rows.
std::string table_text(const char* ladder, const Rows& rows) {
  if (rows.rows.empty()) return "";
  Table table({ladder, "sizes covered", "recordings", "executables", "memory", "predicted",
               "formula", "KV tokens", "ms to record", "predicted ms", "padding", "first use ms",
               "mean step ms", "speed-up"});
  for (const auto& [strategy, row] : rows.rows) {
    table.add({strategy.name, strategy.records ? sizes_covered(strategy.ladder) : "-",
               std::to_string(row.recordings), std::to_string(row.executables),
               if_counted(row, bytes_text(row.plan.recordings)), bytes_text(row.predicted_bytes),
               bytes_text(row.formula_bytes()), if_counted(row, std::to_string(row.kv_tokens())),
               milliseconds(row.record_ms), milliseconds(row.predicted_ms), percent(row.waste),
               milliseconds(row.first_use_ms), milliseconds(row.mean_step_ms),
               fmt::format("{:.2f}x", rows.eager_ms / row.mean_step_ms)});
  }
  return table.text() + "\n";
}

json::array table_json(const Rows& rows) {
  json::array array;
  for (const auto& [strategy, measured] : rows.rows) {
    array.push_back(
        json::object{{"ladder", strategy.name},
                     {"sizes_covered", sizes_covered(strategy.ladder)},
                     {"recordings", measured.recordings},
                     {"executables", measured.executables},
                     {"nodes", measured.nodes},
                     {"bytes", measured.plan.recordings},
                     {"predicted_bytes", measured.predicted_bytes},
                     {"formula_bytes", measured.formula_bytes()},
                     {"kv_tokens", measured.used_bytes > 0 ? json::value(measured.kv_tokens())
                                                           : json::value(nullptr)},
                     {"record_ms", measured.record_ms},
                     {"predicted_ms", measured.predicted_ms},
                     {"padding_waste", measured.waste},
                     {"first_use_ms", measured.first_use_ms},
                     {"mean_step_ms", measured.mean_step_ms},
                     {"speed_up", rows.eager_ms / measured.mean_step_ms},
                     {"plan", measure::memory_json(measured.plan)},
                     {"driver_bytes", measured.used_bytes},
                     {"driver_bytes_after", measured.used_bytes_after}});
  }
  return array;
}

// Holds the figures that the literature publishes for a ladder of up to 512 sequences, a 70B model
// and an H100. An empty text means that the figure is not published.
struct Published {
  std::string_view ladder;
  std::string_view recordings;
  std::string_view memory;
  std::string_view padding;
  std::string_view first_use;
  std::string_view speed_up;
};
constexpr int64_t kPublishedMaxBatchSize = 512;
constexpr Published kPublished[] = {
    {"pow2", "10", "300 to 500 MB", "25 %", "100 ms", "1.15x"},
    {"every 16", "32", "960 MB", "8 %", "", "1.19x"},
    {"every 8", "64", "1920 MB", "4 %", "", "1.20x"},
    {"every 4", "128", "3840 MB", "2 %", "", "1.21x"},
    {"step-8", "71", "3500 MB", "4 %", "100 ms", ""},
    {"lru:32", "up to 32", "1600 MB", "0 %", "100 ms", ""},
    {"no recordings", "0", "0", "0 %", "0 ms", ""},
};

// Returns a table with one row for each published strategy; each cell has the measured figure and
// the published one. Returns an empty text if the ladders do not end at the published size.
std::string published_text(const Rows& rows, const runtime::Limits& limits) {
  if (limits.max_batch_size != kPublishedMaxBatchSize) return "";
  Table table({"decode ladder", "recordings", "memory", "padding", "first use", "speed-up"});
  for (const auto& [strategy, row] : rows.rows) {
    const auto published = std::ranges::find(kPublished, strategy.name, &Published::ladder);
    if (published == std::end(kPublished)) continue;
    const auto cell = [](const std::string& ours, std::string_view theirs) {
      return theirs.empty() ? ours : fmt::format("{} ({})", ours, theirs);
    };
    table.add(
        {strategy.name, cell(std::to_string(row.recordings), published->recordings),
         cell(if_counted(row, bytes_text(row.plan.recordings)), published->memory),
         cell(percent(row.waste), published->padding),
         cell(row.first_use_ms > 0 ? milliseconds(row.first_use_ms) + " ms" : "0 ms",
              published->first_use),
         cell(fmt::format("{:.2f}x", rows.eager_ms / row.mean_step_ms), published->speed_up)});
  }
  return fmt::format("measured (published, of a 70B on an H100)\n{}\n", table.text());
}

// Holds one row for each order in which recordings are made, with their memory, and the memory that
// arenas would take if each size of the ladder had its own arena.
struct Orders {
  Rows rows;
  std::vector<int64_t> apart;  // bytes of separate arenas, for each row
};

std::string orders_text(const char* recorded, const Orders& orders) {
  Table table({recorded, "recordings", "memory", "arena", "an arena for each size"});
  for (size_t i = 0; i < orders.apart.size(); ++i) {
    const auto& [strategy, row] = orders.rows.rows[i];
    table.add({strategy.name, std::to_string(row.recordings),
               if_counted(row, bytes_text(row.plan.recordings)), bytes_text(row.plan.arena),
               bytes_text(orders.apart[i])});
  }
  return table.text();
}

json::array orders_json(const Orders& orders) {
  json::array array = table_json(orders.rows);
  for (size_t i = 0; i < orders.apart.size(); ++i)
    array[i].as_object()["arenas_apart"] = orders.apart[i];
  return array;
}

// Returns a text that says by how much the driver's count of used memory differs from the memory
// plan.
std::string plan_text(const Row& row, int64_t replays) {
  const measure::Measured& measured = row.measured;
  if (measured.used_bytes == 0) {
    return "  memory: the device's is the host's, which has no count of its own\n";
  }
  return fmt::format(
      "  memory plan ({})\n{}  driver at start: {}, {} from the plan; after {} steps of every "
      "size: "
      "{} more\n",
      row.strategy.name, measure::memory_table(measured.plan), bytes_text(measured.used_bytes),
      bytes_text(measured.used_bytes - measured.plan.total()), replays,
      bytes_text(measured.used_bytes_after - measured.used_bytes));
}

std::string legend_text(const runtime::Limits& limits) {
  return fmt::format(
      "  predicted: executables x {:.0f} kB + their nodes x {:.1f} kB, {:.0f} kB each at least; "
      "formula: nodes x 2 x (64 + 8 x 8) bytes, as the literature has it;\n  KV tokens: whose K "
      "and V would lie in that memory; "
      "padding: every size from 1 to {} sequences or {} tokens once;\n  mean step: of {} and {} "
      "sizes between; speed-up: over no recordings, where every size runs unpadded\n",
      planning::kBytesPerExecutable / 1e3, planning::kBytesPerNode / 1e3,
      planning::kLeastBytesPerExecutable / 1e3, limits.max_batch_size, limits.max_num_tokens,
      measure::sample_sizes(measure::LadderOf::kSequences, limits.max_batch_size).size(),
      measure::sample_sizes(measure::LadderOf::kTokens, limits.max_num_tokens).size());
}

class Measuring {
 public:
  explicit Measuring(const GraphsOptions& options)
      : options_(options),
        source_(setup::open_source(options.settings)),
        load_(graphs_load_options(options)) {
    load_.limits.max_seq_len = options.settings.max_seq_len.value_or(0);
  }
  [[nodiscard]] const runtime::Limits& limits() const { return load_.limits; }

  [[nodiscard]] Rows all(const std::vector<measure::Strategy>& list, int64_t replays = 0) const {
    Rows rows;
    for (const measure::Strategy& strategy : list) {
      const auto open = [&] { return setup::open_device(options_.settings); };
      rows.rows.push_back({strategy, measure::measure(open, source_, load_, strategy, replays)});
      log_row(rows.rows.back());
      if (!strategy.records) rows.eager_ms = rows.rows.back().measured.mean_step_ms;
    }
    return rows;
  }
  // Measures the ladder that a flag names.
  [[nodiscard]] Rows named(measure::LadderOf of, const char* flag, const std::string& name) const {
    return all({{name, of, setup::parse_ladder(flag, name, largest(limits(), of))}},
               options_.replays);
  }
  // Measures the mean time of steps without recordings.
  [[nodiscard]] double eager_ms(measure::LadderOf of) const {
    return all({without_recordings(of, largest(limits(), of))}).eager_ms;
  }
  [[nodiscard]] Orders in_orders(measure::LadderOf of) const {
    Orders measured{all(orders(of, largest(limits(), of)), options_.replays), {}};
    loader::LoadOptions load = load_;
    load.limits.max_seq_len = std::max(load.limits.max_seq_len, load.page_size);
    for (const Row& row : measured.rows.rows)
      measured.apart.push_back(arenas_apart(source_, load, row.strategy));
    return measured;
  }

 private:
  const GraphsOptions& options_;
  model::ModelSource source_;
  loader::LoadOptions load_;
};

// Prints each table as soon as it is complete. JSON is one object, so it is printed at the end.
class Results {
 public:
  explicit Results(const GraphsOptions& options) : is_json_(options.json) {
    out_["replays"] = options.replays;
  }

  void add(std::string_view key, json::array rows, const std::string& text) {
    out_[key] = std::move(rows);
    say(text);
  }
  // Prints a text unless the output is JSON.
  void say(const std::string& text) const {
    if (!is_json_) print(text);
  }
  void end() const {
    if (is_json_) print(json::to_text(out_) + "\n");
  }

 private:
  bool is_json_;
  json::object out_;
};

// Measures only the ladders that --decode-ladder and --token-ladder name.
void measure_named(const GraphsOptions& options, const Measuring& measuring) {
  Results results(options);
  // Measures one ladder. Returns the mean step time without recordings, which is measured unless
  // `eager_ms` gives it.
  const auto add = [&](measure::LadderOf of, const char* flag, const std::string& name,
                       const char* key, const char* what,
                       std::optional<double> eager_ms = std::nullopt) {
    Rows rows = measuring.named(of, flag, name);
    rows.eager_ms = eager_ms ? *eager_ms : measuring.eager_ms(of);
    results.add(key, table_json(rows),
                table_text(what, rows) +
                    (measure::counts_tokens(of) ? "" : published_text(rows, measuring.limits())) +
                    plan_text(rows.rows.front(), options.replays));
    return rows.eager_ms;
  };
  const config::Settings& settings = options.settings;
  if (!settings.decode_ladder.empty()) {
    add(measure::LadderOf::kSequences, "--decode-ladder", settings.decode_ladder, "strategies",
        "decode ladder");
  }
  if (!settings.token_ladder.empty()) {
    const double eager_ms = add(measure::LadderOf::kTokens, "--token-ladder", settings.token_ladder,
                                "token_strategies", kWhole);
    add(measure::LadderOf::kPieces, "--token-ladder", settings.token_ladder, "piece_strategies",
        kPieces, eager_ms);
  }
  results.say("\n" + legend_text(measuring.limits()));
  results.end();
}

}  // namespace

void measure_graphs(const GraphsOptions& options) {
  const Measuring measuring(options);
  if (!options.settings.decode_ladder.empty() || !options.settings.token_ladder.empty())
    return measure_named(options, measuring);
  const runtime::Limits& limits = measuring.limits();
  Results results(options);
  results.say(fmt::format("{}: decode ladders up to {} sequences, token ladders up to {} tokens\n",
                          model_text(options.settings), limits.max_batch_size,
                          limits.max_num_tokens));
  const Rows named =
      measuring.all(strategies(measure::LadderOf::kSequences, limits.max_batch_size));
  results.add("strategies", table_json(named),
              table_text("decode ladder", named) + published_text(named, limits));
  Rows counted = measuring.all(by_number(limits.max_batch_size));
  counted.eager_ms = named.eager_ms;
  results.add("by_number", table_json(counted), table_text("decode ladder", counted));
  const Rows tokens = measuring.all(strategies(measure::LadderOf::kTokens, limits.max_num_tokens));
  results.add("token_strategies", table_json(tokens), table_text(kWhole, tokens));
  const Rows pieces = measuring.all(strategies(measure::LadderOf::kPieces, limits.max_num_tokens));
  results.add("piece_strategies", table_json(pieces), table_text(kPieces, pieces));
  const auto add_orders = [&](measure::LadderOf of, const char* key, const char* recorded,
                              double eager_ms) {
    Orders orders = measuring.in_orders(of);
    orders.rows.eager_ms = eager_ms;
    results.add(key, orders_json(orders), orders_text(recorded, orders) + "\n");
    return orders;
  };
  const Orders decode = add_orders(measure::LadderOf::kSequences, "orders",
                                   "decode ladder, recorded", named.eager_ms);
  add_orders(measure::LadderOf::kTokens, "token_orders", "token ladder, whole, recorded",
             tokens.eager_ms);
  results.say(plan_text(decode.rows.rows.front(), options.replays) + legend_text(limits));
  results.end();
}

}  // namespace encore::cli
