// route: a warp finds a row's largest logits one after the other.
#include <cfloat>
#include <climits>
#include <cmath>

#include "backend/cuda/experts/experts.h"
#include "backend/cuda/launch.h"
#include "backend/routing.h"

namespace encore::cuda {
namespace {

constexpr int kWarps = 2;
constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

// Strides count elements.
struct RouteArgs {
  RoutingRule rule;
  const float* logits;
  int64_t logits_stride;
  const int32_t* live;
  int32_t* experts;
  int64_t experts_stride;
  float* weights;
  int64_t weights_stride;
  int num_rows;
};

// fmaxf() of a NaN and a number is the number.
__device__ __forceinline__ float clamped(float value) {
  return fminf(fmaxf(value, -FLT_MAX), FLT_MAX);
}

// Returns the lowest id of those that have the largest value of all lanes.
__device__ __forceinline__ int lane_of_largest(float value, int id) {
  return __reduce_min_sync(kAllLanes, value == warp_max(value) ? id : INT_MAX);
}

// Makes experts of groups that are not among the best -infinity. Lane l has group l.
__device__ __forceinline__ void drop_groups(const RoutingRule& rule, float* choices, int lane) {
  const int size = rule.num_experts / rule.groups;
  float best = -INFINITY;
  float second = -INFINITY;
  __syncwarp();
  for (int i = 0; i < size && lane < rule.groups; ++i) {
    const float value = choices[lane * size + i];
    second = fmaxf(second, fminf(best, value));
    best = fmaxf(best, value);
  }
  float score = lane < rule.groups ? best + second : -INFINITY;
  bool is_kept = false;
  for (int kept = 0; kept < rule.groups_kept; ++kept) {
    const int group = lane_of_largest(score, lane < rule.groups && !is_kept ? lane : INT_MAX);
    if (lane != group) continue;
    is_kept = true;
    score = -INFINITY;
  }
  for (int i = 0; i < size && lane < rule.groups && !is_kept; ++i)
    choices[lane * size + i] = -INFINITY;
  __syncwarp();
}

// Draws experts in the place of those that the row chose. `taken` has a number for each expert.
__device__ __forceinline__ void draw_experts(const RoutingRule& rule, int64_t row, float* taken,
                                             int32_t* experts, float* weights, int lane) {
  for (int e = lane; e < rule.num_experts; e += kLanes)
    taken[e] = 0;
  __syncwarp();
  for (int k = 0; k < rule.top_k; ++k) {
    int attempt = 0;
    int drawn = 0;  // alike in all lanes
    do {
      drawn = drawn_expert(rule.drawn, *rule.step_clock, row, k, attempt++, rule.num_experts);
    } while (taken[drawn] != 0);
    __syncwarp();
    if (lane == 0) {
      taken[drawn] = 1;
      experts[k] = drawn;
      weights[k] = 1.0F / static_cast<float>(rule.top_k);
    }
    __syncwarp();
  }
}

// Lane l has experts l, l + 32, ...
__global__ void __launch_bounds__(kWarps* kLanes)
    route_kernel(const __grid_constant__ RouteArgs args) {
  extern __shared__ float shared_choices[];
  begin_kernel();
  const RoutingRule& rule = args.rule;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (row >= args.num_rows) return;
  int32_t* const experts = args.experts + row * args.experts_stride;
  float* const weights = args.weights + row * args.weights_stride;
  if (args.live[row] < rule.least) {
    for (int k = lane; k < rule.top_k; k += kLanes) {
      experts[k] = -1;
      weights[k] = 0;
    }
    return;
  }
  const float* const logits = args.logits + row * args.logits_stride;
  float* const choices = shared_choices + warp * rule.num_experts;
  float largest = -FLT_MAX;
  for (int e = lane; e < rule.num_experts; e += kLanes) {
    choices[e] = clamped(logits[e]);
    largest = fmaxf(largest, choices[e]);
  }
  float sum = 1;  // of a softmax; where weights are divided by their own, it makes no difference
  if (!rule.is_sigmoid) {
    largest = warp_max(largest);
    if (!rule.by_logit || !rule.renormalizes) {
      sum = 0;
      for (int e = lane; e < rule.num_experts; e += kLanes)
        sum += expf(choices[e] - largest);
      sum = warp_sum(sum);
    }
  }
  const auto score = [&](float logit) {
    return rule.is_sigmoid ? 1.0F / (1.0F + expf(-logit)) : expf(logit - largest) / sum;
  };
  if (!rule.by_logit) {
    for (int e = lane; e < rule.num_experts; e += kLanes)
      choices[e] = clamped(score(choices[e]) + (rule.bias == nullptr ? 0.0F : rule.bias[e]));
    if (rule.groups_kept < rule.groups) drop_groups(rule, choices, lane);
  }
  for (int k = 0; k < rule.top_k; ++k) {
    // Experts that were chosen before are -infinity, which is below all that can be.
    float best = -INFINITY;
    int id = INT_MAX;
    for (int e = lane; e < rule.num_experts; e += kLanes) {
      if (choices[e] > best) {
        best = choices[e];
        id = e;
      }
    }
    const int chosen = lane_of_largest(best, id);
    if (chosen % kLanes == lane) choices[chosen] = -INFINITY;
    if (k % kLanes == lane) experts[k] = chosen;
  }
  float weight_sum = 0;
  for (int k = lane; k < rule.top_k; k += kLanes) {
    weights[k] = score(clamped(logits[experts[k]]));
    weight_sum += weights[k];
  }
  const float divisor = rule.renormalizes ? warp_sum(weight_sum) + kLeastWeightSum : 1.0F;
  for (int k = lane; k < rule.top_k; k += kLanes)
    weights[k] = weights[k] / divisor * rule.factor;
  if (rule.step_clock != nullptr) {
    __syncwarp();
    draw_experts(rule, row, choices, experts, weights, lane);
  }
}

}  // namespace

BoundLaunch bind_route(Device& /*device*/, const KernelArgs& args) {
  const TensorView& logits = args.inputs["logits"];
  const TensorView& experts = args.outputs["experts"];
  const TensorView& weights = args.outputs["weights"];
  const RouteArgs route{.rule = routing_rule(args),
                        .logits = logits.as<const float>(),
                        .logits_stride = logits.row_stride,
                        .live = args.inputs["live"].as<const int32_t>(),
                        .experts = experts.as<int32_t>(),
                        .experts_stride = experts.row_stride,
                        .weights = weights.as<float>(),
                        .weights_stride = weights.row_stride,
                        .num_rows = static_cast<int>(logits.num_rows())};
  const Grid grid{.blocks = static_cast<unsigned>(div_up(route.num_rows, kWarps)),
                  .threads = kWarps * kLanes,
                  .shared_bytes = sizeof(float) * kWarps * route.rule.num_experts};
  allow_shared_memory(route_kernel, static_cast<int64_t>(grid.shared_bytes));
  return [route, grid](Stream& stream, const StepLengths&) {
    launch(stream, grid, route_kernel, route);
  };
}

}  // namespace encore::cuda
