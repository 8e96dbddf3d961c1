// Chooses a token from a row of logits, or from a part of one, with a cluster of blocks
// (sample.cu). find_largest() finds the likeliest token, and find_winner() the winner by noise
// among the tokens that are kept.
#pragma once

#include "backend/cuda/sampling/sample_search.cuh"
#include "backend/random.h"
#include "backend/sampling.h"

namespace encore::cuda::sampling {

// Begins a kernel in which a cluster of blocks has a row. Afterwards, the block's histogram is
// empty, all blocks of the cluster have started, and what the previous launch wrote may be read.
__device__ __forceinline__ void begin_row_kernel(Shared& shared) {
  allow_next_kernel();
  clear_bins(shared);
  if (threadIdx.x == 0) shared.bound = 0;
  cg::this_cluster().sync();  // all blocks have started, so their shared memory may be written
  wait_for_inputs();
}

// The parameters by which one row's token is chosen.
struct Choice {
  SamplingParams params;
  int32_t kv_len;
};

// Returns the first token of the largest logit, as ranked(). Reads the slice once and keeps its
// beginning in shared memory. It reads backwards, because what was written last is the likeliest to
// be in the cache.
inline __device__ uint64_t find_largest(const Row& row) {
  constexpr int kAhead = 8;  // loads under way at once
  constexpr int kRound = kAhead * kStep;
  float largest = -__builtin_huge_valf();
  int place = -1;
  for (int start = max(0, row.count - 1) / kRound * kRound; start >= 0; start -= kRound) {
    const int own = start + static_cast<int>(threadIdx.x) * kVector;
    float4 x[kAhead];
#pragma unroll
    for (int j = kAhead - 1; j >= 0; --j)
      x[j] = row.read(own + j * kStep);
#pragma unroll
    for (int j = kAhead - 1; j >= 0; --j) {
      const int at = own + j * kStep;
      if (at < row.num_kept) *reinterpret_cast<float4*>(row.kept + at) = x[j];
      const float values[kVector] = {x[j].x, x[j].y, x[j].z, x[j].w};
#pragma unroll
      for (int i = kVector - 1; i >= 0; --i) {
        if (!(values[i] >= largest)) continue;
        largest = values[i];
        place = at + i;
      }
    }
  }
  return place < 0 ? kNobody : ranked(largest, static_cast<uint32_t>(row.first + place));
}

// The distances that are kept: those that are at most `limit` and differ by at most `reach` from
// `center`.
struct Kept {
  uint32_t limit;
  float center = 0;
  float reach = __builtin_huge_valf();  // largest difference from the center that is kept

  [[nodiscard]] __device__ __forceinline__ bool has(uint32_t distance) const {
    return distance <= limit && fabsf(__uint_as_float(distance) - center) <= reach;
  }
};

struct Sum {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};

// Returns the token of the largest z + noise among those kept, as ranked(). Noise is at most
// -log(u) for the number u that it is drawn from, and this bound rules out all but a few tokens
// without computing their noise.
inline __device__ uint64_t find_winner(Shared& shared, const Row& row, const Kept& kept,
                                       const Choice& choice) {
  constexpr float kSlack = 1e-3F;  // more than rounding can change a score
  const bool leads = threadIdx.x % 32 == 0;
  uint64_t best = kNobody;
  uint32_t bound = to_ordered(-__builtin_huge_valf());  // a score that some token reaches
  const auto may_win = [&](float z, uint32_t word) {
    const float least = __uint_as_float(word >> 9U | 0x3f800000U) - 1.0F;
    return least <= fast_exp(z - from_ordered(bound) + kSlack);
  };
  row.for_each([&](int place, float4 z) {
    const float values[kVector] = {z.x, z.y, z.z, z.w};
    const float most = fmaxf(fmaxf(z.x, z.y), fmaxf(z.z, z.w));
    if (!__any_sync(kWarp, distance_of(most) <= kept.limit)) return;
    const auto token = static_cast<uint32_t>(row.first + place);
    const random::Words words =
        random::sample_words(choice.params.seed, choice.kv_len, token / kVector);
    uint32_t of_block = 0;
    if (leads) of_block = atomicMax(&shared.bound, bound);
    bound = max(bound, __shfl_sync(kWarp, of_block, 0));
    // The first test assumes that the likeliest of the four tokens has the best noise of the four.
    if (!__any_sync(kWarp, distance_of(most) <= kept.limit &&
                               may_win(most, min(min(words.word[0], words.word[1]),
                                                 min(words.word[2], words.word[3])))))
      return;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const bool contests = kept.has(distance_of(values[i])) && may_win(values[i], words.word[i]);
      if (!__any_sync(kWarp, contests)) continue;
      if (contests) {
        const float score = __fadd_rn(values[i], random::gumbel(words.word[i]));
        best = max(best, ranked(score, token + static_cast<uint32_t>(i)));
      }
      bound = max(bound, __reduce_max_sync(kWarp, static_cast<uint32_t>(best >> 32U)));
    }
  });
  return best;
}

// Returns whether the row's token is the first token with the largest logit. That is so in a greedy
// row, and where the largest logit is infinite or no logit is a number.
__device__ __forceinline__ bool takes_largest(const SamplingParams& params, float largest) {
  return params.is_greedy() || !isfinite(largest);
}

}  // namespace encore::cuda::sampling
