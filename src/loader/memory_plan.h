// Reports the device memory of a loaded model by its use.
#pragma once

#include <cstdint>

#include "loader/loaded_model.h"

namespace encore::loader {

// The device memory of a model by its use. Units: bytes. Weights, arena, step inputs, scratch and
// kv are the bytes that were allocated. The other fields are the growth of the driver's count of
// used memory, and zero on a device whose memory is the host's.
struct MemoryPlan {
  int64_t context = 0;  // in use before the model was loaded: CUDA's context, other processes
  int64_t weights = 0;
  int64_t arena = 0;  // intermediate values, at the largest admissible step
  int64_t arena_without_reuse = 0;
  int64_t step_inputs = 0;
  int64_t scratch = 0;    // shared by the kernels that need some
  int64_t libraries = 0;  // kernels' code and cuBLASLt
  int64_t recordings = 0;
  // The memory of the prompt scorer: what it allocated or, where the driver counts used memory, the
  // growth of that count.
  int64_t prompt_scores = 0;
  int64_t halves = 0;  // kept free for the halves of steps that token masks need
  int64_t kv = 0;      // KV caches

  [[nodiscard]] int64_t total() const {
    return context + weights + arena + step_inputs + scratch + libraries + recordings +
           prompt_scores + halves + kv;
  }
};

MemoryPlan memory_plan(LoadedModel& model);

}  // namespace encore::loader
