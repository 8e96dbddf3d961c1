// Reports a replay: as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "replay/figures.h"
#include "replay/record.h"

namespace encore::measure {

// A replay, and what its report needs beside it.
struct ReplayReport {
  std::string title;              // of the verb
  std::vector<std::string> what;  // lines that say what was replayed, and on what
  replay::ReplayRecord record;
  replay::LatencyLimits limits;
  std::string busy;  // what the share of time is in which the device works
  replay::Figures figures = replay::figures(record, limits);
};

// Steps that ran in one mode at one bucket, which counts sequences for decode steps and tokens for
// mixed ones.
struct StepGroup {
  runtime::Mode mode = runtime::Mode::kEager;
  bool is_mixed = false;
  int64_t bucket = 0;
  int64_t steps = 0;
  int64_t tokens = 0;
  int64_t padding = 0;

  [[nodiscard]] double padding_share() const;  // of what was launched
};
// The groups, ordered by mode, then kind, then bucket.
std::vector<StepGroup> step_groups(const std::vector<engine::StepCount>& steps);
// The groups summed over their buckets; `bucket` is 0.
std::vector<StepGroup> step_sums(const std::vector<engine::StepCount>& steps);

std::string replay_text(const ReplayReport& report);
// The report as JSON, without the title.
json::object replay_json(const ReplayReport& report);
// The curves that a page draws beside that: load, throughput and memory over time, distributions of
// latencies. Each is a list of points [x, y].
json::object replay_curves(const ReplayReport& report);

}  // namespace encore::measure
