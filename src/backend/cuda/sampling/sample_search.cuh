// Finds the distance up to which a row's tokens are kept, for top_k and top_p, with a cluster of
// blocks that each have a slice of the row.
//
// A histogram over bins of distances (see sample.cu), of counts or of likelihoods, shows the bin in
// which a goal is reached. That bin usually has few tokens. Each block then reads these tokens from
// all blocks, and continues alone with histograms of smaller bins, until a bin is one token or one
// distance. Where the bin has many tokens, the blocks continue together. top_p is a share of the
// likelihood of the tokens that top_k keeps, so the search by top_k runs first. If top_k is not too
// large, all tokens up to its bound are gathered, and the search by top_p looks only at these. Each
// likelihood is divided by that of its bin's lower bound, multiplied by Weighing::unit and rounded
// to a whole number. Integer sums do not depend on the order of the atomic additions, so the result
// does not depend on timing.
#pragma once

#include <cooperative_groups.h>

#include "backend/cuda/launch.h"
#include "backend/cuda/sampling/ranked.cuh"

namespace encore::cuda::sampling {

namespace cg = cooperative_groups;

constexpr int kMaxBlocks = 16;  // the most blocks of a cluster
constexpr int kThreads = 512;
constexpr int kBlocksPerMultiprocessor = 2;
constexpr int kWarps = kThreads / 32;
constexpr int kVector = 4;            // tokens that share a Philox call
constexpr int kVisit = 32 * kVector;  // tokens that a warp visits at a time
constexpr int kStep = kThreads * kVector;
constexpr int kLog2Bins = 11;
constexpr int kBins = 1 << kLog2Bins;
constexpr int kBinsPerThread = kBins / kThreads;
// The most candidates that the blocks of a cluster gather together. Each block may contribute an
// equal part of this number.
constexpr int kMostCandidates = 2048;
constexpr uint32_t kInfinite = 0x7f800000U;  // distance of a token that cannot be chosen
constexpr float kNoNumber = __builtin_nanf("");
// The fixed-point number that stands for likelihood 1. The sum of 2^23 such numbers fits 64 bits.
constexpr float kFixedPoint = 0x1p40F;

// A number of tokens, and the sum of their likelihoods in fixed point.
struct Tally {
  uint32_t count;
  uint64_t mass;
};

// Describes the bin in which a search ends.
struct Found {
  int bin;     // -1: all bins together do not reach the goal
  Tally left;  // what remains of the goal after the bins before it
  bool whole;  // all of the bin is kept
};

// The shared memory of a block, parts of which the cluster's other blocks read and write. Every
// array that other blocks write has one writer per entry.
struct Shared {
  // A histogram of this block: the number of tokens in each bin, and the sum of their weights,
  // which are likelihoods scaled to whole numbers (see Weighing). In the cluster's histogram, these
  // sums are likelihoods, as floats.
  alignas(16) uint32_t counts[kBins];
  alignas(16) uint32_t weights[kBins];
  uint32_t candidates[kMostCandidates];  // distances of this block's candidates
  uint32_t num_candidates[kMaxBlocks];
  uint32_t num_own_candidates;
  uint64_t exchanged[2][kMaxBlocks];  // by use and block: the values that fold_cluster() folds
  uint64_t warp_values[kWarps];
  uint32_t warp_counts[kWarps];
  uint32_t bound;  // to_ordered() of a score that some token of this block reaches
  Found found;
};

constexpr uint64_t kNobody = 0xffffffffU;  // token 0 with a rank below every real one

// Calls visit(block) for every block of the cluster. It is unrolled, so that waits for other
// blocks' memory overlap.
template <typename Visit>
__device__ __forceinline__ void for_each_block(const Visit& visit) {
  const int num_blocks = static_cast<int>(cg::this_cluster().num_blocks());
#pragma unroll
  for (int block = 0; block < kMaxBlocks; ++block) {
    if (block < num_blocks) visit(block);
  }
}

struct Largest {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};

template <typename Fold>
__device__ __forceinline__ uint64_t fold_warp(uint64_t value, const Fold& fold) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2)
    value = fold(value, __shfl_xor_sync(kWarp, value, offset));
  return value;
}

