// Sampling: a cluster of blocks takes a row of logits, a slice of the vocabulary each.
//
// The scale of a row is z = (logit - largest logit) / temperature; a token is the more likely the
// smaller its distance -z, whose bits as an unsigned number are in order. Each of top_k, top_p and
// min_p bounds the distance; among the tokens within, the largest z + noise wins.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "backend/cuda/kernels.h"
#include "backend/cuda/sample_search.cuh"
#include "backend/random.h"

namespace encore::cuda {
namespace {

using namespace sampling;

constexpr int kBlocks = 8;  // of a cluster; kMaxBlocks where there are few rows
constexpr int64_t kFewRows = 4;

struct SampleParams {
  const float* logits = nullptr;
  int64_t row_stride = 0;
  int32_t vocabulary = 0;
  int32_t slice = 0;         // tokens per block, a multiple of kVisit
  bool keeps_slice = false;  // does the slice fit in shared memory?
  bool aligned = false;      // may rows be read 16 bytes at a time?
  float unit = 0;            // of a bin's weights: a token at its lower bound
  const float* temperature = nullptr;
  const int32_t* top_k = nullptr;
  const float* top_p = nullptr;
  const float* min_p = nullptr;
  const int64_t* seed = nullptr;
  const int32_t* kv_lens = nullptr;
  int32_t* tokens = nullptr;
};

// Reads the slice once, into shared memory if it is kept; the largest logit, NaN if none is a
// number.
__device__ float find_largest(const Row& row) {
  constexpr int kAhead = 4;  // loads under way
  float largest = kNoNumber;
  const int end = (row.count + kVisit - 1) / kVisit * kVisit;
  for (int i = static_cast<int>(threadIdx.x) * kVector; i < end; i += kAhead * kThreads * kVector) {
    float4 x[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      x[j] = row.read(i + j * kThreads * kVector);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int at = i + j * kThreads * kVector;
      if (row.kept != nullptr && at < end) *reinterpret_cast<float4*>(row.kept + at) = x[j];
      largest = fmaxf(largest, fmaxf(fmaxf(x[j].x, x[j].y), fmaxf(x[j].z, x[j].w)));
    }
  }
  return largest;
}

// The first token whose logit is the largest, as ranked().
__device__ uint64_t find_first(const Row& row) {
  uint64_t best = kNobody;
  for (int i = static_cast<int>(threadIdx.x) * kVector; i < row.count; i += kThreads * kVector) {
    const float4 x =
        row.kept != nullptr ? *reinterpret_cast<const float4*>(row.kept + i) : row.read(i);
    const float values[kVector] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int j = kVector - 1; j >= 0; --j) {
      if (values[j] == row.largest)
        best = max(best, ranked(0.0F, static_cast<uint32_t>(row.first + i + j)));
    }
  }
  return best;
}

// The largest distance that is kept.
__device__ uint32_t find_limit(Shared& shared, const Row& row, const SampleParams& params,
                               int index) {
  const int top_k = params.top_k[index];
  const float top_p = params.top_p[index];
  const float min_p = params.min_p[index];
  const bool by_k = top_k > 0 && top_k < params.vocabulary;
  const bool by_p = top_p < 1.0F;
  uint32_t limit = kInfinite - 1;
  if (by_k || by_p) {
    const Goal goal{{by_k ? static_cast<uint32_t>(top_k) : UINT32_MAX, UINT64_MAX},
                    by_p ? top_p : 1.0F};
    limit = find_bound(shared, row, goal, params.unit);
  }
  if (min_p > 0.0F) limit = min(limit, distance_of(fminf(0.0F, logf(min_p))));
  return limit;
}

// The token of the largest z + noise among those kept, as ranked(). Noise is at most -log(u) for a
// u that it is drawn from, which tells for all but a few tokens that others are ahead.
__device__ uint64_t find_winner(Shared& shared, const Row& row, uint32_t limit, int64_t seed,
                                int32_t kv_len) {
  constexpr float kSlack = 1e-3F;  // more than what rounding can do to a score
  const bool leads = threadIdx.x % 32 == 0;
  uint64_t best = kNobody;
  uint32_t bound = to_ordered(-__builtin_huge_valf());  // a score that some token has
  row.for_each([&](int place, float4 z) {
    const float values[kVector] = {z.x, z.y, z.z, z.w};
    bool any = false;
#pragma unroll
    for (int i = 0; i < kVector; ++i)
      any = any || distance_of(values[i]) <= limit;
    if (!__any_sync(kWarp, any)) return;
    const auto token = static_cast<uint32_t>(row.first + place);
    const random::Words words = random::sample_words(seed, kv_len, token / kVector);
    uint32_t of_block = 0;
    if (leads) of_block = atomicMax(&shared.bound, bound);
    bound = max(bound, __shfl_sync(kWarp, of_block, 0));
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float most = fast_exp(values[i] - from_ordered(bound) + kSlack);
      const float least = __uint_as_float(words.word[i] >> 9U | 0x3f800000U) - 1.0F;
      const bool may_win = distance_of(values[i]) <= limit && least <= most;
      if (!__any_sync(kWarp, may_win)) continue;
      if (may_win) {
        const float score = __fadd_rn(values[i], random::gumbel(words.word[i]));
        best = max(best, ranked(score, token + static_cast<uint32_t>(i)));
      }
      bound = max(bound, __reduce_max_sync(kWarp, static_cast<uint32_t>(best >> 32U)));
    }
  });
  return best;
}

