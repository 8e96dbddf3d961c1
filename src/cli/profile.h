// What `encore profile` found: where a step's time goes, in each mode.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/step_times.h"
#include "runtime/dispatch.h"

namespace encore::cli {

struct ModeProfile {
  runtime::Graphs graphs = runtime::Graphs::kNone;
  std::string mode;
  std::string walked;
  double step_us = 0;                // wall time, untraced; the median
  std::optional<double> enqueue_us;  // of the host; absent on the CPU, which runs what it enqueues
  std::optional<double> cpu_us;      // of the host's thread, likewise
  double device_us = 0;              // by events around what a step enqueues, untraced
  std::optional<StepTimes> times;    // traced; absent without a tracer
};

// The least that the nodes of one group take together.
struct GroupFloor {
  int nodes = 0;
  int64_t bytes = 0;
  int64_t flops = 0;
  double us = 0;
};

struct Profile {
  std::string what;        // model, batch and context, device
  std::string floor_text;  // what a floor is made of
  double floor_us = 0;     // of a step
  std::map<std::string, GroupFloor> floors;
  std::vector<ModeProfile> modes;
  std::string no_tracer;  // why nothing is traced, and how to change that; empty: it is

  // All groups that took time or have a floor, those that take the most in the last mode first.
  [[nodiscard]] std::vector<std::string> groups() const;
};

// The share of an untraced step in which no kernel runs: launching, copying, waiting for the host.
// Nothing when it was not traced how long kernels run.
std::optional<double> overhead(const ModeProfile& mode);
// The time of the group that chooses tokens.
double sampling_us(const StepTimes& times);
// The short name of a device function: without what it returns, its scope and its parameters.
std::string short_name(const std::string& function);

// The same for people, for programs, and as a page.
std::string profile_text(const Profile& profile);
json::object profile_json(const Profile& profile);
std::string profile_html(const Profile& profile);

}  // namespace encore::cli
