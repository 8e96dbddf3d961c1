// Kernels that write down the time.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace encore::cuda {

// When each replay began and ended, in the order they ran, by the GPU's global timer.
struct Stamps {
  static constexpr uint32_t kMax = 1 << 16;
  uint32_t count = 0;
  struct Pair {
    uint64_t begin_ns = 0;
    uint64_t end_ns = 0;
  } pairs[kMax];
};

// `graph` with one node in front of all others that writes the begin of the next pair and one
// behind them all that writes its end and counts it. Errors: kDevice.
void add_stamps(cudaGraph_t graph, Stamps* device_stamps);
// One pair, at once. Errors: kDevice.
void stamp_now(cudaStream_t stream, Stamps* device_stamps);

}  // namespace encore::cuda
