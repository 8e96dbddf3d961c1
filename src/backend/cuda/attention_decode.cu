// Attention of uniform steps with few tokens per sequence: bound by reading K and V, once.
//
// A block takes its share of the batch's chunks (attention_work.cuh), one after the other; all
// query rows that use a kv head (tokens x heads of the group) share its reads. Each of the four
// warps streams its own tiles of 16 keys through a private ring in shared memory, across the
// chunks, groups and sequences of the share, so warps meet only where a chunk ends, and nothing
// ends the stream of reads before the share does. How results become one: attention_fold.cuh.
//
// Reading ahead. A launch may start while those before it in its step still run, and this one reads
// the lengths, the page table and the K and V of older tokens before it waits for them: none of the
// step's launches writes these. Step inputs are copied before the step's first launch, and older K
// and V were written by earlier steps. That both are complete and visible follows by induction over
// the launches of the step: the first one starts after the copy has ended, as any launch behind a
// copy does, and the copy after the step before; each later launch starts after the one before it
// has started, by the order of programmatic edges. (What such an edge does not give is that the
// launch before has done anything: hence the wait before q, this step's own K and V, scratch and
// the output are touched.) Reads of what a copy wrote go past the L1 cache, which only the start of
// a launch clears. What would break this: a kernel that writes step inputs, or K and V of tokens
// that are not new, in front of an overlapping launch. Whoever adds one launches the next without
// overlap (Grid::overlap).
//
// Every thread waits, blocks without a share too, so a launch ends only after those before it.
#include <algorithm>
#include <bit>

#include "backend/cuda/attention_fold.cuh"

namespace encore::cuda {
namespace {

using namespace decode;  // NOLINT(google-build-using-namespace): one kernel in three files

constexpr int kStages = 2;  // tiles under way per warp
constexpr int kMaxTokens = 9;
constexpr int kMaxMultiprocessors = 144;  // of a Hopper chip

// Query rows of a block at most.
constexpr int kRows = 16;

// Blocks that a multiprocessor has at once: what shared memory and registers allow.
constexpr int blocks_per_multiprocessor(int head_size) {
  return head_size == 64 ? 3 : head_size <= 128 ? 2 : 1;
}

// Reads the block's query rows of a kv head into `tile`; those it does not have become zero.
template <typename T, int C>
__device__ __forceinline__ void load_queries(const AttentionParams<T>& params, const Place& place,
                                             uint8_t* tile) {
  constexpr int kPieces = kRows * (C / 8);
#pragma unroll
  for (int i = threadIdx.x; i < kPieces; i += kThreads) {
    const int row = i / (C / 8);
    const int piece = i % (C / 8);
    const T* q = params.q + row_offset(params, place, row, params.q_stride) + piece * 8;
    const uint4 bits = row < place.rows ? *reinterpret_cast<const uint4*>(q) : uint4{};
    *reinterpret_cast<uint4*>(tile + tile_offset<C>(row, piece)) = bits;
  }
}

// One warp's stream of tiles: its part of each step of each of the block's chunks, in order, read
// ahead. Every warp has a tile in every step, be it without keys.
template <typename T, int C>
class TileStream {
 public:
  static constexpr int kPieces = C / 8;  // 16 bytes each, of one key
  static constexpr int kTileBytes = kTileKeys * C * 2;
  static constexpr int kRingBytes = kStages * 2 * kTileBytes;  // K and V

  // Starts the first tiles, after waiting for the launch before only if one has a new token.
  __device__ __forceinline__ TileStream(const AttentionParams<T>& params, const DecodePlan& plan,
                                        const Walk& first, uint32_t ring)
      : params_(params), plan_(plan), next_(first), key_(first_key(first)), ring_(ring) {
    // All pages are asked for before the first is waited for.
    int pages[kStages];
    const Walk begin = next_;
#pragma unroll
    for (int& page : pages) {
      page = load_page();
      advance();
    }
    next_ = begin;
    key_ = first_key(begin);
#pragma unroll
    for (const int page : pages) {
      page_ = page;
      if (key_ + kTileKeys > next_.kv_len - params.uniform_q) wait_for_inputs();
      start_next();
    }
    page_ = load_page();
  }

  // Waits for the oldest tile; K is at the address returned, V behind it.
  __device__ __forceinline__ uint32_t wait() const {
    wait_for_copies<kStages - 1>();
    __syncwarp();
    return ring_ + slot_ * 2 * kTileBytes;
  }
  // The oldest tile is no longer needed: starts the next one in its place.
  __device__ __forceinline__ void release() {
    __syncwarp();
    start_next();
    page_ = load_page();
  }

