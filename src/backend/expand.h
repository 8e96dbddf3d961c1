// Expands an op into the launches that a device makes for it: one, or those of the ops that it
// stands for.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "backend/kernel.h"

namespace encore {

// One launch, not bound yet. Lifetime: refers to the kernel table.
struct OpLaunch {
  std::string_view op;  // whose kernel it is
  const Kernel* kernel = nullptr;
  KernelArgs args;
  // Bytes at the start of the op's scratch that its launches use to pass results on. This launch's
  // own scratch begins behind them.
  int64_t between_bytes = 0;

  [[nodiscard]] int num_nodes() const {
    return kernel->num_nodes == nullptr ? 1 : kernel->num_nodes(args);
  }
  [[nodiscard]] bool reads_lengths() const {
    return kernel->reads_lengths != nullptr && kernel->reads_lengths(args);
  }
};

// The launches of an op, in the order in which they run: one of the first kernel that accepts it,
// or, for a fused op that no kernel accepts, those of its parts. Results that one part passes to
// the next lie in the op's scratch. Scratch may be absent if only kernels and sizes are of
// interest. Errors: as KernelTable::choose(), of the op or of the part that has no kernel.
std::vector<OpLaunch> expand(const KernelTable& kernels, std::string_view op,
                             const KernelArgs& args);

// The workspace that the launches of an op need together.
Workspace total_workspace(std::span<const OpLaunch> launches);

// Binds all of them as one launch. Errors: as Kernel::bind.
BoundLaunch bind_all(Device& device, std::span<const OpLaunch> launches);

}  // namespace encore
