// The shared memory of a block of variable-length attention, and the warps that fill it.
#pragma once

#include "backend/cuda/attention/varlen.cuh"
#include "backend/cuda/linear/tensor_map.h"

namespace encore::cuda::varlen {

inline constexpr int kGroupThreads = 128;  // threads of a warpgroup
inline constexpr int kConsumers = 2;       // warpgroups that multiply
inline constexpr int kConsumerThreads = kConsumers * kGroupThreads;
inline constexpr int kThreads = kConsumerThreads + kGroupThreads;
inline constexpr int kGroupRows = kTileRows / kConsumers;
// One warp of the third warpgroup copies; the warpgroup's other warps widen fp8.
inline constexpr int kWideningThreads = kGroupThreads - kWarpSize;

// Lays out a block's shared memory: queries, the ring of tiles of keys or values, and smaller
// things behind them. Where caches keep fp8, tiles are copied as they are into a second ring, and
// widened from there into the first. Units: bytes.
template <typename Kv, int C>
struct Layout {
  static constexpr bool kWidens = kIsFp8<Kv>;
  static constexpr int kKeys = C <= 128 ? 128 : 64;  // keys of a tile
  static constexpr int kSlots = kWidens ? 3 : 4;     // stages of the ring
  static constexpr int kNarrowSlots = kWidens ? 3 : 0;
  static constexpr int kIncomingSlots = kWidens ? kNarrowSlots : kSlots;
  static constexpr int kQuerySlots = C <= 128 ? 2 : 1;
  // Boxes of a row, side by side.
  static constexpr int kHalves = (C + kBoxColumns - 1) / kBoxColumns;
  static constexpr int kQueryBox = kTileRows * kBoxRowBytes;
  static constexpr int kBox = kKeys * kBoxRowBytes;
  static constexpr int kQueries = kHalves * kQueryBox;
  static constexpr int kTile = kHalves * kBox;
  static constexpr int kNarrowTile = kKeys * C;

  static constexpr int kRingAt = kQuerySlots * kQueries;
  static constexpr int kNarrowAt = kRingAt + kSlots * kTile;
  static constexpr int kTilesAt = kNarrowAt + kNarrowSlots * kNarrowTile;
  static constexpr int kBarriersAt = kTilesAt + kQuerySlots * static_cast<int>(sizeof(Tile));
  static constexpr int kNarrowRowsAt = kBarriersAt + 2 * (kQuerySlots + kSlots + kNarrowSlots) * 8;
  static constexpr int kListAt = kNarrowRowsAt + kNarrowSlots * 4;
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
  // The barriers of a block. The places of the queries, the stages of the ring, and the stages of
  // the ring of tiles that are still to be widened each have two barriers: "full" and "free". Every
  // thread that itself reads or writes shared memory arrives at them, because racecheck does not
  // understand one thread that arrives for its warp. Where only the tensor cores have read, one
  // thread arrives for its warp.
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
  // Returns the address to which keys or values are copied for stage `slot` of the ring.
  [[nodiscard]] __device__ uint32_t incoming(uint32_t slot) const {
    return kWidens ? base + kNarrowAt + slot * kNarrowTile : tile(slot);
  }
  [[nodiscard]] __device__ uint32_t incoming_full(uint32_t slot) const {
    return full((kWidens ? 2 * kSlots : 0) + slot);
  }
  [[nodiscard]] __device__ uint32_t incoming_free(uint32_t slot) const {
    return incoming_full(kIncomingSlots + slot);
  }
  // The number of keys in a tile that is to be widened. It is 0 behind the last tile.
  [[nodiscard]] __device__ int& narrow_rows(uint32_t slot) const {
    return reinterpret_cast<int*>(shared + kNarrowRowsAt)[slot];
  }

