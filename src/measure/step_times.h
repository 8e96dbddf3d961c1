// Divides the time of traced steps by where it went.
//
// Kernels may overlap: with programmatic dependent launch one starts while the one before it still
// runs, and waits. So a kernel's own time is that since everything before it had ended; what it
// did earlier, beside its predecessor, is its predecessor's time. Own times, gaps between kernels
// and idle time between steps add up to the steps' time exactly.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/tracer.h"

namespace encore::measure {

// Spans of one kind, averaged over the steps. Units: microseconds per step.
struct SpanTime {
  double count = 0;
  double own_us = 0;    // since everything before it had ended
  double total_us = 0;  // from start to end, overlap and all
};

struct StepTimes {
  int num_steps = 0;  // that the averages below are of
  // The time from a step's first work on the device to the next step's; the sum of the five below.
  double step_us = 0;
  double kernels_us = 0;
  double copies_us = 0;
  double gaps_us = 0;                       // between the work of a step
  double idle_us = 0;                       // from the last work of a step to the first of the next
  std::map<std::string, SpanTime> kernels;  // by group; they add up to kernels_us

  // The host's calls by kind, and the rest of its step.
  std::map<TraceKind, SpanTime> calls;
  double host_step_us = 0;

  // The times from the last kernel of a step to the first of the next, copies or not, for every
  // step.
  std::vector<double> between_us;

  // One step of the usual length, for a picture: its work, each with its group as its op, and the
  // host's calls, from its start.
  std::vector<TraceSpan> sample;
  int64_t sample_ns = 0;
};

// A launch's op and the group that its time is reported in. A step has a list of these, in the
// order of its launches; where the trace has another number of launches of an op, they are reported
// under the op.
struct NodeGroup {
  std::string op;
  std::string group;
};
// Averages over the middle half of the steps, by length; the last has no next and is left out.
// Errors: kDevice when there are no two steps with work on the device in the trace.
StepTimes step_times(const Trace& trace, const std::vector<NodeGroup>& groups);

}  // namespace encore::measure
