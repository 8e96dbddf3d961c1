// Lists the changes that a checkpoint's tensor may go through before it becomes a weight. Recipes
// refer to them by name (ir::WeightTransform).
//
//   deinterleave(groups,parts)  in each group of rows, every parts-th row first, then those behind
//                               them: rows 0 1 2 3 4 5 of 1 group become 0 2 4 1 3 5 for parts = 2
//   repeat(rows)                a tensor of one number, as a vector of it
//   shape(dims...)              the numbers in their order, in another shape
//   scale_columns(exponents...)  as many parts of a row as numbers, each times 2 to its number's power
//   fp8_scales()                of each row, the scale with which it fits e4m3, 1 for a row of zeros
//   fp8_codes()                 the rows over those scales, to be rounded to fp8
#pragma once

#include <span>
#include <string_view>

#include "model/safetensors.h"

namespace encore::model {

using TransformNumbers = std::span<const int64_t>;

// Describes one of the changes that are listed at the top of this file.
struct Transform {
  std::string_view name;
  // Returns the result's shape. Errors: kModel, saying what the tensor would have to be; the caller
  // adds the tensor's name.
  Shape (*shape)(const StoredTensor& tensor, TransformNumbers numbers) = nullptr;
  // Writes row `row` of the result, where a row spans all dims but the first. Threads: several at
  // once. Does not throw. REQUIRES: `shape` accepted the tensor.
  void (*row)(const StoredTensor& tensor, TransformNumbers numbers, int64_t row,
              float* to) = nullptr;
};

// Returns the row of that name. Errors: kCompile for an unknown name, listing the known ones.
const Transform& find_transform(std::string_view name);

// Writes the elements [first, first + count) of a tensor of a float dtype or fp8 to `to`, as f32.
void widen(const StoredTensor& tensor, int64_t first, int64_t count, float* to);

}  // namespace encore::model
