// What a log's steps ask of the two ladders, and what the named schedules would make of them:
// shared by `encore tune` and `encore graphs`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/output.h"
#include "runtime/step_log.h"
#include "runtime/tune.h"

namespace encore::cli {

// The steps that one ladder is asked for.
struct Workload {
  std::string_view key;   // "decode", "tokens", as in JSON
  std::string_view what;  // for people
  std::string_view rows;  // what sizes count: "sequences", "tokens"
  runtime::Histogram histogram;
  int64_t max = 0;  // the largest step that a ladder may hold; 0: no steps and no limit
  std::optional<runtime::StepTimes> times;
};

// Of the decode steps and of the others. Absent limits: the largest steps of the log.
std::array<Workload, 2> workloads(const std::vector<runtime::LoggedStep>& steps,
                                  std::optional<int64_t> max_batch_size,
                                  std::optional<int64_t> max_num_tokens);

// A schedule on a workload, capped at its maximum.
struct PricedLadder {
  std::string name;
  runtime::Ladder ladder;
  runtime::LadderPrice price;
  std::optional<double> total_us;  // of the hits, where the log has times
  int64_t optimum_padding = 0;     // of the best ladder of as many sizes and the same maximum
};
PricedLadder price_ladder(std::string name, runtime::Ladder ladder, const Workload& workload);
// Every named schedule; nothing for a workload without steps.
std::vector<PricedLadder> price_schedules(const Workload& workload);

// "1, 2, 4".
std::string sizes_text(const runtime::Ladder& ladder);
json::array sizes_json(const runtime::Ladder& ladder);
// "99.85 %".
std::string percent(double fraction);
// A row a ladder: sizes, hit rate, padding, waste, the optimum of as many sizes, time.
Table ladder_table(const std::vector<PricedLadder>& ladders);
json::object ladder_json(const PricedLadder& ladder);

}  // namespace encore::cli
