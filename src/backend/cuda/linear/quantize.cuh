// Rounds numbers to 8-bit codes, for kernels that produce rows.
#pragma once

#include "backend/cuda/fp8.h"
#include "backend/cuda/linear/codes.h"
#include "backend/fp8_activations.h"

namespace encore::cuda {

// The number of lanes that share a group of 128 columns, with eight columns each.
constexpr int kGroupLanes = 16;

// Rounds a lane's eight numbers to codes. The scale is static_scale where that is not 0, else the
// scale that fits the group of 128 columns. Lanes behind the row's end bring zeros. `codes` is the
// place where the lane's columns would begin in their natural order; two neighbouring lanes store
// their 16 columns in the order of codes.h. All lanes of a group must call it, and all groups of a
// warp at once.
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
  // The first of two neighbouring lanes stores columns 0 to 3 and 8 to 11, and the second lane
  // stores the rest.
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