  __device__ __forceinline__ void init() const {
    for (uint32_t i = 0; i < kQuerySlots; ++i) {
      init_barrier(queries_full(i), 1);
      init_barrier(queries_free(i), kConsumerThreads);
    }
    for (uint32_t i = 0; i < kSlots; ++i) {
      init_barrier(full(i), kWidens ? kWideningThreads : 1);
      init_barrier(free(i), kWidens ? kConsumerThreads : kConsumerThreads / kWarpSize);
    }
    if constexpr (kWidens) {
      for (uint32_t i = 0; i < kNarrowSlots; ++i) {
        init_barrier(incoming_full(i), 1);
        init_barrier(incoming_free(i), kWideningThreads);
      }
    }
    publish_barriers();
  }
};

struct Arguments {
  CUtensorMap query_map;
  CUtensorMap key_map;  // map of caches that have the queries' type
  CUtensorMap value_map;
  TileLimits limits;
  uint32_t* next_tile;  // counter of the tiles that blocks have taken
  uint32_t* arrived;    // counters: one for each half of the rows of each kv head of each sequence
  // Scratch for the results of the parts: sums [sequences, kMostPartRows, heads, C], and the
  // maximum and the sum of weights of each row.
  float* values;
  float2* softmaxes;
};

// The warp that copies queries, keys and values.
template <typename Params, int C>
struct Producer {
  using Kv = typename Params::Kv;
  using L = Layout<Kv, C>;

  const Params& params;
  const Arguments& args;
  const L& layout;
  Slot queries{};
  Slot target{};

  // Returns the page that this lane copies of a tile of keys; each lane has one. Page table entries
  // past the sequence's keys are not read. Pages that lie before the window of the tile's first
  // token may have been freed, so the first page of the window stands in for them.
  __device__ __forceinline__ int find_page(const Tile& tile, int key_tile) const {
    const int entry = max((key_tile * L::kKeys >> params.page_shift) + lane(),
                          first_seen(params, tile.position) >> params.page_shift);
    const bool used = lane() << params.page_shift < L::kKeys &&
                      entry << params.page_shift < tile.kv_len && key_tile >= tile.first_keys;
    return used ? params.page_table[tile.sequence * params.table_stride + entry] : 0;
  }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }

  // Copies the keys or values of a page. `row` is the page's first row in the cache.
  __device__ __forceinline__ void copy_page(uint32_t to, const CUtensorMap& map, int row,
                                            uint32_t full) const {
#pragma unroll
    for (int half = 0; half < L::kHalves; ++half)
      copy_box(to + half * L::kBox, map, {half * kBoxColumns, row, 0}, full);
  }
  __device__ __forceinline__ void copy_page(uint32_t to, const Kv* cache, int row,
                                            uint32_t full) const {
    copy_bytes(to, cache + int64_t{row} * C, static_cast<uint32_t>(params.page_size * C), full);
  }

  // Fills the next stage of the ring with a tile of keys or values. `page` is the page that this
  // lane copies. `cache` is a tensor map, or a pointer where the cache keeps fp8.
  template <typename Cache>
  __device__ __forceinline__ void copy(const Cache& cache, const Tile& tile, int key_tile,
                                       int page) {
    const uint32_t full = layout.incoming_full(target.number);
    const int used = min(L::kKeys, tile.kv_len - key_tile * L::kKeys);
    const int pages = (used + params.page_size - 1) >> params.page_shift;
    const int row_bytes = L::kWidens ? C : kBoxRowBytes;
    const int page_bytes = params.page_size * row_bytes;
    const int row = (page * params.kv_heads + tile.kv_head) << params.page_shift;
    wait_for_phase(layout.incoming_free(target.number), target.parity ^ 1U);
    if (elect_lane()) {
      if constexpr (L::kWidens) layout.narrow_rows(target.number) = pages << params.page_shift;
      const int bytes = L::kWidens ? pages * page_bytes : pages * page_bytes * L::kHalves;
      arrive_expecting(full, static_cast<uint32_t>(bytes));
    }
    uint32_t to = layout.incoming(target.number);
    for (int i = 0; i < pages; ++i) {
      const int from = __shfl_sync(0xffffffffU, row, i);
      if (elect_lane()) copy_page(to, cache, from, full);
      to += page_bytes;
    }
    target.advance(L::kIncomingSlots);
  }

