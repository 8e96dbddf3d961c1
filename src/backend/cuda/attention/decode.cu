// Attention of uniform steps with few tokens per sequence, alone or with the rotation and the cache
// write in front of it: bound by reading K and V, once. What a block does: decode.cuh.
#include "backend/cuda/attention/decode.cuh"

#include <algorithm>
#include <bit>

#include "backend/fused_attention.h"

namespace encore::cuda {
namespace {

using namespace decode;  // NOLINT(google-build-using-namespace): one kernel in four files

constexpr int kMaxTokens = 9;
constexpr int kMaxMultiprocessors = 144;  // of a Hopper chip
constexpr int64_t kClusterBlocks = 128;   // one on each multiprocessor
constexpr int kMostClusterHeadSize = 128;

// Units: bytes.
constexpr int64_t kBlockShared = 227 << 10;  // of a block at most
constexpr int64_t kMultiprocessorShared = 228 << 10;
constexpr int64_t kReservedShared = 1 << 10;  // of each block

// Row tiles of a block at most: what registers allow.
constexpr int most_row_tiles(int head_size) {
  return head_size <= 128 ? 3 : 2;
}

// Grid: (row blocks, shares); kClusters: (blocks of a worker, shares).
template <typename Params, int C, int kTiles, bool kClusters>
__global__ void __launch_bounds__(kThreads,
                                  residency(C, kTiles, sizeof(typename Params::Kv)).blocks)
    attention_decode(const __grid_constant__ Params params,
                     const __grid_constant__ DecodePlan plan) {
  allow_next_kernel();
  extern __shared__ __align__(kTileAlignment) uint8_t shared[];
  const int number = static_cast<int>(blockIdx.x);
  const Worker worker{.row_block = kClusters ? 0 : number,
                      .number = static_cast<int>(blockIdx.y),
                      .count = static_cast<int>(gridDim.y),
                      .rank = kClusters ? number : 0,
                      .ranks = kClusters ? plan.ranks : 1};
  constexpr int kStages = residency(C, kTiles, sizeof(typename Params::Kv)).stages;
  attend_share<Params, C, kTiles, kStages, kClusters>(params, plan, worker, shared);
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

// Shares whose blocks a chip has all at once.
int64_t max_shares(const DecodeSizes& sizes, int num_multiprocessors) {
  const DecodePlan& plan = sizes.plan;
  return std::max(1, num_multiprocessors * sizes.blocks_at_once / (plan.row_blocks * plan.ranks));
}

// What shares of so many equal parts have at most, as a multiple of the mean; up to kEven it counts
// for nothing.
constexpr double kEven = 1.06;
double unevenness(int64_t parts, int64_t shares) {
  return static_cast<double>(div_up(parts, shares) * shares) / static_cast<double>(parts);
}

// Into how many parts each kv head is cut where there are about as many as blocks, or more, so that
// all blocks get equally many of equal sequences: with 72 sequences of an 8B, 576 kv heads on 264
// blocks, five halves are 15 % more than the mean and nine quarters 3 %. (Attention of 24 to 136
// sequences, odd multiples of 8, is 1 to 6 % faster for it, of 88 1.6 % slower; for even multiples
// halves, or wholes, come out even.)
int even_parts_log2(int64_t heads, int64_t shares) {
  constexpr int kMostLog2 = 3;
  int best = 0;
  for (int log2 = 1; log2 <= kMostLog2 && unevenness(heads << best, shares) > kEven; ++log2) {
    if (unevenness(heads << log2, shares) < unevenness(heads << best, shares)) best = log2;
  }
  return best;
}

// How sequences are cut. A chunk costs an exchange between warps and, where shares end between a
// kv head's chunks, a trip of its result through scratch; short ones are worth that where a launch
// has few kv heads to spread over the card, and less so the more of them a sequence has and the
// faster one is read.
Cutting cutting(const AttentionShape& shape, const DecodeSizes& sizes) {
  const int rows = sizes.plan.rows;
  const int ranks = sizes.plan.ranks;
  const int64_t heads = std::max<int64_t>(1, shape.sequences * shape.kv_heads);
  Cutting cutting;
  cutting.step_log2 = std::countr_zero(static_cast<unsigned>(kBlockKeys * ranks));
  if (ranks > 1) {
    // Up to so many keys a worker is done sooner than two that meet in scratch. Longer sequences
    // take all workers, but no more: to bring a cluster's results together again costs 3 us.
    constexpr int kKeysOfChunk = 2048;
    cutting.min_steps = kKeysOfChunk / cutting.step_keys();
    const auto enough =
        static_cast<unsigned>(std::max<int64_t>(1, kClusterBlocks / ranks / shape.kv_heads));
    cutting.max_count_log2 = static_cast<int>(std::bit_width(enough)) - 1;
    return cutting;
  }
  const int64_t shares = max_shares(sizes, kMultiprocessors);
  cutting.fitting = static_cast<int>(shares / heads);
  if (cutting.fitting <= 1) cutting.parts_log2 = even_parts_log2(heads, shares);
  if (heads <= 8) {
    cutting.min_steps = rows <= 8 ? 1 : 2;
  } else if (heads < 128) {
    cutting.min_steps = heads <= 32 ? 2 : 4;
  } else {
    // Where a share has several, some shares have one more, which is less when chunks are short.
    cutting.min_steps = cutting.fitting > 1 ? 8 : 5;
  }
  if (heads <= 32) cutting.growth = 32.0F / static_cast<float>(shape.head_size);
  // Chunks of one sequence that occupy all blocks there can be; more, when it is not alone and
  // shares must come out even. Scratch has room for fewer when there are more rows.
  const auto enough =
      static_cast<unsigned>(std::max(1, (shape.sequences == 1 ? 256 : 512) / shape.kv_heads));
  const unsigned most = rows <= 8 ? 64 : 32;
  cutting.max_count_log2 = static_cast<int>(std::bit_width(std::min(enough, most))) - 1;
  return cutting;
}

// Blocks of a worker. Where a step has few kv heads, each is spread over a cluster's blocks: they
// meet in shared memory, 1 us sooner than blocks that meet in scratch. Not where sequences may be
// long: their reads want all blocks that there can be, and clusters leave some out.
int ranks(const AttentionShape& shape, int rows) {
  constexpr int64_t kMostRanks = 8;  // that every chip places
  constexpr int64_t kLongest = 8192;
  const int64_t heads = std::max<int64_t>(1, shape.sequences * shape.kv_heads);
  if (rows > kTileRows || shape.head_size > kMostClusterHeadSize || shape.max_kv_len > kLongest)
    return 1;
  const auto fitting = static_cast<uint64_t>(std::min(kMostRanks, kClusterBlocks / heads));
  return static_cast<int>(std::max<uint64_t>(1, std::bit_floor(fitting)));
}

// Deals query rows to as few blocks as take them.
void deal_rows(DecodeSizes& sizes, int head_size, int kv_bytes, int num_fresh) {
  DecodePlan& plan = sizes.plan;
  plan.row_blocks = static_cast<int>(div_up(plan.rows, most_row_tiles(head_size) * kTileRows));
  plan.rows_per_block = static_cast<int>(div_up(plan.rows, plan.row_blocks));
  const int row_tiles = static_cast<int>(div_up(plan.rows_per_block, kTileRows));
  plan.tile_rows = std::max(row_tiles * kTileRows, plan.rows_per_block + 2 * num_fresh);
  const Residency most = residency(head_size, row_tiles, kv_bytes);
  const int ring = ring_bytes(head_size, kv_bytes, most.stages);
  sizes.shared_bytes = shared_bytes(head_size, ring, plan);
  const int64_t fitting = kMultiprocessorShared / (sizes.shared_bytes + kReservedShared);
  sizes.blocks_at_once = std::min(most.blocks, static_cast<int>(fitting));
}

// Of a sequence, however long.
int max_chunks(const Cutting& cutting, int64_t max_kv_len) {
  const int64_t steps = div_up(max_kv_len, int64_t{cutting.step_keys()});
  const int64_t most = std::clamp<int64_t>(div_up(steps, int64_t{cutting.min_steps}), 1,
                                           int64_t{1} << cutting.max_count_log2);
  if (cutting.parts_log2 == 0) return static_cast<int>(most);
  // Parts are rounded down to whole steps: what is left is less than as many again.
  const int64_t of_parts =
      std::min(div_up(steps, int64_t{Cutting::kFewestSteps}), int64_t{2} << cutting.parts_log2);
  return static_cast<int>(std::max(most, of_parts));
}

// `num_fresh`: new tokens of a sequence whose keys are not in the caches yet.
DecodeSizes decode_sizes(const KernelArgs& args, int num_fresh) {
  const AttentionShape shape = attention_shape(args);
  DecodeSizes sizes;
  DecodePlan& plan = sizes.plan;
  plan.rows = *args.step.q * shape.group();
  plan.ranks = ranks(shape, plan.rows);
  deal_rows(sizes, shape.head_size, static_cast<int>(size_of(args.inputs["k_cache"].dtype)),
            num_fresh);
  plan.num_runs = static_cast<int>(shape.num_runs(args.step.q));
  plan.cutting = cutting(shape, sizes);
  plan.max_chunks = max_chunks(plan.cutting, shape.max_kv_len);
  const int64_t heads = shape.sequences * shape.kv_heads;
  if (plan.num_runs > 0) {
    sizes.shares =
        std::clamp<int64_t>(heads * plan.max_chunks, 1, max_shares(sizes, kMaxMultiprocessors));
  }
  plan.slot_per_head = heads <= sizes.shares;
  sizes.num_slots = std::min(heads, sizes.shares) * plan.row_blocks;
  if (plan.max_chunks > 1)
    sizes.num_partials = sizes.num_slots * plan.max_chunks * plan.rows_per_block;
  return sizes;
}

bool accepts(const KernelArgs& args) {
  if (args.batch_invariant || !args.step.is_uniform() || *args.step.q > kMaxTokens ||
      !accepts_tensor_cores(args, 256))
    return false;
  // Positions of work are 32-bit, those within a sequence are divided.
  const AttentionShape shape = attention_shape(args);
  const int64_t steps = div_up(shape.max_kv_len, kBlockKeys) * shape.kv_heads;
  return 2 * steps <= kMostDivided && shape.sequences * steps < int64_t{1} << 31;
}

Workspace workspace_of(const KernelArgs& args, int num_fresh) {
  const DecodeSizes sizes = decode_sizes(args, num_fresh);
  const int64_t row_bytes = attention_shape(args).head_size * sizeof(float) + sizeof(float2);
  return {sizes.num_partials * row_bytes, sizes.num_slots};
}

template <typename Params>
BoundLaunch bind_kernel(Grid grid, void (*kernel)(Params, DecodePlan), const Params& params,
                        const DecodePlan& plan) {
  allow_shared_memory(kernel, kBlockShared);
  if (grid.cluster > 1 && grid.blocks.y > 0) {
    const auto most = static_cast<unsigned>(max_active_clusters(grid, kernel));
    grid.blocks.y = std::min(grid.blocks.y, std::max(1U, most));
  }
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, kernel, params, plan); };
}

DecodePlan plan_of(const DecodeSizes& sizes, const KernelArgs& args, int head_size) {
  DecodePlan plan = sizes.plan;
  plan.values = static_cast<float*>(args.scratch);
  plan.softmaxes = reinterpret_cast<float2*>(plan.values + sizes.num_partials * head_size);
  plan.counters = args.counters;
  return plan;
}

template <int C, typename Params>
BoundLaunch bind_launch(Device& device, const KernelArgs& args, const Params& params) {
  const DecodeSizes sizes = decode_sizes(args, params.fresh.count);
  const int64_t shares =
      std::min(sizes.shares, max_shares(sizes, chip(device).num_multiprocessors));
  DecodePlan plan = plan_of(sizes, args, C);
  const int64_t heads = int64_t{params.num_sequences} * params.kv_heads;
  plan.even_heads = shares > 0 && unevenness(heads, shares) <= kEven;
  const Grid grid{.blocks = dim3(static_cast<unsigned>(plan.row_blocks * plan.ranks),
                                 static_cast<unsigned>(shares)),
                  .threads = kThreads,
                  .shared_bytes = static_cast<size_t>(sizes.shared_bytes),
                  .cluster = static_cast<unsigned>(plan.ranks)};
  const auto bind_with = [&](auto kernel) {
    return bind_kernel<Params>(grid, kernel, params, plan);
  };
  if constexpr (C <= kMostClusterHeadSize) {
    if (plan.ranks > 1) return bind_with(attention_decode<Params, C, 1, true>);
  }
  switch (div_up(plan.rows_per_block, kTileRows)) {
    case 1:
      return bind_with(attention_decode<Params, C, 1, false>);
    case 2:
      return bind_with(attention_decode<Params, C, 2, false>);
    default:
      return bind_with(attention_decode<Params, C, most_row_tiles(C), false>);
  }
}

Workspace workspace(const KernelArgs& args) {
  return workspace_of(args, 0);
}

BoundLaunch bind(Device& device, const KernelArgs& args) {
  return visit_tensor_core_shape<256>(args, [&](auto element, auto kv, auto head_size) {
    using T = typename decltype(element)::type;
    using Kv = typename decltype(kv)::type;
    return bind_launch<head_size.value>(device, args, attention_params<T, Kv>(args));
  });
}

// fused_attention: its two parts' arguments, in one launch.
struct Fused {
  explicit Fused(const KernelArgs& args) : parts(attention_parts(args)) {}

