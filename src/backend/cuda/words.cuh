// Rows that go from block to block while a kernel runs.
//
// The block that computes a value stores it as a word of 32 bits: the value, and which launch made
// it. Whoever wants the value loads the word until it is of this launch. So a word needs no other
// word's order, and there is no fence: a release would wait for all copies that the multiprocessor
// has under way, 1.6 us at the rate of a decode step and 0.3 us without them (an H200;
// docs/memory-model.md).
#pragma once

#include "backend/cuda/gemv.cuh"

namespace encore::cuda::gemv {

// A word: the value in the upper half, the launch in the lower.
__device__ __forceinline__ uint32_t tag_of(uint32_t launches) {
  return (launches + 1) & 0xffffU;  // never what memory is before its first launch
}
template <typename T>
__device__ __forceinline__ uint32_t make_word(T value, uint32_t tag) {
  return static_cast<uint32_t>(reinterpret_cast<const uint16_t&>(value)) << 16U | tag;
}

__device__ __forceinline__ uint4 load_words(const uint32_t* words) {
  uint4 bits;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w)
               : "l"(words)
               : "memory");
  return bits;
}
__device__ __forceinline__ bool are_of(const uint4& words, uint32_t tag) {
  return (words.x & 0xffffU) == tag && (words.y & 0xffffU) == tag && (words.z & 0xffffU) == tag &&
         (words.w & 0xffffU) == tag;
}

// 8 values, out of their words.
struct Received {
  uint4 low;
  uint4 high;

  __device__ __forceinline__ void ask(const uint32_t* words) {
    low = load_words(words);
    high = load_words(words + 4);
  }
  __device__ __forceinline__ uint4 wait(const uint32_t* words, uint32_t tag) {
    while (!are_of(low, tag) || !are_of(high, tag))
      ask(words);
    const auto values = [](uint32_t first, uint32_t second) {
      return __byte_perm(first, second, 0x7632);
    };
    return {values(low.x, low.y), values(low.z, low.w), values(high.x, high.y),
            values(high.z, high.w)};
  }
};

// As RowPlace::fetch(), out of words.
template <int kLoads>
__device__ __forceinline__ void receive(RowShare<kLoads>& share, const Loads<1>& row,
                                        const uint32_t* words, uint32_t tag, int first = 0) {
  const uint32_t* mine = words + Workers::index() * kColumnsPerLoad;
  constexpr int kNext = kWorkers * kColumnsPerLoad;
  Received values[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    if (row.has(first + i)) values[i].ask(mine + (first + i) * kNext);
  }
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    share.loads[i] = uint4{};
    if (row.has(first + i)) share.loads[i] = values[i].wait(mine + (first + i) * kNext, tag);
  }
}

}  // namespace encore::cuda::gemv
