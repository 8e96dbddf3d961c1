// Computes expert_mlp of sorted pairs (sorted_pairs.h) by products of warpgroups, from 8 rows on.
//
// The operands are swapped, as in gemm.cu: outputs are the rows of the tensor cores' products, and
// an expert's rows of x are the columns, of which a product may have any multiple of 8. So little
// is computed in vain, however many rows an expert has. A block gathers its rows, 16 bytes at a
// time, while the copy engine brings the weights of 256 outputs; one ring of stages serves one tile
// after the other, so that memory is never idle. Where experts have more rows than a block takes,
// the two blocks of a cluster take half of the rows each, and each block copies half of the weights
// for both. Products with gate and up are stored as silu(gate) * up, in the order of places.
// Products with down are stored in the order of places, too; the sum of a row finds them by the
// place of each pair.
//
// Where pairs are few, each block of both products sorts them for itself. That takes less time than
// a launch, and lets the blocks of the second product load weights while the first product ends.
#include "backend/cuda/experts/expert_gemm.cuh"

#include <algorithm>
#include <functional>
#include <string>

#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/sorted_pairs.h"
#include "backend/cuda/linear/matrices_map.h"

namespace encore::cuda {
namespace {

using namespace expert_gemm;

// Returns the most rows of a tile that one block takes. Both products (gate_up and down) use the
// same list of tiles, so if the weight of one product has FP8 codes, both products use the size for
// codes.
int block_rows_of(const KernelArgs& args) {
  const auto has_codes = [&](const char* name) { return args.inputs[name].dtype == DType::kFP8; };
  return has_codes("gate_up") || has_codes("down") ? Step<Float8>::kBlockRows
                                                   : Step<__nv_bfloat16>::kBlockRows;
}
// Returns the number of blocks of a cluster: two where many experts have more rows than one block
// takes. With two, each block copies half of a stage's weights, so half as many bytes are under way
// per block.
int blocks_of(const KernelArgs& args) {
  constexpr int kMostBlocks = 2;
  // A cluster has two blocks where an expert with an eighth more rows than the mean has more rows
  // than one block takes, because some experts get at least that many.
  const int64_t mean_rows = num_pairs(args) / args.inputs["down"].shape[0];
  return mean_rows + mean_rows / 8 > block_rows_of(args) ? kMostBlocks : 1;
}
Tiling tiling_of_gemm(const KernelArgs& args) {
  constexpr int64_t kScratchBytes = kConsumers * Layout<Float8>::kStagedBytes;
  Tiling tiling{.max_rows = blocks_of(args) * block_rows_of(args),
                .granularity = kStoredRows,
                .by_place = true};
  const int64_t rows = args.inputs["x"].num_rows();
  tiling.in_blocks = rows <= kExpertRowsPerPart &&
                     BlockSort<kThreads>::fits(sorted_pairs(args, tiling, rows), kScratchBytes);
  return tiling;
}

// Launches one of the two products for a part of the rows.
using LaunchProduct = std::function<void(Stream& stream, const ExpertPart& part)>;

// Binds the product with the weight `name`, "gate_up" or "down".
template <typename T, typename Stored>
LaunchProduct bind_product(Device& device, const KernelArgs& args, const Tiling& tiling,
                           const std::string& name) {
  constexpr int64_t kPiece = 16 / sizeof(T);
  const TensorView& weight = args.inputs[name];
  const ExpertPart first = expert_part(args, tiling, 0);
  GemmArgs<T, Stored> a{};
  a.silu_mul = name == "gate_up";
  a.columns = static_cast<int>(weight.shape[2]);
  a.num_steps = static_cast<int>(div_up(weight.shape[2], Step<Stored>::kColumns));
  a.of_outputs = static_cast<int>(div_up(weight.shape[1], kTileOutputs));
  a.matrices = matrices_of<Stored>(args, name, a.silu_mul ? 2 : 1);
  a.blocks = blocks_of(args);
  a.weight = map_of_matrices(weight, kHalfOutputs, a.silu_mul ? kTurnRows : 0);
  a.out = map_of_boxes(a.silu_mul ? first.hidden : first.products, {.rows = kStoredRows});
  allow_shared_memory(expert_gemm_kernel<T, Stored>, Layout<Stored>::kBytes);
  const int64_t max_clusters = chip(device).num_multiprocessors / a.blocks;
  return [=](Stream& stream, const ExpertPart& part) {
    const TensorView& rows = a.silu_mul ? part.x : part.hidden;
    GemmArgs<T, Stored> of_part = a;
    of_part.sorted = part.sorted;
    of_part.rows = rows.as<const T>();
    of_part.row_pieces = static_cast<uint32_t>(rows.row_stride / kPiece);
    const int64_t clusters = std::min(max_clusters, part.sorted.max_tiles() * a.of_outputs);
    launch(stream,
           {.blocks = static_cast<unsigned>(clusters * a.blocks),
            .threads = kThreads,
            .shared_bytes = Layout<Stored>::kBytes,
            .cluster = static_cast<unsigned>(a.blocks)},
           expert_gemm_kernel<T, Stored>, of_part);
  };
}

template <typename T>
BoundLaunch bind_typed_gemm(Device& device, const KernelArgs& args) {
  const Tiling tiling = tiling_of_gemm(args);
  const auto bind = [&](const std::string& name) {
    return args.inputs[name].dtype == DType::kFP8
               ? bind_product<T, Float8>(device, args, tiling, name)
               : bind_product<T, T>(device, args, tiling, name);
  };
  const LaunchProduct gate_up = bind("gate_up");
  const LaunchProduct down = bind("down");
  return [args, tiling, gate_up, down](Stream& stream, const StepLengths&) {
    launch_parts(stream, args, tiling, [&](const ExpertPart& part) {
      gate_up(stream, part);
      down(stream, part);
    });
  };
}

}  // namespace

bool accepts_expert_gemm(const KernelArgs& args) {
  // With fewer rows, or where most pairs have an expert of their own, other kernels are as fast as
  // this one.
  constexpr int64_t kFewestRows = 8;
  const TensorView& x = args.inputs["x"];
  const TensorView& gate_up = args.inputs["gate_up"];
  const TensorView& down = args.inputs["down"];
  const auto is_packed = [](const TensorView& weight) {
    return is_aligned(weight) && weight.shape[1] > 0 && weight.shape[2] > 0 &&
           weight.shape[2] * size_of(weight.dtype) % 16 == 0;
  };
  return !args.batch_invariant && size_of(x.dtype) == 2 && is_packed(gate_up) && is_packed(down) &&
         gate_up.shape[2] % 8 == 0 && down.shape[2] % 8 == 0 && is_aligned(x) &&
         is_aligned(args.outputs["y"]) && x.num_rows() >= kFewestRows &&
         2 * num_pairs(args) >= gate_up.shape[0];
}

Workspace expert_gemm_workspace(const KernelArgs& args) {
  return expert_parts_workspace(args, tiling_of_gemm(args));
}

// Returns the number of launches: for each part of the rows two products and the sum, and sorting
// where a launch does it.
int expert_gemm_nodes(const KernelArgs& args) {
  const int nodes_of_a_part = tiling_of_gemm(args).in_blocks ? 3 : 4;
  return nodes_of_a_part * static_cast<int>(num_expert_parts(args));
}

BoundLaunch bind_expert_gemm(Device& device, const KernelArgs& args) {
  return args.inputs["x"].dtype == DType::kF16 ? bind_typed_gemm<__half>(device, args)
                                               : bind_typed_gemm<__nv_bfloat16>(device, args);
}

}  // namespace encore::cuda