  Parts parts;
  const KernelArgs& write = parts.parts[0].args;
  const KernelArgs& attend = parts.parts[1].args;
};

bool accepts_fused(const KernelArgs& args) {
  const Fused fused(args);
  const auto aligned = [](const TensorView& view) {
    return view.dtype == DType::kI32 || is_aligned(view);
  };
  return accepts(fused.attend) && std::all_of(args.inputs.begin(), args.inputs.end(), aligned);
}

Workspace fused_workspace(const KernelArgs& args) {
  return workspace_of(Fused(args).attend, *args.step.q);
}

template <typename T, typename Kv>
AttentionParams<T, Kv> fused_params(const Fused& fused) {
  const Views& in = fused.write.inputs;
  const TensorView& q = in["q"];
  const TensorView& k = in["k"];
  const TensorView& v = in["v"];
  const TensorView& k_cache = fused.write.outputs["k_cache"];
  AttentionParams<T, Kv> params = attention_params<T, Kv>(fused.attend);
  params.q = q.as<T>();
  params.q_stride = q.row_stride;
  NewTokens<T, Kv>& fresh = params.fresh;
  fresh.count = *fused.attend.step.q;
  fresh.k = k.as<T>();
  fresh.k_stride = k.row_stride;
  fresh.v = v.as<T>();
  fresh.v_stride = v.row_stride;
  fresh.positions = in["positions"].as<int32_t>();
  fresh.inv_freq = in["inv_freq"].as<float>();
  fresh.slots = in["slots"].as<int32_t>();
  fresh.k_cache = k_cache.as<Kv>();
  fresh.v_cache = fused.write.outputs["v_cache"].as<Kv>();
  fresh.num_slots = k_cache.shape[0] * k_cache.shape[2];
  if (const TensorView* q_norm = in.find("q_norm")) {
    fresh.q_norm = q_norm->as<T>();
    fresh.k_norm = in["k_norm"].as<T>();
    fresh.eps = static_cast<float>(fused.write.attrs.get_double("eps"));
  }
  return params;
}

BoundLaunch bind_fused(Device& device, const KernelArgs& args) {
  const Fused fused(args);
  return visit_tensor_core_shape<256>(fused.attend, [&](auto element, auto kv, auto head_size) {
    using T = typename decltype(element)::type;
    using Kv = typename decltype(kv)::type;
    return bind_launch<head_size.value>(device, fused.attend, fused_params<T, Kv>(fused));
  });
}

}  // namespace

int64_t attention_decode_shared_bytes(const KernelArgs& args) {
  return decode_sizes(args, *args.step.q).shared_bytes;
}

Kernel attention_decode_kernel() {
  return {"attention", "attention.decode", accepts, workspace, bind};
}

Kernel fused_attention_decode_kernel() {
  return {"fused_attention", "fused_attention.decode", accepts_fused, fused_workspace,
          bind_fused,        {"q_norm", "k_norm"}};
}

}  // namespace encore::cuda
