// The copying side of varlen.cu's kernel: what a block has in shared memory, and the warp
// that fills it.
#pragma once

#include "backend/cuda/attention/varlen.cuh"
#include "backend/cuda/linear/tensor_map.h"

namespace encore::cuda::varlen {

inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kConsumers = 2;       // warpgroups that multiply
inline constexpr int kConsumerThreads = kConsumers * kGroupThreads;
inline constexpr int kThreads = kConsumerThreads + kGroupThreads;
inline constexpr int kGroupRows = kTileRows / kConsumers;

// Shared memory of a block, in bytes: queries, the ring of tiles of keys or values, what follows.
template <int C>
struct Layout {
  static constexpr int kKeys = C <= 128 ? 128 : 64;  // of a tile
  static constexpr int kSlots = 4;                   // of the ring
  static constexpr int kQuerySlots = C <= 128 ? 2 : 1;
  static constexpr int kHalves = (C + kBoxColumns - 1) / kBoxColumns;  // boxes side by side
  static constexpr int kQueryBox = kTileRows * kBoxRowBytes;
  static constexpr int kBox = kKeys * kBoxRowBytes;
  static constexpr int kQueries = kHalves * kQueryBox;
  static constexpr int kTile = kHalves * kBox;

  static constexpr int kRingAt = kQuerySlots * kQueries;
  static constexpr int kTilesAt = kRingAt + kSlots * kTile;
  static constexpr int kBarriersAt = kTilesAt + kQuerySlots * static_cast<int>(sizeof(Tile));
  static constexpr int kListAt = kBarriersAt + 2 * (kQuerySlots + kSlots) * 8;
  static constexpr int kBytes = kListAt + static_cast<int>(sizeof(TileList));

  uint8_t* shared;
  uint32_t base;

  __device__ __forceinline__ explicit Layout(uint8_t* start)
      : shared(start), base(shared_address(start)) {}
  [[nodiscard]] __device__ uint32_t queries(uint32_t slot) const { return base + slot * kQueries; }
  [[nodiscard]] __device__ uint32_t tile(uint32_t slot) const {
    return base + kRingAt + slot * kTile;
  }
  [[nodiscard]] __device__ Tile& work(uint32_t slot) const {
    return reinterpret_cast<Tile*>(shared + kTilesAt)[slot];
  }
  [[nodiscard]] __device__ TileList& list() const {
    return *reinterpret_cast<TileList*>(shared + kListAt);
  }
  // Of queries, then of the ring: filled, and free again.
  [[nodiscard]] __device__ uint32_t queries_full(uint32_t slot) const {
    return base + kBarriersAt + slot * 8;
  }
  [[nodiscard]] __device__ uint32_t queries_free(uint32_t slot) const {
    return queries_full(kQuerySlots + slot);
  }
  [[nodiscard]] __device__ uint32_t full(uint32_t slot) const {
    return queries_full(2 * kQuerySlots + slot);
  }
  [[nodiscard]] __device__ uint32_t free(uint32_t slot) const { return full(kSlots + slot); }

  __device__ __forceinline__ void init() const {
    constexpr int kWarps = kConsumerThreads / kWarpSize;
    for (uint32_t i = 0; i < kQuerySlots; ++i) {
      init_barrier(queries_full(i), 1);
      init_barrier(queries_free(i), kWarps);
    }
    for (uint32_t i = 0; i < kSlots; ++i) {
      init_barrier(full(i), 1);
      init_barrier(free(i), kWarps);
    }
    publish_barriers();
  }
};

struct Arguments {
  CUtensorMap query_map;
  CUtensorMap key_map;
  CUtensorMap value_map;
  int tile_tokens;
  uint32_t* next_tile;  // a counter
  uint32_t* arrived;    // counters, for each half of the rows of each kv head of each sequence
  // What parts leave: sums [sequences, kMostPartRows, heads, C], maxima and sums of weights.
  float* values;
  float2* softmaxes;
};

// The warp that copies.
template <typename Params, int C>
struct Producer {
  using L = Layout<C>;

  const Params& params;
  const Arguments& args;
  const L& layout;
  Slot queries{};
  Slot target{};

