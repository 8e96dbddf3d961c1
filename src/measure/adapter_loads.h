// How long steps take while adapters (LoRA) are loaded beside them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "measure/decoding.h"

namespace encore::measure {

struct AdapterLoads {
  struct Load {
    double ms = 0;               // from when the files are there until the adapter is in a slot
    double longest_step_ms = 0;  // of those meanwhile
  };
  int64_t bytes = 0;           // of an adapter on the device
  double step_ms = 0;          // without loads, the median
  double longest_step_ms = 0;  // of those
  std::vector<Load> loads;
};

// Times the steps that the options say, then loads adapters one after the other, each read from files as a
// server reads them, and goes on with such steps meanwhile. Where these end, the sequences begin anew, and steps that read
// prompts do not count. The adapters have random numbers in all projections that there is room for, and `rank`.
// Errors: kUsage, with what to do, where sequences use all slots; those of Decoding and Adapters::load.
AdapterLoads time_adapter_loads(engine::Engine& engine, const DecodingOptions& options,
                                int64_t num_loads, int64_t rank);

}  // namespace encore::measure
