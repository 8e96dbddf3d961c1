// linear with up to 128 rows. As in gemv.cu, most of the time goes into reading the weights, so the
// kernel is a stream: one thread of each block keeps a ring of boxes of weights in flight, filled
// before the launches before have ended, and one or two warpgroups multiply them with the boxes of
// x beside them.
//
// The operands are swapped: out^T [O, R] = weight [O, I] x^T [I, R]. Outputs are the 64 rows of a
// tensor core's product, the rows of x its 8 to 128 columns, so few rows waste nothing that
// matters.
//
// Every tile of outputs reads all of x again, so low tiles would read more of x than of weights.
// Where outputs are few, the two blocks of a cluster share a tile and split the columns: each sends
// the other half of its partial sums. A sum of two has one order; so a row's bits depend on the
// numbers of columns and outputs and on the padded number of rows alone.
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

// Up to which whole decode steps of an 8B model on an H200 are no slower than with cuBLASLt: from
// 72 to 96 rows they are 2 to 5 % slower, though the layer's products alone keep up.
constexpr int kMaxGoodRows = 64;
constexpr int64_t kMinTileOutputs = 32;  // unless there are fewer
constexpr int64_t kMaxStages = 32;
constexpr int64_t kBarrierBytes = 8;
constexpr int64_t kSharedBytes = 216 * 1024;
constexpr int64_t kMaxStageBytes = 48 * 1024;
constexpr int64_t kBlocks = 132;  // of an H200, one on each multiprocessor

template <typename T>
struct Variant {
  int rows;
  int products;  // above each other in a warpgroup's part of a tile
  int warpgroups;
  void (*kernel)(FewRowArgs<Store<T>>);

  [[nodiscard]] constexpr int outputs() const { return products * warpgroups * kProductOutputs; }
};

template <typename T, int kRows, int kProducts, int kWarpgroups = 1>
constexpr Variant<T> variant() {
  return {kRows, kProducts, kWarpgroups, fewrow_kernel<Store<T>, kRows, kProducts, kWarpgroups>};
}

// By rows, then by outputs. Two warpgroups hold the sums for which one has too few registers; one
// with 3 or 4 products of 64 rows would be slower than lower tiles.
template <typename T>
constexpr std::array kVariants = {
    variant<T, 8, 1>(),     variant<T, 8, 2>(),   variant<T, 8, 3>(),   variant<T, 8, 4>(),
    variant<T, 16, 1>(),    variant<T, 16, 2>(),  variant<T, 16, 3>(),  variant<T, 16, 4>(),
    variant<T, 32, 1>(),    variant<T, 32, 2>(),  variant<T, 32, 3>(),  variant<T, 32, 4>(),
    variant<T, 64, 1>(),    variant<T, 64, 2>(),  variant<T, 96, 1>(),  variant<T, 96, 2>(),
    variant<T, 96, 2, 2>(), variant<T, 128, 1>(), variant<T, 128, 2>(), variant<T, 128, 2, 2>()};

int padded_rows(int64_t rows) {
  for (const auto& variant : kVariants<__half>) {
    if (variant.rows >= rows) return variant.rows;
  }
  return 0;
}

int max_tile_outputs(int64_t rows) {
  int most = 0;
  for (const auto& variant : kVariants<__half>) {
    if (variant.rows == padded_rows(rows)) most = variant.outputs();
  }
  return most;
}

template <typename T>
const Variant<T>& variant_for(int64_t rows, int tile_outputs) {
  const auto& variants = kVariants<T>;
  const auto found = std::find_if(variants.begin(), variants.end(), [&](const Variant<T>& v) {
    return v.rows == padded_rows(rows) && v.outputs() >= tile_outputs;
  });
  ENCORE_CHECK(found != variants.end(), "a tile of {} rows, {} outputs", rows, tile_outputs);
  return *found;
}

