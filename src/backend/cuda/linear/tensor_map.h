// Tensor maps: where the copy engine finds the boxes of a matrix (hopper.cuh).
#pragma once

#include <cuda.h>

#include "base/tensor.h"

namespace encore::cuda {

inline constexpr int kBoxColumns = 64;  // of 16 bits
inline constexpr int kBoxRowBytes = 2 * kBoxColumns;

// Columns of a box of elements of 16 or of 8 bits.
constexpr int64_t box_columns(DType dtype) {
  return kBoxRowBytes / size_of(dtype);
}
// Is the matrix made of boxes? Then a copy may bring several.
inline bool has_whole_boxes(const TensorView& matrix) {
  return matrix.row_elements() % box_columns(matrix.dtype) == 0;
}

struct Boxes {
  int64_t rows = 0;  // of a box
  // Boxes that a copy brings: neighbours in the matrix, one behind the other in shared memory; of
  // one that has_whole_boxes(). 0: a copy brings one box, of any matrix.
  int boxes = 0;
  // Rows arrive in turns, so many of the matrix's upper half and as many of the other; 0: as they
  // lie. `rows` and the matrix's rows are multiples of twice as many then.
  int64_t in_turns = 0;
};

// A map of a matrix [rows, columns] of elements of 16 or 8 bits. A copy's place in it: a column (0 where it
// brings several boxes), a row, and the number of its first box (0 where it brings one). Errors:
// kDevice.
CUtensorMap map_of_boxes(const TensorView& matrix, const Boxes& boxes);

// A map of rows of heads [tokens, heads * head_size] of 16-bit elements, of which a copy brings the
// box of 64 columns of some heads of some tokens: a row for each head of the first token, then of
// the next. A copy's place: a column of the head, a head, a token. Errors: kDevice.
CUtensorMap map_of_heads(const TensorView& rows, int64_t head_size, int64_t box_heads,
                         int64_t box_tokens);

}  // namespace encore::cuda
