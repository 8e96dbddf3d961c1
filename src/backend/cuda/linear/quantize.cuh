// Numbers on their way to 8-bit codes: what kernels that produce rows do with them.
#pragma once

#include "backend/cuda/fp8.h"
#include "backend/cuda/linear/codes.h"
#include "backend/fp8_activations.h"

namespace encore::cuda {

// Sixteen lanes have a group of 128 columns, eight each.
constexpr int kGroupLanes = 16;

// Rounds a lane's eight numbers to codes, by a scale of the whole group or a static one that is not 0; lanes beyond the row bring
// zeros. `codes` is where the lane's columns begin, were they in order: two neighbours store their 16
// columns in that of codes.h. All lanes of a group; those of a warp are together.
__device__ __forceinline__ void store_codes(const float (&values)[8], bool is_there, uint8_t* codes,
                                            float* group_scale, float static_scale) {
  const uint32_t lane = threadIdx.x % kGroupLanes;
  float largest = 0;
#pragma unroll
  for (const float value : values)
    largest = fmaxf(largest, fabsf(value));
#pragma unroll
  for (int lanes = kGroupLanes / 2; lanes > 0; lanes /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, lanes));
  const float scale = activation_scale(largest, static_scale);
  const float inverse = 1.0F / scale;
  const auto four = [&](int i) {
    return to_fp8_pair(values[i] * inverse, values[i + 1] * inverse) |
           to_fp8_pair(values[i + 2] * inverse, values[i + 3] * inverse) << 16U;
  };
  const uint32_t low = four(0);
  const uint32_t high = four(4);
  // The first of two neighbours stores columns 0 to 3 and 8 to 11, the other the rest.
  const bool is_first = lane % 2 == 0;
  const uint32_t other = __shfl_xor_sync(0xffffffffU, is_first ? high : low, 1);
  const uint32_t left = is_first ? low : other;
  const uint32_t right = is_first ? other : high;
  if (!is_there) return;
  *reinterpret_cast<uint2*>(codes) = {__byte_perm(left, right, 0x5140),
                                      __byte_perm(left, right, 0x7362)};
  if (lane == 0) *group_scale = scale;
}

}  // namespace encore::cuda
