// Expands an op into the launches that a device makes for it. A fused op without a kernel of its
// own becomes the launches of the ops that it stands for.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "backend/kernel.h"

namespace encore {

// One launch of an op, not bound yet. Lifetime: refers to the kernel table.
struct OpLaunch {
  std::string_view op;  // the op of the kernel
  const Kernel* kernel = nullptr;
  KernelArgs args;
  // Bytes at the start of the op's scratch memory in which the op's launches pass results on to
  // each other. This launch's own scratch memory begins behind them.
  int64_t between_bytes = 0;

  [[nodiscard]] int num_nodes() const {
    return kernel->num_nodes == nullptr ? 1 : kernel->num_nodes(args);
  }
  [[nodiscard]] bool reads_lengths() const {
    return kernel->reads_lengths != nullptr && kernel->reads_lengths(args);
  }
};

// Returns the launches of an op, in the order in which they run: one launch of the first kernel
// that accepts the op or, for a fused op that no kernel accepts, the launches of its parts. Results
// that one part passes to the next lie in the op's scratch. The scratch memory in `args` may be
// null where the caller only needs the kernels and sizes. Errors: as KernelTable::choose(), naming
// the op or the part that no kernel takes.
std::vector<OpLaunch> expand(const KernelTable& kernels, std::string_view op,
                             const KernelArgs& args);

// Returns the workspace that all launches of an op need together.
Workspace total_workspace(std::span<const OpLaunch> launches);

// Binds all launches of an op, and returns one function that enqueues them in order. Errors: as
// Kernel::bind.
BoundLaunch bind_all(Device& device, std::span<const OpLaunch> launches);

}  // namespace encore
