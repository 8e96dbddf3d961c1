// Attention of uniform steps with few tokens per sequence, alone or fused with rotation and the
// cache write. It is bound by reading K and V, once. decode.cuh has the work of a block;
// decode_64.cu and its sister files instantiate the kernels.
#include <algorithm>
#include <bit>

#include "backend/cuda/attention/decode_launch.cuh"

namespace encore::cuda {
namespace decode {
namespace {

constexpr int kMaxTokens = 9;
constexpr int kMaxMultiprocessors = 144;  // the most multiprocessors of a Hopper chip
constexpr int64_t kClusterBlocks = 128;   // as many as run with one block on each multiprocessor

// Shared memory of a multiprocessor, and what is reserved there for each block. Units: bytes.
constexpr int64_t kMultiprocessorShared = 228 << 10;
constexpr int64_t kReservedShared = 1 << 10;

// Decides into how many parts each kv head is cut where there are about as many kv heads as blocks,
// or more, so that all blocks get equally many parts of equal sequences. Example: 72 sequences of
// an 8B model have 576 kv heads on 264 blocks, 2.18 for a block on average. If kv heads are cut
// into halves, the fullest block has five halves, 15 % more than the mean; if they are cut into
// quarters, it has nine, 3 % more. (Attention of 24 to 136 sequences, in odd multiples of 8, is 1
// to 6 % faster for it, except 1.6 % slower with 88 sequences. For even multiples, halves or whole
// heads come out even.)
int even_parts_log2(int64_t heads, int64_t shares) {
  constexpr int kMostLog2 = 3;
  int best = 0;
  for (int log2 = 1; log2 <= kMostLog2 && unevenness(heads << best, shares) > kEven; ++log2) {
    if (unevenness(heads << log2, shares) < unevenness(heads << best, shares)) best = log2;
  }
  return best;
}

// Decides how sequences are cut into chunks. A chunk costs an exchange between warps and, where a
// share ends between a kv head's chunks, a trip of its result through scratch. Short chunks are
// worth that where a launch has few kv heads to spread over the card; they are worth less the more
// kv heads a sequence has, and the faster one is read.
Cutting cutting(const AttentionShape& shape, const DecodeSizes& sizes) {
  const int rows = sizes.plan.rows;
  const int ranks = sizes.plan.ranks;
  const int64_t heads = std::max<int64_t>(1, shape.sequences * shape.kv_heads);
  Cutting cutting;
  cutting.step_log2 = std::countr_zero(static_cast<unsigned>(kBlockKeys * ranks));
  if (ranks > 1) {
    // One worker reads up to 2048 keys sooner than two workers that meet in scratch. Longer
    // sequences are cut into as many chunks as there are workers, but no more: to bring a cluster's
    // results together once more costs 3 us.
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
    // Where shares have several chunks, some have one chunk more than others. The difference is
    // small when chunks are short.
    cutting.min_steps = cutting.fitting > 1 ? 8 : 5;
  }
  if (heads <= 32) cutting.growth = 32.0F / static_cast<float>(shape.head_size);
  // The most chunks of a sequence. A lone sequence gets as many as occupy all blocks; a sequence
  // among others may have more, because shares must come out even. With more rows, scratch has room
  // for fewer.
  const auto enough =
      static_cast<unsigned>(std::max(1, (shape.sequences == 1 ? 256 : 512) / shape.kv_heads));
  const unsigned most = rows <= 8 ? 64 : 32;
  cutting.max_count_log2 = static_cast<int>(std::bit_width(std::min(enough, most))) - 1;
  return cutting;
}

// Decides how many blocks a worker has. Where a step has few kv heads, each is spread over the
// blocks of a cluster, which meet in shared memory, 1 us sooner than blocks that meet in scratch.
// Where sequences may be long, a worker has one block: long reads want as many blocks as the card
// can run, and with clusters it runs fewer.
int ranks(const AttentionShape& shape, int rows) {
  constexpr int64_t kMostRanks = 8;  // blocks of a cluster that every chip can place
  constexpr int64_t kLongest = 8192;
  const int64_t heads = std::max<int64_t>(1, shape.sequences * shape.kv_heads);
  if (rows > kTileRows || shape.head_size > kMostClusterHeadSize || shape.max_kv_len > kLongest)
    return 1;
  const auto fitting = static_cast<uint64_t>(std::min(kMostRanks, kClusterBlocks / heads));
  return static_cast<int>(std::max<uint64_t>(1, std::bit_floor(fitting)));
}

// Deals query rows to as few blocks as can take them.
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

// Returns the most chunks that one sequence can have, however long it is.
int max_chunks(const Cutting& cutting, int64_t max_kv_len) {
  const int64_t steps = div_up(max_kv_len, int64_t{cutting.step_keys()});
  const int64_t most = std::clamp<int64_t>(div_up(steps, int64_t{cutting.min_steps}), 1,
                                           int64_t{1} << cutting.max_count_log2);
  if (cutting.parts_log2 == 0) return static_cast<int>(most);
  // Parts are rounded down to whole steps, so there may be up to twice as many chunks as parts.
  const int64_t of_parts =
      std::min(div_up(steps, int64_t{Cutting::kFewestSteps}), int64_t{2} << cutting.parts_log2);
  return static_cast<int>(std::max(most, of_parts));
}

}  // namespace

DecodeSizes decode_sizes(const KernelArgs& args, int num_fresh) {
  AttentionShape shape = attention_shape(args);
  if (args.attrs.find("window") != nullptr) {
    // The most keys that are read: the new tokens' windows, and the rest of the tile of keys in
    // which the first of them begins.
    const int64_t most = args.attrs.get_int("window") + *args.step.q + kTileKeys;
    shape.max_kv_len = std::min(shape.max_kv_len, most);
  }
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

namespace {

bool accepts(const KernelArgs& args) {
  if (args.batch_invariant || !args.step.is_uniform() || *args.step.q > kMaxTokens ||
      !accepts_tensor_cores(args, 256))
    return false;
  // Positions of work must fit in 32 bits, and positions within a sequence must be small enough for
  // divide().
  const AttentionShape shape = attention_shape(args);
  const int64_t steps = div_up(shape.max_kv_len, kBlockKeys) * shape.kv_heads;
  return 2 * steps <= kMostDivided && shape.sequences * steps < int64_t{1} << 31;
}

Workspace workspace_of(const KernelArgs& args, int num_fresh) {
  const DecodeSizes sizes = decode_sizes(args, num_fresh);
  const int64_t row_bytes = attention_shape(args).head_size * sizeof(float) + sizeof(float2);
  return {sizes.num_partials * row_bytes, sizes.num_slots};
}

Workspace workspace(const KernelArgs& args) {
  return workspace_of(args, 0);
}

BoundLaunch bind(Device& device, const KernelArgs& args) {
  return visit_head_size<256>(
      args, [&](auto head_size) { return bind_decode<head_size.value>(device, args); });
}

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

BoundLaunch bind_fused(Device& device, const KernelArgs& args) {
  const Fused fused(args);
  return visit_head_size<256>(fused.attend, [&](auto head_size) {
    return bind_fused_decode<head_size.value>(device, fused);
  });
}

}  // namespace
}  // namespace decode

int64_t attention_decode_shared_bytes(const KernelArgs& args) {
  return decode::decode_sizes(args, *args.step.q).shared_bytes;
}

Kernel attention_decode_kernel() {
  return {.op = "attention",
          .name = "attention.decode",
          .accepts = decode::accepts,
          .workspace = decode::workspace,
          .bind = decode::bind,
          .optional = {"sinks"}};
}

Kernel fused_attention_decode_kernel() {
  return {.op = "fused_attention",
          .name = "fused_attention.decode",
          .accepts = decode::accepts_fused,
          .workspace = decode::fused_workspace,
          .bind = decode::bind_fused,
          .optional = {"q_norm", "k_norm", "sinks"}};
}

}  // namespace encore::cuda
