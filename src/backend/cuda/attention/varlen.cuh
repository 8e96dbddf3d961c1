// Each block of variable-length attention makes the same list of tiles for itself, from the lengths
// alone. The blocks then take one tile after the other from it.
//
// A tile is some tokens of a sequence with all query heads of one kv head, which share its keys. It
// sees all keys, but where a sequence has few new tokens: then its keys are cut into parts, by its
// own length and number of tokens alone, and each part is a tile. Where the batch must not show in
// the bits, no keys are cut: a token then has the same sums whether it comes alone or in a prompt.
// Sequences with long tiles come first, and of a sequence the tiles of its last tokens, so that what
// is left for the end is small, and all blocks are done at about the same time.
#pragma once

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/tile.cuh"

namespace encore::cuda::varlen {

inline constexpr int kTileRows = 128;  // query rows of a tile
inline constexpr int kMaxSequences = 1024;

inline constexpr int kMostSplitTokens = 9;
// The most rows of results that the parts of one sequence have together, for each query head.
inline constexpr int kMostPartRows = 36;

// One tile. Rows count token * group + head.
struct Tile {
  int sequence;
  int kv_head;
  int token;  // the first, as a row of q
  int num_rows;
  int position;  // of the first token; negative where a sequence is shorter than its new tokens
  int kv_len;
  int first_keys;  // tiles of keys; the last is the last that some row sees
  int end_keys;
  int part;  // of num_parts
  int num_parts;

  [[nodiscard]] __device__ bool has_keys() const { return first_keys < end_keys; }
};

// Limits that hold for all sequences of a launch.
struct TileLimits {
  int tokens = 0;        // of a tile
  int split_tokens = 0;  // a sequence with more new tokens has all its keys in one part
};

// The way in which the keys of a sequence are cut. Units: tiles of keys.
struct Parts {
  int length = 0;  // of each but the last
  int count = 1;

  __device__ __forceinline__ Parts(int tokens, const TileLimits& limits, int key_tiles)
      : length(key_tiles) {
    // A part's end costs a block as much as one or two tiles of keys: beside many sequences that
    // outweighs what a sequence gains by more blocks.
    constexpr int kWhole = 12;
    constexpr int kShortest = 8;
    if (tokens > limits.split_tokens || key_tiles <= kWhole) return;
    const int most = tokens <= 2 ? 16 : tokens <= 4 ? 8 : 4;
    static_assert(2 * 16 <= kMostPartRows && 4 * 8 <= kMostPartRows &&
                  kMostSplitTokens * 4 <= kMostPartRows);
    length = max(kShortest, (key_tiles + most - 1) / most);
    count = (key_tiles + length - 1) / length;
    length = (key_tiles + count - 1) / count;
  }
};

// New tokens of a sequence. What a mixed step leaves untouched has none.
struct Run {
  int first = 0;  // row of q
  int count = 0;
  int kv_len = 0;
};

template <typename Params>
__device__ __forceinline__ int num_runs(const Params& params) {
  const int q = params.uniform_q;
  return q > 0 ? static_cast<int>((params.num_tokens + q - 1) / q) : params.num_sequences;
}

template <typename Params>
__device__ __forceinline__ Run find_run(const Params& params, int sequence) {
  Run run;
  run.kv_len = max(0, params.kv_len(sequence));
  if (const int q = params.uniform_q; q > 0) {
    run.first = sequence * q;
    run.count = min(q, static_cast<int>(params.num_tokens) - run.first);
  } else if (run.kv_len > 0) {
    run.first = params.query_starts[sequence];
    run.count = params.query_starts[sequence + 1] - run.first;
  }
  return run;
}

// The first key that a token at `position` sees.
template <typename Params>
__device__ __forceinline__ int first_seen(const Params& params, int position) {
  return max(0, position + 1 - params.window);
}
// Tiles of keys of which some token of the run sees any.
template <int kKeys, typename Params>
__device__ __forceinline__ int num_key_tiles(const Params& params, const Run& run) {
  return (run.kv_len + kKeys - 1) / kKeys - first_seen(params, run.kv_len - run.count) / kKeys;
}

// A list in shared memory: sequences in the order in which their tiles are taken, and the number of
// tiles of a kv head that come before each one's.
struct TileList {
  int before[kMaxSequences + 1];
  int lengths[kMaxSequences];  // of their longest tiles
  uint16_t order[kMaxSequences];

