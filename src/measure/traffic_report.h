// Reports traffic that was served: as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "traffic/figures.h"
#include "traffic/record.h"

namespace encore::measure {

// The record of some traffic, and what its report needs beside it.
struct TrafficReport {
  std::string title;              // of the verb
  std::vector<std::string> what;  // lines that say what was served, and on what
  traffic::TrafficRecord record;
  traffic::LatencyLimits limits;
  std::string busy;  // what the share of time is in which the device works
  traffic::Figures figures = traffic::figures(record, limits);
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

std::string traffic_text(const TrafficReport& report);
// The report as JSON, without the title.
json::object traffic_json(const TrafficReport& report);
// The curves that a page draws beside that: load, throughput and memory over time, distributions of
// latencies. Each is a list of points [x, y].
json::object traffic_curves(const TrafficReport& report);

}  // namespace encore::measure
