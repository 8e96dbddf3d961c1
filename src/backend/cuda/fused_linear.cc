// fused_linear: one kernel of ours for one row; for more rows its parts, each with the kernel that
// its op has at that size.
#include "backend/fused_linear.h"

#include <algorithm>
#include <array>

#include "backend/cuda/gemv.h"
#include "backend/cuda/kernels.h"

namespace encore::cuda {
namespace {

const KernelTable& part_kernels() {
  static const KernelTable table = [] {
    std::vector<Kernel> rows;
    for (const std::span<const Kernel> part :
         {norm_kernels(), linear_kernels(), elementwise_kernels()}) {
      rows.insert(rows.end(), part.begin(), part.end());
    }
    return KernelTable(rows);
  }();
  return table;
}

// Parts run one after the other and leave counters zero, so they can share what they scribble on.
Workspace parts_workspace(const KernelArgs& args) {
  const LinearParts parts = linear_parts(args);
  Workspace most;
  for (const LinearParts::Part& part : parts.parts) {
    const Kernel& kernel = part_kernels().choose(part.op, part.args);
    if (kernel.workspace == nullptr) continue;
    const Workspace workspace = kernel.workspace(part.args);
    most.scratch_bytes = std::max(most.scratch_bytes, workspace.scratch_bytes);
    most.num_counters = std::max(most.num_counters, workspace.num_counters);
  }
  most.scratch_bytes += parts.between_bytes;
  return most;
}

BoundLaunch bind_parts(Device& device, const KernelArgs& args) {
  std::vector<BoundLaunch> launches;
  for (const LinearParts::Part& part : linear_parts(args).parts) {
    launches.push_back(part_kernels().choose(part.op, part.args).bind(device, part.args));
  }
  return [launches = std::move(launches)](Stream& stream, const StepShape& step) {
    for (const BoundLaunch& launch : launches)
      launch(stream, step);
  };
}

}  // namespace

std::span<const Kernel> fused_linear_kernels() {
  static constexpr std::array<Kernel, 2> kRows = {{
      {"fused_linear", "fused_linear.gemv", accepts_gemv, nullptr, bind_gemv},
      {"fused_linear", "fused_linear.parts", nullptr, parts_workspace, bind_parts},
  }};
  return kRows;
}

}  // namespace encore::cuda
