// Makes tensor maps of several matrices (see also tensor_map.h).
#pragma once

#include <cuda.h>

#include "base/tensor.h"

namespace encore::cuda {

// Returns a map of matrices [matrices, rows, columns] of 16-bit elements that lie one behind the
// other. A copy brings a box of one matrix, with the layout of map_of_boxes(); elements outside of
// that matrix are zero. The place of a copy is a column, a row and a matrix. With `in_turns`
// (Boxes::in_turns), copies are made as gemm_tiles.cuh copies pairs. Errors: kDevice.
CUtensorMap map_of_matrices(const TensorView& matrices, int64_t box_rows, int64_t in_turns);

}  // namespace encore::cuda
