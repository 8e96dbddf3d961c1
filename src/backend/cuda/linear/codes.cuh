// Weights of 8-bit codes on their way to the tensor cores' products of 16-bit elements.
//
// A weight of codes lies in memory with the columns of each group of 16 in the order 0 8 1 9 2 10
// ... 7 15 (codes.h). So the four codes of a word, as a matrix of 16-bit elements has them in lane t
// of four, are columns 2t and 2t + 1 in its even bytes and the two that are 8 further in its odd
// ones: what a product of 16 columns wants of that lane.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace encore::cuda {

// The codes in the even bytes of a word, and those in the odd ones, as pairs of T. Exact, but for
// NaN, which a weight does not have. Sign stays, exponent and mantissa move to where T has their
// low bits, and a product with a power of two mends the exponent's bias, of numbers below the
// normal ones, too.
template <typename T>
__device__ __forceinline__ void widen_codes(uint32_t codes, uint32_t& even, uint32_t& odd) {
  constexpr bool kIsHalf = std::is_same_v<T, __half>;
  constexpr int kShift = kIsHalf ? 1 : 4;
  constexpr uint32_t kSigns = 0x80008000U;
  constexpr uint32_t kNumbers = 0x7f007f00U >> kShift;
  const auto widen = [](uint32_t upper_bytes) -> uint32_t {
    const uint32_t bits = (upper_bytes & kSigns) | ((upper_bytes >> kShift) & kNumbers);
    if constexpr (kIsHalf) {
      const __half2 wide =
          __hmul2(reinterpret_cast<const __half2&>(bits), __half2half2(__half(256)));
      return reinterpret_cast<const uint32_t&>(wide);
    } else {
      constexpr uint32_t kTwoTo120 = 0x7b807b80U;
      uint32_t wide;
      asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(wide) : "r"(bits), "r"(kTwoTo120));
      return wide;
    }
  };
  even = widen(codes << 8U);
  odd = widen(codes);
}

}  // namespace encore::cuda
