// The kernel of products of codes with codes, for many rows.
//
// Rows of x take the place of the 64 rows of a tensor core's product, and outputs take the place of
// its columns. So a thread has sums of two rows only, and needs two scales of x for a step of 128
// columns. (With the operands swapped, as in gemm.cu, a thread would need the scales of half of the
// tile's rows. Reading these from shared memory takes half as long as reading the operands.) A tile
// has 128 rows, 64 for each of two warpgroups, and up to 192 outputs, because registers hold the
// sums and one step's products of no more. Shared memory limits the speed: copies bring 128 (128 +
// outputs) bytes a step, and each warpgroup reads 128 (64 + outputs). So wide tiles are better, as
// long as they fill the chip.
//
// The tensor cores sum up 128 columns, and the threads multiply these sums by their scales and add
// them in float. Meanwhile the tensor cores compute the other warpgroup's products. (With barriers
// that make the two warpgroups take turns, the kernel is 1 to 4 % slower.)
//
// The two blocks of a cluster share either their rows of x or their weights, and each copies half
// of the shared operand for both.
#include "backend/cuda/linear/gemm_fp8.h"

#include <algorithm>
#include <array>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/codes.h"
#include "backend/cuda/linear/deciding.h"
#include "backend/cuda/linear/gemm_fp8.cuh"
#include "backend/cuda/linear/output_map.h"
#include "backend/cuda/linear/quantize.h"
#include "backend/fused_linear.h"
#include "backend/tuning.h"

