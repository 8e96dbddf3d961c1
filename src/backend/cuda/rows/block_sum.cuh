// Adds up values over a block.
#pragma once

#include "backend/cuda/element.cuh"

namespace encore::cuda {

// Returns, in every thread, the sum of `value` over all threads of the block. The order of
// additions depends on the number of warps alone. A kernel may call it only once. REQUIRES: whole
// warps, 32 of them at most.
__device__ __forceinline__ float block_sum(float value) {
  __shared__ float partial[32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  value = warp_sum(value);
  if (num_warps == 1) return value;
  if (lane == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(lane < num_warps ? partial[lane] : 0.0F);
}

}  // namespace encore::cuda
