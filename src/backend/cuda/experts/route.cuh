// Chooses a row's experts with one warp, which finds the largest scores one after the other. Loops
// are not unrolled, except for four loads at once, because each launch fetches its code anew
// (launch.h).
#pragma once

#include <cfloat>
#include <climits>
#include <cmath>

#include "backend/cuda/launch.h"
#include "backend/routing.h"

namespace encore::cuda {

// The arguments of routing. Units: strides are in elements.
struct RouteArgs {
  RoutingRule rule;
  const int32_t* live;
  int32_t* experts;
  int64_t experts_stride;
  float* weights;
  int64_t weights_stride;

  [[nodiscard]] __device__ __forceinline__ bool is_live(int64_t row) const {
    return live[row] >= rule.least;
  }
};

inline constexpr int kRouteLanes = 32;
inline constexpr unsigned kAllRouteLanes = 0xffffffffU;

// Clamps a value to finite numbers. A NaN becomes -FLT_MAX, because fmaxf() of a NaN and a number
// is the number.
__device__ __forceinline__ float clamped(float value) {
  return fminf(fmaxf(value, -FLT_MAX), FLT_MAX);
}

// Returns an integer for a number, in the order of numbers. REQUIRES: not NaN.
__device__ __forceinline__ uint32_t ordered(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0F);  // adding 0 makes both zeros equal
  return bits ^ (static_cast<int32_t>(bits) < 0 ? 0xffffffffU : 0x80000000U);
}

// Returns the lowest id among the lanes whose value is the largest of all lanes.
__device__ __forceinline__ int lane_of_largest(float value, int id) {
  const uint32_t key = ordered(value);
  const uint32_t largest = __reduce_max_sync(kAllRouteLanes, key);
  return __reduce_min_sync(kAllRouteLanes, key == largest ? id : INT_MAX);
}

// The best of a lane's experts. Of several equally good ones, it is the first.
struct LaneBest {
  float choice = -INFINITY;
  int id = INT_MAX;
};
__device__ __forceinline__ LaneBest best_of_lane(const float* choices, int num_experts, int lane) {
  constexpr int kAtOnce = 4;
  LaneBest best;
#pragma unroll 1
  for (int first = lane; first < num_experts; first += kAtOnce * kRouteLanes) {
    float some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int e = first + i * kRouteLanes;
      some[i] = e < num_experts ? choices[e] : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (some[i] > best.choice) best = {some[i], first + i * kRouteLanes};
    }
  }
  return best;
}

// Sets the scores of experts to -infinity where their group is not among the best groups. Lane l
// handles group l.
__device__ __forceinline__ void drop_groups(const RoutingRule& rule, float* choices, int lane) {
  const int size = rule.num_experts / rule.groups;
  float best = -INFINITY;
  float second = -INFINITY;
  __syncwarp();
#pragma unroll 1
  for (int i = 0; i < size && lane < rule.groups; ++i) {
    const float value = choices[lane * size + i];
    second = fmaxf(second, fminf(best, value));
    best = fmaxf(best, value);
  }
  float score = lane < rule.groups ? best + second : -INFINITY;
  bool is_kept = false;
#pragma unroll 1
  for (int kept = 0; kept < rule.groups_kept; ++kept) {
    const int group = lane_of_largest(score, lane < rule.groups && !is_kept ? lane : INT_MAX);
    if (lane != group) continue;
    is_kept = true;
    score = -INFINITY;
  }
#pragma unroll 1
  for (int i = 0; i < size && lane < rule.groups && !is_kept; ++i)
    choices[lane * size + i] = -INFINITY;
  __syncwarp();
}

// Returns the result of drawn_expert(). It is not inlined, which keeps its code out of loops that
// do not draw.
__device__ __noinline__ inline int draw_expert(int drawn, int32_t step, int64_t row, int k,
                                               int attempt, int num_experts, const float* shares) {
  return drawn_expert(drawn, step, row, k, attempt, num_experts, shares);
}

// Replaces the experts that the row chose by drawn ones. `taken` has one number for each expert.
__device__ __forceinline__ void draw_experts(const RoutingRule& rule, int32_t step, int64_t row,
                                             float* taken, int32_t* experts, float* weights,
                                             int lane) {
  const auto draw = [&](int k, int attempt) {
    return draw_expert(rule.drawn, step, row, k, attempt, rule.num_experts, rule.shares);
  };
#pragma unroll 1
  for (int e = lane; e < rule.num_experts; e += kRouteLanes)
    taken[e] = 0;
  __syncwarp();
  int first_draw = 0;  // the lane's first attempt, for the k that it has among 32
#pragma unroll 1
  for (int k = 0; k < rule.top_k; ++k) {
    if (k % kRouteLanes == 0) first_draw = draw(k + lane, 0);
    int drawn = __shfl_sync(kAllRouteLanes, first_draw, k % kRouteLanes);
#pragma unroll 1
    for (int attempt = 1; taken[drawn] != 0; ++attempt)
      drawn = draw(k, attempt);
    __syncwarp();
    if (lane == 0) {
      taken[drawn] = 1;
      experts[k] = drawn;
      weights[k] = 1.0F / static_cast<float>(rule.top_k);
    }
    __syncwarp();
  }
}

