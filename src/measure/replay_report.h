// What a replay has shown, for people, as JSON and as a page.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "replay/figures.h"
#include "replay/record.h"

namespace encore::measure {

// A replay and what is asked of it.
struct ReplayReport {
  std::string title;              // of the verb
  std::vector<std::string> what;  // lines that say what was replayed, and on what
  replay::ReplayRecord record;
  replay::LatencyLimits limits;
  std::string busy;  // what the share of time is in which the device works
  replay::Figures figures = replay::figures(record, limits);
};

// Steps that ran one way at one bucket: sequences of those that only decode, tokens of mixed ones.
struct StepGroup {
  runtime::Mode mode = runtime::Mode::kEager;
  bool is_mixed = false;
  int64_t bucket = 0;
  int64_t steps = 0;
  int64_t tokens = 0;
  int64_t padding = 0;

  [[nodiscard]] double padding_share() const;  // of what was launched
};
// By mode, then kind, then bucket.
std::vector<StepGroup> step_groups(const std::vector<engine::StepCount>& steps);
// Of those without regard to the bucket, which is 0.
std::vector<StepGroup> step_sums(const std::vector<engine::StepCount>& steps);

std::string replay_text(const ReplayReport& report);
// Without the title.
json::object replay_json(const ReplayReport& report);
// Timelines of load and throughput, distributions of latencies, and the steps.
std::string replay_html(const ReplayReport& report);

}  // namespace encore::measure