  // Builds the table, with all threads of a block, which meet at its end. A tile of keys has
  // `kKeys` keys.
  template <int kThreads, int kKeys, typename Params>
  __device__ __forceinline__ void build(const Params& params, const TileLimits& limits) {
    const int count = num_runs(params);
    const int thread = static_cast<int>(threadIdx.x);
    for (int i = thread; i < count; i += kThreads) {
      const Run run = find_run(params, i);
      lengths[i] = Parts(run.count, limits, num_key_tiles<kKeys>(params, run)).length;
    }
    __syncthreads();
    for (int i = thread; i < count; i += kThreads) {
      const int mine = lengths[i];
      int rank = 0;
      for (int other = 0; other < count; ++other)
        rank += static_cast<int>(lengths[other] > mine || (lengths[other] == mine && other < i));
      order[rank] = static_cast<uint16_t>(i);
    }
    __syncthreads();
    if (thread >= kWarpSize) return;
    int sum = 0;
    for (int first = 0; first < count; first += kWarpSize) {
      const int i = first + thread;
      int tiles = 0;
      if (i < count) {
        const Run run = find_run(params, order[i]);
        tiles = max(
            (run.count + limits.tokens - 1) / limits.tokens,
            run.count > 0 ? Parts(run.count, limits, num_key_tiles<kKeys>(params, run)).count : 0);
      }
      for (int step = 1; step < kWarpSize; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffU, tiles, step);
        if (thread >= step) tiles += other;
      }
      if (i < count) before[i + 1] = sum + tiles;
      sum += __shfl_sync(0xffffffffU, tiles, kWarpSize - 1);
    }
    if (thread == 0) before[0] = 0;
  }

  template <typename Params>
  [[nodiscard]] __device__ __forceinline__ int num_tiles(const Params& params) const {
    return before[num_runs(params)] * params.kv_heads;
  }

  // Finds the tile of that number.
  template <int kKeys, typename Params>
  [[nodiscard]] __device__ __forceinline__ Tile find(const Params& params, int number,
                                                     const TileLimits& limits) const {
    const int of_head = number / params.kv_heads;
    int low = 0;
    for (int high = num_runs(params); high - low > 1;) {
      const int middle = (low + high) / 2;
      (before[middle] <= of_head ? low : high) = middle;
    }
    Tile tile;
    tile.sequence = order[low];
    tile.kv_head = number - of_head * params.kv_heads;
    const Run run = find_run(params, tile.sequence);
    const int from_end = before[low + 1] - 1 - of_head;
    const Parts parts(run.count, limits, num_key_tiles<kKeys>(params, run));
    const int first = parts.count > 1 ? 0 : from_end * limits.tokens;
    const int num_tokens = min(limits.tokens, run.count - first);
    tile.token = run.first + first;
    tile.num_rows = num_tokens * params.group;
    tile.position = run.kv_len - run.count + first;
    tile.kv_len = run.kv_len;
    tile.part = parts.count > 1 ? from_end : 0;
    tile.num_parts = parts.count;
    tile.first_keys = first_seen(params, tile.position) / kKeys + tile.part * parts.length;
    const int end = (tile.position + num_tokens - 1 + kKeys) / kKeys;  // 0 for positions below 0
    tile.end_keys = parts.count > 1 ? min(end, tile.first_keys + parts.length) : end;
    return tile;
  }
};

}  // namespace encore::cuda::varlen
