// Sampling: a cluster of eight blocks takes a row of logits, a slice of the vocabulary each.
//
// The scale of a row is z = (logit - largest logit) / temperature; a token is the more likely the
// smaller its distance -z, whose bits as an unsigned number are in order. Each of top_k, top_p and
// min_p bounds the distance. The bounds of top_k and top_p are found digit by digit, from
// histograms over the bits: of counts, or of likelihoods in fixed point. Whole numbers add up to
// the same sum in any order, so atomics do not make a sample depend on timing.
#include <array>
#include <bit>

#include <cooperative_groups.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"
#include "backend/random.h"

namespace encore::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kBlocks = 8;  // of a cluster
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kVector = 4;  // tokens that share a Philox call
constexpr int kMaxBins = 2048;
constexpr float kFixedPoint = 0x1p40F;       // of a likelihood; 2^23 tokens of likelihood 1 fit
constexpr uint32_t kInfinite = 0x7f800000U;  // distance of a token that cannot be chosen
constexpr float kNoNumber = __builtin_nanf("");

struct SampleParams {
  const float* logits = nullptr;
  int64_t row_stride = 0;
  int32_t vocabulary = 0;
  int32_t slice = 0;         // tokens per block, a multiple of kVector
  bool keeps_slice = false;  // does the slice fit in shared memory?
  bool aligned = false;      // may rows be read 16 bytes at a time?
  const float* temperature = nullptr;
  const int32_t* top_k = nullptr;
  const float* top_p = nullptr;
  const float* min_p = nullptr;
  const int64_t* seed = nullptr;
  const int32_t* kv_lens = nullptr;
  int32_t* tokens = nullptr;
};

// One digit of a search: bits [shift, shift + log2(bins)) of the distance.
struct Digit {
  int shift = 0;
  int bins = 0;
};
__device__ constexpr Digit kDigits[] = {{20, 2048}, {10, 1024}, {0, 1024}};

// What the blocks of a cluster share. Every array that other blocks write has one writer per entry.
struct Shared {
  uint32_t low[kMaxBins];  // this block's histogram, low and high words
  uint32_t high[kMaxBins];
  uint64_t merged[kMaxBins];       // the cluster's, written by all blocks
  uint64_t exchanged[3][kBlocks];  // by use and block: largest, total, winner
  uint64_t warp_values[kWarps];
  uint64_t found_before;  // a search's result: what the bins before the found one hold
  int found_bin;          // -1: all bins together hold too little
};

// Floats as unsigned numbers in the same order. NaN is below everything; the zeros are equal.
__device__ __forceinline__ uint32_t to_ordered(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0F);
  if (x != x) return 0;
  return bits >> 31U != 0 ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ float from_ordered(uint32_t ordered) {
  return __uint_as_float(ordered >> 31U != 0 ? ordered & 0x7fffffffU : ~ordered);
}
// Compares first by value, then the smaller token wins.
__device__ __forceinline__ uint64_t ranked(float value, uint32_t token) {
  return static_cast<uint64_t>(to_ordered(value)) << 32U | static_cast<uint32_t>(~token);
}
__device__ __forceinline__ int32_t token_of(uint64_t rank) {
  return static_cast<int32_t>(~static_cast<uint32_t>(rank));
}

struct Sum {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};
struct Max {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a > b ? a : b; }
};

