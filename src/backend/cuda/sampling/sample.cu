// Samples tokens. A cluster of blocks takes a row of logits, and each block takes a slice of the
// vocabulary.
//
// The scale of a row is z = (logit - largest logit) / temperature. A token's distance is -z; the
// smaller it is, the likelier the token. The bits of distances, read as unsigned numbers, have the
// same order. top_k, top_p (a share of the probability of the tokens that top_k keeps) and min_p
// each bound the distance, and typical_p bounds its difference from the expected distance. Among
// the tokens within these bounds, the one with the largest z + noise is chosen.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "backend/cuda/kernels.h"
#include "backend/cuda/sampling/sample_row.cuh"
#include "backend/push.h"

namespace encore::cuda {
namespace {

using namespace sampling;

// The most tokens of one block. It guarantees that likelihoods in one bin, in units of 2^-15, add
// up to less than 2^32.
constexpr int64_t kMostTokens = (1 << 17) - kVisit;

struct SampleParams {
  const float* logits = nullptr;
  int64_t row_stride = 0;
  const float* adjusted = nullptr;
  int64_t adjusted_stride = 0;
  int32_t vocabulary = 0;
  int32_t slice = 0;     // tokens per block, a multiple of kVisit
  int32_t num_kept = 0;  // tokens of the slice whose logits a block keeps in shared memory
  bool aligned = false;  // rows can be read 16 bytes at a time
  float unit = 0;        // unit of a bin's weights: the weight of a token at the bin's lower bound
  const SamplingRow* sampling = nullptr;
  const int32_t* kv_lens = nullptr;
  int32_t* token_counts = nullptr;  // null: tokens are not counted
  int32_t* tokens = nullptr;
  int32_t rows_each = 1;                        // rows of logits of a sequence
  const SampleCandidate* candidates = nullptr;  // from all ranks
  int64_t candidates_stride = 0;                // Units: floats
  int32_t num_candidates = 0;
};

// Keeps, among the distances kept so far, those nearest to the expected distance. A token's
// difference from it equals the difference of its -log p from the entropy. Finds the smallest reach
// whose tokens have the share typical_p of the likelihood by bisection, with one visit of the row
// for each bit of the reach; only rows with typical_p pay for that. Likelihoods are added as whole
// numbers.
__device__ void keep_typical(Shared& shared, const Row& row, float typical_p, Kept& kept) {
  int use = 0;  // the row of Shared::exchanged that the search for the largest logit used
  const auto sum_kept = [&](const auto& weight) {
    uint64_t own = 0;
    row.for_each([&](int, float4 z) {
      for (const float value : {z.x, z.y, z.z, z.w}) {
        if (!kept.has(distance_of(value))) continue;
        const float distance = fabsf(value);
        own += __float2ull_rn(weight(distance, fast_exp(-distance)) * kFixedPoint);
      }
    });
    use = 1 - use;
    return fold_cluster(shared, use, own, Sum{});
  };
  const auto likelihood_of = [](float, float likelihood) { return likelihood; };
  const auto total = static_cast<double>(sum_kept(likelihood_of));
  const uint64_t moment =
      sum_kept([](float distance, float likelihood) { return distance * likelihood; });
  kept.center = static_cast<float>(static_cast<double>(moment) / total);
  // Likelihoods are added in fixed point (kFixedPoint). A goal of 0 would be reached with no token
  // kept, so it is raised to the smallest step, 1. So at least one token is kept.
  const uint64_t wanted =
      max(uint64_t{1}, static_cast<uint64_t>(__double2ull_ru(total * fmaxf(typical_p, 0.0F))));
  uint32_t too_small = 0;  // every smaller reach keeps too little
  uint32_t enough = kInfinite;
#pragma unroll 1
  while (too_small < enough) {
    const uint32_t middle = too_small + (enough - too_small) / 2;
    kept.reach = __uint_as_float(middle);
    if (sum_kept(likelihood_of) >= wanted) {
      enough = middle;
    } else {
      too_small = middle + 1;
    }
  }
  kept.reach = __uint_as_float(enough);
  cg::this_cluster().sync();  // both rows of Shared::exchanged are free again
}

__device__ Kept find_kept(Shared& shared, const Row& row, const SampleParams& params,
                          const Choice& choice) {
  const bool by_k = choice.params.has_top_k(params.vocabulary);
  const bool by_p = choice.params.top_p < 1.0F;
  const bool few = by_k && by_p && choice.params.top_k <= kMostCandidates / 2;
  Search search{shared, row, params.unit, few};
  // The searches by top_k and by top_p run the same copy of the code, because each launch fetches
  // its code anew.
#pragma unroll 1
  for (int turn = by_k ? 0 : 1; turn < (by_p ? 2 : 1); ++turn) {
    Goal goal;
    if (turn == 0) goal.count = static_cast<uint32_t>(choice.params.top_k);
    if (turn == 1) goal.share = choice.params.top_p;
    search.keep(goal);
  }
  Kept kept{search.end - 1};
  if (choice.params.min_p > 0.0F)
    kept.limit = min(kept.limit, distance_of(fminf(0.0F, logf(choice.params.min_p))));
  if (choice.params.typical_p < 1.0F) keep_typical(shared, row, choice.params.typical_p, kept);
  return kept;
}

// Returns the best of all ranks' candidates for a row, as ranked(). Each thread of the first block
// looks at one candidate.
__device__ uint64_t merge(Shared& shared, const SampleParams& params, int index,
                          const SamplingParams& choice) {
  const int thread = static_cast<int>(threadIdx.x);
  const bool is_there = cg::this_cluster().block_rank() == 0 && thread < params.num_candidates;
  SampleCandidate own{-__builtin_huge_valf(), -__builtin_huge_valf(), -1.0F};
  if (is_there) {
    const auto* const row =
        reinterpret_cast<const float*>(params.candidates) + index * params.candidates_stride;
    own = {row[3 * thread], row[3 * thread + 1], row[3 * thread + 2]};
  }
  shared.weights[thread] = __float_as_uint(own.z);
  __syncthreads();
  bool contests = own.token >= 0;
  if (choice.has_top_k(params.vocabulary) && choice.top_k <= kMostMergedTopK) {
    int num_above = 0;
    for (int i = 0; i < params.num_candidates; ++i)
      num_above += __uint_as_float(shared.weights[i]) > own.z ? 1 : 0;
    contests = contests && num_above < choice.top_k;
  }
  const uint64_t rank = contests ? ranked(own.score, static_cast<uint32_t>(own.token)) : kNobody;
  return fold_cluster(shared, 0, rank, Largest{});
}

// Chooses the token of each row. With kMerges, rows whose ranks offer candidates take the best of
// these.
template <bool kMerges>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    sample_kernel(const __grid_constant__ SampleParams params) {
  __shared__ Shared shared;
  extern __shared__ __align__(16) float slice[];
  const cg::cluster_group cluster = cg::this_cluster();
  begin_row_kernel(shared);

  const int index = static_cast<int>(blockIdx.x / cluster.num_blocks());
  const SamplingRow sampling = params.sampling[index / params.rows_each];
  const Choice choice{sampling.params, params.kv_lens[index]};
  Row row{};
  row.logits = sampling.adjusts(choice.kv_len) ? params.adjusted + index * params.adjusted_stride
                                               : params.logits + index * params.row_stride;
  row.first = static_cast<int>(cluster.block_rank()) * params.slice;
  row.count = max(0, min(params.slice, params.vocabulary - row.first));
  row.aligned = params.aligned;
  row.kept = slice;
  row.num_kept = min(params.num_kept, row.count);
  row.temperature = choice.params.temperature;
  row.inverse = __frcp_rn(row.temperature);

  uint64_t best = kNobody;
  if (kMerges && sampling.merges(choice.kv_len, params.vocabulary)) {
    best = merge(shared, params, index, choice.params);
  } else {
    best = fold_cluster(shared, 0, find_largest(row), Largest{});
    row.largest = from_ordered(static_cast<uint32_t>(best >> 32U));
    if (!takes_largest(choice.params, row.largest)) {
      const Kept kept = find_kept(shared, row, params, choice);
      best = fold_cluster(shared, 1, find_winner(shared, row, kept, choice), Largest{});
    }
  }
  if (cluster.block_rank() != 0 || threadIdx.x != 0) return;
  const int32_t token = token_of(best);
  params.tokens[index] = token;
  if (params.token_counts != nullptr && sampling.state >= 0 && choice.kv_len > 0)
    ++params.token_counts[static_cast<int64_t>(sampling.state) * params.vocabulary + token];
}

// Returns the dynamic shared memory of a block, with kBlocksPerMultiprocessor blocks on a
// multiprocessor: its share, less what the system and `Shared` take.
int64_t shared_bytes(Device& device) {
  return chip(device).max_shared_bytes_per_multiprocessor / kBlocksPerMultiprocessor - 1024 -
         static_cast<int64_t>(sizeof(Shared));
}

// Returns the number of blocks of a row's cluster: as many as the chip runs at once for all rows.
// The number changes no chosen token, because blocks add likelihoods as whole numbers, whose sum
// does not depend on the order.
template <typename Kernel>
int choose_num_blocks(Device& device, const Kernel& kernel, int64_t num_rows, int64_t vocabulary) {
  const int64_t slots = int64_t{kBlocksPerMultiprocessor} * chip(device).num_multiprocessors;
  const int64_t least = div_up(vocabulary, kMostTokens);
  int64_t num_blocks = std::min<int64_t>(kMaxBlocks, slots / std::max<int64_t>(num_rows, 1));
  for (; num_blocks > least; --num_blocks) {
    const Grid grid{.blocks = dim3(static_cast<unsigned>(num_blocks)),
                    .threads = kThreads,
                    .shared_bytes = static_cast<size_t>(shared_bytes(device)),
                    .cluster = static_cast<unsigned>(num_blocks)};
    if (num_rows <= max_active_clusters(grid, kernel)) break;
  }
  return static_cast<int>(std::min<int64_t>(std::max(num_blocks, least), kMaxBlocks));
}

BoundLaunch bind(Device& device, const KernelArgs& args) {
  const TensorView* const candidates = args.inputs.find("candidates");
  auto* const kernel = candidates == nullptr ? sample_kernel<false> : sample_kernel<true>;
  allow_shared_memory(kernel, shared_bytes(device));
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        "cudaFuncSetAttribute");
  SampleParams params;
  ENCORE_CHECK(args.inputs["sampling"].row_elements() == kSamplingWords);
  const TensorView& logits = args.inputs["logits"];
  const int64_t vocabulary = logits.row_elements();
  const int num_blocks = choose_num_blocks(device, kernel, logits.num_rows(), vocabulary);
  params.logits = logits.as<float>();
  params.row_stride = logits.row_stride;
  params.adjusted = args.inputs["adjusted"].as<const float>();
  params.adjusted_stride = args.inputs["adjusted"].row_stride;
  params.vocabulary = static_cast<int32_t>(vocabulary);
  params.slice = static_cast<int32_t>(round_up(div_up(vocabulary, num_blocks), kVisit));
  params.num_kept = static_cast<int32_t>(std::min<int64_t>(
      params.slice, shared_bytes(device) / static_cast<int64_t>(sizeof(float)) / kVisit * kVisit));
  params.aligned = is_aligned(logits) && is_aligned(args.inputs["adjusted"]);
  // The weight of a token at a bin's lower bound does not depend on the number of blocks, so that
  // the number of blocks changes no sum.
  const auto most = static_cast<uint64_t>(
      std::max(std::min(vocabulary, kMostTokens), vocabulary / kMaxBlocks + kVisit));
  params.unit = std::ldexp(1.0F, std::min(22, 32 - static_cast<int>(std::bit_width(most))));
  params.sampling = args.inputs["sampling"].as<const SamplingRow>();
  params.kv_lens = args.inputs["kv_lens"].as<const int32_t>();
  if (const TensorView* counts = args.inputs.find("token_counts"))
    params.token_counts = counts->as<int32_t>();
  params.tokens = args.outputs["next"].as<int32_t>();
  params.rows_each = static_cast<int32_t>(logits.num_rows() /
                                          std::max<int64_t>(1, args.inputs["sampling"].num_rows()));
  if (candidates != nullptr) {
    constexpr int64_t kNumbers = sizeof(SampleCandidate) / sizeof(float);
    static_assert(push::kMostRanks * kMostMergedTopK <= kThreads);
    ENCORE_CHECK(candidates->row_elements() <= kNumbers * kThreads);
    params.candidates = candidates->as<const SampleCandidate>();
    params.candidates_stride = candidates->row_stride;
    params.num_candidates = static_cast<int32_t>(candidates->row_elements() / kNumbers);
  }

  const Grid grid{.blocks = dim3(static_cast<unsigned>(logits.num_rows() * num_blocks)),
                  .threads = kThreads,
                  .shared_bytes = static_cast<size_t>(params.num_kept) * sizeof(float),
                  .cluster = static_cast<unsigned>(num_blocks)};
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, kernel, params); };
}

}  // namespace

std::span<const Kernel> sample_kernels() {
  static constexpr std::array<Kernel, 1> kRows = {
      {{"sample", "sample.cluster", nullptr, nullptr, bind, {"token_counts", "candidates"}}}};
  return kRows;
}

}  // namespace encore::cuda
