// Attention of uniform steps with few tokens per sequence: bound by reading K and V, once.
//
// A sequence's KV is cut into chunks, by its own length alone. A block takes one sequence, one kv
// head and every gridDim.x-th chunk; all query rows that use this kv head (tokens x heads of the
// group) share its reads. Each of the four warps streams its own tiles of 16 keys through a private
// ring in shared memory, so warps meet only where a chunk ends. Chunks are folded in order: by the
// block itself when it has them all, else through scratch by the block that arrives last. Both fold
// with the same operations, so neither the grid nor the order of arrival shows in the bits.
#include <algorithm>

#include "backend/cuda/attention_fold.cuh"

namespace encore::cuda {
namespace {

using namespace decode;  // NOLINT(google-build-using-namespace): one kernel in two files

constexpr int kTileKeys = 16;                   // of one warp; a tile lies in one page
constexpr int kBlockKeys = kWarps * kTileKeys;  // chunk lengths are multiples of this
constexpr int kStages = 2;                      // tiles under way per warp
constexpr int kMaxTokens = 8;
constexpr int64_t kMaxBlocks = 2048;       // when a sequence's chunks are spread over blocks
constexpr int64_t kMaxSplitGroups = 1024;  // above this many, a block takes all chunks

struct Chunks {
  int length = 0;
  int count = 0;
};

// How a sequence's KV is cut: a function of its length, and of the query rows that share the reads
// (more rows make partial results dearer).
__host__ __device__ inline Chunks cut(int kv_len, int min_length) {
  const int least = kv_len <= 8 * min_length ? min_length : 2 * min_length;
  const int even = (kv_len + kMaxChunks - 1) / kMaxChunks;
  const int length = max(least, (even + kBlockKeys - 1) / kBlockKeys * kBlockKeys);
  return {length, (kv_len + length - 1) / length};
}

// Starts reading the block's query rows; those it does not have are zero.
template <typename T, int C, int kRowTiles>
__device__ __forceinline__ void start_queries(const AttentionParams<T>& params, const Place& place,
                                              uint32_t tile) {
  for (int i = threadIdx.x; i < kRowTiles * 16 * (C / 8); i += kThreads) {
    const int row = i / (C / 8);
    const int piece = i % (C / 8);
    const bool used = row < place.rows;
    const T* q = params.q + row_offset(params, place, used ? row : 0, params.q_stride);
    copy_async(tile + tile_offset<C>(row, piece), q + piece * 8, used);
  }
}

// One warp's stream of tiles: its part of each of the block's chunks, in order, read ahead.
template <typename T, int C>
class TileStream {
 public:
  static constexpr int kPieces = C / 8;  // 16 bytes each, of one key
  static constexpr int kTileBytes = kTileKeys * C * 2;
  static constexpr int kRingBytes = kStages * 2 * kTileBytes;  // K and V

  __device__ __forceinline__ TileStream(const AttentionParams<T>& params, const Place& place,
                                        const Chunks& chunks, uint32_t ring)
      : params_(params),
        table_(params.page_table + place.sequence * params.table_stride),
        kv_head_(place.kv_head),
        kv_len_(place.kv_len),
        chunk_length_(chunks.length),
        next_{static_cast<int>(blockIdx.x),
              static_cast<int>(blockIdx.x) * chunks.length + warp() * kTileKeys},
        ring_(ring) {
    // All pages are asked for before the first is waited for.
    int pages[kStages + 1];
    Cursor ahead = next_;
#pragma unroll
    for (int& page : pages) {
      page = load_page(ahead);
      ahead = after(ahead);
    }
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      page_ = pages[stage];
      start_next();
    }
    page_ = pages[kStages];
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
    page_ = load_page(next_);
  }

 private:
  struct Cursor {
    int chunk;
    int key;  // the tile's first
  };