// `value` of all threads of the cluster as one, in every thread. `use`: a row of Shared::exchanged
// that no other call uses, so that one wait per call is enough.
template <typename Join>
__device__ uint64_t join_cluster(Shared& shared, int use, uint64_t value, Join join) {
  const cg::cluster_group cluster = cg::this_cluster();
  const int thread = static_cast<int>(threadIdx.x);
  for (int offset = 16; offset > 0; offset /= 2) {
    value = join(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  if (thread % 32 == 0) shared.warp_values[thread / 32] = value;
  __syncthreads();
  if (thread < kBlocks) {
    uint64_t of_block = shared.warp_values[0];
    for (int warp = 1; warp < kWarps; ++warp)
      of_block = join(of_block, shared.warp_values[warp]);
    *cluster.map_shared_rank(&shared.exchanged[use][cluster.block_rank()], thread) = of_block;
  }
  cluster.sync();
  uint64_t result = shared.exchanged[use][0];
  for (int block = 1; block < kBlocks; ++block)
    result = join(result, shared.exchanged[use][block]);
  return result;
}

// One row, as the calling thread sees it: `for_each` visits its tokens, four at a time.
struct Row {
  const float* logits;
  float* kept;  // the slice's logits, then its z; null when it does not fit
  int first;    // token of the slice
  int count;    // tokens of the slice
  float largest;
  float temperature;

  [[nodiscard]] __device__ __forceinline__ float4 read(int token, bool aligned) const {
    if (aligned && token + kVector <= first + count) {
      return *reinterpret_cast<const float4*>(logits + token);
    }
    float values[kVector];
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      values[i] = token + i < first + count ? logits[token + i] : kNoNumber;
    }
    return {values[0], values[1], values[2], values[3]};
  }
  // -infinity for what is not a number.
  [[nodiscard]] __device__ __forceinline__ float scaled(float logit) const {
    const float z = __fdiv_rn(__fsub_rn(logit, largest), temperature);
    return z <= 0.0F ? z : -__builtin_huge_valf();
  }
  [[nodiscard]] __device__ __forceinline__ float4 scaled(float4 x) const {
    return {scaled(x.x), scaled(x.y), scaled(x.z), scaled(x.w)};
  }
  // Calls visit(first token, z of four tokens).
  template <typename Visit>
  __device__ __forceinline__ void for_each(bool aligned, const Visit& visit) const {
    for (int i = static_cast<int>(threadIdx.x) * kVector; i < count; i += kThreads * kVector) {
      visit(first + i, kept != nullptr ? *reinterpret_cast<const float4*>(kept + i)
                                       : scaled(read(first + i, aligned)));
    }
  }
};

__device__ __forceinline__ uint32_t distance_of(float z) {
  return __float_as_uint(z) & 0x7fffffffU;
}
__device__ __forceinline__ uint64_t likelihood_of(float z) {
  return __float2ull_rn(expf(z) * kFixedPoint);
}

// Adds a 64-bit number to a bin; the thread that makes the low word wrap carries.
__device__ __forceinline__ void add_to_bin(Shared& shared, uint32_t bin, uint64_t weight) {
  const auto low = static_cast<uint32_t>(weight);
  const uint32_t before = atomicAdd(&shared.low[bin], low);
  const uint32_t high = static_cast<uint32_t>(weight >> 32U) + (before + low < before ? 1U : 0U);
  if (high != 0) atomicAdd(&shared.high[bin], high);
}

// The blocks' histograms become one, the same in every block.
__device__ void merge_bins(Shared& shared, int bins) {
  const cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  const int share = bins / kBlocks;
  if (static_cast<int>(threadIdx.x) < share) {
    const int bin = static_cast<int>(cluster.block_rank()) * share + static_cast<int>(threadIdx.x);
    uint64_t sum = 0;
    for (int block = 0; block < kBlocks; ++block) {
      sum += *cluster.map_shared_rank(&shared.low[bin], block);
      sum += static_cast<uint64_t>(*cluster.map_shared_rank(&shared.high[bin], block)) << 32U;
    }
    for (int block = 0; block < kBlocks; ++block) {
      *cluster.map_shared_rank(&shared.merged[bin], block) = sum;
    }
  }
  cluster.sync();
}

// Finds the first bin at which the running sum reaches `target`: Shared::found_bin and
// found_before.
__device__ void find_bin(Shared& shared, int bins, uint64_t target) {
  const int thread = static_cast<int>(threadIdx.x);
  const int per_thread = bins / kThreads;
  if (thread == 0) shared.found_bin = -1;
  uint64_t own = 0;
  for (int i = 0; i < per_thread; ++i)
    own += shared.merged[thread * per_thread + i];
  uint64_t up_to = own;  // this thread's bins included
  for (int offset = 1; offset < 32; offset *= 2) {
    const uint64_t other = __shfl_up_sync(0xffffffffU, up_to, offset);
    if (thread % 32 >= offset) up_to += other;
  }
  if (thread % 32 == 31) shared.warp_values[thread / 32] = up_to;
  __syncthreads();
  for (int warp = 0; warp < thread / 32; ++warp)
    up_to += shared.warp_values[warp];
  uint64_t before = up_to - own;
  if (before < target && up_to >= target) {
    int bin = thread * per_thread;
    while (before + shared.merged[bin] < target)
      before += shared.merged[bin++];
    shared.found_bin = bin;
    shared.found_before = before;
  }
  __syncthreads();
}

// The smallest distance such that the tokens up to it, of those up to `limit`, weigh `target` or
// more; `limit` when all of them together weigh less. weight_of(z): a whole number.
template <typename Weight>
__device__ uint32_t find_bound(Shared& shared, const Row& row, bool aligned, uint32_t limit,
                               uint64_t target, const Weight& weight_of) {
  uint32_t prefix = 0;
#pragma unroll 1
  for (const Digit digit : kDigits) {
    for (int i = static_cast<int>(threadIdx.x); i < digit.bins; i += kThreads) {
      shared.low[i] = 0;
      shared.high[i] = 0;
    }
    __syncthreads();
    const uint32_t log2_bins = digit.bins == 2048 ? 11 : 10;
    row.for_each(aligned, [&](int, float4 z) {
      for (const float value : {z.x, z.y, z.z, z.w}) {
        const uint32_t distance = distance_of(value);
        const bool belongs = distance <= limit && distance >> digit.shift >> log2_bins == prefix;
        if (!belongs) continue;
        const uint64_t weight = weight_of(value);
        if (weight != 0) add_to_bin(shared, distance >> digit.shift & (digit.bins - 1U), weight);
      }
    });
    merge_bins(shared, digit.bins);
    find_bin(shared, digit.bins, target);
    if (shared.found_bin < 0) return limit;
    prefix = prefix << log2_bins | static_cast<uint32_t>(shared.found_bin);
    target -= shared.found_before;
  }
  return prefix;
}

// A thread's largest logit so far. Tokens come in ascending order, so the first of equals stays.
struct Largest {
  uint32_t value = 0;  // to_ordered()
  int token = 0;

  __device__ __forceinline__ void add(float4 x, int first_token) {
    const float values[kVector] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const uint32_t ordered = to_ordered(values[i]);
      if (ordered > value) {
        value = ordered;
        token = first_token + i;
      }
    }
  }
};

