// Makes tensor maps of outputs that the copy engine stores (see also tensor_map.h).
#pragma once

#include <cuda.h>

#include "base/tensor.h"

namespace encore::cuda {

// Returns a map of a matrix of 16-bit elements in boxes of 32 columns and `box_rows` rows. These
// boxes are half as wide as those that are read. A box lies in shared memory in rows of 64 bytes,
// with the 16-byte pieces of a row permuted by the number of its pair of rows modulo 4. The place
// of a copy is a column, a row, and 0. Errors: kDevice.
CUtensorMap map_of_half_boxes(const TensorView& matrix, int64_t box_rows);

}  // namespace encore::cuda
