// An op as what a device launches for it: one kernel, or those of the ops that it stands for.
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
  // At the start of the whole op's scratch, in front of this launch's own: what parts leave for
  // others.
  int64_t between_bytes = 0;

  [[nodiscard]] bool reads_lengths() const {
    return kernel->reads_lengths != nullptr && kernel->reads_lengths(args);
  }
};

// Does the op stand for others, whatever its operands?
bool has_parts(std::string_view op);

// The launches of an op, in the order in which they run: the first kernel that accepts it, or, of a
// fused op that no kernel accepts, the launches of its parts. What one part leaves for the next
// lies in the op's scratch. Works without scratch, too, for kernels and sizes alone.
// Errors: as KernelTable::choose(), of the op or of the part that has no kernel.
std::vector<OpLaunch> expand(const KernelTable& kernels, std::string_view op,
                             const KernelArgs& args);

// What the launches of an op take together.
Workspace total_workspace(std::span<const OpLaunch> launches);

// All of them as one launch. Errors: as Kernel::bind.
BoundLaunch bind_all(Device& device, std::span<const OpLaunch> launches);

}  // namespace encore
