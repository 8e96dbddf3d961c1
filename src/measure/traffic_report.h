// Reports the traffic that was served, as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "traffic/figures.h"
#include "traffic/record.h"

namespace encore::measure {

// Holds the record of some traffic and the other data that its report shows.
struct TrafficReport {
  std::string title;              // the title line of the verb
  std::vector<std::string> what;  // lines that say what was served, and on what
  traffic::TrafficRecord record;
  traffic::LatencyLimits limits;
  std::string busy;  // names the device's share of busy time in the report
  traffic::Figures figures = traffic::figures(record, limits);
};

// Counts the steps that ran in one mode at one bucket. `bucket` counts sequences for decode steps
// and tokens for mixed steps.
struct StepGroup {
  runtime::Mode mode = runtime::Mode::kEager;
  bool is_mixed = false;
  int64_t bucket = 0;
  int64_t steps = 0;
  int64_t tokens = 0;
  int64_t padding = 0;

  [[nodiscard]] double padding_share() const;  // share of padding in the launched rows
};
// Returns a StepGroup for each mode, kind and bucket that steps ran with, ordered by mode, then
// kind, then bucket.
std::vector<StepGroup> step_groups(const std::vector<engine::StepCount>& steps);
// Returns a StepGroup for each mode and kind, which sums the steps of all buckets; its `bucket` is
// 0.
std::vector<StepGroup> step_sums(const std::vector<engine::StepCount>& steps);

std::string traffic_text(const TrafficReport& report);
// Returns the report as JSON, without the title.
json::object traffic_json(const TrafficReport& report);
// Returns the curves that only the HTML page draws: load, throughput and memory over time, and
// distributions of latencies. Each curve is a list of points [x, y].
json::object traffic_curves(const TrafficReport& report);

}  // namespace encore::measure