// Writes the experts of a row and their weights. Lane l handles experts l, l + 32, ... `choices` is
// shared memory for one number per expert.
__device__ __forceinline__ void route_row(const RouteArgs& args, int64_t row, const float* logits,
                                          float* choices) {
  const RoutingRule& rule = args.rule;
  const int lane = static_cast<int>(threadIdx.x) % kRouteLanes;
  int32_t* const experts = args.experts + row * args.experts_stride;
  float* const weights = args.weights + row * args.weights_stride;
  if (!args.is_live(row)) {
#pragma unroll 1
    for (int k = lane; k < rule.top_k; k += kRouteLanes) {
      experts[k] = -1;
      weights[k] = 0;
    }
    return;
  }
  // This load overlaps the work below.
  const int32_t step = rule.step_clock == nullptr ? 0 : *rule.step_clock;
  float largest = -FLT_MAX;
#pragma unroll 1
  for (int e = lane; e < rule.num_experts; e += kRouteLanes) {
    choices[e] = clamped(logits[e]);
    largest = fmaxf(largest, choices[e]);
  }
  // Sum of the softmax; 1 where it is not needed, because normalized weights do not depend on it.
  float sum = 1;
  if (!rule.is_sigmoid) {
    largest = warp_max(largest);
    if (!rule.by_logit || !rule.renormalizes) {
      sum = 0;
#pragma unroll 1
      for (int e = lane; e < rule.num_experts; e += kRouteLanes)
        sum += expf(choices[e] - largest);
      sum = warp_sum(sum);
    }
  }
  const auto score = [&](float logit) {
    return rule.is_sigmoid ? 1.0F / (1.0F + expf(-logit)) : expf(logit - largest) / sum;
  };
  if (!rule.by_logit) {
#pragma unroll 1
    for (int e = lane; e < rule.num_experts; e += kRouteLanes)
      choices[e] = clamped(score(choices[e]) + (rule.bias == nullptr ? 0.0F : rule.bias[e]));
    if (rule.groups_kept < rule.groups) drop_groups(rule, choices, lane);
  }
  // The best of this lane's experts. The lane searches again when that expert was chosen. Experts
  // that were chosen already have -infinity, which is below every score.
  LaneBest best;
  bool is_known = false;
  // The first of the chosen experts that this lane stores, and the expert's weight, stay in
  // registers.
  int first_expert = 0;
  float first_weight = 0;
#pragma unroll 1
  for (int k = 0; k < rule.top_k; ++k) {
    if (!is_known) best = best_of_lane(choices, rule.num_experts, lane);
    const int chosen = lane_of_largest(best.choice, best.id);
    is_known = chosen != best.id;
    if (!is_known) choices[best.id] = -INFINITY;
    if (k % kRouteLanes == lane) {
      experts[k] = chosen;
      if (k < kRouteLanes) first_expert = chosen;
    }
  }
  float weight_sum = 0;
#pragma unroll 1
  for (int k = lane; k < rule.top_k; k += kRouteLanes) {
    const float weight = score(clamped(logits[k < kRouteLanes ? first_expert : experts[k]]));
    weight_sum += weight;
    if (k < kRouteLanes) {
      first_weight = weight;
    } else {
      weights[k] = weight;
    }
  }
  const float divisor = rule.renormalizes ? warp_sum(weight_sum) + kLeastWeightSum : 1.0F;
#pragma unroll 1
  for (int k = lane; k < rule.top_k; k += kRouteLanes)
    weights[k] = (k < kRouteLanes ? first_weight : weights[k]) / divisor * rule.factor;
  if (rule.step_clock != nullptr) {
    __syncwarp();
    draw_experts(rule, step, row, choices, experts, weights, lane);
  }
}

// Returns the operands and attributes of a launch, except its logits.
inline RouteArgs route_args(const KernelArgs& args) {
  const TensorView& experts = args.outputs["experts"];
  const TensorView& weights = args.outputs["weights"];
  return {.rule = routing_rule(args),
          .live = args.inputs["live"].as<const int32_t>(),
          .experts = experts.as<int32_t>(),
          .experts_stride = experts.row_stride,
          .weights = weights.as<float>(),
          .weights_stride = weights.row_stride};
}

}  // namespace encore::cuda