// How long a product takes, cut so, in microseconds on an H200. A model of what can bound it, the
// blocks that get most counting: copying weights and x, the tensor cores, reading the weights. The
// longest does, the others show a little; an exchange and a full machine, which keeps the next
// launch's blocks out, cost some, too. Fitted to chains of a layer's products (`linear_bench
// --search`): what it likes best was 0.5 % slower than the fastest on average, 7 % at worst.
double estimate(int64_t rows, int64_t outputs, int64_t columns, const FewRowTiling& t) {
  constexpr double kReadBytesPerUs = 4.6e6;
  constexpr double kCopiedBytesPerUs = 110e3;  // by a block
  constexpr double kCyclesPerUs = 1700;
  constexpr double kMinCycles = 84;         // of the products of 16 columns
  constexpr double kMinProductCycles = 30;  // of one of them, 64 outputs high
  constexpr double kProductCyclesPerRow = 1.8;
  constexpr double kOverlapLoss = 0.2;
  constexpr double kExchangeUs = 1.1;
  constexpr double kFullMachineUs = 0.3;
  const int height = padded_rows(rows);
  const int halves = t.split ? 2 : 1;
  const int64_t blocks = div_up(outputs, t.tile_outputs) * halves;
  const auto block_columns = static_cast<double>(columns * div_up(blocks, kBlocks)) / halves;
  const double copies = block_columns * (t.tile_outputs + height) * 2 / kCopiedBytesPerUs;
  const auto products = static_cast<double>(div_up(t.tile_outputs, kProductOutputs));
  const double cycles =
      std::max(kMinCycles, products * std::max(kMinProductCycles, kProductCyclesPerRow * height));
  const double sums = block_columns / 16 * cycles / kCyclesPerUs;
  const double reads = static_cast<double>(outputs * columns) * 2 / kReadBytesPerUs;
  return std::max({copies, sums, reads}) + kOverlapLoss * (copies + sums + reads) +
         (t.split ? kExchangeUs : 0) +
         kFullMachineUs * static_cast<double>(std::min(blocks, kBlocks)) / kBlocks;
}

// How a shape is cut, in what depends on its tiling; a function of the shape alone, for one chip.
struct Cut {
  int num_tiles = 0;
  int num_clusters = 0;
  int stage_boxes = 0;
  int num_steps = 0;
  int num_stages = 0;
};

Cut cut(int64_t outputs, int64_t columns, const FewRowTiling& t, int rows, int capacity,
        int64_t blocks) {
  Cut result;
  const int cluster = t.split ? 2 : 1;
  const int64_t boxes = div_up(columns, kBoxColumns);
  result.num_tiles = static_cast<int>(div_up(outputs, t.tile_outputs));
  // A cluster works on one tile.
  result.num_clusters =
      t.split ? result.num_tiles : static_cast<int>(std::min<int64_t>(result.num_tiles, blocks));
  // A stage of small boxes costs as much to pass on as one of large ones.
  const int64_t box_bytes = int64_t{t.tile_outputs + rows} * kRowBytes;
  result.stage_boxes = 1;
  while (2 * result.stage_boxes * box_bytes <= kMaxStageBytes &&
         2 * result.stage_boxes * cluster <= boxes) {
    result.stage_boxes *= 2;
  }
  result.num_steps = static_cast<int>(div_up(boxes, result.stage_boxes));
  const int64_t stage_bytes = result.stage_boxes * box_bytes + 2 * kBarrierBytes;
  const int64_t partials = t.split ? int64_t{capacity} / 2 * rows * 4 : 0;
  // A product reads 64 outputs, of which a low tile may have fewer: rows beyond the ring.
  const int64_t beyond = int64_t{capacity - t.tile_outputs} * kRowBytes;
  const int64_t ring_bytes = kSharedBytes - partials - beyond - kBarrierBytes;
  result.num_stages = static_cast<int>(std::min(ring_bytes / stage_bytes, kMaxStages));
  ENCORE_CHECK(result.num_stages >= 2, "a ring of {} stages", result.num_stages);
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

template <typename T>
Store<T> store(const KernelArgs& args) {
  const TensorView& out = args.outputs[0];
  return {.bias = args.inputs.size() > 2 ? args.inputs[2].as<const T>() : nullptr,
          .out = out.data,
          .stride = out.row_stride,
          .is_float = out.dtype == DType::kF32,
          .in_pairs = is_aligned(out, 4),
          .num_rows = static_cast<int>(out.num_rows()),
          .num_outputs = static_cast<int>(args.inputs[1].num_rows())};
}

template <typename T>
BoundLaunch bind_for(Device& device, const KernelArgs& args, const FewRowTiling& t) {
  const TensorView& x = args.inputs[0];
  const TensorView& weight = args.inputs[1];
  const Variant<T>& variant = variant_for<T>(x.num_rows(), t.tile_outputs);
  const Cut c = cut(weight.num_rows(), weight.row_elements(), t, variant.rows, variant.outputs(),
                    chip(device).num_multiprocessors);
  FewRowArgs<Store<T>> a{};
  a.whole_stages = weight.row_elements() % kBoxColumns == 0;
  a.weight = map_of(weight, t.tile_outputs, a.whole_stages ? c.stage_boxes : 0);
  a.x = map_of(x, variant.rows, a.whole_stages ? c.stage_boxes : 0);
  a.epilogue = store<T>(args);
  a.num_steps = c.num_steps;
  a.tile_outputs = t.tile_outputs;
  a.num_tiles = c.num_tiles;
  a.stage_boxes = c.stage_boxes;
  a.num_stages = c.num_stages;
  a.cluster = t.split ? 2 : 1;
  allow_shared_memory(variant.kernel, kSharedBytes);
  const Grid grid{.blocks = static_cast<unsigned>(c.num_clusters * a.cluster),
                  .threads = static_cast<unsigned>(variant.warpgroups * 128 + 32),
                  .shared_bytes = static_cast<size_t>(kSharedBytes),
                  .cluster = static_cast<unsigned>(a.cluster)};
  return [a, grid, kernel = variant.kernel](Stream& stream, const StepShape& /*step*/) {
    launch(stream, grid, kernel, a);
  };
}

}  // namespace

