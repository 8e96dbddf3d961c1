// linear with up to 64 rows. As in gemv.cu, all of the time goes into reading the weights, so the
// kernel is a stream: one thread of each block keeps a ring of boxes of weights in flight, filled
// before the launches before have ended, and a warpgroup multiplies them with the boxes of x beside
// them.
//
// The operands are swapped: out^T [O, R] = weight [O, I] x^T [I, R]. Outputs are the 64 rows of a
// tensor core's product, the rows of x its 8 to 64 columns, so few rows waste nothing that matters.
//
// Where outputs are few, the blocks of a cluster share a tile of outputs and split the columns of
// the weights: rows of x must be read again for each tile, and low tiles would read more of x than
// of weights. Each block then sends its partial sums to the blocks that finish them, which add them
// in the order of the split. So a row's bits depend on the numbers of columns and outputs and on
// the padded number of rows alone.
//
// A block asks for more than half of a multiprocessor's shared memory, for the reason in gemv.cu.
#include "backend/cuda/fewrow.h"

#include <algorithm>
#include <array>

#include "backend/cuda/driver.h"
#include "backend/cuda/fewrow.cuh"
#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

using namespace fewrow;

constexpr int kMaxRows = 64;
constexpr int64_t kMaxStages = 32;
constexpr int64_t kBarrierBytes = 8;
constexpr int64_t kMaxStageBytes = 36 * 1024;  // unless one box is more
// Measured: large products gain from a larger ring, small ones lose.
constexpr int64_t kHighTileOutputs = 128;
constexpr int64_t kSharedBytes = 200 * 1024;
constexpr int64_t kSharedBytesOfHighTiles = 224 * 1024;

// How a shape is cut; a function of the shape alone, for one chip.
struct Cut {
  int cluster = 1;
  int tile_outputs = 0;
  int num_tiles = 0;
  int num_blocks = 0;
  int stage_boxes = 0;
  int num_steps = 0;
  int num_stages = 0;
  int64_t shared_bytes = 0;
};

int padded_rows(int64_t rows) {
  int padded = 8;
  while (padded < rows)
    padded *= 2;
  return padded;
}

// Outputs of a tile: all clusters get the same number of tiles, one where there is a split.
int64_t tile_outputs(int64_t outputs, int64_t blocks, int cluster) {
  const int64_t clusters = blocks / cluster;
  const int64_t waves = cluster > 1 ? 1 : div_up(outputs, clusters * kMaxTileOutputs);
  return round_up(div_up(outputs, clusters * waves), 8 * cluster);
}

// Measured on an H200: from 48 outputs a block on, a split does not pay. Clusters of 4 and 8 do
// not, either: at one block a multiprocessor, only 30 clusters of 4 find room.
int choose_cluster(int64_t outputs, int64_t boxes, int64_t blocks) {
  constexpr int64_t kMinBoxes = 16;
  return boxes >= kMinBoxes && tile_outputs(outputs, blocks, 1) < 48 ? 2 : 1;
}

Cut cut(int64_t outputs, int64_t columns, int rows, int64_t blocks) {
  Cut result;
  const int64_t boxes = div_up(columns, kBoxColumns);
  result.cluster = choose_cluster(outputs, boxes, blocks);
  const int64_t tile = tile_outputs(outputs, blocks, result.cluster);
  result.tile_outputs = static_cast<int>(tile);
  result.num_tiles = static_cast<int>(div_up(outputs, tile));
  result.num_blocks =
      static_cast<int>(std::min<int64_t>(int64_t{result.num_tiles} * result.cluster, blocks));
  // A stage of small boxes costs as much to pass on as one of large ones.
  const int64_t box_bytes = (tile + rows) * kRowBytes;
  result.stage_boxes = 1;
  while (2 * result.stage_boxes * box_bytes <= kMaxStageBytes &&
         2 * result.stage_boxes * result.cluster <= boxes) {
    result.stage_boxes *= 2;
  }
  result.num_steps = static_cast<int>(div_up(boxes, result.stage_boxes));
  result.shared_bytes = tile < kHighTileOutputs ? kSharedBytes : kSharedBytesOfHighTiles;
  const int64_t stage_bytes = result.stage_boxes * box_bytes + 2 * kBarrierBytes;
  const int64_t partials = result.cluster > 1 ? tile * rows * 4 : 0;
  // A product reads 64 outputs, of which a low tile has fewer: up to 56 rows beyond the ring.
  const int64_t beyond = kProductOutputs * kRowBytes;
  const int64_t ring_bytes = result.shared_bytes - partials - beyond - kBarrierBytes;
  result.num_stages = static_cast<int>(std::min(ring_bytes / stage_bytes, kMaxStages));
  // Consumers let go of a stage only when they have the next.
  ENCORE_CHECK(result.num_stages >= 2);
  return result;
}

