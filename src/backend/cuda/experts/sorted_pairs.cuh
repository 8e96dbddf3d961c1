// Sorts pairs on the device. Contains the code that both ways of sorting share, and the way for few
// pairs, in which each block of a product sorts all pairs for itself in shared memory.
#pragma once

#include "backend/cuda/experts/sorted_pairs.h"
#include "backend/cuda/launch.h"

namespace encore::cuda {

constexpr int kSortLanes = 32;

// The numbers of the first place and of the first tile that an expert has.
struct FirstOfExpert {
  int place = 0;
  int tile = 0;
};

__device__ __forceinline__ int padded_places(const Tiling& tiling, int places) {
  return (places + tiling.granularity - 1) & -tiling.granularity;
}
// Returns the number of tiles for `count` pairs of an expert. Most experts have one tile, and the
// loop is less code than a division.
__device__ __forceinline__ int tiles_of(const Tiling& tiling, int count) {
  int tiles = 0;
#pragma unroll 1
  for (int left = count; left > 0; left -= tiling.max_rows)
    ++tiles;
  return tiles;
}

// Gives each thread's expert, which has `count` pairs, its places and tiles behind `end`. Returns
// the expert's first place and tile, and moves `end` behind the experts of all threads. Only
// threads of the first `num_warps` warps have experts. `of_warps` is shared memory with an entry
// for each of these warps; no thread may still read it.
__device__ __forceinline__ FirstOfExpert place_expert(const Tiling& tiling, int count,
                                                      int num_warps, FirstOfExpert& end,
                                                      FirstOfExpert* of_warps) {
  constexpr unsigned kAllLanes = 0xffffffffU;
  const auto lane = static_cast<int>(threadIdx.x) % kSortLanes;
  const auto warp = static_cast<int>(threadIdx.x) / kSortLanes;
  const FirstOfExpert own{padded_places(tiling, count), tiles_of(tiling, count)};
  FirstOfExpert through = own;
#pragma unroll 1
  for (int lanes = 1; lanes < kSortLanes; lanes *= 2) {
    const int place = __shfl_up_sync(kAllLanes, through.place, lanes);
    const int tile = __shfl_up_sync(kAllLanes, through.tile, lanes);
    if (lane < lanes) continue;
    through.place += place;
    through.tile += tile;
  }
  if (lane == kSortLanes - 1 && warp < num_warps) of_warps[warp] = through;
  __syncthreads();
  FirstOfExpert first{end.place + through.place - own.place, end.tile + through.tile - own.tile};
#pragma unroll 1
  for (int w = 0; w < num_warps; ++w) {
    const FirstOfExpert of_warp = of_warps[w];
    end.place += of_warp.place;
    end.tile += of_warp.tile;
    if (w >= warp) continue;
    first.place += of_warp.place;
    first.tile += of_warp.tile;
  }
  return first;
}

// Writes the tiles of an expert with `count` pairs to the list of tiles.
__device__ __forceinline__ void list_tiles(const Tiling& tiling, int expert, int count,
                                           const FirstOfExpert& first, RowTile* tiles) {
  const int num_tiles = tiles_of(tiling, count);
  const int rows =
      num_tiles < 2 ? count : padded_places(tiling, (count + num_tiles - 1) / num_tiles);
#pragma unroll 1
  for (int i = 0; i < num_tiles; ++i)
    tiles[first.tile + i] = {expert, first.place + i * rows, max(0, min(rows, count - i * rows))};
}

// The tiles and rows that a block lists in its shared memory when it sorts the pairs itself.
struct OwnList {
  static constexpr int kMostPairs = 512;
  static constexpr int kMostTiles = 256;
  static constexpr int kMostPlaces = 2048;

  RowTile tiles[kMostTiles];
  int16_t experts[kMostPairs];  // the expert of each pair while the block sorts; below 0: none
  uint16_t rows[kMostPlaces];   // the row at each place
};

// Gives a product its tiles, and the row at each place. They come from the block's own list where
// the block sorts the pairs itself, and otherwise from the launch that sorted them.
struct TileList {
  const SortedPairs& sorted;
  const OwnList& own;
  int num_tiles;

  // Returns a tile. Reads past the L1 cache, where a launch of the previous step may have left
  // other tiles of the same address.
  [[nodiscard]] __device__ __forceinline__ RowTile tile(int index) const {
    if (sorted.tiling.in_blocks) return own.tiles[index];
    const auto* const words = reinterpret_cast<const int32_t*>(sorted.tiles + index);
    return {__ldcg(words), __ldcg(words + 1), __ldcg(words + 2)};
  }
  [[nodiscard]] __device__ __forceinline__ int row(int place) const {
    return sorted.tiling.in_blocks ? own.rows[place] : __ldcg(sorted.sources + place);
  }
};

// Sorts all pairs with one block of kThreads threads. Each expert has one bit per pair, so a pair's
// place is a count of bits, which is the same in all blocks. Loops are not unrolled, because each
// launch fetches its code anew (launch.h).
template <int kThreads>
class BlockSort {
  static constexpr int kWarps = kThreads / kSortLanes;
  static constexpr int kBits = 32;  // bits of a word