// Folds the values of all threads of the cluster, and returns the result to every thread. A value
// of 0 must change no result. `use` is a row of Shared::exchanged other than the previous call's,
// so that one wait per call is enough.
template <typename Fold>
__device__ uint64_t fold_cluster(Shared& shared, int use, uint64_t value, const Fold& fold) {
  const cg::cluster_group cluster = cg::this_cluster();
  const int thread = static_cast<int>(threadIdx.x);
  const int num_blocks = static_cast<int>(cluster.num_blocks());
  value = fold_warp(value, fold);
  if (thread % 32 == 0) shared.warp_values[thread / 32] = value;
  __syncthreads();
  if (thread < 32) {
    value = fold_warp(thread < kWarps ? shared.warp_values[thread] : 0, fold);
    if (thread < num_blocks)
      *cluster.map_shared_rank(&shared.exchanged[use][cluster.block_rank()], thread) = value;
  }
  cluster.sync();
  uint64_t result = 0;
  for_each_block([&](int block) { result = fold(result, shared.exchanged[use][block]); });
  return result;
}

// The calling thread's view of one row of logits.
struct Row {
  const float* logits;
  float* kept;   // logits of the slice's beginning, in shared memory
  int num_kept;  // number of logits in `kept`
  int first;     // first token of the slice
  int count;     // tokens of the slice
  bool aligned;  // the row can be read 16 bytes at a time
  float largest;
  float temperature;
  float inverse;  // 1 / temperature

  // Returns the logits of a token and of the three tokens behind it, with NaN behind the slice.
  [[nodiscard]] __device__ __forceinline__ float4 read(int at) const {
    if (aligned && at + kVector <= count) {
      return *reinterpret_cast<const float4*>(logits + first + at);
    }
    float values[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      values[i] = at + i < count ? logits[first + at + i] : kNoNumber;
    return {values[0], values[1], values[2], values[3]};
  }
  // Returns z of a logit, or -infinity for a NaN.
  [[nodiscard]] __device__ __forceinline__ float scaled(float logit) const {
    // Computes the quotient exactly as a division rounds it: the rounded product with the inverse,
    // corrected by its error.
    const float distance = __fsub_rn(logit, largest);
    const float quotient = __fmul_rn(distance, inverse);
    const float missed = __fmaf_rn(-quotient, temperature, distance);
    const float z = __fmaf_rn(missed, inverse, quotient);
    return z <= 0.0F ? z : -__builtin_huge_valf();
  }
  [[nodiscard]] __device__ __forceinline__ float4 scaled(float4 x) const {
    return {scaled(x.x), scaled(x.y), scaled(x.z), scaled(x.w)};
  }
  // Calls visit(place in the slice, z of the four tokens from that place on), in all threads of a
  // warp at once. On each call, a thread visits the same places in the same order.
  template <typename Visit>
  __device__ __forceinline__ void for_each(const Visit& visit) const {
    const int of_lane = static_cast<int>(threadIdx.x) % 32 * kVector;
    const auto get = [&](int place) {
      return place < num_kept ? *reinterpret_cast<const float4*>(kept + place) : read(place);
    };
    int at = static_cast<int>(threadIdx.x) * kVector - of_lane;
    float4 next = get(at + of_lane);
    for (; at < count; at += kStep) {
      const float4 x = next;
      next = get(at + kStep + of_lane);
      visit(at + of_lane, scaled(x));
    }
  }
};

__device__ __forceinline__ uint32_t distance_of(float z) {
  return __float_as_uint(z) & 0x7fffffffU;
}

// The place of a token in a histogram: the number of its bin, and the distance at which the bin
// begins.
struct Place {
  uint32_t bin;
  float lower;
};

// The bins of one histogram over the distances in [begin, end). Each bin has 1 << shift distances.
struct FineBins {
  uint32_t begin;
  uint32_t end;
  int shift;

  [[nodiscard]] static __device__ __forceinline__ FineBins of(uint32_t begin, uint32_t end) {
    return {begin, end, max(0, 32 - __clz(static_cast<int>(end - begin - 1)) - kLog2Bins)};
  }
  [[nodiscard]] __device__ __forceinline__ bool hold(uint32_t distance) const {
    return distance - begin < end - begin;
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t lower(uint32_t bin) const {
    return begin + (bin << static_cast<unsigned>(shift));
  }
  [[nodiscard]] __device__ __forceinline__ Place place(uint32_t distance) const {
    const uint32_t bin = (distance - begin) >> static_cast<unsigned>(shift);
    return {bin, __uint_as_float(lower(bin))};
  }
  [[nodiscard]] __device__ __forceinline__ FineBins inside(uint32_t bin) const {
    return of(lower(bin), min(end, lower(bin + 1)));
  }
};

// The bins of a search's first histogram, over distances below `end`. There are 64 bins to a
// distance of 1, and the last bin has all the rest.
struct FirstBins {
  static constexpr float kPerOne = 64;
  uint32_t end;

