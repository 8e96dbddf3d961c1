// Where the time of traced steps went.
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

// Spans of one sort. Units: a step's, microseconds.
struct SpanTime {
  double count = 0;
  double own_us = 0;    // since everything before it had ended
  double total_us = 0;  // from start to end, overlap and all
};

struct StepTimes {
  int num_steps = 0;  // that the averages below are of
  // From a step's first work on the device to the next step's; the sum of the five below.
  double step_us = 0;
  double kernels_us = 0;
  double copies_us = 0;
  double gaps_us = 0;                       // between the work of a step
  double idle_us = 0;                       // from the last work of a step to the first of the next
  std::map<std::string, SpanTime> kernels;  // by group; they add up to kernels_us

  // The host's calls by kind, and the rest of its step.
  std::map<TraceKind, SpanTime> calls;
  double host_step_us = 0;

  // From the last kernel of a step to the first of the next, copies or not: of every step.
  std::vector<double> between_us;

  // One step of the usual length, for a picture: its work, each with its group as its op, and the
  // host's calls, from its start.
  std::vector<TraceSpan> sample;
  int64_t sample_ns = 0;
};

// Of each launch of a step, in order, its op and the group it is reported in. A step that launches
// an op another number of times has those under the op.
struct NodeGroup {
  std::string op;
  std::string group;
};
// Averages over the middle half of the steps, by length; the last has no next and is left out.
// Errors: kDevice when there are no two steps with work on the device in the trace.
StepTimes step_times(const Trace& trace, const std::vector<NodeGroup>& groups);

}  // namespace encore::measure