 public:
  // Returns whether a block can sort these pairs with `scratch_bytes` bytes of scratch.
  static bool fits(const SortedPairs& sorted, int64_t scratch_bytes) {
    const int64_t words = div_up(sorted.num_pairs, kBits) * sorted.num_experts;
    const int64_t needed = kWarps * static_cast<int64_t>(sizeof(FirstOfExpert)) +
                           (words + sorted.num_experts) * static_cast<int64_t>(sizeof(int32_t));
    return sorted.num_experts <= kThreads && sorted.num_pairs <= OwnList::kMostPairs &&
           sorted.max_tiles() <= OwnList::kMostTiles &&
           sorted.max_places() <= OwnList::kMostPlaces && needed <= scratch_bytes;
  }

  // REQUIRES: `own` and `scratch` are shared memory, aligned to 16 bytes.
  __device__ __forceinline__ BlockSort(const SortedPairs& sorted, OwnList& own, uint8_t* scratch)
      : sorted_(sorted),
        own_(own),
        of_warps_(reinterpret_cast<FirstOfExpert*>(scratch)),
        first_(reinterpret_cast<int32_t*>(of_warps_ + kWarps)),
        chosen_(reinterpret_cast<uint32_t*>(first_ + sorted.num_experts)),
        words_((sorted.num_pairs + kBits - 1) / kBits) {}

  // Clears the bits of pairs. A block calls it before run(); it may run while earlier launches
  // still run, because it reads nothing that they write.
  __device__ __forceinline__ void clear() const {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < words_ * sorted_.num_experts; i += kThreads)
      chosen_[i] = 0;
  }
  // Sorts with all threads of the block, makes the block's list, and returns its number of tiles.
  // With `publishes`, it also writes the place of each pair to global memory.
  __device__ __forceinline__ int run(bool publishes) const {
    const auto thread = static_cast<int>(threadIdx.x);
    const int num_experts = sorted_.num_experts;
    __syncthreads();  // the bits are clear
#pragma unroll 1
    for (int pair = thread; pair < sorted_.num_pairs; pair += kThreads) {
      const int expert = sorted_.expert_of(pair);
      own_.experts[pair] = static_cast<int16_t>(max(expert, -1));
      if (expert >= 0) atomicOr(bits_of(expert, pair / kBits), 1U << pair % kBits);
    }
    __syncthreads();
    const int count = thread < num_experts ? count_in(thread, words_) : 0;
    const int num_warps = (num_experts + kSortLanes - 1) / kSortLanes;
    FirstOfExpert end;
    const FirstOfExpert first = place_expert(sorted_.tiling, count, num_warps, end, of_warps_);
    if (thread < num_experts) first_[thread] = first.place;
    list_tiles(sorted_.tiling, thread, count, first, own_.tiles);
    __syncthreads();
#pragma unroll 1
    for (int pair = thread; pair < sorted_.num_pairs; pair += kThreads) {
      const int expert = own_.experts[pair];
      if (expert < 0) continue;
      const int word = pair / kBits;
      const uint32_t before = *bits_of(expert, word) & ((1U << pair % kBits) - 1);
      const int place = first_[expert] + count_in(expert, word) + __popc(before);
      own_.rows[place] = static_cast<uint16_t>(pair / sorted_.top_k);
      if (publishes) sorted_.places[pair] = place;
    }
    __syncthreads();
    return end.tile;
  }

 private:
  [[nodiscard]] __device__ __forceinline__ uint32_t* bits_of(int expert, int word) const {
    return chosen_ + word * sorted_.num_experts + expert;
  }
  // Returns the number of an expert's pairs in the first `words` words of bits.
  [[nodiscard]] __device__ __forceinline__ int count_in(int expert, int words) const {
    int count = 0;
#pragma unroll 1
    for (int word = 0; word < words; ++word)
      count += __popc(*bits_of(expert, word));
    return count;
  }

  const SortedPairs& sorted_;
  OwnList& own_;
  FirstOfExpert* of_warps_;
  int32_t* first_;    // first place, by expert
  uint32_t* chosen_;  // bits of pairs, by word and expert
  int words_;
};

}  // namespace encore::cuda
