// Holds the results of `encore profile`: how a step's time divides into parts, in each mode.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "measure/step_times.h"
#include "planning/floor.h"
#include "runtime/dispatch.h"

namespace encore::measure {

struct ModeProfile {
  runtime::Graphs graphs = runtime::Graphs::kNone;
  std::string mode;
  std::string ran_as;
  double step_us = 0;              // median wall time of an untraced step
  double enqueue_us = 0;           // the host's time to enqueue a step
  double cpu_us = 0;               // CPU time of the host's thread
  double device_us = 0;            // between events around the step's launches, untraced
  std::optional<StepTimes> times;  // from a trace; absent without a tracer
};

// Holds the floor of one group of nodes: their bytes and FLOPs, and the least time that they take
// together.
struct GroupFloor {
  int nodes = 0;
  int64_t bytes = 0;
  int64_t flops = 0;
  double us = 0;
};

struct Profile {
  std::string what;        // names the model, the step's sequences and tokens, and the device
  std::string step;        // "decode", "mixed", "prompt"
  bool on_host = false;    // true: the device is the CPU, so kernels run inside the host's calls
  std::string floor_text;  // says which rates the floors are computed from
  planning::StepFloor floor;
  std::map<std::string, GroupFloor> floors;
  std::vector<ModeProfile> modes;
  // Says why nothing is traced and how to change that; empty where steps are traced.
  std::string no_tracer;

  // Returns the names of all groups of nodes that took time or have a floor, ordered by their time
  // in the last mode, longest first.
  [[nodiscard]] std::vector<std::string> groups() const;
  [[nodiscard]] bool is_traced() const { return no_tracer.empty(); }
};

// Returns the share of an untraced step in which no kernel runs: launching, copying, waiting for
// the host. Returns nothing without a trace, which alone says how long kernels run.
std::optional<double> overhead(const ModeProfile& mode);
// Names one part of a traced step, such as reading weights or waiting for the host, and its time.
// All parts add up to the step.
struct StepPart {
  const char* what;
  const char* source;  // names what the part's time depends on
  double us = 0;
};
std::vector<StepPart> step_parts(const Profile& profile, const StepTimes& times);
// Returns a text that says how long reading the weights alone would take, and how long computing
// the step's FLOPs alone would take.
std::string load_and_compute_text(const Profile& profile);
// Returns the time of the group of kernels that chooses tokens.
double sampling_us(const StepTimes& times);

// Return the profile as text and as JSON.
std::string profile_text(const Profile& profile);
json::object profile_json(const Profile& profile);

}  // namespace encore::measure