 private:
  __device__ __forceinline__ static int first_key(const Walk& walk) {
    const int warp = threadIdx.x / kWarpSize;
    return walk.chunk * walk.chunks.length + warp * kTileKeys;
  }
  __device__ __forceinline__ bool has_keys() const {
    return !next_.done() && key_ < next_.kv_len;
  }
  // Asked for one tile ahead, so that its latency passes under the tile before.
  __device__ __forceinline__ int load_page() const {
    const int64_t row = next_.sequence * params_.table_stride;
    return has_keys() ? __ldcg(params_.page_table + row + (key_ >> params_.page_shift)) : 0;
  }
  __device__ __forceinline__ void advance() {
    if (next_.done()) return;
    key_ += kBlockKeys;
    const int chunk_end =
        min((next_.chunk + 1) * next_.chunks.length, Cutting::steps(next_.kv_len) * kBlockKeys);
    if (key_ < chunk_end) return;
    next_.next_chunk(params_, plan_);
    key_ = first_key(next_);
  }
  // Keys from kv_len on are filled with zeros: their weight is zero, and so is the product.
  __device__ __forceinline__ void start_next() {
    if (has_keys()) {
      const int lane = threadIdx.x % kWarpSize;
      const uint32_t k_tile = ring_ + slot_ * 2 * kTileBytes;
      const int64_t first_slot =
          (static_cast<int64_t>(page_) * params_.kv_heads + next_.kv_head) * params_.page_size +
          (key_ & (params_.page_size - 1));
#pragma unroll
      for (int i = 0; i < kTileKeys * kPieces / kWarpSize; ++i) {
        const int piece = i * kWarpSize + lane;
        const int row = piece / kPieces;
        const bool valid = key_ + row < next_.kv_len;
        const uint32_t offset = tile_offset<C>(row, piece % kPieces);
        copy_async_once(k_tile + offset, params_.k_cache + first_slot * C + piece * 8, valid,
                        read_once_);
        copy_async_once(k_tile + kTileBytes + offset, params_.v_cache + first_slot * C + piece * 8,
                        valid, read_once_);
      }
    }
    advance();
    commit_copies();
    slot_ = (slot_ + 1) % kStages;
  }

  const AttentionParams<T>& params_;
  const DecodePlan& plan_;
  Walk next_;  // the chunk of the tile to start next
  int key_;    // that tile's first
  int page_ = 0;
  int slot_ = 0;  // of the oldest tile, which the next one replaces
  uint32_t ring_;
  uint64_t read_once_ = read_once_policy();
};

// What one warp holds: the running result of its keys of one chunk, for all rows of the block.
template <typename T, int C>
struct WarpState {
  float values[C / 8][4];
  RunningSoftmax softmax;
  int last_key[2];  // that the row sees

  __device__ __forceinline__ void begin_head(const AttentionParams<T>& params, const Place& place) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = place.first_row + i * 8 + threadIdx.x % kWarpSize / 4;
      last_key[i] = place.kv_len - params.uniform_q + row / params.group;
    }
  }
  __device__ __forceinline__ void begin_chunk() {
    softmax = RunningSoftmax{};
#pragma unroll
    for (int n = 0; n < C / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[n][i] = 0.0F;
    }
  }

  // Adds the tile of keys that starts at `first_key`. `masked`: some row may not see all of them.
  __device__ __forceinline__ void attend(uint32_t queries_at, uint32_t k_tile, int first_key,
                                         bool masked, float scale) {
    const int lane = threadIdx.x % kWarpSize;
    const uint32_t keys_at = key_address<C>(k_tile, lane);
    float scores[2][4] = {};
#pragma unroll
    for (int step = 0; step < C / 16; ++step) {
      uint32_t keys[4];
      load_matrices(keys, step_address<C>(keys_at, step));
      uint32_t queries[4];
      load_matrices(queries, step_address<C>(queries_at, step));
      multiply_add<T>(scores[0], queries, keys[0], keys[1]);
      multiply_add<T>(scores[1], queries, keys[2], keys[3]);
    }
    if (masked) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int key = first_key + i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (key > last_key[i / 2 % 2]) scores[i / 4][i % 4] = kMinusInfinity;
      }
    }
    float rescale[2];
    softmax.update(scores, rescale, scale);
    uint32_t weights[4];
    to_operand<T>(weights, scores[0], scores[1]);