__global__ void __launch_bounds__(kThreads, 2)
    sample_kernel(const __grid_constant__ SampleParams params) {
  __shared__ Shared shared;
  extern __shared__ __align__(16) float slice[];
  const cg::cluster_group cluster = cg::this_cluster();
  allow_next_kernel();
  clear_bins(shared);
  if (threadIdx.x == 0) shared.bound = 0;
  cluster.sync();  // every block has started, so its shared memory may be written
  wait_for_inputs();

  const int index = static_cast<int>(blockIdx.x / cluster.num_blocks());
  Row row{};
  row.logits = params.logits + index * params.row_stride;
  row.first = static_cast<int>(cluster.block_rank()) * params.slice;
  row.count = max(0, min(params.slice, params.vocabulary - row.first));
  row.aligned = params.aligned;
  row.kept = params.keeps_slice ? slice : nullptr;
  row.temperature = params.temperature[index];
  row.inverse = __frcp_rn(row.temperature);

  const uint64_t largest = cluster_max(shared, 0, ranked(find_largest(row), 0));
  row.largest = from_ordered(static_cast<uint32_t>(largest >> 32U));
  uint64_t best = kNobody;
  if (row.temperature > 0.0F && isfinite(row.largest)) {
    if (row.kept != nullptr) {
      // Each thread comes back to the places it has read.
      for (int i = static_cast<int>(threadIdx.x) * kVector; i < row.count;
           i += kThreads * kVector) {
        auto* z = reinterpret_cast<float4*>(row.kept + i);
        *z = row.scaled(*z);
      }
    }
    const uint32_t limit = find_limit(shared, row, params, index);
    best = find_winner(shared, row, limit, params.seed[index], params.kv_lens[index]);
  } else {
    // Greedy, or nothing to choose by: no number at all, or an infinite one.
    best = find_first(row);
  }
  best = cluster_max(shared, 1, best);
  if (cluster.block_rank() == 0 && threadIdx.x == 0) params.tokens[index] = token_of(best);
}

BoundLaunch bind(Device& device, const KernelArgs& args) {
  constexpr int64_t kOtherShared = sizeof(Shared) + 1024;  // and what the system takes
  SampleParams params;
  const TensorView& logits = args.inputs[0];
  const int num_blocks = logits.num_rows() <= kFewRows ? kMaxBlocks : kBlocks;
  params.logits = logits.as<float>();
  params.row_stride = logits.row_stride;
  params.vocabulary = static_cast<int32_t>(logits.row_elements());
  params.slice = static_cast<int32_t>(round_up(div_up(params.vocabulary, num_blocks), kVisit));
  params.aligned = is_aligned(logits);
  // The same for any number of blocks; a block's weights in one bin stay below 2^32.
  const auto most_tokens =
      static_cast<uint64_t>(round_up(div_up(params.vocabulary, kBlocks), kVisit));
  params.unit = std::ldexp(1.0F, std::min(22, 32 - static_cast<int>(std::bit_width(most_tokens))));
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
  check(cudaFuncSetAttribute(sample_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        "cudaFuncSetAttribute");
  const Grid grid{.blocks = dim3(static_cast<unsigned>(logits.num_rows() * num_blocks)),
                  .threads = kThreads,
                  .shared_bytes = params.keeps_slice ? static_cast<size_t>(slice_bytes) : 0,
                  .cluster = static_cast<unsigned>(num_blocks)};
  return [=](Stream& stream, const StepShape&) { launch(stream, grid, sample_kernel, params); };
}

}  // namespace

std::span<const Kernel> sample_kernels() {
  static constexpr std::array<Kernel, 1> kRows = {
      {{"sample", "sample.cluster", nullptr, nullptr, bind}}};
  return kRows;
}

}  // namespace encore::cuda
