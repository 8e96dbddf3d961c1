// Reads elements of a row as floats, in chunks of several, for kernels in which each lane adds up
// every 32nd chunk of a row.
#pragma once

#include <type_traits>

#include "backend/cuda/fp8.h"
#include "backend/cuda/linear/codes.cuh"
#include "backend/cuda/linear/codes.h"

namespace encore::cuda {

// Reads kSize elements from column `column` on in a row of `columns` columns: a pack of them, or
// one. fetch() loads them as they lie in memory, and widen() converts them where they are used.
// REQUIRES: `column` is a multiple of kSize.
template <typename T, bool kPacked>
struct Chunk {
  static constexpr int kSize = kPacked ? Pack<T>::kSize : 1;
  using Raw = std::conditional_t<kPacked, Pack<T>, T>;
  __device__ __forceinline__ static Raw fetch(const T* row, int column, int /*columns*/) {
    if constexpr (kPacked) {
      return load_pack(row + column);
    } else {
      return row[column];
    }
  }
  __device__ __forceinline__ static void widen(const Raw& raw, float (&to)[kSize]) {
    if constexpr (kPacked) {
      unpack(raw, to);
    } else {
      to[0] = to_float(raw);
    }
  }
  __device__ __forceinline__ static void load(const T* row, int column, float (&to)[kSize]) {
    widen(fetch(row, column, 0), to);
  }
};

// Loads kSize adjacent elements, in one chunk or several.
template <bool kPacked, typename T, int kSize>
__device__ __forceinline__ void load_elements(const T* from, float (&to)[kSize]) {
  using Elements = Chunk<T, kPacked>;
#pragma unroll
  for (int i = 0; i < kSize; i += Elements::kSize) {
    float chunk[Elements::kSize];
    Elements::load(from, i, chunk);
#pragma unroll
    for (int j = 0; j < Elements::kSize; ++j)
      to[i + j] = chunk[j];
  }
}

// Reads elements of a row of 8-bit codes, which lie in memory in the order of codes.h: a group of
// codes, or one code. It returns them in the order of the columns.
template <bool kPacked>
struct CodeChunk {
  static constexpr int kSize = kPacked ? kCodeGroup : 1;
  using Raw = std::conditional_t<kPacked, uint4, Float8>;
  __device__ __forceinline__ static Raw fetch(const Float8* row, int column, int columns) {
    if constexpr (kPacked) {
      return *reinterpret_cast<const uint4*>(row + column);
    } else {
      return row[place_of_code(column, columns)];
    }
  }
  __device__ __forceinline__ static void widen(const Raw& group, float (&to)[kSize]) {
    if constexpr (kPacked) {
      const uint32_t words[4] = {group.x, group.y, group.z, group.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t even;
        uint32_t odd;
        widen_codes<__half>(words[i], even, odd);
        const float2 low = unpack_pair<__half>(even);
        const float2 high = unpack_pair<__half>(odd);
        to[2 * i] = low.x;
        to[2 * i + 1] = low.y;
        to[2 * i + 8] = high.x;
        to[2 * i + 9] = high.y;
      }
    } else {
      to[0] = to_float(group);
    }
  }
};

// Multiplies `a` and `b` element by element, and adds the products to `sum` one after the other.
template <int kSize>
__device__ __forceinline__ void add_products(const float (&a)[kSize], const float (&b)[kSize],
                                             float& sum) {
#pragma unroll
  for (int i = 0; i < kSize; ++i)
    sum = __fmaf_rn(a[i], b[i], sum);
}

}  // namespace encore::cuda