#pragma unroll
    for (int n = 0; n < C / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[n][i] *= rescale[i / 2];
    }
    const uint32_t values_at = value_address<C>(k_tile + TileStream<T, C>::kTileBytes, lane);
#pragma unroll
    for (int n = 0; n < C / 16; ++n) {
      uint32_t columns[4];
      load_matrices_transposed(columns, step_address<C>(values_at, n));
      multiply_add<T>(values[2 * n], weights, columns[0], columns[1]);
      multiply_add<T>(values[2 * n + 1], weights, columns[2], columns[3]);
    }
  }
};

// A block's dynamic shared memory. Units: bytes from its start.
template <typename T, int C>
struct SharedParts {
  static constexpr int kQueries = kWarps * TileStream<T, C>::kRingBytes;
  static constexpr int kExchange = kQueries + kRows * C * 2;

  static constexpr int64_t bytes(int rows) {
    return kExchange + Exchange<C>::floats(rows) * int64_t{sizeof(float)};
  }
};

// Grid: (row blocks, shares).
template <typename T, int C>
__global__ void __launch_bounds__(kThreads, blocks_per_multiprocessor(C))
    attention_decode(const __grid_constant__ AttentionParams<T> params,
                     const __grid_constant__ DecodePlan plan) {
  allow_next_kernel();
  extern __shared__ __align__(kTileAlignment) uint8_t shared[];
  using Parts = SharedParts<T, C>;
  const int warp = threadIdx.x / kWarpSize;
  const Share share = find_share(params, plan);
  TileStream<T, C> stream(params, plan, share.first,
                          shared_address(shared) + warp * TileStream<T, C>::kRingBytes);
  wait_for_inputs();
  const uint32_t queries_at = query_address<C>(shared_address(shared + Parts::kQueries),
                                               static_cast<int>(threadIdx.x) % kWarpSize);
  const Exchange<C> exchange(shared + Parts::kExchange, plan.rows_per_block);
  WarpState<T, C> state;

  for (Walk walk = share.first; !walk.done(); walk.next_head(params, plan)) {
    const Place place = find_place(plan, walk);
    load_queries<T, C>(params, place, shared + Parts::kQueries);
    state.begin_head(params, place);
    __syncthreads();
    const int first_chunk = walk.chunk;
    const int last_chunk = walk.last_chunk();
    const int num_chunks = walk.chunks.count;
    const bool alone = last_chunk - first_chunk == num_chunks;
    const int64_t slot = alone ? 0 : find_slot(params, plan, share, walk);
    for (int chunk = first_chunk; chunk < last_chunk; ++chunk) {
      state.begin_chunk();
      const int begin = chunk * walk.chunks.length;
      const int end = min(begin + walk.chunks.length, place.kv_len);
      for (int step = begin; step < end; step += kBlockKeys) {
        const int key = step + warp * kTileKeys;
        const uint32_t tile = stream.wait();
        const bool masked = key + kTileKeys > place.kv_len - params.uniform_q + 1;
        if (key < end) state.attend(queries_at, tile, key, masked, params.scale_log2e);
        stream.release();
      }
      __syncthreads();  // the chunk before has been read
      exchange.write(state.values, state.softmax, place.rows);
      __syncthreads();
      if (alone) {
        add_chunk<T, C>(params, place, exchange, chunk, num_chunks);
      } else {
        publish_chunk<C>(plan, place, exchange, slot, chunk, params.scale_log2e);
      }
    }
    if (!alone && arrive(plan.counters + slot, last_chunk - first_chunk, num_chunks)) {
      fold_chunks<T, C>(params, plan, place, slot, num_chunks);
    }
  }
  if (share.some_empty || plan.num_runs > params.num_sequences) store_zeros<T, C>(params, plan);
}

// Sizes of a launch: functions of padded sizes, q and the page table's width, never of real
// lengths.
struct DecodeSizes {
  DecodePlan plan;
  int64_t shares = 0;
  int64_t slots = 0;
  int64_t partials = 0;
};

// Shares whose blocks a chip has all at once.
int64_t max_shares(int head_size, const DecodePlan& plan, int num_multiprocessors) {
  return std::max(1, num_multiprocessors * blocks_per_multiprocessor(head_size) / plan.row_blocks);
}

