// Divides the time of traced steps into the parts where it was spent.
//
// Kernels may overlap: with programmatic dependent launch, a kernel starts while the one before it
// still runs, and waits. So a kernel's own time counts from the moment when all earlier work has
// ended. The time in which it runs beside its predecessor counts as its predecessor's. The own
// times, the gaps between kernels and the idle time between steps add up to the steps' time
// exactly.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/tracer.h"

namespace encore::measure {

// Holds the count and times of one kind of spans, averaged over the steps. Units: microseconds per
// step.
struct SpanTime {
  double count = 0;
  double own_us = 0;    // from the end of all earlier work
  double total_us = 0;  // from start to end, including overlap
};

struct StepTimes {
  int num_steps = 0;  // number of steps that the averages are taken over
  // The time from a step's first work on the device to the next step's first work. It is the sum of
  // kernels_us, copies_us, gaps_us and idle_us.
  double step_us = 0;
  double kernels_us = 0;
  double copies_us = 0;
  double gaps_us = 0;  // idle time between the kernels and copies of one step
  double idle_us = 0;  // from the last work of a step to the first of the next
  // Key: group of nodes. The groups' own times add up to kernels_us.
  std::map<std::string, SpanTime> kernels;

  // The host's calls by kind, and the time of the host's whole step.
  std::map<TraceKind, SpanTime> calls;
  double host_step_us = 0;

  // For every step, the time from its last kernel to the first kernel of the next step, copies
  // included. Units: microseconds.
  std::vector<double> between_us;

  // The spans of the step of median length, for a picture: the device's work, with the group in
  // place of the op, and the host's calls. Times count from the step's start.
  std::vector<TraceSpan> sample;
  int64_t sample_ns = 0;
};

// Names a launch's op and the group under which its time is reported. A step has a list of these,
// in the order of its launches. Where the trace has a different number of launches of an op, they
// are reported under the op.
struct NodeGroup {
  std::string op;
  std::string group;
};
// Returns averages over the middle half of the steps by length. The last step is left out, as no
// step follows it.
// Errors: kDevice when the trace has fewer than two steps with work on the device.
StepTimes step_times(const Trace& trace, const std::vector<NodeGroup>& groups);

}  // namespace encore::measure