  [[nodiscard]] __device__ __forceinline__ bool hold(uint32_t distance) const {
    return distance < end;
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t lower(uint32_t bin) const {
    return __float_as_uint(static_cast<float>(bin) / kPerOne);
  }
  [[nodiscard]] __device__ __forceinline__ Place place(uint32_t distance) const {
    // Rounds towards zero: near 2^23, floats are whole numbers, and their low bits hold the number.
    const float in_last = (static_cast<float>(kBins) - 0.5F) / kPerOne;
    const float whole = __fmaf_rz(fminf(__uint_as_float(distance), in_last), kPerOne, 0x1p23F);
    return {__float_as_uint(whole) - __float_as_uint(0x1p23F),
            fmaf(whole, 1.0F / kPerOne, -0x1p23F / kPerOne)};
  }
  [[nodiscard]] __device__ __forceinline__ FineBins inside(uint32_t bin) const {
    return FineBins::of(lower(bin), bin == kBins - 1 ? end : min(end, lower(bin + 1)));
  }
};

// Returns e^x, or 0 where that is less than 2^-126.
__device__ __forceinline__ float fast_exp(float x) {
  constexpr float kLog2E = 1.44269504F;
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * kLog2E));
  return result;
}

// Says what a search adds up in its bins: the number of tokens, their likelihoods, or both.
struct Weighing {
  bool counts;
  bool weighs;
  float unit;  // weight of a token at the beginning of a bin

  template <typename Bins>
  __device__ __forceinline__ void add(Shared& shared, const Bins& bins, uint32_t distance) const {
    const Place place = bins.place(distance);
    if (counts) atomicAdd(&shared.counts[place.bin], 1U);
    if (!weighs) return;
    // Rounds the weight: near 2^23, floats are whole numbers, and their low bits hold the number.
    const float likelihood = fast_exp(place.lower - __uint_as_float(distance));
    const float weight = fmaf(likelihood, unit, 0x1p23F);
    atomicAdd(&shared.weights[place.bin], __float_as_uint(weight) - __float_as_uint(0x1p23F));
  }
  // Returns the likelihood of a bin's tokens, relative to the most likely token.
  [[nodiscard]] __device__ __forceinline__ float mass(uint64_t weights, uint32_t lower) const {
    return __ull2float_rn(weights) * __frcp_rn(unit) * fast_exp(-__uint_as_float(lower));
  }
};

inline __device__ void clear_bins(Shared& shared) {
  for (int i = static_cast<int>(threadIdx.x) * 4; i < kBins; i += kThreads * 4) {
    *reinterpret_cast<uint4*>(&shared.counts[i]) = {};
    *reinterpret_cast<uint4*>(&shared.weights[i]) = {};
  }
  if (threadIdx.x == 0) shared.num_own_candidates = 0;
}

template <typename Bins>
__device__ void add_row(Shared& shared, const Row& row, const Bins& bins,
                        const Weighing& weighing) {
  row.for_each([&](int, float4 z) {
    for (const float value : {z.x, z.y, z.z, z.w}) {
      if (bins.hold(distance_of(value))) weighing.add(shared, bins, distance_of(value));
    }
  });
}

// Merges the blocks' histograms into one, which every block then has. Each block adds up its share
// of the bins, and writes the sums in place of the parts, which no other block reads.
template <typename Bins>
__device__ void merge_bins(Shared& shared, const Bins& bins, const Weighing& weighing) {
  const cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  const int num_blocks = static_cast<int>(cluster.num_blocks());
  const int share = (kBins + num_blocks - 1) / num_blocks;
  const int begin = weighing.counts ? 0 : share;
  const int end = weighing.weighs ? 2 * share : share;
  for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
    const int bin = static_cast<int>(cluster.block_rank()) * share + i % share;
    if (bin >= kBins) continue;
    uint32_t* const entry = i < share ? &shared.counts[bin] : &shared.weights[bin];
    uint64_t sum = 0;
    for_each_block([&](int block) { sum += *cluster.map_shared_rank(entry, block); });
    const auto merged =
        i < share ? static_cast<uint32_t>(sum)
                  : __float_as_uint(weighing.mass(sum, bins.lower(static_cast<uint32_t>(bin))));
    for_each_block([&](int block) { *cluster.map_shared_rank(entry, block) = merged; });
  }
  cluster.sync();
}

