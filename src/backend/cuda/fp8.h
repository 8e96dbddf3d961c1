// Conversions of 8-bit floats (DType::kFP8). A number is rounded once, when it is written, and
// widened exactly where it is used.
#pragma once

#include "backend/cuda/launch.h"

namespace encore::cuda {

// Calls `visitor(TypeTag<T>{})` with the C++ type that stores `dtype`: a float type, or Float8.
template <typename Visitor>
decltype(auto) visit_stored(DType dtype, Visitor&& visitor) {
  if (dtype == DType::kFP8) return visitor(TypeTag<Float8>{});
  return visit_element(dtype, visitor);
}

template <typename T>
inline constexpr bool kIsFp8 = std::is_same_v<T, Float8>;

#ifdef __CUDACC__

// Rounds two numbers to nearest even, the first in the low byte. Magnitudes beyond 448 become 448.
__device__ __forceinline__ uint32_t to_fp8_pair(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
template <>
__device__ __forceinline__ Float8 from_float<Float8>(float x) {
  Float8 result;
  result.bits = static_cast<uint8_t>(to_fp8_pair(x, 0.0F));
  return result;
}

// Widens four fp8 numbers to two pairs of halves: the low two numbers, then the high two.
__device__ __forceinline__ void widen_to_half(uint32_t four, uint32_t& low, uint32_t& high) {
  asm("{\n\t"
      ".reg .b16 first, second;\n\t"
      "mov.b32 {first, second}, %2;\n\t"
      "cvt.rn.f16x2.e4m3x2 %0, first;\n\t"
      "cvt.rn.f16x2.e4m3x2 %1, second;\n\t"
      "}"
      : "=r"(low), "=r"(high)
      : "r"(four));
}
__device__ __forceinline__ float to_float(Float8 x) {
  uint32_t low;
  uint32_t high;
  widen_to_half(x.bits, low, high);
  return __low2float(reinterpret_cast<const __half2&>(low));
}

// Widens four fp8 numbers to two pairs of T, a type of 16 bits. This is exact, because a half or a
// bf16 can hold every fp8 number.
template <typename T>
__device__ __forceinline__ void widen(uint32_t four, uint32_t& low, uint32_t& high) {
  widen_to_half(four, low, high);
  if constexpr (!std::is_same_v<T, __half>) {
    const auto to_bf16 = [](uint32_t pair) {
      const __nv_bfloat162 wide =
          __float22bfloat162_rn(__half22float2(reinterpret_cast<const __half2&>(pair)));
      return reinterpret_cast<const uint32_t&>(wide);
    };
    low = to_bf16(low);
    high = to_bf16(high);
  }
}

// Rounds a pack of T to fp8, four numbers in each word. A pack of only 4 numbers fills the first
// word.
template <typename T>
__device__ __forceinline__ uint2 to_fp8(const Pack<T>& pack) {
  constexpr int kSize = Pack<T>::kSize;
  float values[kSize];
  unpack(pack, values);
  const auto four = [&](int i) {
    return to_fp8_pair(values[i], values[i + 1]) | to_fp8_pair(values[i + 2], values[i + 3]) << 16U;
  };
  return {four(0), four(kSize - 4)};
}
// Stores a pack of T in a KV cache whose elements are T or fp8. The address must be a multiple of
// the bytes that are stored.
template <typename T, typename Kv>
__device__ __forceinline__ void store_kv(Kv* address, const Pack<T>& pack) {
  if constexpr (std::is_same_v<T, Kv>) {
    store_pack(address, pack);
  } else {
    static_assert(kIsFp8<Kv>);
    const uint2 narrow = to_fp8(pack);
    if constexpr (Pack<T>::kSize == 8) {
      *reinterpret_cast<uint2*>(address) = narrow;
    } else {
      *reinterpret_cast<uint32_t*>(address) = narrow.x;
    }
  }
}

#endif  // __CUDACC__

}  // namespace encore::cuda
