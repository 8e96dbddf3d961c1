// Declares the functions that bind the kernels of routing and expert_mlp, which experts.cc lists.
#pragma once

#include <cstdint>

#include "backend/kernel.h"
#include "base/rounding.h"

namespace encore::cuda {

// Returns the number of pairs of a row and one of its experts. It is also the most experts that a
// launch can read.
inline int64_t num_pairs(const KernelArgs& args) {
  return args.inputs["experts"].shape.num_elements();
}

// Binds the kernel of route.cu, in which one warp chooses the experts of a row.
BoundLaunch bind_route(Device& device, const KernelArgs& args);

// Bind fused_route on the kernel of fused_route.cu, which takes a few rows in one launch. The order
// of additions depends on the number of columns alone.
bool accepts_fused_route(const KernelArgs& args);
BoundLaunch bind_fused_route(Device& device, const KernelArgs& args);

// Binds the kernel of count_experts.cu, which is a single block, because it serves measurements
// only.
BoundLaunch bind_count_experts(Device& device, const KernelArgs& args);

// Bind the kernels of expert_rows.cu, where one warp computes each output of each row and reads the
// weights of its expert by itself. The order of additions depends on the widths and on alignment
// alone.
Workspace expert_rows_workspace(const KernelArgs& args);
BoundLaunch bind_expert_rows(Device& device, const KernelArgs& args);

// Kernels that sort rows by expert take at most this many rows at once, which bounds the scratch
// memory between their launches.
inline constexpr int64_t kExpertRowsPerPart = 8192;
inline int64_t num_expert_parts(const KernelArgs& args) {
  return div_up(args.inputs["x"].num_rows(), kExpertRowsPerPart);
}

// Bind the kernels of expert_groups.cu, which sort rows by expert and use the tensor cores. They
// need elements of 16 bits, and rows aligned to 16 bytes. A row's bits depend neither on the number
// of rows nor on the experts that other rows choose.
Workspace expert_groups_workspace(const KernelArgs& args);
BoundLaunch bind_expert_groups(Device& device, const KernelArgs& args);

// Bind the kernel of expert_gemm.cu, which takes sorted rows with elements of 16 bits, from 8 rows
// on. A row's bits do not depend on the experts that other rows choose.
bool accepts_expert_gemm(const KernelArgs& args);
Workspace expert_gemm_workspace(const KernelArgs& args);
BoundLaunch bind_expert_gemm(Device& device, const KernelArgs& args);
int expert_gemm_nodes(const KernelArgs& args);

}  // namespace encore::cuda
