// Weights of 8-bit codes (DType::kFP8) as the kernels of this folder read them: the columns of each
// whole group of 16 in the order 0 8 1 9 2 10 ... 7 15. So a word of four codes has what one lane
// needs for a tensor core's product of 16 columns (codes.cuh). Products of codes with codes are
// the same in any order that both operands have.
#pragma once

#include <cstdint>

#include "base/tensor.h"

namespace encore {
class Stream;
}

namespace encore::cuda {

inline constexpr int kCodeGroup = 16;

// The place of a column of such a weight in its row. A row whose length is no multiple of a group
// is as it was stored.
constexpr int64_t place_of_code(int64_t column, int64_t columns) {
  if (columns % kCodeGroup != 0) return column;
  const int64_t in_group = column % kCodeGroup;
  return column - in_group + in_group % 8 * 2 + in_group / 8;
}

// Brings a weight into that order, in place. Shapes: [..., columns], dense.
void arrange_codes(Stream& stream, const TensorView& weight);

}  // namespace encore::cuda
