// Copies keys and values for decode attention: each warp copies its tiles into its own ring in
// shared memory. A warp may start to copy before earlier launches have ended, for the reason given
// in decode.cuh.
#pragma once

#include "backend/cuda/attention/work.cuh"

namespace encore::cuda::decode {

// The stream of tiles that one warp reads ahead: the warp's part of each step of each of the
// block's chunks, in order. Every warp has a tile in every step, even where it has no keys there.
//
// With kAsksFirst, the next tile's page number is loaded in front of a tile's copies, not behind
// them. By measurement that is 7 % faster where a warp has a few tiles (8 sequences of 1121 keys),
// and 2 to 4 % slower where it has many, which read at the memory's rate.
template <typename Params, int C, int kStages, bool kAsksFirst>
class TileStream {
 public:
  using Tile = KeyTile<typename Params::Kv, C>;
  static constexpr int kPieces = Tile::kPieces;
  static constexpr int kTileBytes = Tile::kBytes;

  // Starts the copies of the first tiles. Waits for earlier launches before it copies the first
  // tile with a key that an earlier launch of this step writes to the cache.
  __device__ __forceinline__ TileStream(const Params& params, const DecodePlan& plan,
                                        const Walk& first, int rank, uint32_t ring)
      : params_(params),
        plan_(plan),
        next_(first),
        rank_(rank),
        ring_(ring),
        page_elements_((params.kv_heads << params.page_shift) * C) {
    enter_chunk();
    // Loads all of these page numbers before the first one is used, so that their latencies
    // overlap.
    const int first_key = key_;
    const int end = chunk_end();
    const auto key_of = [&](int step) { return first_key + step * plan.cutting.step_keys(); };
    int pages[kStages + 1];
#pragma unroll
    for (int i = 0; i <= kStages; ++i)
      pages[i] = key_of(i) < end ? load_page(key_of(i)) : 0;
    page_ = pages[0];
#pragma unroll
    for (int i = 0; i < kStages; ++i) {
      const int num_written = params.uniform_q - params.fresh.count;
      if (num_written > 0 && key_ + kTileKeys > next_.kv_len - num_written) wait_for_inputs();
      start_next([&](int key) { return key_of(i + 1) < end ? pages[i + 1] : load_page(key); });
    }
  }

  // Waits for the oldest tile and returns the address of its keys; its values lie behind them.
  __device__ __forceinline__ uint32_t wait() const {
    wait_for_copies<kStages - 1>();
    __syncwarp();
    return ring_ + slot_ * 2 * kTileBytes;
  }
  // Releases the oldest tile, and starts the copies of the next one into its place.
  __device__ __forceinline__ void release() {
    __syncwarp();
    start_next([&](int key) { return load_page(key); });
  }

 private:
  __device__ __forceinline__ void enter_chunk() {
    const int warp = threadIdx.x / kWarpSize;
    key_ = next_.chunk * next_.chunks.length + rank_ * kBlockKeys + warp * kTileKeys;
    pages_ = params_.page_table + next_.sequence * params_.table_stride;
  }
  // Returns one past the last key of the chunk, rounded up to whole steps.
  [[nodiscard]] __device__ __forceinline__ int chunk_end() const {
    const Cutting& cutting = plan_.cutting;
    return min((next_.chunk + 1) * next_.chunks.length, cutting.steps(next_.kv_len)
                                                            << cutting.step_log2);
  }
  [[nodiscard]] __device__ __forceinline__ bool has_key(int key) const {
    return !next_.done() && key < next_.kv_len;
  }
  // Loads the page number of the next tile, so that its latency is hidden behind the current tile.
  [[nodiscard]] __device__ __forceinline__ int load_page(int key) const {
    return has_key(key) ? __ldcg(pages_ + (key + next_.first_key >> params_.page_shift)) : 0;
  }
  __device__ __forceinline__ void advance() {
    if (next_.done()) return;
    key_ += plan_.cutting.step_keys();
    if (key_ < chunk_end()) return;
    next_.next_chunk(params_, plan_);
    enter_chunk();
  }
  // Starts the copies of this tile and goes on to the next, whose page number `load` returns.
  template <typename Load>
  __device__ __forceinline__ void start_next(Load load) {
    const int next_key = key_ + plan_.cutting.step_keys();
    const bool asks_first = kAsksFirst && next_key < chunk_end();
    const int page = page_;
    if (asks_first) page_ = load(next_key);
    if (has_key(key_)) {
      const int num_cached = next_.kv_len - params_.fresh.count - key_;
      if (num_cached >= kTileKeys) {
        start_copies<true>(page, num_cached);
      } else {
        start_copies<false>(page, num_cached);
      }
    }
    advance();
    commit_copies();
    if (!asks_first) page_ = load(key_);
    slot_ = slot_ + 1 == kStages ? 0 : slot_ + 1;
  }
  // Starts the copies of one tile. A tile's keys lie one behind the other in the cache, as do its
  // values, so a lane's addresses are constants away from its first. Keys that the cache does not
  // hold are filled with zeros: the keys behind the last one have weight zero, and weight times
  // value must be zero, too.
  template <bool kAllCached>
  __device__ __forceinline__ void start_copies(int page, int num_cached) const {
    const int lane = threadIdx.x % kWarpSize;
    const int slot = (next_.kv_head << params_.page_shift) +
                     (key_ + next_.first_key & ((1 << params_.page_shift) - 1));
    const int64_t from = int64_t{page} * page_elements_ + (slot * C + lane * Tile::kPieceSize);
    const auto* keys = params_.k_cache + from;
    const auto* values = params_.v_cache + from;
    const PieceAddress<Tile::kWidth> to(ring_ + slot_ * 2 * kTileBytes, lane);
#pragma unroll
    for (int i = 0; i < kTileKeys * kPieces / kWarpSize; ++i) {
      const bool valid = kAllCached || (i * kWarpSize + lane) / kPieces < num_cached;
      const int next = i * kWarpSize * Tile::kPieceSize;
      copy_async_once(to.of_copy(i), keys + next, valid);
      copy_async_once(to.of_copy(i) + kTileBytes, values + next, valid);
    }
  }

  const Params& params_;
  const DecodePlan& plan_;
  Walk next_;             // the chunk of the tile to start next
  int key_;               // the first key of that tile
  const int32_t* pages_;  // pages of the chunk's sequence
  int rank_;              // the block's rank in its worker
  int page_ = 0;
  int slot_ = 0;  // place in the ring of the oldest tile, which the next one replaces
  uint32_t ring_;
  int page_elements_;  // elements of a page, over all kv heads
};

}  // namespace encore::cuda::decode
