// The matrices of all experts, of floats or of 8-bit codes with scales, as kernels read them.
#pragma once

#include <string>
#include <type_traits>

#include "backend/cuda/rows/chunk.cuh"
#include "backend/kernel.h"
#include "base/scale_block.h"

namespace encore::cuda {

// The weight [E,O,I] of an expert_mlp: of each expert `num_sets` matrices of `set_rows` rows, one below
// the other. Stored: a float, or Float8, for codes.
template <typename Stored>
struct ExpertMatrices {
  static constexpr bool kHasScales = std::is_same_v<Stored, Float8>;

  const Stored* weight;
  int num_sets;
  int set_rows;
  int columns;
  // Of codes. A scale is that of 1 << row_shift rows and 1 << column_shift columns of a matrix.
  const float* scales;
  int row_shift;
  int column_shift;
  int scale_rows;  // of a matrix
  int scale_columns;

  const __device__ __forceinline__ Stored* row(int expert, int set, int output) const {
    return weight + ((static_cast<int64_t>(expert) * num_sets + set) * set_rows + output) * columns;
  }
  // The scales of a row, one for each block of its columns.
  __device__ __forceinline__ const float* scales_of(int expert, int set, int output) const {
    return scales +
           ((static_cast<int64_t>(expert) * num_sets + set) * scale_rows + (output >> row_shift)) *
               scale_columns;
  }
};

// As many adjacent elements of a weight's row as a lane takes at once, for rows of x of type T.
template <typename T, typename Stored, bool kPacked>
inline constexpr int kChunkSize =
    std::is_same_v<Stored, Float8> ? CodeChunk<kPacked>::kSize : Chunk<T, kPacked>::kSize;

// A lane's share of the dot products of a row of x with row `output` of the first kSets matrices of an
// expert.
template <bool kPacked, int kSets, typename T, typename Stored>
__device__ __forceinline__ void add_dot_products(const T* x, const ExpertMatrices<Stored>& m,
                                                 int expert, int output, float (&sums)[kSets]) {
  constexpr bool kHasScales = ExpertMatrices<Stored>::kHasScales;
  constexpr int kSize = kChunkSize<T, Stored, kPacked>;
  constexpr int kLanes = 32;
  const Stored* rows[kSets];
  const float* scales[kSets];
#pragma unroll
  for (int set = 0; set < kSets; ++set) {
    rows[set] = m.row(expert, set, output);
    if constexpr (kHasScales) scales[set] = m.scales_of(expert, set, output);
  }
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x) % kLanes * kSize; i < m.columns; i += kLanes * kSize) {
    float values[kSize];
    load_elements<kPacked>(x + i, values);
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      float weights[kSize];
      if constexpr (kHasScales) {
        CodeChunk<kPacked>::load(rows[set], i, m.columns, weights);
        float product = 0;  // of columns that share a scale
        add_products(values, weights, product);
        sums[set] = __fmaf_rn(product, scales[set][i >> m.column_shift], sums[set]);
      } else {
        Chunk<T, kPacked>::load(rows[set], i, weights);
        add_products(values, weights, sums[set]);
      }
    }
  }
}

// The operand `name`, "gate_up" or "down", of an expert_mlp, with its scales.
template <typename Stored>
ExpertMatrices<Stored> matrices_of(const KernelArgs& args, const std::string& name, int num_sets) {
  constexpr int kBlockShift = 7;
  static_assert(1 << kBlockShift == kScaleBlock);
  constexpr int kAllColumns = 31;
  const TensorView& weight = args.inputs[name];
  ExpertMatrices<Stored> m{};
  m.weight = weight.as<const Stored>();
  m.num_sets = num_sets;
  m.set_rows = static_cast<int>(weight.shape[1]) / num_sets;
  m.columns = static_cast<int>(weight.shape[2]);
  const TensorView* scale = args.inputs.find(name + "_scale");
  if (scale == nullptr) return m;
  const bool by_block = scale->shape.rank() == 3;
  m.scales = scale->as<const float>();
  m.row_shift = by_block ? kBlockShift : 0;
  m.column_shift = by_block ? kBlockShift : kAllColumns;
  m.scale_rows = static_cast<int>(scale->shape[1]) / num_sets;
  m.scale_columns = by_block ? static_cast<int>(scale->shape[2]) : 1;
  return m;
}

}  // namespace encore::cuda