std::vector<FewRowTiling> fewrow_tilings(int64_t rows, int64_t outputs, int64_t columns) {
  constexpr int64_t kMaxWaves = 4;
  std::vector<FewRowTiling> tilings;
  const auto add = [&](int64_t tile_outputs, bool split) {
    const auto tile = static_cast<int>(round_up(std::min(tile_outputs, outputs), 8));
    // A cluster works on one tile, and each of its blocks takes a step at least.
    const bool splits = div_up(outputs, tile) <= kBlocks / 2 && columns > kBoxColumns;
    if (tile <= max_tile_outputs(rows) && (!split || splits)) tilings.push_back({tile, split});
  };
  for (const bool split : {false, true}) {
    for (int64_t waves = 1; waves <= kMaxWaves; ++waves) {
      const int64_t tile_outputs = div_up(outputs, kBlocks / (split ? 2 : 1) * waves);
      if (tile_outputs >= kMinTileOutputs) add(tile_outputs, split);
    }
    for (const int64_t tile_outputs : {64, 96, 128, 192, 256})
      add(tile_outputs, split);
  }
  return tilings;
}

FewRowTiling fewrow_tiling(int64_t rows, int64_t outputs, int64_t columns) {
  const std::vector<FewRowTiling> tilings = fewrow_tilings(rows, outputs, columns);
  const auto less = [&](const FewRowTiling& a, const FewRowTiling& b) {
    return estimate(rows, outputs, columns, a) < estimate(rows, outputs, columns, b);
  };
  return *std::min_element(tilings.begin(), tilings.end(), less);
}

bool accepts_fewrow(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& weight = args.inputs[1];
  const TensorView& out = args.outputs[0];
  const int64_t columns = weight.row_elements();
  const bool types = size_of(x.dtype) == 2 && weight.dtype == x.dtype &&
                     (out.dtype == x.dtype || out.dtype == DType::kF32);
  return types && x.num_rows() > 0 && x.num_rows() <= kMaxGoodRows && weight.num_rows() > 0 &&
         columns > 0 && columns % 8 == 0 && is_aligned(x) && is_aligned(weight);
}

BoundLaunch bind_fewrow(Device& device, const KernelArgs& args, const FewRowTiling& tiling) {
  return args.inputs[0].dtype == DType::kF16 ? bind_for<__half>(device, args, tiling)
                                             : bind_for<__nv_bfloat16>(device, args, tiling);
}

BoundLaunch bind_fewrow(Device& device, const KernelArgs& args) {
  const TensorView& weight = args.inputs[1];
  return bind_fewrow(
      device, args,
      fewrow_tiling(args.inputs[0].num_rows(), weight.num_rows(), weight.row_elements()));
}

}  // namespace encore::cuda