  __device__ __forceinline__ static int warp() {
    return threadIdx.x / kWarpSize;
  }
  // Asked for one tile ahead, so that its latency passes under the tile before.
  __device__ __forceinline__ int load_page(const Cursor& tile) const {
    return tile.key < kv_len_ ? table_[tile.key >> params_.page_shift] : 0;
  }
  __device__ __forceinline__ Cursor after(Cursor tile) const {
    tile.key += kBlockKeys;
    if (tile.key >= (tile.chunk + 1) * chunk_length_) {
      tile.chunk += gridDim.x;
      tile.key = tile.chunk * chunk_length_ + warp() * kTileKeys;
    }
    return tile;
  }
  // Keys from kv_len on are filled with zeros: their weight is zero, and so is the product.
  __device__ __forceinline__ void start_next() {
    const int key = next_.key;
    if (key < kv_len_) {
      const int lane = threadIdx.x % kWarpSize;
      const uint32_t k_tile = ring_ + slot_ * 2 * kTileBytes;
      const int64_t first_slot =
          (static_cast<int64_t>(page_) * params_.kv_heads + kv_head_) * params_.page_size +
          (key & (params_.page_size - 1));
#pragma unroll
      for (int i = 0; i < kTileKeys * kPieces / kWarpSize; ++i) {
        const int piece = i * kWarpSize + lane;
        const int row = piece / kPieces;
        const bool valid = key + row < kv_len_;
        const uint32_t offset = tile_offset<C>(row, piece % kPieces);
        copy_async(k_tile + offset, params_.k_cache + first_slot * C + piece * 8, valid);
        copy_async(k_tile + kTileBytes + offset, params_.v_cache + first_slot * C + piece * 8,
                   valid);
      }
    }
    next_ = after(next_);
    commit_copies();
    slot_ = (slot_ + 1) % kStages;
  }

  const AttentionParams<T>& params_;
  const int32_t* table_;
  int kv_head_;
  int kv_len_;
  int chunk_length_;
  Cursor next_;  // the tile to start next
  int page_ = 0;
  int slot_ = 0;  // of the oldest tile, which the next one replaces
  uint32_t ring_;
};

// What one warp holds: the running result of its keys of one chunk, for all rows of the block.
template <typename T, int C, int kRowTiles>
struct WarpState {
  float values[kRowTiles][C / 8][4];
  RunningSoftmax softmax[kRowTiles];
  int last_key[kRowTiles][2];  // that the row sees

  __device__ __forceinline__ WarpState(const AttentionParams<T>& params, const Place& place) {
#pragma unroll
    for (int i = 0; i < kRowTiles * 2; ++i) {
      const int row = place.first_row + i * 8 + threadIdx.x % kWarpSize / 4;
      last_key[i / 2][i % 2] = place.kv_len - params.uniform_q + row / params.group;
    }
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      softmax[m] = RunningSoftmax{};
#pragma unroll
      for (int n = 0; n < C / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          values[m][n][i] = 0.0F;
      }
    }
  }

  // Adds the tile of keys that starts at `first_key`. `masked`: some row may not see all of them.
  __device__ __forceinline__ void attend(uint32_t queries_at, uint32_t k_tile, int first_key,
                                         bool masked, float scale) {
    const int lane = threadIdx.x % kWarpSize;
    const uint32_t keys_at = key_address<C>(k_tile, lane);
    float scores[kRowTiles][2][4] = {};
#pragma unroll
    for (int step = 0; step < C / 16; ++step) {
      uint32_t keys[4];
      load_matrices(keys, step_address<C>(keys_at, step));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        uint32_t queries[4];
        load_matrices(queries, step_address<C>(queries_at, step) + m * 16 * C * 2);
        multiply_add<T>(scores[m][0], queries, keys[0], keys[1]);
        multiply_add<T>(scores[m][1], queries, keys[2], keys[3]);
      }
    }
    uint32_t weights[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      if (masked) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int key = first_key + i / 4 * 8 + lane % 4 * 2 + i % 2;
          if (key > last_key[m][i / 2 % 2]) scores[m][i / 4][i % 4] = kMinusInfinity;
        }
      }
      float rescale[2];
      softmax[m].update(scores[m], rescale, scale);
      to_operand<T>(weights[m], scores[m][0], scores[m][1]);