// The goal of a search: the first token at which `count` tokens, or the share `share` of the
// likelihood, have been passed.
struct Goal {
  uint32_t count = UINT32_MAX;
  // The share to reach, as a part of the likelihood of all tokens that the search looks at. From 1
  // on, it bounds nothing.
  float share = 1;

  [[nodiscard]] __device__ __forceinline__ bool by_mass() const { return share < 1.0F; }
};

// Finds the goal's bin in a histogram with likelihoods as floats, sets Shared::found, and leaves
// the histogram empty. `first` is true for the first histogram of a search; later ones continue
// from Shared::found.
inline __device__ void find_bin(Shared& shared, const Goal& goal, bool counted, bool first) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  Tally bins[kBinsPerThread];
  Tally own{0, 0};
#pragma unroll
  for (int i = 0; i < kBinsPerThread; i += 4) {
    const int at = thread * kBinsPerThread + i;
    auto& counts = *reinterpret_cast<uint4*>(&shared.counts[at]);
    auto& masses = *reinterpret_cast<float4*>(&shared.weights[at]);
    const uint32_t count[4] = {counts.x, counts.y, counts.z, counts.w};
    const float mass[4] = {masses.x, masses.y, masses.z, masses.w};
    counts = {};
    masses = {};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      bins[i + j] = {count[j], static_cast<uint64_t>(__float2ull_rn(mass[j] * kFixedPoint))};
      own = {own.count + bins[i + j].count, own.mass + bins[i + j].mass};
    }
  }
  Tally up_to = own;  // tally up to and including this thread's bins
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const uint32_t count = __shfl_up_sync(kWarp, up_to.count, offset);
    const uint64_t mass = __shfl_up_sync(kWarp, up_to.mass, offset);
    if (thread % 32 >= offset) up_to = {up_to.count + count, up_to.mass + mass};
  }
  if (thread % 32 == 31) {
    shared.warp_counts[warp] = up_to.count;
    shared.warp_values[warp] = up_to.mass;
  }
  Tally wanted = first ? Tally{goal.count, UINT64_MAX} : shared.found.left;
  if (thread == 0) {
    shared.found.bin = -1;
    shared.num_own_candidates = 0;
  }
  __syncthreads();
  uint64_t total = 0;
#pragma unroll 8  // more would take more registers than there are
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) {
      up_to.count += shared.warp_counts[i];
      up_to.mass += shared.warp_values[i];
    }
    total += shared.warp_values[i];
  }
  if (first && goal.by_mass()) {
    // The mass is in fixed point (kFixedPoint). A goal of 0 would be reached before any token, so
    // it is raised to the smallest step, 1. So at least the most likely token is kept.
    const double mass = static_cast<double>(total) * fmaxf(goal.share, 0.0F);
    wanted.mass = max(uint64_t{1}, static_cast<uint64_t>(__double2ull_ru(mass)));
  }
  const auto reached = [&](const Tally& tally) {
    return tally.count >= wanted.count || tally.mass >= wanted.mass;
  };
  Tally before{up_to.count - own.count, up_to.mass - own.mass};
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    const Tally after{before.count + bins[i].count, before.mass + bins[i].mass};
    if (!reached(before) && reached(after)) {
      const Tally left{wanted.count - before.count, wanted.mass - before.mass};
      const bool whole = counted && (bins[i].count == 1 || after.count == wanted.count);
      shared.found = {thread * kBinsPerThread + i, left, whole};
    }
    before = after;
  }
  __syncthreads();
}

