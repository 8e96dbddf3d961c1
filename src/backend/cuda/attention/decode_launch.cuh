// Declares the launch of decode attention. Its kernels take a minute to compile for each head size,
// so each head size has a source file (decode_64.cu and others).
#pragma once

#include <algorithm>

#include "backend/cuda/attention/decode.cuh"
#include "backend/fused_attention.h"

namespace encore::cuda::decode {

inline constexpr int kMostClusterHeadSize = 128;
inline constexpr int64_t kBlockShared = 227 << 10;  // most shared memory of a block. Units: bytes

// Returns the most row tiles that a block's registers allow.
constexpr int most_row_tiles(int head_size) {
  return head_size <= 128 ? 3 : 2;
}

// The sizes of a launch. They depend on padded sizes, q and the page table's width, never on real
// lengths.
struct DecodeSizes {
  DecodePlan plan;
  int64_t shared_bytes = 0;
  int blocks_at_once = 0;  // blocks that a multiprocessor runs at once
  int64_t shares = 0;
  int64_t num_slots = 0;
  int64_t num_partials = 0;  // rows of partial results in scratch
};

// Computes the sizes of a launch in which each sequence has `num_fresh` new tokens whose keys are
// not in the caches yet.
DecodeSizes decode_sizes(const KernelArgs& args, int num_fresh);

// Returns the number of shares whose blocks can all run on the chip at once.
inline int64_t max_shares(const DecodeSizes& sizes, int num_multiprocessors) {
  const DecodePlan& plan = sizes.plan;
  return std::max(1, num_multiprocessors * sizes.blocks_at_once / (plan.row_blocks * plan.ranks));
}

// unevenness() returns the size of the largest share, divided by the mean, where `parts` equal
// parts are dealt out to `shares` shares. Values up to kEven are treated as even.
inline constexpr double kEven = 1.06;
inline double unevenness(int64_t parts, int64_t shares) {
  return static_cast<double>(div_up(parts, shares) * shares) / static_cast<double>(parts);
}

// Holds the arguments of the two ops that fused_attention replaces with one launch.
struct Fused {
  explicit Fused(const KernelArgs& args) : parts(attention_parts(args)) {}

  Parts parts;
  const KernelArgs& write = parts.parts[0].args;
  const KernelArgs& attend = parts.parts[1].args;
};

// bind_decode binds `attention`, and bind_fused_decode `fused_attention`, with heads of C elements.
template <int C>
BoundLaunch bind_decode(Device& device, const KernelArgs& args);
template <int C>
BoundLaunch bind_fused_decode(Device& device, const Fused& fused);

}  // namespace encore::cuda::decode
