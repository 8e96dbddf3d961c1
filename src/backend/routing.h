// Reads the operands and attributes of `route` and `fused_route` into one struct, for all devices.
#pragma once

#include <cstdint>

#include "backend/host_device.h"
#include "backend/kernel.h"
#include "backend/random.h"

namespace encore {

// Says how a row's experts are chosen and weighed; see `route` in ops/ops.cc.
struct RoutingRule {
  const float* bias = nullptr;  // null: there is no bias
  int num_experts = 0;
  int top_k = 0;
  int least = 0;
  int groups = 1;
  int groups_kept = 1;
  float factor = 1;
  bool is_sigmoid = false;
  bool renormalizes = false;
  bool by_logit = false;                // scores are in the same order as logits
  const int32_t* step_clock = nullptr;  // null: experts are chosen by score, not drawn
  int drawn = 0;                        // key of the random numbers that draw experts
  const float* shares = nullptr;        // cumulative shares of the experts; null: equal
};

// Returns the expert that a row draws as its k-th in step `step`. `drawn` is the key of the random
// numbers. Where the row already has that expert, the caller draws again with the next `attempt`.
// `shares` is null, or holds cumulative probabilities: entry i is the probability that one of the
// experts 0 to i is drawn, and the last of the num_experts entries is 1. Where `shares` is null or
// its last entry is 0, all experts are equally likely.
ENCORE_HOST_DEVICE inline int drawn_expert(int drawn, int32_t step, int64_t row, int k, int attempt,
                                           int num_experts, const float* shares) {
  const random::Words words = random::philox(
      static_cast<uint64_t>(drawn), {{static_cast<uint32_t>(step), static_cast<uint32_t>(row),
                                      static_cast<uint32_t>(k), static_cast<uint32_t>(attempt)}});
  if (shares == nullptr || shares[num_experts - 1] == 0) {
    return static_cast<int>(
        static_cast<uint64_t>(words.word[0]) * static_cast<uint64_t>(num_experts) >> 32U);
  }
  constexpr float kTo24Bits = 0x1p-24F;
  const float at = static_cast<float>(words.word[0] >> 8U) * kTo24Bits;  // below 1, exactly
  int first = 0;
  int last = num_experts - 1;
  while (first < last) {
    const int middle = (first + last) / 2;
    if (shares[middle] > at) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  return first;
}

// Returns `count` + `more`, limited to the largest int32_t. The op count_experts adds the rows of
// each expert with it.
ENCORE_HOST_DEVICE inline int32_t count_after(int32_t count, int32_t more) {
  constexpr int32_t kMost = 0x7fffffff;
  return count > kMost - more ? kMost : count + more;
}

// A small number that is added to the sum of the weights of a row's experts before the weights are
// divided by it, so that the sum is never 0.
inline constexpr float kLeastWeightSum = 1e-20F;

inline RoutingRule routing_rule(const KernelArgs& args) {
  const ir::Attrs& attrs = args.attrs;
  RoutingRule rule;
  if (const TensorView* bias = args.inputs.find("bias")) rule.bias = bias->as<const float>();
  const TensorView* logits = args.inputs.find("logits");  // of fused_route, a product by `weight`
  rule.num_experts =
      static_cast<int>(logits != nullptr ? logits->shape[1] : args.inputs["weight"].shape[0]);
  rule.top_k = static_cast<int>(attrs.get_int("top_k"));
  rule.least = static_cast<int>(attrs.get_int("least"));
  if (attrs.find("groups") != nullptr) {
    rule.groups = static_cast<int>(attrs.get_int("groups"));
    rule.groups_kept = static_cast<int>(attrs.get_int("groups_kept"));
  }
  if (attrs.find("factor") != nullptr) rule.factor = static_cast<float>(attrs.get_double("factor"));
  if (const TensorView* clock = args.inputs.find("step_clock")) {
    rule.step_clock = clock->as<const int32_t>();
    rule.drawn = static_cast<int>(attrs.get_int("drawn"));
    if (const TensorView* shares = args.inputs.find("shares"))
      rule.shares = shares->row<const float>(rule.drawn - 1);
  }
  rule.is_sigmoid = attrs.find("score") != nullptr;
  rule.renormalizes = attrs.get_int("renormalize") != 0;
  rule.by_logit = !rule.is_sigmoid && rule.bias == nullptr && rule.groups == rule.groups_kept;
  return rule;
}

}  // namespace encore
