// The kernel of fused_linear with silu_mul and more than 256 rows.
//
// The operands are swapped, as in skinny_gemm.cu: out^T [O, R] = weight [O, I] x^T [I, R]. Outputs
// take the place of the 64 rows of a tensor core's product, and rows of x take the place of its
// columns, whose number may be any multiple of 8. So a tile of 128 outputs gets the number of rows,
// from 128 to 256, that fills the chip best. The two blocks of a cluster work on neighbouring
// outputs of the same rows, and each copies half of x for both. Otherwise the L2 cache would have
// to deliver more than it can. One thread of a block copies operands ahead into a ring of stages.
// Two warpgroups multiply 64 outputs each, and a copy stores the finished outputs while the next
// tile is multiplied. The rows of a tile's weights alternate: 8 rows of the gates, then the 8 rows
// that they gate, so that a thread has both sums.
//
// Compared with cuBLASLt and a launch of silu_mul, the kernel saves the product's way to memory and
// back, and that launch. From 768 rows on, this is 2 to 3 % of a layer's time on an H200 at its
// power limit; with fewer rows both are equally fast.
#include "backend/cuda/linear/gemm.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/deciding.h"
#include "backend/cuda/linear/gemm.cuh"
#include "backend/cuda/linear/skinny_gemm.h"
#include "backend/fused_linear.h"
#include "backend/tuning.h"

namespace encore::cuda {
namespace {

using namespace gemm;

constexpr int kMinTileRows = 128;
constexpr int kMaxTileRows = 256;
constexpr int kTileRowsStep = 16;
template <typename T>
struct Variant {
  int rows;
  int shared_bytes;
  void (*kernel)(GemmArgs<T>);
};
template <typename T, int... kIndex>
constexpr auto make_variants(std::integer_sequence<int, kIndex...> /*each*/) {
  return std::array{Variant<T>{kMinTileRows + kIndex * kTileRowsStep,
                               Layout<kMinTileRows + kIndex * kTileRowsStep>::kBytes,
                               gemm_kernel<T, kMinTileRows + kIndex * kTileRowsStep>}...};
}
template <typename T>
constexpr std::array kVariants = make_variants<T>(
    std::make_integer_sequence<int, (kMaxTileRows - kMinTileRows) / kTileRowsStep + 1>());

template <typename T>
BoundLaunch bind_for(Device& device, const KernelArgs& args, int tile_rows) {
  const LinearOperands o = linear_operands(args);
  const auto& variant =
      kVariants<T>[static_cast<size_t>((tile_rows - kMinTileRows) / kTileRowsStep)];
  const int64_t rows = o.x->num_rows();
  const int64_t outputs = o.weight->num_rows();
  GemmArgs<T> a{};
  a.num_steps = static_cast<int>(div_up(o.weight->row_elements(), kBoxColumns));
  a.tiles = tiles_of(rows, tile_rows, outputs, kClusterOutputs);
  a.num_outputs = static_cast<int>(outputs);
  a.silu_mul = o.silu_mul;
  a.bias = o.bias != nullptr ? o.bias->as<const T>() : nullptr;
  a.weight =
      map_of_boxes(*o.weight, {.rows = kTileOutputs, .in_turns = o.silu_mul ? kTurnRows : 0});
  a.x = map_of_boxes(*o.x, {.rows = tile_rows / kBlocks});
  a.out = map_of_boxes(*o.out, {.rows = o.silu_mul ? tile_rows : tile_rows / 2});
  allow_shared_memory(variant.kernel, variant.shared_bytes);
  const Grid grid =
      grid_of(a.tiles, kThreads, variant.shared_bytes, chip(device).num_multiprocessors);
  return [a, grid, kernel = variant.kernel](Stream& stream, const StepLengths&) {
    launch(stream, grid, kernel, a);
  };
}

}  // namespace

std::vector<int> gemm_tile_rows(int64_t rows, int64_t outputs, int num_multiprocessors) {
  // The time that a tile costs beside its products, expressed as the number of rows of a tile whose
  // products take this time.
  constexpr int64_t kRowsBeside = 20;
  std::vector<int> result;
  for (int64_t tiles = div_up(rows, kMaxTileRows); tiles <= div_up(rows, kMinTileRows); ++tiles) {
    const int64_t tile_rows =
        std::max<int64_t>(kMinTileRows, round_up(div_up(rows, tiles), kTileRowsStep));
    if (result.empty() || result.back() != tile_rows) result.push_back(static_cast<int>(tile_rows));
  }
  const auto cost = [&](int tile_rows) {
    const int64_t tiles = div_up(rows, tile_rows) * div_up(outputs, kClusterOutputs);
    return div_up(tiles, num_multiprocessors / kBlocks) * (tile_rows + kRowsBeside);
  };
  std::stable_sort(result.begin(), result.end(), [&](int a, int b) { return cost(a) < cost(b); });
  return result;
}

bool accepts_gemm(const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  if (o.norm != nullptr || !(o.silu_mul || args.batch_invariant)) return false;
  const int64_t outputs = o.weight->num_rows();
  const bool types =
      size_of(o.x->dtype) == 2 && o.weight->dtype == o.x->dtype && o.out->dtype == o.x->dtype;
  return types && o.x->num_rows() > kMaxSkinnyRows && outputs > 0 && outputs % kPairRows == 0 &&
         o.weight->row_elements() > 0 && o.weight->row_elements() % 8 == 0 && is_aligned(*o.x) &&
         is_aligned(*o.weight) && is_aligned(*o.out);
}

BoundLaunch bind_gemm(Device& device, const KernelArgs& args, int tile_rows) {
  return args.inputs["x"].dtype == DType::kF16 ? bind_for<__half>(device, args, tile_rows)
                                               : bind_for<__nv_bfloat16>(device, args, tile_rows);
}

int gemm_tile_rows(Device& device, const KernelArgs& product) {
  const KernelArgs args = deciding_launch(product);
  const LinearOperands o = linear_operands(args);
  const std::vector<int> all =
      gemm_tile_rows(o.x->num_rows(), o.weight->num_rows(), chip(device).num_multiprocessors);
  return choose_way<int>(
      device.tuner(),
      {.launch = tuning_text("linear.gemm", args),
       .args = args,
       .ways = all,
       .text = [](int tile_rows) { return std::to_string(tile_rows); },
       .bind = [&](int tile_rows,
                   const KernelArgs& on) { return bind_gemm(device, on, tile_rows); }});
}

BoundLaunch bind_gemm(Device& device, const KernelArgs& args) {
  return bind_gemm(device, args, gemm_tile_rows(device, args));
}

}  // namespace encore::cuda
