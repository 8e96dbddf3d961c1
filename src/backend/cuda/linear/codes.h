// Defines the order in which kernels of this folder read weights of 8-bit codes (DType::kFP8): the
// columns of each whole group of 16 lie in the order 0 8 1 9 2 10 ... 7 15. A word of four codes
// thus has the columns that one lane needs for a tensor core's product of 16 columns (codes.cuh). A
// product of codes with codes gives the same result in any order that both operands share.
#pragma once

#include <cstdint>

#include "base/tensor.h"

namespace encore {
class Stream;
}

namespace encore::cuda {

inline constexpr int kCodeGroup = 16;

// Returns the place in its row of a column of a weight of 8-bit codes. If the number of columns is
// no multiple of 16, columns keep the order of the checkpoint.
constexpr int64_t place_of_code(int64_t column, int64_t columns) {
  if (columns % kCodeGroup != 0) return column;
  const int64_t in_group = column % kCodeGroup;
  return column - in_group + in_group % 8 * 2 + in_group / 8;
}

// Brings the columns of a weight into the order of place_of_code(), in place. Shapes: [...,
// columns], dense.
void arrange_codes(Stream& stream, const TensorView& weight);

}  // namespace encore::cuda
