// Elements of a row as floats, several at a time, for kernels in which a lane adds up every 32nd
// chunk of a row.
#pragma once

#include "backend/cuda/element.cuh"

namespace encore::cuda {

// kSize elements from column `column` of a row on: a pack, or one. REQUIRES: `column` is a multiple
// of kSize.
template <typename T, bool kPacked>
struct Chunk {
  static constexpr int kSize = kPacked ? Pack<T>::kSize : 1;
  __device__ __forceinline__ static void load(const T* row, int column, float (&to)[kSize]) {
    if constexpr (kPacked) {
      unpack(load_pack(row + column), to);
    } else {
      to[0] = to_float(row[column]);
    }
  }
};

// Adds the products to `sum`, one after the other.
template <int kSize>
__device__ __forceinline__ void add_products(const float (&a)[kSize], const float (&b)[kSize],
                                             float& sum) {
#pragma unroll
  for (int i = 0; i < kSize; ++i)
    sum = __fmaf_rn(a[i], b[i], sum);
}

}  // namespace encore::cuda