  // Hands a tile and its queries to the consumers. A tile without rows tells them to end.
  __device__ __forceinline__ void hand_over(const Tile& tile) {
    const uint32_t full = layout.queries_full(queries.number);
    wait_for_phase(layout.queries_free(queries.number), queries.parity ^ 1U);
    if (elect_lane()) {
      layout.work(queries.number) = tile;
      if (tile.has_keys()) {
        const int box_bytes = args.limits.tokens * params.group * kBoxRowBytes;
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

  // Copies all keys and values of a tile. The values of a tile of keys follow the keys of the next
  // one, in the order in which the consumers use them.
  template <typename Cache>
  __device__ __forceinline__ void copy_all(const Tile& tile, const Cache& keys,
                                           const Cache& values) {
    const int last = tile.end_keys - 1;
    int page = find_page(tile, last);
    int next_page = find_page(tile, last - 1);
    copy(keys, tile, last, page);
    for (int key_tile = last - 1; key_tile >= tile.first_keys; --key_tile) {
      const int after_page = find_page(tile, key_tile - 1);
      copy(keys, tile, key_tile, next_page);
      copy(values, tile, key_tile + 1, page);
      page = next_page;
      next_page = after_page;
    }
    copy(values, tile, tile.first_keys, page);
  }
  __device__ __forceinline__ void copy_all(const Tile& tile) {
    if constexpr (L::kWidens) {
      copy_all(tile, params.k_cache, params.v_cache);
    } else {
      copy_all(tile, args.key_map, args.value_map);
    }
  }
  // Tells the widening warps that no further tile comes.
  __device__ __forceinline__ void end_widening() const {
    wait_for_phase(layout.incoming_free(target.number), target.parity ^ 1U);
    if (!elect_lane()) return;
    layout.narrow_rows(target.number) = 0;
    arrive(layout.incoming_full(target.number));
  }

  // Copies tile after tile. A block's first tile has the block's number; the further ones come from
  // a counter. The counter is increased once for each tile, and the last increase sets it back to
  // zero.
  __device__ __forceinline__ void run() {
    const int num_tiles = layout.list().num_tiles(params);
    const int num_blocks = min(static_cast<int>(gridDim.x), num_tiles);
    for (int number = static_cast<int>(blockIdx.x); number < num_tiles;) {
      const Tile tile = layout.list().template find<L::kKeys>(params, number, args.limits);
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
    if constexpr (L::kWidens) end_widening();
  }
};

// The warps that widen fp8 keys and values into boxes of T.
template <typename Params, int C>
struct Widener {
  using T = typename Params::Element;
  using L = Layout<typename Params::Kv, C>;

  const L& layout;
  int thread;  // number among the threads that widen

  // Widens a tile. A thread widens 16 columns of a key at a time; each half of them is a piece of a
  // box's row.
  __device__ __forceinline__ void widen_tile(uint32_t narrow, uint32_t wide, int rows) const {
    constexpr int kPieces = C / 16;
#pragma unroll 2
    for (int i = thread; i < rows * kPieces; i += kWideningThreads) {
      const int row = i / kPieces;
      const int piece = 2 * (i % kPieces);
      const uint4 numbers = load_shared(narrow + i * 16);
      const uint32_t to = wide + piece / 8 * L::kBox + row * kBoxRowBytes;
      uint4 pack;
      widen<T>(numbers.x, pack.x, pack.y);
      widen<T>(numbers.y, pack.z, pack.w);
      store_shared(to + (piece % 8 ^ row % 8) * 16, pack);
      widen<T>(numbers.z, pack.x, pack.y);
      widen<T>(numbers.w, pack.z, pack.w);
      store_shared(to + (piece % 8 + 1 ^ row % 8) * 16, pack);
    }
  }

  __device__ __forceinline__ void run() const {
    Slot narrow{};
    Slot wide{};
    while (true) {
      wait_for_phase(layout.incoming_full(narrow.number), narrow.parity);
      const int rows = layout.narrow_rows(narrow.number);
      if (rows == 0) return;
      wait_for_phase(layout.free(wide.number), wide.parity ^ 1U);
      widen_tile(layout.incoming(narrow.number), layout.tile(wide.number), rows);
      publish_to_copies();
      arrive(layout.full(wide.number));
      arrive(layout.incoming_free(narrow.number));
      narrow.advance(L::kNarrowSlots);
      wide.advance(L::kSlots);
    }
  }
};

}  // namespace encore::cuda::varlen