namespace encore::cuda {
namespace {

using namespace gemm_fp8;

template <typename T>
struct Variant {
  int outputs;
  int shared_bytes;
  void (*kernel)(GemmArgs<T>);
};
template <typename T, int... kOutputs>
constexpr auto make_variants() {
  return std::array{
      Variant<T>{kOutputs, Layout<kOutputs>::kBytes, gemm_fp8_kernel<T, kOutputs>}...};
}
template <typename T>
constexpr auto kVariants = make_variants<T, 64, 96, 128, 160, 192>();

template <typename T>
BoundLaunch bind_for(Device& device, const KernelArgs& args, const GemmFp8Tiling& t) {
  const LinearOperands o = linear_operands(args);
  const auto& variant = *std::find_if(kVariants<T>.begin(), kVariants<T>.end(),
                                      [&](const auto& v) { return v.outputs == t.tile_outputs; });
  const int64_t rows = o.x->num_rows();
  const int64_t outputs = o.weight->num_rows();
  const int tile_rows = t.shares_weight ? kTileRows * kBlocks : kTileRows;
  const int tile_outputs = t.shares_weight ? t.tile_outputs : t.tile_outputs * kBlocks;
  const QuantizedRows x = quantized_rows(*o.x, args.scratch);
  GemmArgs<T> a{};
  a.num_steps = static_cast<int>(div_up(o.weight->row_elements(), kStepColumns));
  a.tiles = gemm::tiles_of(rows, tile_rows, outputs, tile_outputs);
  a.num_outputs = static_cast<int>(outputs);
  a.silu_mul = o.silu_mul;
  a.shares_weight = t.shares_weight;
  a.bias = o.bias != nullptr ? o.bias->as<const T>() : nullptr;
  a.weight_scale = o.scale->as<const float>();
  a.scale_columns = o.scale->shape.rank() > 1 ? static_cast<int>(o.scale->row_elements()) : 0;
  a.x_scale = x.scales.as<const float>();
  a.x_scale_stride = static_cast<int>(x.scales.row_stride);
  a.weight = map_of_boxes(*o.weight, {.rows = t.tile_outputs / (t.shares_weight ? kBlocks : 1),
                                      .in_turns = o.silu_mul ? kTurnRows : 0});
  a.x = map_of_boxes(x.codes, {.rows = kTileRows / (t.shares_weight ? 1 : kBlocks)});
  a.out = map_of_half_boxes(*o.out, kPartRows);
  allow_shared_memory(variant.kernel, variant.shared_bytes);
  const Grid grid =
      gemm::grid_of(a.tiles, kThreads, variant.shared_bytes, chip(device).num_multiprocessors);
  return [a, grid, kernel = variant.kernel, quantize = bind_quantize(o, x)](
             Stream& stream, const StepLengths& lengths) {
    quantize(stream, lengths);
    launch(stream, grid, kernel, a);
  };
}

}  // namespace

std::string to_text(const GemmFp8Tiling& tiling) {
  return (tiling.shares_weight ? "" : "2x") + std::to_string(tiling.tile_outputs);
}

std::vector<GemmFp8Tiling> gemm_fp8_tilings(int64_t rows, int64_t outputs, int64_t columns,
                                            int num_multiprocessors, bool silu_mul) {
  // The estimated cycles of a step are those in which shared memory receives and delivers its
  // operands: kCyclesBeside, and kCyclesPerOutput for each output. kTileCycles, the cycles that a
  // tile takes beside its steps, is a guess.
  constexpr int64_t kCyclesBeside = 256;
  constexpr int64_t kCyclesPerOutput = 3;
  constexpr int64_t kTileCycles = 1500;
  const int64_t multiple = silu_mul ? 2 * kStoredColumns : kStoredColumns;
  const int64_t row_tiles = div_up(rows, kTileRows);
  std::vector<GemmFp8Tiling> tilings;
  for (const auto& variant : kVariants<__half>) {
    if (variant.outputs % multiple != 0) continue;
    if (row_tiles > 1) tilings.push_back({variant.outputs, true});
    // With clusters of two row tiles, an odd number of row tiles leaves a block without rows. So
    // clusters of one row tile are tried as well.
    if (row_tiles % kBlocks != 0) tilings.push_back({variant.outputs, false});
  }
  const auto cost = [&](const GemmFp8Tiling& t) {
    const int64_t rows_of_cluster = t.shares_weight ? kTileRows * kBlocks : kTileRows;
    const int64_t outputs_of_cluster = t.shares_weight ? t.tile_outputs : t.tile_outputs * kBlocks;
    const int64_t tiles = div_up(rows, rows_of_cluster) * div_up(outputs, outputs_of_cluster);
    const int64_t steps = div_up(columns, kStepColumns);
    return div_up(tiles, num_multiprocessors / kBlocks) *
           (kTileCycles + steps * (kCyclesBeside + kCyclesPerOutput * t.tile_outputs));
  };
  std::stable_sort(tilings.begin(), tilings.end(),
                   [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
  return tilings;
}

Workspace gemm_fp8_workspace(const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  return {.scratch_bytes = quantized_bytes(o.x->num_rows(), o.x->row_elements())};
}

bool accepts_gemm_fp8(const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  if (o.weight->dtype != DType::kFP8 || !o.fp8_activations || !o.scale->is_dense()) return false;
  if (o.norm != nullptr && !accepts_quantized_norm(o)) return false;
  const int64_t outputs = o.weight->num_rows();
  const int64_t columns = o.weight->row_elements();
  return size_of(o.x->dtype) == 2 && o.out->dtype == o.x->dtype &&
         o.x->num_rows() >= kFewestGemmFp8Rows && outputs > 0 && outputs % gemm::kPairRows == 0 &&
         columns > 0 && columns % kCodeGroup == 0 && is_aligned(*o.x) && is_aligned(*o.weight) &&
         is_aligned(*o.out);
}

BoundLaunch bind_gemm_fp8(Device& device, const KernelArgs& args, const GemmFp8Tiling& tiling) {
  return args.inputs["x"].dtype == DType::kF16 ? bind_for<__half>(device, args, tiling)
                                               : bind_for<__nv_bfloat16>(device, args, tiling);
}

GemmFp8Tiling gemm_fp8_tiling(Device& device, const KernelArgs& product) {
  const KernelArgs args = deciding_launch(product);
  const LinearOperands o = linear_operands(args);
  const std::vector<GemmFp8Tiling> all =
      gemm_fp8_tilings(o.x->num_rows(), o.weight->num_rows(), o.weight->row_elements(),
                       chip(device).num_multiprocessors, o.silu_mul);
  return choose_way<GemmFp8Tiling>(
      device.tuner(),
      {.launch = tuning_text("linear.gemm_fp8", args),
       .args = args,
       .workspace = gemm_fp8_workspace(args),
       .ways = all,
       .text = [](const GemmFp8Tiling& tiling) { return to_text(tiling); },
       .bind = [&](const GemmFp8Tiling& tiling,
                   const KernelArgs& on) { return bind_gemm_fp8(device, on, tiling); }});
}

BoundLaunch bind_gemm_fp8(Device& device, const KernelArgs& args) {
  return bind_gemm_fp8(device, args, gemm_fp8_tiling(device, args));
}

}  // namespace encore::cuda
