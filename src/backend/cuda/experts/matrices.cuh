// Describes the matrices of all experts, of floats or of 8-bit codes with scales, for kernels to
// read.
#pragma once

#include <string>
#include <type_traits>

#include "backend/cuda/rows/chunk.cuh"
#include "backend/kernel.h"
#include "base/scale_block.h"

namespace encore::cuda {

// The weight [E,O,I] of an expert_mlp. Each expert has `num_sets` matrices of `set_rows` rows, one
// below the other. `Stored` is a float type, or Float8 for codes.
template <typename Stored>
struct ExpertMatrices {
  static constexpr bool kHasScales = std::is_same_v<Stored, Float8>;

  const Stored* weight;
  int num_sets;
  int set_rows;
  int columns;
  // The scales of FP8 weights. Each scale belongs to a block of 1 << row_shift rows and 1 <<
  // column_shift columns of a matrix.
  const float* scales;
  int row_shift;
  int column_shift;
  int scale_rows;  // rows of scales of one matrix
  int scale_columns;

  const __device__ __forceinline__ Stored* row(int expert, int set, int output) const {
    return weight + ((static_cast<int64_t>(expert) * num_sets + set) * set_rows + output) * columns;
  }
  // Returns the scales of a row of a matrix, one scale for each block of columns.
  __device__ __forceinline__ const float* scales_of(int expert, int set, int output) const {
    return scales +
           ((static_cast<int64_t>(expert) * num_sets + set) * scale_rows + (output >> row_shift)) *
               scale_columns;
  }
};

// Holds a lane's chunks of a row of x and of the rows that x is multiplied with: from each of the
// first kSets matrices of an expert, kOutputs rows. They are fetched well before they are
// multiplied.
template <typename T, typename Stored, bool kPacked, int kSets, int kOutputs = 1>
class Factors {
  static constexpr bool kHasScales = ExpertMatrices<Stored>::kHasScales;
  using Elements = Chunk<T, kPacked>;
  using Weights = std::conditional_t<kHasScales, CodeChunk<kPacked>, Chunk<T, kPacked>>;

 public:
  static constexpr int kSize = Weights::kSize;  // columns of a chunk

  __device__ __forceinline__ void fetch_x(const T* x, const ExpertMatrices<Stored>& m, int column) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i)
      x_[i] = Elements::fetch(x, column + i * Elements::kSize, m.columns);
  }
  // Fetches chunks of the weights. For outputs beyond the last, it fetches the last output's.
  __device__ __forceinline__ void fetch_weights(const ExpertMatrices<Stored>& m, int expert,
                                                int output, int column) {
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const int row = o == 0 ? output : min(output + o, m.set_rows - 1);
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        weights_[o][set] = Weights::fetch(m.row(expert, set, row), column, m.columns);
        if constexpr (kHasScales)
          scales_[o][set] = m.scales_of(expert, set, row)[column >> m.column_shift];
      }
    }
  }
  // Adds the products of the fetched weights with the chunk of x to `sums`.
  __device__ __forceinline__ void add(float (&sums)[kOutputs][kSets], float factor = 1) const {
    float values[kSize];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      float some[Elements::kSize];
      Elements::widen(x_[i], some);
#pragma unroll
      for (int j = 0; j < Elements::kSize; ++j)
        values[i * Elements::kSize + j] = some[j];
    }
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        float weights[kSize];
        Weights::widen(weights_[o][set], weights);
        float sum = 0;
        add_products(values, weights, sum);
        if constexpr (kHasScales) sum *= scales_[o][set];
        sums[o][set] = fmaf(factor, sum, sums[o][set]);
      }
    }
  }

 private:
  static constexpr int kChunks = kSize / Elements::kSize;

  typename Elements::Raw x_[kChunks];
  typename Weights::Raw weights_[kOutputs][kSets];
  float scales_[kOutputs][kSets];  // scales of the codes
};

// Returns the matrices of operand `name` ("gate_up" or "down") of an expert_mlp, with their scales.
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
