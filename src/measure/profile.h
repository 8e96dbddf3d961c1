// Holds the results of `encore profile`: where a step's time goes, in each mode.
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
  double step_us = 0;              // wall time, untraced; the median
  double enqueue_us = 0;           // of the host
  double cpu_us = 0;               // of the host's thread
  double device_us = 0;            // by events around what a step enqueues, untraced
  std::optional<StepTimes> times;  // traced; absent without a tracer
};

// The least that the nodes of one group take together.
struct GroupFloor {
  int nodes = 0;
  int64_t bytes = 0;
  int64_t flops = 0;
  double us = 0;
};

struct Profile {
  std::string what;        // model, the step's sequences and tokens, device
  std::string step;        // "decode", "mixed", "prompt"
  bool on_host = false;    // the host computes, within its calls
  std::string floor_text;  // what a floor is made of
  planning::StepFloor floor;
  std::map<std::string, GroupFloor> floors;
  std::vector<ModeProfile> modes;
  std::string no_tracer;  // why nothing is traced, and how to change that; empty: it is

  // All groups that took time or have a floor, those that take the most in the last mode first.
  [[nodiscard]] std::vector<std::string> groups() const;
  [[nodiscard]] bool is_traced() const { return no_tracer.empty(); }
};

// The share of an untraced step in which no kernel runs: launching, copying, waiting for the host.
// Nothing when no trace says how long kernels run.
std::optional<double> overhead(const ModeProfile& mode);
// A part of a traced step, from reading weights to waiting for the host. The parts add up to the
// step.
struct StepPart {
  const char* what;
  const char* source;  // what it depends on
  double us = 0;
};
std::vector<StepPart> step_parts(const Profile& profile, const StepTimes& times);
// Says how long the weights' bytes would take alone, and the step's FLOPs alone.
std::string load_and_compute_text(const Profile& profile);
// The time of the group that chooses tokens.
double sampling_us(const StepTimes& times);

// The profile as text and as JSON.
std::string profile_text(const Profile& profile);
json::object profile_json(const Profile& profile);

}  // namespace encore::measure
