// Operations on elements in device code: conversions, vector loads and stores, and sums over a
// warp.
#pragma once

#include <cstdint>
#include <numbers>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace encore::cuda {

__device__ __forceinline__ float to_float(float x) {
  return x;
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

// Converts to T, rounding to nearest even.
template <typename T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(x);
  } else {
    return __float2bfloat16_rn(x);
  }
}

// Holds 16 bytes of elements: 8 elements of 16 bits, or 4 floats. Addresses must be multiples of
// 16.
template <typename T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T values[kSize];
};

template <typename T>
__device__ __forceinline__ Pack<T> load_pack(const T* address) {
  const uint4 bits = *reinterpret_cast<const uint4*>(address);
  return reinterpret_cast<const Pack<T>&>(bits);
}
template <typename T>
__device__ __forceinline__ void store_pack(T* address, const Pack<T>& pack) {
  *reinterpret_cast<uint4*>(address) = reinterpret_cast<const uint4&>(pack);
}

// Rounds two floats to two elements of 16 bits, the first in the low half of the word.
template <typename T>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

// Widens the two elements of a word to floats, the low half first.
template <typename T>
__device__ __forceinline__ float2 unpack_pair(uint32_t bits) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(bits));
  } else {
    return {__uint_as_float(bits << 16U), __uint_as_float(bits & 0xffff0000U)};
  }
}
// Returns the sums of two pairs of elements, rounded to elements.
template <typename T>
__device__ __forceinline__ uint32_t add_pairs(uint32_t a, uint32_t b) {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  const Pair sum = __hadd2_rn(reinterpret_cast<const Pair&>(a), reinterpret_cast<const Pair&>(b));
  return reinterpret_cast<const uint32_t&>(sum);
}

template <typename T>
__device__ __forceinline__ void unpack(const Pack<T>& pack, float (&out)[Pack<T>::kSize]) {
  if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i)
      out[i] = pack.values[i];
  } else {
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize / 2; ++i) {
      const float2 pair = unpack_pair<T>(reinterpret_cast<const uint32_t*>(&pack)[i]);
      out[2 * i] = pair.x;
      out[2 * i + 1] = pair.y;
    }
  }
}
template <typename T>
__device__ __forceinline__ Pack<T> to_pack(const float (&values)[Pack<T>::kSize]) {
  Pack<T> pack;
  if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i)
      pack.values[i] = values[i];
  } else {
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize / 2; ++i)
      reinterpret_cast<uint32_t*>(&pack)[i] = pack_pair<T>(values[2 * i], values[2 * i + 1]);
  }
  return pack;
}
template <typename T>
__device__ __forceinline__ Pack<T> add_packs(const Pack<T>& a, const Pack<T>& b) {
  Pack<T> sum;
  if constexpr (std::is_same_v<T, float>) {
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i)
      sum.values[i] = a.values[i] + b.values[i];
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      reinterpret_cast<uint32_t*>(&sum)[i] = add_pairs<T>(reinterpret_cast<const uint32_t*>(&a)[i],
                                                          reinterpret_cast<const uint32_t*>(&b)[i]);
    }
  }
  return sum;
}

// Returns the sum over the warp in every lane. The order of additions is fixed.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  }
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  return value;
}

__device__ __forceinline__ float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// Computes SiLU for results of type T. With 16-bit results it computes less precisely, because they
// would not show the difference and every instruction costs time (launch.h).
template <typename T>
__device__ __forceinline__ float silu(float x) {
  if constexpr (std::is_same_v<T, float>) return x / (1.0F + expf(-x));
  return __fdividef(x, 1.0F + exp2_fast(x * -std::numbers::log2e_v<float>));
}

}  // namespace encore::cuda
