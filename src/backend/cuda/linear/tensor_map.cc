#include "backend/cuda/linear/tensor_map.h"

#include <algorithm>
#include <vector>

#include "backend/cuda/device/driver.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/matrices_map.h"
#include "backend/cuda/linear/output_map.h"

namespace encore::cuda {

namespace {

// The size of a dimension, the size of a box in it, and the bytes from one element of the dimension
// to the next.
struct Dimension {
  int64_t size;
  int64_t box;
  int64_t stride;
};

// Appends the dimensions of a matrix's rows. There are three such dimensions where the rows come in
// turns (Boxes::in_turns), else one.
void add_rows(std::vector<Dimension>& dimensions, const Dimension& rows, int64_t turn) {
  if (turn == 0) {
    dimensions.push_back(rows);
    return;
  }
  dimensions.push_back({turn, turn, rows.stride});
  dimensions.push_back({2, 2, rows.size / 2 * rows.stride});
  dimensions.push_back({rows.size / 2 / turn, rows.box / 2 / turn, turn * rows.stride});
}

CUtensorMapDataType map_type(DType dtype) {
  switch (dtype) {
    case DType::kFP8:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case DType::kF16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  }
}

CUtensorMap map_of(const TensorView& tensor, const std::vector<Dimension>& dimensions,
                   CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                   CUtensorMapL2promotion fetched = CU_TENSOR_MAP_L2_PROMOTION_L2_128B) {
  constexpr size_t kMostDimensions = 5;
  cuuint64_t sizes[kMostDimensions];
  cuuint64_t strides[kMostDimensions];
  cuuint32_t box[kMostDimensions];
  cuuint32_t steps[kMostDimensions];
  for (size_t i = 0; i < dimensions.size(); ++i) {
    sizes[i] = static_cast<cuuint64_t>(dimensions[i].size);
    strides[i] = static_cast<cuuint64_t>(dimensions[i].stride);
    box[i] = static_cast<cuuint32_t>(dimensions[i].box);
    steps[i] = 1;
  }
  CUtensorMap map;
  check(driver().tensor_map_encode_tiled(
            &map, map_type(tensor.dtype), static_cast<cuuint32_t>(dimensions.size()), tensor.data,
            sizes, strides + 1, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, fetched,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeTiled");
  return map;
}

}  // namespace

CUtensorMap map_of_boxes(const TensorView& matrix, const Boxes& boxes) {
  const int64_t rows = matrix.num_rows();
  const int64_t columns = matrix.row_elements();
  const int64_t element = size_of(matrix.dtype);
  const int64_t width = box_columns(matrix.dtype);
  const int64_t stride = rows > 1 ? element * matrix.row_stride : round_up(element * columns, 16);
  const bool has_several = boxes.boxes > 0;
  std::vector<Dimension> dimensions{{has_several ? width : columns, width, element}};
  add_rows(dimensions, {rows, boxes.rows, stride}, boxes.in_turns);
  dimensions.push_back({has_several ? columns / width : 1, std::max(1, boxes.boxes), kBoxRowBytes});
  return map_of(matrix, dimensions);
}

CUtensorMap map_of_matrices(const TensorView& matrices, int64_t box_rows, int64_t in_turns) {
  const int64_t rows = matrices.shape[1];
  const int64_t columns = matrices.shape[2];
  const int64_t element = size_of(matrices.dtype);
  std::vector<Dimension> dimensions{{columns, box_columns(matrices.dtype), element}};
  add_rows(dimensions, {rows, box_rows, columns * element}, in_turns);
  dimensions.push_back({matrices.shape[0], 1, rows * columns * element});
  // The L2 cache fetches 256 bytes from memory at a time, because the next copy takes the
  // neighbouring bytes and memory delivers both sooner together.
  return map_of(matrices, dimensions, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

CUtensorMap map_of_half_boxes(const TensorView& matrix, int64_t box_rows) {
  const int64_t rows = matrix.num_rows();
  const int64_t columns = matrix.row_elements();
  const int64_t stride = 2 * (rows > 1 ? matrix.row_stride : round_up(columns, 8));
  return map_of(matrix,
                {{columns, kBoxColumns / 2, 2}, {rows, box_rows, stride}, {1, 1, kBoxRowBytes}},
                CU_TENSOR_MAP_SWIZZLE_64B);
}

CUtensorMap map_of_heads(const TensorView& rows, int64_t head_size, int64_t box_heads,
                         int64_t box_tokens) {
  const int64_t tokens = rows.num_rows();
  const int64_t columns = rows.row_elements();
  const int64_t stride = 2 * (tokens > 1 ? rows.row_stride : round_up(columns, 8));
  return map_of(rows, {{head_size, kBoxColumns, 2},
                       {columns / head_size, box_heads, 2 * head_size},
                       {tokens, box_tokens, stride}});
}

}  // namespace encore::cuda
