// Describes the steps of a log by the two ladders that must hold them, and how the named schedules
// would serve them. `encore tune` and `encore graphs` share these functions.
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

// Describes the steps that one of the two ladders must hold.
struct Workload {
  std::string_view key;   // "decode", "tokens", as in JSON
  std::string_view what;  // the description for people
  std::string_view rows;  // what sizes count: "sequences", "tokens"
  planning::Histogram histogram;
  int64_t max = 0;          // the largest step that a ladder may hold; 0: no steps and no limit
  bool is_limited = false;  // true if an option gives `max`, not the log's largest step
  std::optional<planning::StepTimes> times;
};

// Returns the workload of the decode steps and the workload of all other steps. Where a limit is
// absent, the log's largest step is the limit.
std::array<Workload, 2> workloads(const std::vector<LoggedStep>& steps,
                                  std::optional<int64_t> max_batch_size,
                                  std::optional<int64_t> max_num_tokens);

// Holds a ladder and its price on a workload.
struct PricedLadder {
  std::string name;
  runtime::Ladder ladder;
  planning::LadderPrice price;
  std::optional<double> total_us;  // time of the hits, if the log has times
  // `optimum_padding` is the least number of padding rows that any ladder with the same number of
  // sizes and the same maximum gives the steps of the workload.
  int64_t optimum_padding = 0;
  int64_t eager_rows = 0;            // rows of the steps above the ladder
  std::optional<int64_t> kv_tokens;  // KV tokens that its recordings displace, if a model is named

  [[nodiscard]] bool meets_target() const;  // whether the hit rate is above kTargetHitRate
};
// A ladder should hold at least this share of a workload's steps, so that recordings are worth it.
inline constexpr double kTargetHitRate = 0.95;
// Returns a line such as "hit rate 97.28 %: above the target of 95 %". Below the target, the line
// names the size that would reach it.
std::string verdict_text(const PricedLadder& ladder, const Workload& workload);
PricedLadder price_ladder(std::string name, runtime::Ladder ladder, const Workload& workload);
// Prices every schedule that an engine uses for steps of this kind, up to the workload's limit.
// Without a limit, each schedule goes up to its own size that holds the log's largest step, which
// no engine knows beforehand. Returns nothing for a workload without steps.
std::vector<PricedLadder> price_schedules(const Workload& workload);

// Returns the sizes as text: "1, 2, 4".
std::string sizes_text(const runtime::Ladder& ladder);
json::array sizes_json(const runtime::Ladder& ladder);
// Returns a table with a row for each ladder: its sizes, hit rate, rows that run eager, padding
// rows, waste, the least number of padding rows of any ladder with as many sizes, time, and the
// tokens of KV that its recordings displace.
Table ladder_table(const std::vector<PricedLadder>& ladders);
json::object ladder_json(const PricedLadder& ladder);

}  // namespace encore::planning