// `boxes`: that a copy brings, one above the other in memory; 0: one, and columns of any number.
CUtensorMap map_of(const TensorView& view, int64_t box_rows, int boxes) {
  CUtensorMap map;
  const auto rows = static_cast<cuuint64_t>(view.num_rows());
  const int64_t columns = view.row_elements();
  const int64_t stride = rows > 1 ? view.row_stride : round_up(columns, 8);
  cuuint64_t sizes[3] = {static_cast<cuuint64_t>(columns), rows, 1};
  if (boxes > 0) {
    sizes[0] = kBoxColumns;
    sizes[2] = static_cast<cuuint64_t>(columns / kBoxColumns);
  }
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(stride) * 2, kRowBytes};
  const cuuint32_t box[3] = {kBoxColumns, static_cast<cuuint32_t>(box_rows),
                             static_cast<cuuint32_t>(std::max(1, boxes))};
  const cuuint32_t steps[3] = {1, 1, 1};
  check(driver().tensor_map_encode_tiled(
            &map,
            view.dtype == DType::kF16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                      : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            3, view.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
            CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeTiled");
  return map;
}

using FewRowKernel = void (*)(FewRowArgs);

template <typename T, int kRows>
FewRowKernel kernel_of_height(int products) {
  static constexpr std::array<FewRowKernel, kMaxProducts> kKernels = {
      fewrow_kernel<T, kRows, 1>, fewrow_kernel<T, kRows, 2>, fewrow_kernel<T, kRows, 3>,
      fewrow_kernel<T, kRows, 4>};
  return kKernels[static_cast<size_t>(products - 1)];
}

template <typename T>
FewRowKernel kernel_for(int rows, int products) {
  switch (rows) {
    case 8:
      return kernel_of_height<T, 8>(products);
    case 16:
      return kernel_of_height<T, 16>(products);
    case 32:
      return kernel_of_height<T, 32>(products);
    default:
      return kernel_of_height<T, 64>(products);
  }
}

// Does it beat cuBLASLt? As measured on an H200 for the shapes of models of 1 to 8 billion weights,
// in chains of launches over weights out of cache.
bool is_faster(int64_t outputs, int64_t columns, int rows) {
  constexpr int64_t kBlocks = 132;
  const bool has_high_tiles = tile_outputs(outputs, kBlocks, 1) >= kHighTileOutputs;
  const bool is_deep = columns >= 4096;
  if (rows <= 16) return !has_high_tiles || !is_deep;
  if (rows == 32) return outputs <= 2048 || has_high_tiles || is_deep;
  return is_deep ? outputs >= 4096 : outputs >= 65536;
}

}  // namespace

bool accepts_fewrow(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& weight = args.inputs[1];
  const TensorView& out = args.outputs[0];
  const int64_t columns = weight.row_elements();
  const bool types = size_of(x.dtype) == 2 && weight.dtype == x.dtype &&
                     (out.dtype == x.dtype || out.dtype == DType::kF32);
  return types && x.num_rows() > 0 && x.num_rows() <= kMaxRows && weight.num_rows() > 0 &&
         columns > 0 && columns % 8 == 0 && is_aligned(x) && is_aligned(weight) &&
         is_faster(weight.num_rows(), columns, padded_rows(x.num_rows()));
}

BoundLaunch bind_fewrow(Device& device, const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& weight = args.inputs[1];
  const TensorView& out = args.outputs[0];
  const int rows = padded_rows(x.num_rows());
  const Cut c =
      cut(weight.num_rows(), weight.row_elements(), rows, chip(device).num_multiprocessors);
  FewRowArgs a{};
  a.whole_stages = weight.row_elements() % kBoxColumns == 0;
  a.weight = map_of(weight, c.tile_outputs, a.whole_stages ? c.stage_boxes : 0);
  a.x = map_of(x, rows, a.whole_stages ? c.stage_boxes : 0);
  a.bias = args.inputs.size() > 2 ? args.inputs[2].data : nullptr;
  a.out = out.data;
  a.out_stride = out.row_stride;
  a.out_is_float = out.dtype == DType::kF32;
  a.out_in_pairs = is_aligned(out, 4);
  a.num_rows = static_cast<int>(x.num_rows());
  a.num_outputs = static_cast<int>(weight.num_rows());
  a.num_steps = c.num_steps;
  a.tile_outputs = c.tile_outputs;
  a.num_tiles = c.num_tiles;
  a.stage_boxes = c.stage_boxes;
  a.num_stages = c.num_stages;
  a.cluster = c.cluster;
  const int products = static_cast<int>(div_up(c.tile_outputs, kProductOutputs));
  const FewRowKernel kernel = x.dtype == DType::kF16 ? kernel_for<__half>(rows, products)
                                                     : kernel_for<__nv_bfloat16>(rows, products);
  allow_shared_memory(kernel, c.shared_bytes);
  const Grid grid{.blocks = static_cast<unsigned>(c.num_blocks),
                  .threads = kThreads,
                  .shared_bytes = static_cast<size_t>(c.shared_bytes),
                  .cluster = static_cast<unsigned>(c.cluster)};
  return [a, grid, kernel](Stream& stream, const StepShape& /*step*/) {
    launch(stream, grid, kernel, a);
  };
}

}  // namespace encore::cuda