// Reads the slice once: the largest logit with its first token, as ranked(); token 0 if none is a
// number.
__device__ uint64_t find_largest(const Row& row, bool aligned, float* keep) {
  constexpr int kAhead = 4;  // loads under way
  const int num_vectors = (row.count + kVector - 1) / kVector;
  Largest best;
  int i = static_cast<int>(threadIdx.x);
  if (aligned) {
    for (; i + (kAhead - 1) * kThreads < row.count / kVector; i += kAhead * kThreads) {
      float4 x[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int at = (i + j * kThreads) * kVector;
        x[j] = *reinterpret_cast<const float4*>(row.logits + row.first + at);
      }
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        const int at = (i + j * kThreads) * kVector;
        if (keep != nullptr) *reinterpret_cast<float4*>(keep + at) = x[j];
        best.add(x[j], row.first + at);
      }
    }
  }
  for (; i < num_vectors; i += kThreads) {
    const float4 x = row.read(row.first + i * kVector, aligned);
    if (keep != nullptr) *reinterpret_cast<float4*>(keep + i * kVector) = x;
    best.add(x, row.first + i * kVector);
  }
  return static_cast<uint64_t>(best.value) << 32U | static_cast<uint32_t>(~best.token);
}

// The largest distance that is kept.
__device__ uint32_t find_limit(Shared& shared, const Row& row, const SampleParams& params,
                               int index) {
  uint32_t limit = kInfinite;
  const int top_k = params.top_k[index];
  const float top_p = params.top_p[index];
  const float min_p = params.min_p[index];
  const bool by_p = top_p < 1.0F;
  uint64_t total = 0;
  if (by_p) {
    row.for_each(params.aligned, [&](int, float4 z) {
      total += likelihood_of(z.x) + likelihood_of(z.y) + likelihood_of(z.z) + likelihood_of(z.w);
    });
    total = join_cluster(shared, 1, total, Sum{});
  }
  if (top_k > 0 && top_k < params.vocabulary) {
    limit = find_bound(shared, row, params.aligned, limit, static_cast<uint64_t>(top_k),
                       [](float) { return uint64_t{1}; });
  }
  if (by_p) {
    // At least the most likely token.
    const double wanted = static_cast<double>(total) * fmaxf(top_p, 0.0F);
    const uint64_t target = max(uint64_t{1}, static_cast<uint64_t>(__double2ull_ru(wanted)));
    limit = find_bound(shared, row, params.aligned, limit, target,
                       [](float z) { return likelihood_of(z); });
  }
  if (min_p > 0.0F) limit = min(limit, distance_of(fminf(0.0F, logf(min_p))));
  return limit;
}

