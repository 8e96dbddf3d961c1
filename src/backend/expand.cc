#include "backend/expand.h"

#include <algorithm>

#include "backend/all_reduce_norm.h"
#include "backend/fused_attention.h"
#include "backend/fused_linear.h"
#include "backend/fused_route.h"

namespace encore {
namespace {

struct FusedOp {
  std::string_view name;
  Parts (*parts)(const KernelArgs& args, const Takes& takes);
  std::string_view with = {};  // is fused only with this operand; empty: always
};
// Adapts a function that splits an op the same way on all devices, and so ignores `takes`.
template <Parts (*parts)(const KernelArgs& args)>
Parts anywhere(const KernelArgs& args, const Takes& /*takes*/) {
  return parts(args);
}
constexpr FusedOp kFusedOps[] = {
    {"fused_linear", linear_parts},
    {"linear", linear_parts, "adapters"},
    {"fused_attention", anywhere<attention_parts>},
    {"all_reduce_add_rms_norm", anywhere<all_reduce_norm_parts>},
    {"fused_route", anywhere<route_parts>},
};

const FusedOp* find(std::string_view op) {
  for (const FusedOp& fused : kFusedOps) {
    if (fused.name == op) return &fused;
  }
  return nullptr;
}

}  // namespace

std::vector<OpLaunch> expand(const KernelTable& kernels, std::string_view op,
                             const KernelArgs& args) {
  const FusedOp* fused = find(op);
  const Takes takes = [&](std::string_view of, const KernelArgs& on) {
    return std::ranges::any_of(kernels.rows(),
                               [&](const Kernel& kernel) { return kernel.takes(of, on); });
  };
  const bool is_one =
      fused == nullptr || (!fused->with.empty() && args.inputs.find(fused->with) == nullptr);
  if (is_one || takes(op, args)) return {{op, &kernels.choose(op, args), args}};
  std::vector<OpLaunch> launches;
  const Parts parts = fused->parts(args, takes);
  for (const Parts::Part& part : parts.parts) {
    for (OpLaunch& launch : expand(kernels, part.op, part.args)) {
      launch.between_bytes += parts.between_bytes;
      launches.push_back(std::move(launch));
    }
  }
  return launches;
}

Workspace total_workspace(std::span<const OpLaunch> launches) {
  Workspace total;
  for (const OpLaunch& launch : launches) {
    Workspace own;
    if (launch.kernel->workspace != nullptr) own = launch.kernel->workspace(launch.args);
    total.scratch_bytes = std::max(total.scratch_bytes, launch.between_bytes + own.scratch_bytes);
    total.num_counters = std::max(total.num_counters, own.num_counters);
  }
  return total;
}

BoundLaunch bind_all(Device& device, std::span<const OpLaunch> launches) {
  std::vector<BoundLaunch> bound;
  for (const OpLaunch& launch : launches)
    bound.push_back(launch.kernel->bind(device, launch.args));
  if (bound.size() == 1) return std::move(bound.front());
  return [bound = std::move(bound)](Stream& stream, const StepLengths& lengths) {
    for (const BoundLaunch& launch : bound)
      launch(stream, lengths);
  };
}

}  // namespace encore
