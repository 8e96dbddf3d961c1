// Kernel of route: a warp chooses the experts of one row.
#include "backend/cuda/experts/route.cuh"

#include "backend/cuda/experts/experts.h"

namespace encore::cuda {
namespace {

constexpr int kRouteWarps = 2;

__global__ void __launch_bounds__(kRouteWarps* kRouteLanes)
    route_kernel(const __grid_constant__ RouteArgs args, const float* logits, int64_t logits_stride,
                 int num_rows) {
  extern __shared__ float route_choices[];
  begin_kernel();
  const int warp = static_cast<int>(threadIdx.x) / kRouteLanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRouteWarps + warp;
  if (row >= num_rows) return;
  route_row(args, row, logits + row * logits_stride, route_choices + warp * args.rule.num_experts);
}

}  // namespace

BoundLaunch bind_route(Device& /*device*/, const KernelArgs& args) {
  const TensorView logits = args.inputs["logits"];
  const RouteArgs route = route_args(args);
  const Grid grid{.blocks = static_cast<unsigned>(div_up(logits.num_rows(), kRouteWarps)),
                  .threads = kRouteWarps * kRouteLanes,
                  .shared_bytes = sizeof(float) * kRouteWarps * route.rule.num_experts};
  allow_shared_memory(route_kernel, static_cast<int64_t>(grid.shared_bytes));
  return [route, logits, grid](Stream& stream, const StepLengths&) {
    launch(stream, grid, route_kernel, route, logits.as<const float>(), logits.row_stride,
           static_cast<int>(logits.num_rows()));
  };
}

}  // namespace encore::cuda
