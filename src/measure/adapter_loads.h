// Measures how long steps take while adapters (LoRA) are loaded beside them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "measure/decoding.h"

namespace encore::measure {

struct AdapterLoads {
  struct Load {
    double ms = 0;  // from the start of reading the files until an adapter slot holds it
    double longest_step_ms = 0;  // the longest step that ran during the load
  };
  int64_t bytes = 0;           // the size of one adapter slot on the device
  double step_ms = 0;          // the median step time without loads
  double longest_step_ms = 0;  // the longest step without loads
  std::vector<Load> loads;
};

// Times the decode steps that `options` describe, then loads `num_loads` adapters one after the
// other while such decode steps go on. Each load reads files as a server does. When the sequences
// have run `options.steps` steps, new sequences replace them; the steps that read their prompts are
// not timed. Each adapter has random weights of rank `rank` for all projections that the model has
// room for.
// Errors: kUsage, with the remedy, where sequences use all adapter slots; those of Decoding and
// Adapters::load.
AdapterLoads time_adapter_loads(engine::Engine& engine, const DecodingOptions& options,
                                int64_t num_loads, int64_t rank);

}  // namespace encore::measure
