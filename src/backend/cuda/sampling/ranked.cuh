// Converts tokens to numbers that are ordered by likelihood.
#pragma once

#include <cstdint>

namespace encore::cuda::sampling {

constexpr unsigned kWarp = 0xffffffffU;

// Returns an unsigned number for a float, in the order of floats. NaN is below everything, and both
// zeros are equal.
__device__ __forceinline__ uint32_t to_ordered(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0F);
  if (x != x) return 0;
  return bits >> 31U != 0 ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ float from_ordered(uint32_t ordered) {
  return __uint_as_float(ordered >> 31U != 0 ? ordered & 0x7fffffffU : ~ordered);
}
// Returns a number that orders tokens by value. Of equal values, the smaller token has the larger
// number.
__device__ __forceinline__ uint64_t ranked(float value, uint32_t token) {
  return static_cast<uint64_t>(to_ordered(value)) << 32U | static_cast<uint32_t>(~token);
}
__device__ __forceinline__ int32_t token_of(uint64_t rank) {
  return static_cast<int32_t>(~static_cast<uint32_t>(rank));
}

}  // namespace encore::cuda::sampling
