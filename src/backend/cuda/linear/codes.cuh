// Widens weights of 8-bit codes to 16-bit elements for products on the tensor cores.
//
// A weight of codes lies in memory with the columns of each group of 16 in the order 0 8 1 9 2 10
// ... 7 15 (codes.h). When such a weight is loaded as a matrix of 16-bit elements, lane t of four
// gets a word of four codes. The even bytes of the word are columns 2t and 2t + 1, and the odd
// bytes are the two columns that are 8 further. These are the columns that a product of 16 columns
// needs in that lane.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace encore::cuda {

// Widens the codes in the even bytes of a word, and those in the odd bytes, to pairs of T. The
// result is exact except for NaN, which a weight does not contain. The sign stays; exponent and
// mantissa move to the place where T has their low bits. A product with a power of two then
// corrects the exponent's bias, also for subnormal numbers.
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