// The token of the largest z + noise among those kept, as ranked().
__device__ uint64_t find_winner(const Row& row, bool aligned, uint32_t limit, int64_t seed,
                                int32_t kv_len) {
  uint64_t best = 0;
  row.for_each(aligned, [&](int token, float4 z) {
    const float values[kVector] = {z.x, z.y, z.z, z.w};
    bool any = false;
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      any = any || (distance_of(values[i]) <= limit && distance_of(values[i]) != kInfinite);
    }
    if (!any) return;
    const random::Words words =
        random::sample_words(seed, kv_len, static_cast<uint32_t>(token) / kVector);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const uint32_t distance = distance_of(values[i]);
      if (distance > limit || distance == kInfinite) continue;
      const float score = __fadd_rn(values[i], random::gumbel(words.word[i]));
      best = Max{}(best, ranked(score, static_cast<uint32_t>(token + i)));
    }
  });
  return best;
}

__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads, 2)
    sample_kernel(const __grid_constant__ SampleParams params) {
  __shared__ Shared shared;
  extern __shared__ __align__(16) float slice[];
  const cg::cluster_group cluster = cg::this_cluster();
  begin_kernel();
  cluster.sync();  // every block has started, so its shared memory may be written

  const int index = static_cast<int>(blockIdx.x) / kBlocks;
  const int first = static_cast<int>(cluster.block_rank()) * params.slice;
  Row row{};
  row.logits = params.logits + index * params.row_stride;
  row.first = first;
  row.count = max(0, min(params.slice, params.vocabulary - first));
  row.temperature = params.temperature[index];
  const bool samples = row.temperature > 0.0F;
  float* keep = samples && params.keeps_slice ? slice : nullptr;

  uint64_t best = join_cluster(shared, 0, find_largest(row, params.aligned, keep), Max{});
  row.largest = from_ordered(static_cast<uint32_t>(best >> 32U));
  // Otherwise greedy, or nothing to choose by: no number at all, or an infinite one.
  if (samples && isfinite(row.largest)) {
    row.kept = keep;
    if (keep != nullptr) {
      // Each thread comes back to the tokens it has read.
      for (int i = static_cast<int>(threadIdx.x) * kVector; i < row.count;
           i += kThreads * kVector) {
        auto* z = reinterpret_cast<float4*>(keep + i);
        *z = row.scaled(*z);
      }
    }
    const uint32_t limit = find_limit(shared, row, params, index);
    best = join_cluster(
        shared, 2,
        find_winner(row, params.aligned, limit, params.seed[index], params.kv_lens[index]), Max{});
  }
  if (cluster.block_rank() == 0 && threadIdx.x == 0) params.tokens[index] = token_of(best);
}

BoundLaunch bind(Device& device, const KernelArgs& args) {
  constexpr int64_t kOtherShared = sizeof(Shared) + 1024;  // and what the system takes
  SampleParams params;
  const TensorView& logits = args.inputs[0];
  params.logits = logits.as<float>();
  params.row_stride = logits.row_stride;
  params.vocabulary = static_cast<int32_t>(logits.row_elements());
  params.slice = static_cast<int32_t>(round_up(div_up(params.vocabulary, kBlocks), kVector));
  params.aligned = is_aligned(logits);
  params.temperature = args.inputs[1].as<float>();
  params.top_k = args.inputs[2].as<int32_t>();
  params.top_p = args.inputs[3].as<float>();
  params.min_p = args.inputs[4].as<float>();
  params.seed = args.inputs[5].as<int64_t>();
  params.kv_lens = args.inputs[6].as<int32_t>();
  params.tokens = args.outputs[0].as<int32_t>();

  const int64_t most = chip(device).max_shared_bytes_per_block - kOtherShared;
  const int64_t slice_bytes = params.slice * static_cast<int64_t>(sizeof(float));
  params.keeps_slice = slice_bytes <= most;
  allow_shared_memory(sample_kernel, most);
  const Grid grid{.blocks = dim3(static_cast<unsigned>(logits.num_rows() * kBlocks)),
                  .threads = kThreads,
                  .shared_bytes = params.keeps_slice ? static_cast<size_t>(slice_bytes) : 0};
  return [=](Stream& stream, const StepShape&) { launch(stream, grid, sample_kernel, params); };
}

}  // namespace

std::span<const Kernel> sample_kernels() {
  static constexpr std::array<Kernel, 1> kRows = {
      {{"sample", "sample.cluster", nullptr, nullptr, bind}}};
  return kRows;
}

}  // namespace encore::cuda
