// route: a warp finds a row's largest logits one after the other.
#include <cfloat>
#include <climits>
#include <cmath>

#include "backend/cuda/experts/experts.h"
#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

constexpr int kWarps = 2;
constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

// Units: strides in elements.
struct RouteArgs {
  const float* logits;
  int64_t logits_stride;
  const int32_t* live;
  int32_t* experts;
  int64_t experts_stride;
  float* weights;
  int64_t weights_stride;
  int num_rows;
  int num_experts;
  int top_k;
  int least;
  bool renormalize;
};

// Lane l has experts l, l + 32, ...
__global__ void __launch_bounds__(kWarps* kLanes)
    route_kernel(const __grid_constant__ RouteArgs args) {
  extern __shared__ float shared_logits[];
  begin_kernel();
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (row >= args.num_rows) return;
  int32_t* const experts = args.experts + row * args.experts_stride;
  float* const weights = args.weights + row * args.weights_stride;
  if (args.live[row] < args.least) {
    for (int k = lane; k < args.top_k; k += kLanes) {
      experts[k] = -1;
      weights[k] = 0;
    }
    return;
  }
  float* const values = shared_logits + warp * args.num_experts;
  float largest = -FLT_MAX;
  for (int e = lane; e < args.num_experts; e += kLanes) {
    // fmaxf() of a NaN and a number is the number.
    const float value = args.logits[row * args.logits_stride + e];
    values[e] = fminf(fmaxf(value, -FLT_MAX), FLT_MAX);
    largest = fmaxf(largest, values[e]);
  }
  largest = warp_max(largest);
  float sum = 0;
  if (!args.renormalize) {
    for (int e = lane; e < args.num_experts; e += kLanes)
      sum += expf(values[e] - largest);
    sum = warp_sum(sum);
  }
  for (int k = 0; k < args.top_k; ++k) {
    // What was chosen before is -infinity, which is below all that can be.
    float best = -INFINITY;
    int id = INT_MAX;
    for (int e = lane; e < args.num_experts; e += kLanes) {
      if (values[e] > best) {
        best = values[e];
        id = e;
      }
    }
    const float top = warp_max(best);
    const int chosen = __reduce_min_sync(kAllLanes, best == top ? id : INT_MAX);
    if (chosen % kLanes == lane) values[chosen] = -INFINITY;
    const float power = expf(top - largest);
    if (args.renormalize) sum += power;
    if (k % kLanes == lane) {
      experts[k] = chosen;
      weights[k] = power;
    }
  }
  for (int k = lane; k < args.top_k; k += kLanes)
    weights[k] /= sum;
}

}  // namespace

BoundLaunch bind_route(Device& /*device*/, const KernelArgs& args) {
  const TensorView& logits = args.inputs["logits"];
  const TensorView& experts = args.outputs["experts"];
  const TensorView& weights = args.outputs["weights"];
  const RouteArgs route{.logits = logits.as<const float>(),
                        .logits_stride = logits.row_stride,
                        .live = args.inputs["live"].as<const int32_t>(),
                        .experts = experts.as<int32_t>(),
                        .experts_stride = experts.row_stride,
                        .weights = weights.as<float>(),
                        .weights_stride = weights.row_stride,
                        .num_rows = static_cast<int>(logits.num_rows()),
                        .num_experts = static_cast<int>(logits.shape[1]),
                        .top_k = static_cast<int>(experts.shape[1]),
                        .least = static_cast<int>(args.attrs.get_int("least")),
                        .renormalize = args.attrs.get_int("renormalize") != 0};
  const Grid grid{.blocks = static_cast<unsigned>(div_up(route.num_rows, kWarps)),
                  .threads = kWarps * kLanes,
                  .shared_bytes = sizeof(float) * kWarps * route.num_experts};
  allow_shared_memory(route_kernel, static_cast<int64_t>(grid.shared_bytes));
  return [route, grid](Stream& stream, const StepLengths&) {
    launch(stream, grid, route_kernel, route);
  };
}

}  // namespace encore::cuda
