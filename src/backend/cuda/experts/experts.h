// Feed-forward by experts: what the table of its kernels (experts.cc) binds.
#pragma once

#include <cstdint>

#include "backend/kernel.h"

namespace encore::cuda {

// Pairs of a row and one of its experts: the number of experts that are read, if all differ.
inline int64_t num_pairs(const KernelArgs& args) {
  return args.inputs["experts"].shape.num_elements();
}

// route.cu: a warp a row.
BoundLaunch bind_route(Device& device, const KernelArgs& args);

// expert_rows.cu: a warp for each output of each row, which reads the weights of its expert by itself.
// The order of additions depends on the widths and on alignment alone.
Workspace expert_rows_workspace(const KernelArgs& args);
BoundLaunch bind_expert_rows(Device& device, const KernelArgs& args);

// expert_groups.cu: rows sorted by expert, on the tensor cores. Elements of 16 bits, rows aligned to
// 16 bytes. A row's bits depend neither on how many rows there are nor on what others choose.
Workspace expert_groups_workspace(const KernelArgs& args);
BoundLaunch bind_expert_groups(Device& device, const KernelArgs& args);

}  // namespace encore::cuda