// How sequences are cut. A chunk costs an exchange between warps and, where shares end between a
// kv head's chunks, a trip of its result through scratch; short ones are worth that where a launch
// has few kv heads to spread over the card.
Cutting cutting(int64_t sequences, int kv_heads, int rows_per_block) {
  const int64_t heads = sequences * kv_heads;
  const int few_heads_steps = rows_per_block <= 8 ? 1 : 2;
  const int steps = heads <= 32 ? few_heads_steps : heads < 128 ? 4 : 8;
  // Chunks of one sequence that occupy all blocks there can be; more, when it is not alone and
  // shares must come out even. Scratch has room for fewer when there are more rows.
  const auto enough = static_cast<unsigned>(std::max(1, (sequences == 1 ? 256 : 512) / kv_heads));
  const unsigned most = rows_per_block <= 8 ? 64 : 32;
  return {.min_length = kBlockKeys * steps,
          .max_count_log2 = static_cast<int>(std::bit_width(std::min(enough, most))) - 1};
}

DecodeSizes decode_sizes(const KernelArgs& args) {
  const AttentionShape shape = attention_shape(args);
  DecodeSizes sizes;
  DecodePlan& plan = sizes.plan;
  plan.rows = args.step.q * shape.group();
  plan.row_blocks = static_cast<int>(div_up(plan.rows, kRows));
  plan.rows_per_block = static_cast<int>(div_up(plan.rows, plan.row_blocks));
  plan.num_runs = static_cast<int>(shape.num_runs(args.step.q));
  plan.cutting = cutting(shape.sequences, shape.kv_heads, plan.rows_per_block);
  plan.max_chunks =
      static_cast<int>(std::clamp<int64_t>(div_up(shape.max_kv_len, plan.cutting.min_length), 1,
                                           int64_t{1} << plan.cutting.max_count_log2));
  const int64_t heads = shape.sequences * shape.kv_heads;
  if (plan.num_runs > 0) {
    sizes.shares = std::clamp<int64_t>(heads * plan.max_chunks, 1,
                                       max_shares(shape.head_size, plan, kMaxMultiprocessors));
  }
  plan.slot_per_head = heads <= sizes.shares;
  sizes.slots = std::min(heads, sizes.shares) * plan.row_blocks;
  sizes.partials = plan.max_chunks == 1 ? 0 : sizes.slots * plan.max_chunks * plan.rows_per_block;
  return sizes;
}

bool accepts(const KernelArgs& args) {
  if (args.step.q < 1 || args.step.q > kMaxTokens || !accepts_tensor_cores(args, 256)) return false;
  // Positions of work are 32-bit.
  const AttentionShape shape = attention_shape(args);
  const int64_t steps = div_up(shape.max_kv_len, kBlockKeys) * shape.kv_heads;
  return shape.sequences * steps < int64_t{1} << 31;
}

Workspace workspace(const KernelArgs& args) {
  const DecodeSizes sizes = decode_sizes(args);
  const int64_t cell_bytes = attention_shape(args).head_size * sizeof(float) + sizeof(float2);
  return {sizes.partials * cell_bytes, sizes.slots};
}

template <typename T, int C>
BoundLaunch bind_launch(Device& device, const KernelArgs& args) {
  using Parts = SharedParts<T, C>;
  const DecodeSizes sizes = decode_sizes(args);
  DecodePlan plan = sizes.plan;
  plan.values = static_cast<float*>(args.scratch);
  plan.softmaxes = reinterpret_cast<float2*>(plan.values + sizes.partials * C);
  plan.counters = args.counters;
  const auto kernel = attention_decode<T, C>;
  allow_shared_memory(kernel, Parts::bytes(kRows));
  const int64_t shares =
      std::min(sizes.shares, max_shares(C, plan, chip(device).num_multiprocessors));
  const Grid grid{
      .blocks = dim3(static_cast<unsigned>(plan.row_blocks), static_cast<unsigned>(shares)),
      .threads = kThreads,
      .shared_bytes = static_cast<size_t>(Parts::bytes(plan.rows_per_block))};
  return [=, params = attention_params<T>(args)](Stream& stream, const StepShape&) {
    launch(stream, grid, kernel, params, plan);
  };
}

BoundLaunch bind(Device& device, const KernelArgs& args) {
  return visit_tensor_core_shape<256>(args, [&](auto element, auto head_size) {
    return bind_launch<typename decltype(element)::type, head_size.value>(device, args);
  });
}

}  // namespace

Kernel attention_decode_kernel() {
  return {"attention", "attention.decode", accepts, workspace, bind};
}

}  // namespace encore::cuda
