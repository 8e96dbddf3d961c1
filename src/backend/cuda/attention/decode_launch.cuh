// The launch of decode attention. Its kernels take a minute to compile for each size of heads, so
// each size has a file of its own, decode_64.cu and its like.
#pragma once

#include <algorithm>

#include "backend/cuda/attention/decode.cuh"
#include "backend/fused_attention.h"

namespace encore::cuda::decode {

inline constexpr int kMostClusterHeadSize = 128;
inline constexpr int64_t kBlockShared = 227 << 10;  // of a block at most. Units: bytes

// Row tiles of a block at most: what registers allow.
constexpr int most_row_tiles(int head_size) {
  return head_size <= 128 ? 3 : 2;
}

// Sizes of a launch: functions of padded sizes, q and the page table's width, never of real
// lengths.
struct DecodeSizes {
  DecodePlan plan;
  int64_t shared_bytes = 0;
  int blocks_at_once = 0;  // of a multiprocessor
  int64_t shares = 0;
  int64_t num_slots = 0;
  int64_t num_partials = 0;  // rows of results in scratch
};

// `num_fresh`: new tokens of a sequence whose keys are not in the caches yet.
DecodeSizes decode_sizes(const KernelArgs& args, int num_fresh);

// The number of shares whose blocks a chip has all at once.
inline int64_t max_shares(const DecodeSizes& sizes, int num_multiprocessors) {
  const DecodePlan& plan = sizes.plan;
  return std::max(1, num_multiprocessors * sizes.blocks_at_once / (plan.row_blocks * plan.ranks));
}

// The largest of `shares` shares of `parts` equal parts, as a multiple of their mean. Values up to
// kEven are treated as even.
inline constexpr double kEven = 1.06;
inline double unevenness(int64_t parts, int64_t shares) {
  return static_cast<double>(div_up(parts, shares) * shares) / static_cast<double>(parts);
}

// fused_attention: its two parts' arguments, in one launch.
struct Fused {
  explicit Fused(const KernelArgs& args) : parts(attention_parts(args)) {}

  Parts parts;
  const KernelArgs& write = parts.parts[0].args;
  const KernelArgs& attend = parts.parts[1].args;
};

// Binds `attention`, or `fused_attention`, of heads of C elements.
template <int C>
BoundLaunch bind_decode(Device& device, const KernelArgs& args);
template <int C>
BoundLaunch bind_fused_decode(Device& device, const Fused& fused);

}  // namespace encore::cuda::decode
