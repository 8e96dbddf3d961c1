// Computes a norm within a block, for all kernels that contain a norm. A block takes one group of a
// row.
#pragma once

#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/rows/block_sum.cuh"
#include "backend/cuda/rows/chunk.cuh"

namespace encore::cuda {

inline constexpr int64_t kMaxNormThreads = 1024;
inline constexpr int kMaxPacks = 2;  // per thread, kept in registers

// The arguments of a norm. Units: strides in elements.
template <typename T>
struct NormArgs {
  const T* x;
  int64_t x_stride;
  const T* residual;  // null: none
  int64_t residual_stride;
  T* sum;
  int64_t sum_stride;
  T* out;
  int64_t out_stride;
  const T* weight;
  // The codes and their scales, which are written in the place of `out` (quantize.h). Null where
  // the norm writes `out`.
  uint8_t* codes;
  int64_t codes_stride;
  float* scales;
  int64_t scales_stride;
  float static_scale;  // the scale of all codes; 0: each group of codes has its own scale
  int group_size;
  int groups_per_row;
  float per_element;  // 1 / group_size
  float eps;
  float offset;  // added to the norm's weight
};

// A thread's packs of a group: kPacks of them, which are blockDim.x apart. The first is the pack
// with the thread's index.
template <int kPacks>
class Packs {
 public:
  template <typename T>
  __device__ __forceinline__ Packs(const T* group, int group_size)
      : at_(const_cast<uint4*>(reinterpret_cast<const uint4*>(group)) + threadIdx.x),
        num_(group_size / Pack<T>::kSize - static_cast<int>(threadIdx.x)) {
    compute_now(at_);
    compute_now(num_);
  }
  [[nodiscard]] __device__ __forceinline__ bool has(int i) const {
    return i * static_cast<int>(blockDim.x) < num_;
  }
  // Loads the packs. Packs beyond the end of the group are zero.
  template <typename T>
  __device__ __forceinline__ void load(Pack<T> (&packs)[kPacks]) const {
#pragma unroll
    for (int i = 0; i < kPacks; ++i) {
      const uint4 bits = has(i) ? load_global(at_ + i * blockDim.x) : uint4{};
      packs[i] = reinterpret_cast<const Pack<T>&>(bits);
    }
  }
  template <typename T>
  __device__ __forceinline__ void store(int i, const Pack<T>& pack) const {
    if (has(i)) store_global(at_ + i * blockDim.x, reinterpret_cast<const uint4&>(pack));
  }

 private:
  uint4* at_;
  int num_;
};

template <typename T>
NormArgs<T> norm_args(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& out = args.outputs["y"];
  const TensorView& weight = args.inputs["weight"];
  NormArgs<T> result{};
  result.x = x.as<const T>();
  result.x_stride = x.row_stride;
  if (const TensorView* residual = args.inputs.find("residual")) {
    const TensorView& sum = args.outputs["sum"];
    result.residual = residual->as<const T>();
    result.residual_stride = residual->row_stride;
    result.sum = sum.as<T>();
    result.sum_stride = sum.row_stride;
  }
  result.out = out.as<T>();
  result.out_stride = out.row_stride;
  result.weight = weight.as<const T>();
  result.group_size = static_cast<int>(weight.row_elements() * weight.num_rows());
  result.groups_per_row = static_cast<int>(out.row_elements() / result.group_size);
  result.per_element = 1.0F / static_cast<float>(result.group_size);
  result.eps = static_cast<float>(args.attrs.get_double("eps"));
  result.offset = norm_offset(args.attrs);
  return result;
}

}  // namespace encore::cuda
