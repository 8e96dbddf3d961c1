// Start-up: everything that a step launches is lowered, warm where the device sets something up late
// (Device::sets_up_late) and, as far as it is wanted, recorded before the first step comes.
#pragma once

#include "runtime/executor.h"

namespace encore::runtime {

// The parts of an executor that start-up completes.
struct UnrecordedParts {
  LoadedProgram& loaded;
  TokenState& token_state;
  Coverage& coverage;             // as wanted; in the end, as there is
  OnDemandRecordings* on_demand;  // null unless the ladder is `lru:N`
};

// Lowers, warms up and records every bucket, largest first: in full (--graphs auto and full), or
// in pieces (piecewise, or where a launch cannot be in a full recording).
// --graphs none leaves out the recording only, so that every mode runs the same kernels and
// leaves KV the same memory. Steps above the ladders are lowered and warm at some sizes.
// Errors: as the device's, naming op, segment and size.
void record(const UnrecordedParts& parts, const ExecutorOptions& options);

}  // namespace encore::runtime
