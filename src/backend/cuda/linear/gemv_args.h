// The arguments of linears with one to four rows, and the sizes of their shared memory. gemv.cuh
// has the device code.
#pragma once

#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/tensor_map.h"
#include "backend/fused_linear.h"

namespace encore::cuda::gemv {

inline constexpr int kWarps = 8;
inline constexpr int kWorkers = 32 * kWarps;
inline constexpr int kColumnsPerLoad = 8;                        // 16 bytes of x
inline constexpr int kBoxLoads = kBoxColumns / kColumnsPerLoad;  // loads of x for one box
inline constexpr int kTileOutputs = 8;
inline constexpr int kBoxBytes = kTileOutputs * kBoxRowBytes;
inline constexpr int kBoxesPerWarp = 2;  // boxes of a stage of the ring
inline constexpr int kSlotBoxes = kBoxesPerWarp * kWarps;
inline constexpr int kSlotBytes = kSlotBoxes * kBoxBytes;
inline constexpr int kSlotAlignment = 1024;
inline constexpr int kMaxRows = 4;
inline constexpr int kMaxNormLoads = 4;  // loads of a worker, which stay in registers
inline constexpr int kScaleBlock = 128;  // 128 outputs and 128 columns share a scale
// The largest number of a tile's boxes with scales: each lane of the warps holds the scale of one
// box.
inline constexpr int kMostScaledBoxes = 32 * kWarps;

// The number of boxes of x that are multiplied by one box of a weight stored as W.
template <typename W>
inline constexpr int kXBoxes = 2 / sizeof(W);
template <typename W>
inline constexpr int kSlotColumns = kSlotBoxes* kBoxRowBytes / sizeof(W);

template <typename T>
struct GemvArgs {
  const T* x;
  int64_t x_stride;
  int64_t residual_stride;
  int64_t sum_stride;
  int64_t out_stride;
  const T* residual;  // null: none
  const T* norm;      // null: none
  const T* bias;      // null: none
  // The scales of a weight of 8-bit codes. There is one for each output or, where scale_columns is
  // not 0, one for each block of 128 outputs and 128 columns.
  const float* scale;
  int scale_columns;
  T* sum;
  void* out;
  bool out_is_float;
  bool silu_mul;     // the weight's two halves are combined by silu_mul
  bool whole_slots;  // true: one copy fills a stage of the ring; false: it brings one box
  float eps;
  float norm_offset;  // added to the norm's weight
  float per_column;   // 1 / columns
  int num_rows;
  int num_outputs;
  int num_columns;
  int num_units;   // units of 8 outputs: one tile each, or two with silu_mul
  int units_each;  // units of each block; a block whose index is less than
  int units_left;  // units_left has one more
  int slots_per_tile;
  int sum_loads;  // loads of a row of x whose sum with the residual one block stores

  [[nodiscard]] __host__ __device__ int num_loads() const { return num_columns / kColumnsPerLoad; }
  [[nodiscard]] __host__ __device__ int tiles_per_unit() const { return silu_mul ? 2 : 1; }
};

// Returns the arguments of a launch with `num_blocks` blocks, whose weight is stored as W.
template <typename T, typename W>
GemvArgs<T> gemv_args(const KernelArgs& args, int num_blocks) {
  const LinearOperands o = linear_operands(args);
  GemvArgs<T> gemv{};
  gemv.num_rows = static_cast<int>(o.x->num_rows());
  gemv.x = o.x->as<const T>();
  gemv.x_stride = o.x->row_stride;
  if (o.residual != nullptr) {
    gemv.residual = o.residual->as<const T>();
    gemv.residual_stride = o.residual->row_stride;
    gemv.sum = o.sum->as<T>();
    gemv.sum_stride = o.sum->row_stride;
  }
  if (o.norm != nullptr) gemv.norm = o.norm->as<const T>();
  if (o.bias != nullptr) gemv.bias = o.bias->as<const T>();
  gemv.out = o.out->data;
  gemv.out_stride = o.out->row_stride;
  gemv.out_is_float = o.out->dtype == DType::kF32;
  gemv.silu_mul = o.silu_mul;
  gemv.num_columns = static_cast<int>(o.weight->row_elements());
  if (o.scale != nullptr) {
    gemv.scale = o.scale->as<const float>();
    gemv.scale_columns = o.scale->shape.rank() > 1 ? static_cast<int>(o.scale->row_elements()) : 0;
  }
  gemv.whole_slots = has_whole_boxes(*o.weight);
  gemv.eps = static_cast<float>(o.eps);
  gemv.norm_offset = static_cast<float>(o.norm_offset);
  gemv.per_column = 1.0F / static_cast<float>(gemv.num_columns);
  gemv.num_outputs = static_cast<int>(o.weight->num_rows() / (o.silu_mul ? 2 : 1));
  gemv.num_units = static_cast<int>(div_up(gemv.num_outputs, kTileOutputs));
  gemv.units_each = gemv.num_units / num_blocks;
  gemv.units_left = gemv.num_units % num_blocks;
  gemv.slots_per_tile = static_cast<int>(div_up(gemv.num_columns, kSlotColumns<W>));
  gemv.sum_loads = static_cast<int>(div_up(gemv.num_loads(), num_blocks));
  return gemv;
}

// Returns the tensor map with which the copy engine finds the weight. Errors: kDevice.
inline CUtensorMap weight_map(const KernelArgs& args) {
  const TensorView& weight = *linear_operands(args).weight;
  const int boxes = has_whole_boxes(weight) ? kSlotBoxes : 0;
  return map_of_boxes(weight, {.rows = kTileOutputs, .boxes = boxes});
}

// Returns the number of rows for which the kernel is compiled that computes `rows` rows: the
// smallest that suffices.
constexpr int padded_rows(int64_t rows) {
  return rows <= 2 ? static_cast<int>(rows) : kMaxRows;
}

// Returns the bytes of shared memory for x, whose rows are padded to whole stages of the ring.
constexpr int64_t x_bytes(int64_t rows, int64_t columns, DType stored) {
  return rows * round_up(columns, kSlotBoxes * box_columns(stored)) * 2;
}
// Returns the number of units in a batch. The sums of a batch lie in shared memory together: [tile,
// row, output, warp].
constexpr int batch_units(int rows) {
  return 16 / rows;
}
constexpr int tile_sums_bytes(int rows) {
  return rows * kTileOutputs * kWarps * 4;
}
constexpr int64_t sums_bytes(int rows, int64_t units_of_block, int64_t tiles_per_unit) {
  return std::min<int64_t>(units_of_block, batch_units(rows)) * tiles_per_unit *
         tile_sums_bytes(rows);
}
// Returns the number of 16-byte loads that a worker makes for a row.
inline int64_t num_loads(int64_t rows, int64_t columns) {
  return div_up(columns / kColumnsPerLoad, kWorkers / padded_rows(rows));
}
inline constexpr int64_t kMostSumsBytes = sums_bytes(1, batch_units(1), 2);

inline constexpr int64_t kKilobyte = 1024;
inline constexpr int64_t kMaxSharedBytes = 220 * kKilobyte;
inline constexpr int kMinSlots = 4;
// Returns the bytes of shared memory for a ring of stages, two barriers for each stage (full and
// empty), x, and the sums.
inline int64_t shared_bytes(int64_t rows, int64_t columns, DType stored, int64_t num_slots,
                            int64_t sums) {
  constexpr int64_t kBarriersBytes = 16;
  return num_slots * (kSlotBytes + kBarriersBytes) + x_bytes(padded_rows(rows), columns, stored) +
         sums;
}

}  // namespace encore::cuda::gemv
