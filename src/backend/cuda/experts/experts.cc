// Lists the kernels of routing and of expert_mlp.
#include "backend/cuda/experts/experts.h"

#include <algorithm>
#include <array>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

// Returns whether sorting pairs by expert gains nothing, because most pairs have an expert of their
// own. Without tensor cores, codes take longer to multiply than to read, so sorting pays earlier
// for them.
bool has_few_pairs(const KernelArgs& args) {
  const TensorView& gate_up = args.inputs["gate_up"];
  const int64_t num_experts = gate_up.shape[0];
  const int64_t top_k = args.inputs["experts"].shape[1];
  const int64_t pairs_worth_sorting = num_experts / (gate_up.dtype == DType::kFP8 ? 4 : 2);
  return num_pairs(args) <= std::max(top_k, pairs_worth_sorting);
}

bool accepts_groups(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& gate_up = args.inputs["gate_up"];
  const TensorView& down = args.inputs["down"];
  constexpr int64_t kPack = 8;
  const auto is_packed = [](const TensorView& weight) {
    return is_aligned(weight) && weight.shape[2] * size_of(weight.dtype) % 16 == 0;
  };
  const bool are_packed = is_aligned(x) && is_aligned(args.outputs["y"]) && is_packed(gate_up) &&
                          is_packed(down) && x.shape[1] % kPack == 0 && x.row_stride % kPack == 0;
  return size_of(x.dtype) == 2 && are_packed && (args.batch_invariant || !has_few_pairs(args));
}

// Returns the number of launches: four for each part of the rows, which are sorting, two products
// and the sum.
int expert_groups_nodes(const KernelArgs& args) {
  constexpr int64_t kNodesOfAPart = 4;
  return static_cast<int>(kNodesOfAPart * num_expert_parts(args));
}

// Returns the number of launches: one for each of the two products, of which the second adds up the
// products of each row's experts.
int expert_rows_nodes(const KernelArgs& /*args*/) {
  return 2;
}

}  // namespace

std::span<const Kernel> expert_kernels() {
  static constexpr std::array kRows = {
      Kernel{.op = "route",
             .name = "route.row_per_warp",
             .bind = bind_route,
             .optional = {"bias", "step_clock", "shares"}},
      Kernel{.op = "fused_route",
             .name = "fused_route.cluster_per_row",
             .accepts = accepts_fused_route,
             .bind = bind_fused_route,
             .optional = {"residual", "bias", "step_clock", "shares"}},
      Kernel{.op = "count_experts", .name = "count_experts.block", .bind = bind_count_experts},
      Kernel{.op = "expert_mlp",
             .name = "expert_mlp.gemm",
             .accepts = accepts_expert_gemm,
             .workspace = expert_gemm_workspace,
             .bind = bind_expert_gemm,
             .optional = {"gate_up_scale", "down_scale"},
             .num_nodes = expert_gemm_nodes},
      Kernel{.op = "expert_mlp",
             .name = "expert_mlp.groups",
             .accepts = accepts_groups,
             .workspace = expert_groups_workspace,
             .bind = bind_expert_groups,
             .optional = {"gate_up_scale", "down_scale"},
             .num_nodes = expert_groups_nodes},
      Kernel{.op = "expert_mlp",
             .name = "expert_mlp.rows",
             .workspace = expert_rows_workspace,
             .bind = bind_expert_rows,
             .optional = {"gate_up_scale", "down_scale"},
             .num_nodes = expert_rows_nodes},
  };
  return kRows;
}

}  // namespace encore::cuda
