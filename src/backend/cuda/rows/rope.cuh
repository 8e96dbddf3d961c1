// Normalizes and rotates heads (rope) on their way from a projection to attention: applies the norm
// per head, where there is one, and then the rotation by the token's position. All kernels that
// rotate heads use these functions, so they get the same bits.
#pragma once

#include <bit>

#include "backend/cuda/launch.h"

namespace encore::cuda {

// The properties that all heads of a launch have in common. A head lies in `lanes` neighbouring
// lanes of a warp, with 16 bytes in each. `lanes` is a power of two, and lanes past the head's end
// hold zeros.
struct RopeShape {
  int head_size = 0;
  int lanes = 0;
  bool has_norm = false;  // at least one head is normalized
  float eps = 0;
  float norm_offset = 0;  // added to the norms' weights
};

// Returns the cosine and the sine for a pair of elements. The angle is computed in f32, as in
// Hugging Face transformers.
__device__ __forceinline__ float2 find_angle(int position, float inv_freq) {
  float sine;
  float cosine;
  sincosf(static_cast<float>(position) * inv_freq, &sine, &cosine);
  return {cosine, sine};
}

// Returns element `x` of a pair after the rotation; `partner` is the pair's other element.
// Multiplication and addition are not contracted, so that the compiler cannot choose different bits
// in different places.
__device__ __forceinline__ float rotate(float x, float partner, float2 angle, bool is_first) {
  const float product = __fmul_rn(partner, angle.y);
  return __fadd_rn(__fmul_rn(x, angle.x), is_first ? -product : product);
}

// Normalizes the lane's part of a head with the weights `norm` [C], and rotates it by `angles`
// [C/2]. Either step is left out where its pointer is null. All lanes of a warp must call it at
// once.
template <typename T>
__device__ __forceinline__ uint4 rope_head(uint4 x, const RopeShape& shape, const T* norm,
                                           const float2* angles) {
  constexpr unsigned kAllLanes = 0xffffffffU;
  constexpr int kSize = Pack<T>::kSize;
  const int lane = static_cast<int>(threadIdx.x) % shape.lanes;
  const int half = shape.head_size / kSize / 2;
  const bool is_first = lane < half;
  const bool is_inside = lane < 2 * half;
  float values[kSize];
  unpack(std::bit_cast<Pack<T>>(x), values);
  if (shape.has_norm) {
    // The squares are added up in the order in which the kernel of rms_norm adds them: first the
    // lane's own squares, then the lanes' sums, beginning with those that are half a head apart.
    float squares = 0.0F;
#pragma unroll
    for (int i = 0; i < kSize; ++i)
      squares = __fmaf_rn(values[i], values[i], squares);
    for (int offset = shape.lanes / 2; offset > 0; offset /= 2)
      squares += __shfl_xor_sync(kAllLanes, squares, offset);
    if (norm != nullptr && is_inside) {
      const float scale =
          rsqrtf(squares * (1.0F / static_cast<float>(shape.head_size)) + shape.eps);
      float weights[kSize];
      unpack(load_pack(norm + lane * kSize), weights);
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        values[i] = values[i] * scale * (weights[i] + shape.norm_offset);
      x = std::bit_cast<uint4>(to_pack<T>(values));
      unpack(std::bit_cast<Pack<T>>(x), values);
    }
  }
  const int partner = static_cast<int>(threadIdx.x) % 32 + (is_first ? half : -half);
  const uint4 theirs = {__shfl_sync(kAllLanes, x.x, partner), __shfl_sync(kAllLanes, x.y, partner),
                        __shfl_sync(kAllLanes, x.z, partner), __shfl_sync(kAllLanes, x.w, partner)};
  if (angles == nullptr || !is_inside) return x;
  float partners[kSize];
  unpack(std::bit_cast<Pack<T>>(theirs), partners);
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    const float2 angle = angles[(is_first ? lane : lane - half) * kSize + i];
    values[i] = rotate(values[i], partners[i], angle, is_first);
  }
  return std::bit_cast<uint4>(to_pack<T>(values));
}

}  // namespace encore::cuda
