// route and expert_mlp: the table of their kernels.
#include "backend/cuda/experts/experts.h"

#include <algorithm>
#include <array>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

// Where most pairs have an expert of their own, sorting them gains nothing.
bool has_few_pairs(const KernelArgs& args) {
  const int64_t num_experts = args.inputs["gate_up"].shape[0];
  const int64_t top_k = args.inputs["experts"].shape[1];
  return num_pairs(args) <= std::max(top_k, num_experts / 2);
}

bool accepts_groups(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& down = args.inputs["down"];
  constexpr int64_t kPack = 8;
  const bool is_packed = is_aligned(x) && is_aligned(args.outputs["y"]) &&
                         is_aligned(args.inputs["gate_up"]) && is_aligned(down) &&
                         x.shape[1] % kPack == 0 && down.shape[2] % kPack == 0 &&
                         x.row_stride % kPack == 0;
  return size_of(x.dtype) == 2 && is_packed && (args.batch_invariant || !has_few_pairs(args));
}

}  // namespace

std::span<const Kernel> expert_kernels() {
  static constexpr std::array kRows = {
      Kernel{.op = "route",
             .name = "route.row_per_warp",
             .bind = bind_route,
             .optional = {"bias", "step_clock"}},
      Kernel{.op = "expert_mlp",
             .name = "expert_mlp.groups",
             .accepts = accepts_groups,
             .workspace = expert_groups_workspace,
             .bind = bind_expert_groups},
      Kernel{.op = "expert_mlp",
             .name = "expert_mlp.rows",
             .workspace = expert_rows_workspace,
             .bind = bind_expert_rows},
  };
  return kRows;
}

}  // namespace encore::cuda
