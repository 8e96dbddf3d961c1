// Tensor maps of several matrices, beside tensor_map.h.
#pragma once

#include <cuda.h>

#include "base/tensor.h"

namespace encore::cuda {

// A map of matrices [matrices, rows, columns] of 16-bit elements, one behind the other. A copy brings a box of one
// of them, which lies as one of map_of_boxes() does; outside of that matrix is zero. A copy's place: a column, a row,
// a matrix; with `in_turns` (Boxes::in_turns) as gemm_tiles.cuh copies pairs. Errors: kDevice.
CUtensorMap map_of_matrices(const TensorView& matrices, int64_t box_rows, int64_t in_turns);

}  // namespace encore::cuda
