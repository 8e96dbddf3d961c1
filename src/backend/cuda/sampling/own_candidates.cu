// Lets ranks that each have a part of the vocabulary choose a token together. A rank tells the
// other ranks its largest logit (`own_largest`). Then, knowing the largest logit of all ranks, it
// tells them those of its tokens that may be chosen (`own_candidates`). A cluster of blocks takes a
// row.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cuda/kernels.h"
#include "backend/cuda/sampling/sample_row.cuh"

namespace encore::cuda {
namespace {

using namespace sampling;

constexpr int64_t kMostBlocks = 8;  // the most blocks of a row; every chip can place that many

struct OwnParams {
  const float* logits = nullptr;
  int64_t row_stride = 0;
  const float* adjusted = nullptr;
  int64_t adjusted_stride = 0;
  int32_t vocabulary = 0;
  int32_t first_column = 0;
  int32_t columns = 0;
  int32_t slice = 0;  // tokens per block, a multiple of kVisit
  bool aligned = false;
  float unit = 1;
  const SamplingRow* sampling = nullptr;
  const int32_t* kv_lens = nullptr;
  int32_t rows_each = 1;           // rows of logits of a sequence
  const float* largest = nullptr;  // pairs of a logit and its token, one from each rank
  int64_t largest_stride = 0;
  int32_t num_ranks = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
};

__device__ Row row_of(const OwnParams& params, int index, const SamplingRow& sampling,
                      int32_t kv_len) {
  Row row{};
  row.logits = sampling.adjusts(kv_len) ? params.adjusted + index * params.adjusted_stride
                                        : params.logits + index * params.row_stride;
  row.first =
      params.first_column + static_cast<int>(cg::this_cluster().block_rank()) * params.slice;
  row.count = max(0, min(params.slice, params.first_column + params.columns - row.first));
  row.aligned = params.aligned;
  row.temperature = sampling.params.temperature;
  row.inverse = __frcp_rn(row.temperature);
  return row;
}

__device__ void write(const OwnParams& params, int index, int place,
                      const SampleCandidate& candidate) {
  float* const to = params.out + index * params.out_stride + 3 * place;
  to[0] = candidate.z;
  to[1] = candidate.score;
  to[2] = candidate.token;
}

constexpr float kLowest = -__builtin_huge_valf();

// Writes, in the first block, all places from `first` on: `candidate`, and then unused entries. The
// unused entries up to `last` have the candidate's z.
__device__ void write_rest(const OwnParams& params, int index, int first, int last,
                           const SampleCandidate& candidate) {
  const int place = static_cast<int>(threadIdx.x);
  if (cg::this_cluster().block_rank() != 0 || place < first || place >= kMostMergedTopK) return;
  SampleCandidate own{place < last ? candidate.z : kLowest, kLowest, -1.0F};
  if (place == first) own = candidate;
  write(params, index, place, own);
}

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    own_largest_kernel(const __grid_constant__ OwnParams params) {
  __shared__ Shared shared;
  const cg::cluster_group cluster = cg::this_cluster();
  allow_next_kernel();
  cluster.sync();  // every block has started, so its shared memory may be written
  wait_for_inputs();
  const int index = static_cast<int>(blockIdx.x / cluster.num_blocks());
  const Row row =
      row_of(params, index, params.sampling[index / params.rows_each], params.kv_lens[index]);
  const uint64_t best = fold_cluster(shared, 0, find_largest(row), Largest{});
  if (cluster.block_rank() != 0 || threadIdx.x != 0) return;
  float* const to = params.out + index * params.out_stride;
  const bool is_there = best != kNobody;
  to[0] = is_there ? from_ordered(static_cast<uint32_t>(best >> 32U)) : kLowest;
  to[1] = is_there ? static_cast<float>(token_of(best)) : -1.0F;
}

// Writes the candidates of a row with a top_k. Many tokens may have the farthest distance that is
// kept. Only the best of these is written, since the others cannot win.
__device__ void offer(Shared& shared, const OwnParams& params, int index, const Row& row,
                      const Choice& choice) {
  const cg::cluster_group cluster = cg::this_cluster();
  Search search{shared, row, params.unit, false};
  search.keep({.count = static_cast<uint32_t>(choice.params.top_k)});
  const Kept kept{search.end - 1};
  if (threadIdx.x == 0) shared.num_own_candidates = 0;
  uint64_t own = 0;  // the farthest distance that this thread keeps, plus 1; 0: none
  row.for_each([&](int, float4 z) {
    for (const float value : {z.x, z.y, z.z, z.w}) {
      if (kept.has(distance_of(value))) own = max(own, uint64_t{distance_of(value)} + 1);
    }
  });
  const uint64_t farthest = fold_cluster(shared, 0, own, Largest{});
  if (farthest == 0) return write_rest(params, index, 0, 0, {kLowest, kLowest, -1.0F});
  // The tokens nearer than the bound go to the first block, into the memory of the search's
  // candidates, which nobody reads any more.
  uint32_t* const num_nearer = cluster.map_shared_rank(&shared.num_own_candidates, 0);
  auto* const nearer =
      reinterpret_cast<SampleCandidate*>(cluster.map_shared_rank(shared.candidates, 0));
  static_assert(sizeof(shared.candidates) >= kMostMergedTopK * sizeof(SampleCandidate));
  uint64_t num_farthest = 0;
  uint64_t best = kNobody;  // the best token at the farthest distance
  row.for_each([&](int place, float4 z) {
    const float values[kVector] = {z.x, z.y, z.z, z.w};
    const auto token = static_cast<uint32_t>(row.first + place);
    const random::Words words =
        random::sample_words(choice.params.seed, choice.kv_len, token / kVector);
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const uint32_t distance = distance_of(values[i]);
      if (!kept.has(distance)) continue;
      const float score = __fadd_rn(values[i], random::gumbel(words.word[i]));
      const uint32_t own_token = token + static_cast<uint32_t>(i);
      if (distance + uint64_t{1} < farthest) {
        nearer[atomicAdd(num_nearer, 1U)] = {values[i], score, static_cast<float>(own_token)};
      } else {
        ++num_farthest;
        best = max(best, ranked(score, own_token));
      }
    }
  });
  const uint64_t num_all = fold_cluster(shared, 1, num_farthest, Sum{});
  best = fold_cluster(shared, 0, best, Largest{});
  if (cluster.block_rank() != 0) return;
  // Writes the nearer tokens in the order of their numbers, because the order in which they came is
  // random.
  const auto count = static_cast<int>(shared.num_own_candidates);
  const auto* const found = reinterpret_cast<const SampleCandidate*>(shared.candidates);
  if (static_cast<int>(threadIdx.x) < count) {
    const SampleCandidate own_one = found[threadIdx.x];
    int place = 0;
    for (int i = 0; i < count; ++i)
      place += found[i].token < own_one.token ? 1 : 0;
    write(params, index, place, own_one);
  }
  const auto last =
      static_cast<int>(min(count + num_all, static_cast<uint64_t>(choice.params.top_k)));
  write_rest(
      params, index, count, last,
      {-__uint_as_float(static_cast<uint32_t>(farthest - 1)),
       from_ordered(static_cast<uint32_t>(best >> 32U)), static_cast<float>(token_of(best))});
}

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    own_candidates_kernel(const __grid_constant__ OwnParams params) {
  __shared__ Shared shared;
  const cg::cluster_group cluster = cg::this_cluster();
  begin_row_kernel(shared);
  const int index = static_cast<int>(blockIdx.x / cluster.num_blocks());
  const SamplingRow sampling = params.sampling[index / params.rows_each];
  const Choice choice{sampling.params, params.kv_lens[index]};
  Row row = row_of(params, index, sampling, choice.kv_len);
  row.largest = kLowest;
  float token = -1;
  const float* const largest = params.largest + index * params.largest_stride;
  for (int rank = 0; rank < params.num_ranks; ++rank) {
    const float value = largest[2 * rank];
    const float of_rank = largest[2 * rank + 1];
    if (of_rank < 0 || (token >= 0 && !(value > row.largest))) continue;
    row.largest = value;
    token = of_rank;
  }
  if (takes_largest(choice.params, row.largest))
    return write_rest(params, index, 0, 0, {0.0F, 0.0F, fmaxf(token, 0.0F)});
  if (!choice.params.merges(params.vocabulary))
    return write_rest(params, index, 0, 0, {kLowest, kLowest, -1.0F});
  if (choice.params.has_top_k(params.vocabulary)) return offer(shared, params, index, row, choice);
  const Kept kept{kInfinite - 1};
  const uint64_t best = fold_cluster(shared, 0, find_winner(shared, row, kept, choice), Largest{});
  SampleCandidate winner{0.0F, from_ordered(static_cast<uint32_t>(best >> 32U)),
                         static_cast<float>(token_of(best))};
  if (best == kNobody) winner = {kLowest, kLowest, -1.0F};
  write_rest(params, index, 0, 0, winner);
}

using OwnKernel = void (*)(OwnParams);

BoundLaunch bind_own(const KernelArgs& args, OwnKernel kernel, const TensorView& out) {
  OwnParams params;
  ENCORE_CHECK(args.inputs["sampling"].row_elements() == kSamplingWords);
  const TensorView& logits = args.inputs["logits"];
  const TensorView& adjusted = args.inputs["adjusted"];
  params.logits = logits.as<float>();
  params.row_stride = logits.row_stride;
  params.adjusted = adjusted.as<const float>();
  params.adjusted_stride = adjusted.row_stride;
  params.vocabulary = static_cast<int32_t>(logits.row_elements());
  params.first_column = static_cast<int32_t>(args.attrs.get_int("first_column"));
  params.columns = static_cast<int32_t>(args.attrs.get_int("columns"));
  const int64_t num_blocks =
      std::clamp<int64_t>(div_up(params.columns, kThreads * kVector), 1, kMostBlocks);
  params.slice = static_cast<int32_t>(round_up(div_up(params.columns, num_blocks), kVisit));
  params.aligned = is_aligned(logits) && is_aligned(adjusted);
  params.sampling = args.inputs["sampling"].as<const SamplingRow>();
  params.kv_lens = args.inputs["kv_lens"].as<const int32_t>();
  params.rows_each = static_cast<int32_t>(logits.num_rows() /
                                          std::max<int64_t>(1, args.inputs["sampling"].num_rows()));
  if (const TensorView* const largest = args.inputs.find("largest")) {
    params.largest = largest->as<const float>();
    params.largest_stride = largest->row_stride;
    params.num_ranks = static_cast<int32_t>(largest->row_elements() / 2);
  }
  params.out = out.as<float>();
  params.out_stride = out.row_stride;
  const Grid grid{.blocks = dim3(static_cast<unsigned>(logits.num_rows() * num_blocks)),
                  .threads = kThreads,
                  .cluster = static_cast<unsigned>(num_blocks)};
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, kernel, params); };
}

BoundLaunch bind_largest(Device& /*device*/, const KernelArgs& args) {
  return bind_own(args, own_largest_kernel, args.outputs["largest"]);
}

BoundLaunch bind_candidates(Device& /*device*/, const KernelArgs& args) {
  ENCORE_CHECK(args.attrs.get_int("num_candidates") == kMostMergedTopK);
  return bind_own(args, own_candidates_kernel, args.outputs["candidates"]);
}

// Returns whether the rank's first column is a multiple of kVector. Threads take four tokens at a
// time, which share their noise.
bool begins_with_a_block(const KernelArgs& args) {
  return args.attrs.get_int("first_column") % kVector == 0;
}

}  // namespace

std::span<const Kernel> own_candidates_kernels() {
  static constexpr std::array<Kernel, 2> kRows = {
      {{"own_largest", "own_largest.cluster", begins_with_a_block, nullptr, bind_largest},
       {"own_candidates", "own_candidates.cluster", begins_with_a_block, nullptr,
        bind_candidates}}};
  return kRows;
}

}  // namespace encore::cuda
