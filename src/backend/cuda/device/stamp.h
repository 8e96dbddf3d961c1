// Kernels that write the GPU's time into memory.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace encore::cuda {

// The times at which each replay began and ended, by the GPU's global timer, in the order in which
// the replays ran.
struct Stamps {
  static constexpr uint32_t kMax = 1 << 16;
  uint32_t count = 0;
  struct Pair {
    uint64_t begin_ns = 0;
    uint64_t end_ns = 0;
  } pairs[kMax];
};

// Adds two nodes to the CUDA graph `graph`. The node in front of all others writes the time at
// which the replay begins. The node behind all others writes the time at which it ends, and counts
// the pair of times. Errors: kDevice.
void add_stamps(cudaGraph_t graph, Stamps* device_stamps);
// Launches the two kernels that write a begin and an end, one right after the other. Errors:
// kDevice.
void stamp_now(cudaStream_t stream, Stamps* device_stamps);

}  // namespace encore::cuda
