// Binds the kernels of the feed-forward by experts, which experts.cc lists.
#pragma once

#include <cstdint>

#include "backend/kernel.h"
#include "base/rounding.h"

namespace encore::cuda {

// Counts the pairs of a row and one of its experts. As many experts are read if all of them differ.
inline int64_t num_pairs(const KernelArgs& args) {
  return args.inputs["experts"].shape.num_elements();
}

// The kernel of route.cu chooses the experts of a row in one warp.
BoundLaunch bind_route(Device& device, const KernelArgs& args);

// The kernel of fused_route.cu takes a few rows in one launch. The order of additions depends on the
// number of columns alone.
bool accepts_fused_route(const KernelArgs& args);
BoundLaunch bind_fused_route(Device& device, const KernelArgs& args);

// The kernel of count_experts.cu is one block, as it is for measurements.
BoundLaunch bind_count_experts(Device& device, const KernelArgs& args);

// The kernels of expert_rows.cu have a warp for each output of each row, which reads the weights of
// its expert by itself. The order of additions depends on the widths and on alignment alone.
Workspace expert_rows_workspace(const KernelArgs& args);
BoundLaunch bind_expert_rows(Device& device, const KernelArgs& args);

// Kernels that sort rows by expert take so many at once, which bounds the memory between their launches.
inline constexpr int64_t kExpertRowsPerPart = 8192;
inline int64_t num_expert_parts(const KernelArgs& args) {
  return div_up(args.inputs["x"].num_rows(), kExpertRowsPerPart);
}

// The kernels of expert_groups.cu sort rows by expert and use the tensor cores. They need elements
// of 16 bits, and rows aligned to 16 bytes. A row's bits depend neither on how many rows there are
// nor on what others choose.
Workspace expert_groups_workspace(const KernelArgs& args);
BoundLaunch bind_expert_groups(Device& device, const KernelArgs& args);

// The kernel of expert_gemm.cu takes sorted rows, of elements of 16 bits, from 8 rows on. A row's bits do not depend on
// what others choose.
bool accepts_expert_gemm(const KernelArgs& args);
Workspace expert_gemm_workspace(const KernelArgs& args);
BoundLaunch bind_expert_gemm(Device& device, const KernelArgs& args);
int expert_gemm_nodes(const KernelArgs& args);

}  // namespace encore::cuda
