// Lists the tiles of variable-length attention. Each block computes the same list from the lengths
// alone. The blocks then take tiles from it one by one.
//
// A tile is some tokens of a sequence with all query heads that share one kv head's keys. It
// usually sees all keys of its sequence. Where a sequence has few new tokens, its keys are cut into
// parts, and each part is a tile; the sequence's length and number of new tokens alone decide the
// cut. Where results must not depend on the batch, no keys are cut: a token then has the same sums
// whether it comes alone or in a prompt. Sequences with long tiles come first, and within a
// sequence the tiles of its last tokens come first, so the tiles at the end are short and all
// blocks finish at about the same time.
#pragma once

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/tile.cuh"

namespace encore::cuda::varlen {

inline constexpr int kTileRows = 128;  // query rows of a tile
inline constexpr int kMaxSequences = 1024;

inline constexpr int kMostSplitTokens = 9;
// The most rows of results, for each query head, that all parts of one sequence have together.
inline constexpr int kMostPartRows = 36;

// One tile of the list. Its rows are numbered token * group + head.
struct Tile {
  int sequence;
  int kv_head;
  int token;  // the tile's first token, as a row of q
  int num_rows;
  // Position of the first token; negative where a sequence is shorter than its new tokens.
  int position;
  int kv_len;
  int first_keys;  // number of the first tile of keys
  int end_keys;
  int part;  // number of this part, of num_parts
  int num_parts;

  [[nodiscard]] __device__ bool has_keys() const { return first_keys < end_keys; }
};

// Limits that hold for all sequences of a launch.
struct TileLimits {
  int tokens = 0;        // the most tokens of a tile
  int split_tokens = 0;  // a sequence with more new tokens has all its keys in one part
};

// Describes the parts into which the keys of a sequence are cut. Units: tiles of keys.
struct Parts {
  int length = 0;  // length of each part but the last
  int count = 1;

  __device__ __forceinline__ Parts(int tokens, const TileLimits& limits, int key_tiles)
      : length(key_tiles) {
    // Ending a part costs a block as much as one or two tiles of keys. Beside many sequences, that
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

// The new tokens of one sequence. A sequence that a mixed step does not touch has none.
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

// Returns the first key that a token at `position` sees.
template <typename Params>
__device__ __forceinline__ int first_seen(const Params& params, int position) {
  return max(0, position + 1 - params.window);
}
// Returns the number of tiles with keys that some token of the run sees.
template <int kKeys, typename Params>
__device__ __forceinline__ int num_key_tiles(const Params& params, const Run& run) {
  return (run.kv_len + kKeys - 1) / kKeys - first_seen(params, run.kv_len - run.count) / kKeys;
}

// The list of a launch's tiles, in shared memory. It holds the sequences in the order in which
// their tiles are taken, and for each sequence the number of tiles that one kv head has in the
// sequences before it.
struct TileList {
  int before[kMaxSequences + 1];
  int lengths[kMaxSequences];  // length of each sequence's longest tile
  uint16_t order[kMaxSequences];

  // Builds the list. All threads of a block call it, and it ends with a barrier for them. A tile of
  // keys has `kKeys` keys.
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

  // Returns the tile with number `number` in the list.
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
