// Describes the steps that a log asks of the two ladders, and how the named schedules would serve
// them: shared by `encore tune` and `encore graphs`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/table.h"
#include "planning/step_log.h"
#include "planning/tune.h"

namespace encore::planning {

// The steps that one ladder is asked for.
struct Workload {
  std::string_view key;   // "decode", "tokens", as in JSON
  std::string_view what;  // for people
  std::string_view rows;  // what sizes count: "sequences", "tokens"
  planning::Histogram histogram;
  int64_t max = 0;          // the largest step that a ladder may hold; 0: no steps and no limit
  bool is_limited = false;  // by an option, not by the log's largest step
  std::optional<planning::StepTimes> times;
};

// The workload of the decode steps, and that of the others. Absent limits: the largest steps of the
// log.
std::array<Workload, 2> workloads(const std::vector<LoggedStep>& steps,
                                  std::optional<int64_t> max_batch_size,
                                  std::optional<int64_t> max_num_tokens);

// A ladder with its price on a workload.
struct PricedLadder {
  std::string name;
  runtime::Ladder ladder;
  planning::LadderPrice price;
  std::optional<double> total_us;    // of the hits, where the log has times
  int64_t optimum_padding = 0;       // of the best ladder of as many sizes and the same maximum
  int64_t eager_rows = 0;            // of the steps above the ladder
  std::optional<int64_t> kv_tokens;  // that its recordings displace, where a model is named

  [[nodiscard]] bool meets_target() const;  // its hit rate
};
// The share of its steps that a ladder must hold for recordings to be worth it.
inline constexpr double kTargetHitRate = 0.95;
// "hit rate 97.28 %: above the target of 95 %", else with the size that would reach it.
std::string verdict_text(const PricedLadder& ladder, const Workload& workload);
PricedLadder price_ladder(std::string name, runtime::Ladder ladder, const Workload& workload);
// Prices every schedule that an engine takes for such steps, up to the limit; without one, up to
// its own size that holds the log's largest step, which no engine knows before. Returns nothing for
// a workload without steps.
std::vector<PricedLadder> price_schedules(const Workload& workload);

// "1, 2, 4".
std::string sizes_text(const runtime::Ladder& ladder);
json::array sizes_json(const runtime::Ladder& ladder);
// A table with a row for each ladder: sizes, hit rate, rows that run eager, padding, waste, the
// optimum of as many sizes, time, tokens of KV.
Table ladder_table(const std::vector<PricedLadder>& ladders);
json::object ladder_json(const PricedLadder& ladder);

}  // namespace encore::planning