// Collects the distances of this block's tokens from `begin` to below `end`, for all blocks to
// read. Returns false where some block has more than its part of kMostCandidates.
inline __device__ bool gather(Shared& shared, const Row& row, uint32_t begin, uint32_t end) {
  const cg::cluster_group cluster = cg::this_cluster();
  const auto rank = cluster.block_rank();
  const unsigned share = kMostCandidates / cluster.num_blocks();
  row.for_each([&](int, float4 z) {
    for (const float value : {z.x, z.y, z.z, z.w}) {
      const uint32_t distance = distance_of(value);
      if (distance - begin >= end - begin) continue;
      const uint32_t number = atomicAdd(&shared.num_own_candidates, 1U);
      if (number < share) shared.candidates[number] = distance;
    }
  });
  __syncthreads();
  const auto thread = static_cast<unsigned>(threadIdx.x);
  if (thread < cluster.num_blocks()) {
    *cluster.map_shared_rank(&shared.num_candidates[rank], thread) = shared.num_own_candidates;
  }
  cluster.sync();
  uint32_t most = 0;
  for_each_block([&](int block) { most = max(most, shared.num_candidates[block]); });
  return most <= share;
}

// Adds all blocks' candidates to a histogram that is this block's alone. Equally many threads
// handle each block's candidates.
template <typename Bins>
__device__ void add_candidates(Shared& shared, const Bins& bins, const Weighing& weighing) {
  const cg::cluster_group cluster = cg::this_cluster();
  const unsigned num_threads = kThreads / cluster.num_blocks();
  const unsigned block = threadIdx.x / num_threads;
  const unsigned count = block < cluster.num_blocks() ? shared.num_candidates[block] : 0;
  for (unsigned i = threadIdx.x % num_threads; i < count; i += num_threads) {
    const uint32_t distance = *cluster.map_shared_rank(&shared.candidates[i], block);
    if (bins.hold(distance)) weighing.add(shared, bins, distance);
  }
  __syncthreads();
  if (!weighing.weighs) return;
    // Converts the weights of the bins that this thread reads in find_bin() to likelihoods, as
    // floats.
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    const uint32_t bin = threadIdx.x * kBinsPerThread + static_cast<uint32_t>(i);
    uint32_t& weights = shared.weights[bin];
    weights = __float_as_uint(weighing.mass(weights, bins.lower(bin)));
  }
}

// Runs the searches of a row one after the other. Each search looks at the tokens that the previous
// one kept.
struct Search {
  Shared& shared;
  const Row& row;
  float unit;                // weight of a token at the beginning of a bin: Weighing::unit
  bool few;                  // all tokens up to the first search's bound are gathered
  uint32_t end = kInfinite;  // tokens of smaller distances are kept
  uint32_t gathered_from = kInfinite;  // tokens from this distance on are the candidates

  // Keeps the likeliest tokens up to the goal, and drops all less likely ones.
  __device__ __forceinline__ void keep(const Goal& goal) {
    const FirstBins first_bins{end};
    FineBins bins{0, end, 0};
#pragma unroll 1
    for (bool first = true;; first = false) {
      const bool is_narrowed = !first || (few && end < kInfinite);
      if (is_narrowed && gathered_from > bins.begin) {
        const uint32_t from = few ? 0 : bins.begin;
        gathered_from = gather(shared, row, from, bins.end) ? from : kInfinite;
      }
      // A search for a share of the likelihood counts tokens, too, except in a first histogram over
      // the whole row: later histograms have few tokens, so counting them costs little.
      const Weighing weighing{!goal.by_mass() || !first || gathered_from == 0, goal.by_mass(),
                              unit};
      if (first) {
        add(first_bins, bins.begin, weighing);
      } else {
        add(bins, bins.begin, weighing);
      }
      find_bin(shared, goal, weighing.counts, first);
      if (shared.found.bin < 0) break;
      const auto bin = static_cast<uint32_t>(shared.found.bin);
      bins = first ? first_bins.inside(bin) : bins.inside(bin);
      if (shared.found.whole || bins.end - bins.begin == 1) break;
    }
    end = bins.end;
  }

 private:
  // Adds the tokens to the histogram over `bins`, which begin at distance `begin`.
  template <typename Bins>
  __device__ __forceinline__ void add(const Bins& bins, uint32_t begin, const Weighing& weighing) {
    if (gathered_from <= begin) {
      add_candidates(shared, bins, weighing);
    } else {
      add_row(shared, row, bins, weighing);
      merge_bins(shared, bins, weighing);
    }
  }
};

}  // namespace encore::cuda::sampling
