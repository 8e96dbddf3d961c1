// Makes tensor maps, with which the copy engine finds the boxes of a matrix (hopper.cuh).
#pragma once

#include <cuda.h>

#include "base/tensor.h"

namespace encore::cuda {

inline constexpr int kBoxColumns = 64;  // columns of 16-bit elements
inline constexpr int kBoxRowBytes = 2 * kBoxColumns;

// Returns the number of columns of a box, for elements of 16 or of 8 bits.
constexpr int64_t box_columns(DType dtype) {
  return kBoxRowBytes / size_of(dtype);
}
// Returns whether the matrix consists of whole boxes. Only then may one copy bring several.
inline bool has_whole_boxes(const TensorView& matrix) {
  return matrix.row_elements() % box_columns(matrix.dtype) == 0;
}

struct Boxes {
  int64_t rows = 0;  // rows of a box
  // The number of boxes that a copy brings. They are neighbours in the matrix and lie one behind
  // the other in shared memory. The matrix must satisfy has_whole_boxes(). With 0, a copy brings
  // one box, of any matrix.
  int boxes = 0;
  // Where this is not 0, rows arrive in turns: this many rows of the matrix's upper half, then as
  // many of its lower half. `rows` and the number of the matrix's rows must be multiples of twice
  // this number. With 0, rows arrive in the order in which they lie.
  int64_t in_turns = 0;
};

// Returns a map of a matrix [rows, columns] of elements of 16 or 8 bits. The place of a copy is a
// column (0 where it brings several boxes), a row, and the number of its first box (0 where it
// brings one box). Errors: kDevice.
CUtensorMap map_of_boxes(const TensorView& matrix, const Boxes& boxes);

// Returns a map of rows of heads [tokens, heads * head_size] of 16-bit elements. A copy brings the
// box of 64 columns of some heads of some tokens: one row for each head of the first token, then
// the heads of the next token. The place of a copy is a column of the head, a head, and a token.
// Errors: kDevice.
CUtensorMap map_of_heads(const TensorView& rows, int64_t head_size, int64_t box_heads,
                         int64_t box_tokens);

}  // namespace encore::cuda
