// Chains of launches as persistent kernels (backend/persistent.h): a step of the lowering.
//
//   before                                    after
//    1 fused_linear.gemv        %qkv          60 persistent.chain  80 stages
//    3 fused_attention.decode   %attention        1 fused_linear.gemv        %qkv
//    4 linear.gemv              %o                3 fused_attention.decode   %attention
//    5 fused_linear.gemv        %gated            4 linear.gemv              %o
//    6 linear.gemv              %down             ...
//    7 fused_linear.gemv        %qkv.1
//   ...                                       (all layers of a model, from the first qkv on)
//
// The launch that stands for a chain has the number of its last node and waits for what any of its
// stages waits for; whoever waited for one of them waits for it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/persistent.h"
#include "runtime/lower.h"

namespace encore::runtime {

// Launches [first, last) of a table, at least two.
struct Chain {
  int first = 0;
  int last = 0;
  const PersistentKernel* kernel = nullptr;

  friend bool operator==(const Chain&, const Chain&) = default;
};

// Consecutive launches as stages: who makes what they read, and which of their results anything
// outside of them reads. Lifetime: points into the launches.
std::vector<Stage> stages_of(const passes::Program& program, std::span<const Launch> launches);

// May any of the launches be a stage? Cheap; without one there are no chains.
bool has_stages(std::span<const Launch> table, std::span<const PersistentKernel> kernels);

// The chains that a device's persistent kernels take, each as long as it can be, first come first
// served.
std::vector<Chain> find_chains(const passes::Program& program, std::span<const Launch> table,
                               std::span<const PersistentKernel> kernels);

// The table with its chains as launches. Errors: those of binding, naming the kernel.
std::vector<Launch> merge_chains(const passes::Program& program, std::vector<Launch> table,
                                 Device& device);

}  // namespace encore::runtime