#pragma unroll
      for (int n = 0; n < C / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          values[m][n][i] *= rescale[i / 2];
      }
    }
    const uint32_t values_at = value_address<C>(k_tile + TileStream<T, C>::kTileBytes, lane);
#pragma unroll
    for (int n = 0; n < C / 16; ++n) {
      uint32_t columns[4];
      load_matrices_transposed(columns, step_address<C>(values_at, n));
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply_add<T>(values[m][2 * n], weights[m], columns[0], columns[1]);
        multiply_add<T>(values[m][2 * n + 1], weights[m], columns[2], columns[3]);
      }
    }
  }
};

// A block's dynamic shared memory. Units: bytes from its start.
template <typename T, int C, int kRowTiles>
struct SharedParts {
  static constexpr int kQueries = kWarps * TileStream<T, C>::kRingBytes;
  static constexpr int kExchange = kQueries + kRowTiles * 16 * C * 2;

  static constexpr int64_t bytes(int rows) {
    return kExchange + int64_t{kWarps} * rows * Exchange<C>::kStride * int64_t{sizeof(float)};
  }
};

// Grid: (blocks that share a sequence's chunks, kv heads x row blocks, runs of query rows).
template <typename T, int C, int kRowTiles>
__global__ void __launch_bounds__(kThreads)
    attention_decode(const __grid_constant__ AttentionParams<T> params,
                     const __grid_constant__ DecodePlan plan) {
  begin_kernel();
  extern __shared__ __align__(kTileAlignment) uint8_t shared[];
  __shared__ float2 softmaxes[kWarps][kMaxRows];
  __shared__ float2 running[2][kMaxRows];

  const Place place = find_place(params, plan);
  if (place.kv_len <= 0) {
    if (blockIdx.x == 0) store_zeros<T, C>(params, place);
    return;
  }
  const Chunks chunks = cut(place.kv_len, plan.min_chunk);
  if (blockIdx.x >= chunks.count) return;

  using Parts = SharedParts<T, C, kRowTiles>;
  const int warp = threadIdx.x / kWarpSize;
  const uint32_t q_tile = shared_address(shared + Parts::kQueries);
  start_queries<T, C, kRowTiles>(params, place, q_tile);
  TileStream<T, C> stream(params, place, chunks,
                          shared_address(shared) + warp * TileStream<T, C>::kRingBytes);
  WarpState<T, C, kRowTiles> state(params, place);
  Exchange<C> exchange{reinterpret_cast<float*>(shared + Parts::kExchange), softmaxes, running,
                       place.rows};
  stream.wait();  // the queries belong to the first tile's group
  __syncthreads();
  const uint32_t queries_at = query_address<C>(q_tile, static_cast<int>(threadIdx.x) % kWarpSize);
  const float scale = params.scale_log2e;

  for (int chunk = blockIdx.x; chunk < chunks.count; chunk += gridDim.x) {
    state.clear();
    const int end = min((chunk + 1) * chunks.length, place.kv_len);
    for (int key = chunk * chunks.length + warp * kTileKeys; key < end; key += kBlockKeys) {
      const uint32_t tile = stream.wait();
      const bool masked = key + kTileKeys > place.kv_len - params.uniform_q + 1;
      state.attend(queries_at, tile, key, masked, scale);
      stream.release();
    }
    __syncthreads();  // the chunk before has been read
    exchange.write(state.values, state.softmax);
    __syncthreads();
    finish_chunk<T, C>(params, plan, place, exchange, chunk, chunks.count);
  }
  if (chunks.count == 1 || gridDim.x == 1) return;
  const int num_blocks = min(chunks.count, static_cast<int>(gridDim.x));
  if (!arrive(plan.counters + place.group, num_blocks)) return;
  fold_chunks<T, C>(params, plan, place, chunks.count, reinterpret_cast<float4*>(shared));
}

