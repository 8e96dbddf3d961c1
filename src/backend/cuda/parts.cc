#include "backend/cuda/parts.h"

#include <algorithm>

#include "backend/cuda/kernels.h"

namespace encore::cuda {
namespace {

const KernelTable& part_kernels() {
  static const KernelTable table(all_kernels());
  return table;
}

}  // namespace

// Parts run one after the other and leave counters zero, so they can share what they scribble on.
Workspace parts_workspace(const Parts& parts) {
  Workspace most;
  for (const Parts::Part& part : parts.parts) {
    const Kernel& kernel = part_kernels().choose(part.op, part.args);
    if (kernel.workspace == nullptr) continue;
    const Workspace workspace = kernel.workspace(part.args);
    most.scratch_bytes = std::max(most.scratch_bytes, workspace.scratch_bytes);
    most.num_counters = std::max(most.num_counters, workspace.num_counters);
  }
  most.scratch_bytes += parts.between_bytes;
  return most;
}

bool parts_read_lengths(const Parts& parts) {
  return std::any_of(parts.parts.begin(), parts.parts.end(), [](const Parts::Part& part) {
    const Kernel& kernel = part_kernels().choose(part.op, part.args);
    return kernel.reads_lengths != nullptr && kernel.reads_lengths(part.args);
  });
}

BoundLaunch bind_parts(Device& device, const Parts& parts) {
  std::vector<BoundLaunch> launches;
  for (const Parts::Part& part : parts.parts) {
    launches.push_back(part_kernels().choose(part.op, part.args).bind(device, part.args));
  }
  return [launches = std::move(launches)](Stream& stream, const StepShape& step) {
    for (const BoundLaunch& launch : launches)
      launch(stream, step);
  };
}

}  // namespace encore::cuda
