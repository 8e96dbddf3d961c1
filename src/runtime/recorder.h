// The start-up of an executor. Before the first step, everything that steps launch is lowered,
// warmed up where the device sets something up late (Device::sets_up_late), and recorded as far as
// the options want it.
#pragma once

#include "runtime/executor.h"

namespace encore::runtime {

// The parts of an executor that start-up completes.
struct UnrecordedParts {
  LoadedProgram& loaded;
  TokenState& token_state;
  Coverage& coverage;             // first what is wanted; at the end what exists
  OnDemandRecordings* on_demand;  // null unless the ladder is `lru:N`
};

// Lowers, warms up and records every bucket. A bucket is recorded in full (--graphs auto and full),
// or in pieces (--graphs piecewise, or where a launch cannot be in a full recording). With --graphs
// none, only the recording is left out, so every mode runs the same kernels. Steps above the
// ladders are lowered and warmed up at some sizes. Errors: the device's errors, naming op, segment
// and size.
void record(const UnrecordedParts& parts, const ExecutorOptions& options);

}  // namespace encore::runtime