// Sizes of a launch: functions of padded sizes, q and the page table's width, never of real
// lengths.
struct DecodeSizes {
  DecodePlan plan;
  int64_t blocks_per_group = 0;
  int64_t groups = 0;  // sequences x kv heads x row blocks
  int64_t partials = 0;
};

DecodeSizes decode_sizes(const KernelArgs& args) {
  const AttentionShape shape = attention_shape(args);
  DecodeSizes sizes;
  DecodePlan& plan = sizes.plan;
  plan.rows = args.step.q * shape.group();
  plan.row_blocks = static_cast<int>(div_up(plan.rows, kMaxRows));
  plan.rows_per_block = std::min(plan.rows, kMaxRows);
  plan.min_chunk = kBlockKeys * (plan.rows <= 8 ? 1 : plan.rows <= 16 ? 2 : 4);
  plan.max_chunks = kMaxChunks;
  if (shape.max_kv_len <= 2 * kMaxChunks * plan.min_chunk) {
    // The most short chunks there can be, or those of the longest sequence.
    const int few = static_cast<int>(shape.max_kv_len);
    plan.max_chunks =
        std::max(1, std::max(cut(few, plan.min_chunk).count,
                             cut(std::min(few, 8 * plan.min_chunk), plan.min_chunk).count));
  }
  sizes.groups = shape.sequences * shape.kv_heads * plan.row_blocks;
  sizes.blocks_per_group = 1;
  if (sizes.groups > 0 && sizes.groups <= kMaxSplitGroups) {
    sizes.blocks_per_group = std::min<int64_t>(plan.max_chunks, kMaxBlocks / sizes.groups);
  }
  sizes.partials =
      sizes.groups * plan.rows_per_block * (sizes.blocks_per_group == 1 ? 1 : plan.max_chunks);
  return sizes;
}

bool accepts(const KernelArgs& args) {
  return args.step.q >= 1 && args.step.q <= kMaxTokens && accepts_tensor_cores(args);
}

Workspace workspace(const KernelArgs& args) {
  const DecodeSizes sizes = decode_sizes(args);
  const int64_t cell_bytes = attention_shape(args).head_size * sizeof(float) + sizeof(float2);
  return {sizes.partials * cell_bytes, sizes.groups};
}

template <typename T, int C, int kRowTiles>
BoundLaunch bind_tiles(const KernelArgs& args) {
  DecodeSizes sizes = decode_sizes(args);
  DecodePlan plan = sizes.plan;
  plan.values = static_cast<float*>(args.scratch);
  plan.softmaxes = reinterpret_cast<float2*>(plan.values + sizes.partials * C);
  plan.counters = args.counters;
  const int64_t shared_bytes = SharedParts<T, C, kRowTiles>::bytes(plan.rows_per_block);
  const auto kernel = attention_decode<T, C, kRowTiles>;
  allow_shared_memory(kernel, SharedParts<T, C, kRowTiles>::bytes(kRowTiles * 16));
  const AttentionShape shape = attention_shape(args);
  const Grid grid{.blocks = dim3(static_cast<unsigned>(sizes.blocks_per_group),
                                 static_cast<unsigned>(shape.kv_heads * plan.row_blocks),
                                 static_cast<unsigned>(shape.num_runs(args.step.q))),
                  .threads = kThreads,
                  .shared_bytes = static_cast<size_t>(shared_bytes)};
  return [=, params = attention_params<T>(args)](Stream& stream, const StepShape&) {
    launch(stream, grid, kernel, params, plan);
  };
}

BoundLaunch bind(Device&, const KernelArgs& args) {
  const bool few_rows = decode_sizes(args).plan.rows_per_block <= 16;
  return visit_tensor_core_shape(args, [&](auto element, auto head_size) {
    using T = typename decltype(element)::type;
    return few_rows ? bind_tiles<T, head_size.value, 1>(args)
                    : bind_tiles<T, head_size.value, 2>(args);
  });
}

}  // namespace

Kernel attention_decode_kernel() {
  return {"attention", "attention.decode", accepts, workspace, bind};
}

}  // namespace encore::cuda
