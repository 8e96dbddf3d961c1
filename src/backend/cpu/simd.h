// Declares the inner loops that need vector instructions, in one table per instruction set.
//
// Each table is one file that is compiled with its own flags from a common body (simd_body.inc).
// These files use no inline function of other files, because the linker may keep any one copy of an
// inline function.
//
// Sums have the same order on every instruction set. There are 16 lanes; lane l takes elements l, l
// + 16, ... in that order (of the even-odd arrangement, for bf16 weights), and the lanes are added
// pairwise at the end. Where groups of columns have scales, a lane's sum of each group is scaled,
// and the groups are added in order. So a dot product's bits do not depend on the other dot
// products beside it. Instruction sets differ in one thing: without FMA, each product is rounded.
#pragma once

#include <cstdint>

#include "backend/random.h"
#include "base/dtype.h"
#include "base/scale_block.h"

namespace encore::cpu {

// The order of the elements of a widened row. kEvenOdd puts the even ones of each 32 elements
// first, because bf16 splits in that way with one shift and one mask.
enum class Arrangement : uint8_t { kNatural, kEvenOdd };

// Widened rows are padded with zeros to a multiple of this number of elements.
constexpr int64_t kPadding = 32;
constexpr int64_t padded(int64_t n) {
  return (n + kPadding - 1) / kPadding * kPadding;
}

// The arguments for dot products of every row of x with every row of w, of `n` elements each. Codes
// of w must not be NaN; the loader checks this. With `scales`, the sums over kScaleBlock elements
// at a time are multiplied by scales[i * scales_stride + group].
struct DotProducts {
  const float* x = nullptr;  // for bf16 w: arranged kEvenOdd and padded
  int64_t x_stride = 0;      // Units: elements, like all strides in this struct
  int64_t num_x = 0;
  const void* w = nullptr;
  DType w_dtype = DType::kF32;
  int64_t w_stride = 0;
  int64_t num_w = 0;
  int64_t n = 0;
  float* y = nullptr;  // y[i * y_stride + j] = x_i . w_j
  int64_t y_stride = 0;
  const float* scales = nullptr;
  int64_t scales_stride = 0;
};

// The arguments for y_i += sum over j of weights[i][j] * rows[j], in the order of j. Rows and y
// have `n` elements.
struct WeightedSum {
  const float* weights = nullptr;
  int64_t weights_stride = 0;
  int64_t num_y = 0;
  const float* rows = nullptr;
  int64_t rows_stride = 0;
  int64_t num_rows = 0;
  int64_t n = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
};

struct Simd {
  const char* name;  // "AVX-512"
  // Convert `n` elements of a float dtype to f32, and back with rounding to nearest even. NaN stays
  // NaN.
  void (*load)(const void* from, DType dtype, int64_t n, float* to);
  void (*store)(const float* from, int64_t n, DType dtype, void* to);
  // Converts as load() does, and stores the elements in the order `arrangement`, with zeros behind
  // them up to padded(n) elements.
  void (*pack)(const void* from, DType dtype, int64_t n, Arrangement arrangement, float* to);
  void (*dot_products)(const DotProducts& args);
  void (*weighted_sum)(const WeightedSum& args);
  // Sets x = exp(x), to 2 units in the last place; the result is 0 below about -104.
  void (*exp)(float* x, int64_t n);
  // Sets x = exp(x - offset), and returns the sum of the results.
  float (*exp_sum)(float* x, int64_t n, float offset);
  float (*sum_of_squares)(const float* x, int64_t n);
  // Returns the largest number. NaNs are skipped; the result is -infinity where there is no number.
  float (*max_number)(const float* x, int64_t n);
  // Returns the largest magnitude. NaNs are skipped; the result is 0 where there is no number.
  float (*max_magnitude)(const float* x, int64_t n);
  // Writes 4 * num_blocks numbers of random::fill_block(seed, first_block + ...).
  void (*normals)(uint64_t seed, uint64_t first_block, int64_t num_blocks, float* to);
  // Writes random::sample_noise of 4 * num_blocks tokens from token 4 * first_block on.
  void (*gumbels)(int64_t seed, int32_t kv_len, random::Purpose purpose, int64_t first_block,
                  int64_t num_blocks, float* to);
};

// Returns the table of inner loops for the best instruction set that this processor has.
const Simd& simd();

// Lists every table that this processor can run, the plain one first. Tests use it.
struct SimdList {
  const Simd* tables[4];
  int count;
};
SimdList runnable_simd();

}  // namespace encore::cpu