  // Page table entries of a tile of keys, a lane each; those past the sequence's keys are not
  // looked at.
  __device__ __forceinline__ int find_page(const Tile& tile, int key_tile) const {
    const int entry = (key_tile * L::kKeys >> params.page_shift) + lane();
    const bool used = lane() << params.page_shift < L::kKeys &&
                      entry << params.page_shift < tile.kv_len && key_tile >= tile.first_keys;
    return used ? params.page_table[tile.sequence * params.table_stride + entry] : 0;
  }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }

  // Fills the next slot with a tile of keys or values, of which `page` is this lane's page.
  __device__ __forceinline__ void copy(const CUtensorMap& map, const Tile& tile, int key_tile,
                                       int page) {
    const uint32_t full = layout.full(target.number);
    const int used = min(L::kKeys, tile.kv_len - key_tile * L::kKeys);
    const int pages = (used + params.page_size - 1) >> params.page_shift;
    const int box_bytes = params.page_size * kBoxRowBytes;
    const int row = (page * params.kv_heads + tile.kv_head) << params.page_shift;
    wait_for_phase(layout.free(target.number), target.parity ^ 1U);
    if (elect_lane()) {
      arrive_expecting(full, static_cast<uint32_t>(pages * box_bytes * L::kHalves));
    }
    uint32_t to = layout.tile(target.number);
    for (int i = 0; i < pages; ++i) {
      const int from = __shfl_sync(0xffffffffU, row, i);
      if (elect_lane()) {
#pragma unroll
        for (int half = 0; half < L::kHalves; ++half)
          copy_box(to + half * L::kBox, map, {half * kBoxColumns, from, 0}, full);
      }
      to += box_bytes;
    }
    target.advance(L::kSlots);
  }

  // Hands a tile, and its queries, to the consumers; without a tile they end.
  __device__ __forceinline__ void hand_over(const Tile& tile) {
    const uint32_t full = layout.queries_full(queries.number);
    wait_for_phase(layout.queries_free(queries.number), queries.parity ^ 1U);
    if (elect_lane()) {
      layout.work(queries.number) = tile;
      if (tile.has_keys()) {
        const int box_bytes = args.tile_tokens * params.group * kBoxRowBytes;
        arrive_expecting(full, static_cast<uint32_t>(box_bytes * L::kHalves));
#pragma unroll
        for (int half = 0; half < L::kHalves; ++half) {
          copy_box(layout.queries(queries.number) + half * L::kQueryBox, args.query_map,
                   {half * kBoxColumns, tile.kv_head * params.group, tile.token}, full);
        }
      } else {
        arrive(full);
      }
    }
    __syncwarp();
    queries.advance(L::kQuerySlots);
  }

  // The values of a tile of keys follow the keys of the one before it, as the consumers use them.
  __device__ __forceinline__ void copy_all(const Tile& tile) {
    const int last = tile.end_keys - 1;
    int page = find_page(tile, last);
    int next_page = find_page(tile, last - 1);
    copy(args.key_map, tile, last, page);
    for (int key_tile = last - 1; key_tile >= tile.first_keys; --key_tile) {
      const int after_page = find_page(tile, key_tile - 1);
      copy(args.key_map, tile, key_tile, next_page);
      copy(args.value_map, tile, key_tile + 1, page);
      page = next_page;
      next_page = after_page;
    }
    copy(args.value_map, tile, tile.first_keys, page);
  }

  // The first tiles go to the blocks by number, the others to who asks. As many ask as there are
  // tiles: the last puts the counter back.
  __device__ __forceinline__ void run() {
    const int num_tiles = layout.list().num_tiles(params);
    const int num_blocks = min(static_cast<int>(gridDim.x), num_tiles);
    for (int number = static_cast<int>(blockIdx.x); number < num_tiles;) {
      const Tile tile = layout.list().template find<L::kKeys>(params, number, args.tile_tokens);
      int drawn = 0;
      if (lane() == 0) {
        drawn = static_cast<int>(atomicAdd(args.next_tile, 1U));
        if (drawn == num_tiles - 1) *args.next_tile = 0;
      }
      hand_over(tile);
      if (tile.has_keys()) copy_all(tile);
      number = num_blocks + __shfl_sync(0xffffffffU, drawn, 0);
    }
    hand_over({.num_parts = 0});
  }
};

}  // namespace encore::cuda::varlen
