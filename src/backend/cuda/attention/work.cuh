// Cuts the KV of a batch into pieces of work for decode attention, and decides which block takes
// which piece.
//
// A sequence's KV is cut into chunks. Its length alone decides the cut, because the cut decides the
// bits of the result. Which block computes a chunk does not change the bits: the work of the whole
// batch, counted in steps of kBlockKeys keys and ordered by sequence, kv head and chunk, is dealt
// out in equal shares to a grid as large as the card, whatever the batch. A chunk belongs to the
// share in which it begins. So one long sequence among many short ones gets blocks in proportion to
// its bytes, and where a share goes on to the next kv head, that head's keys are being copied
// before the last head's are done. Where equal sequences have kv heads that divide evenly among the
// shares, whole kv heads are dealt out, because a kv head in two shares costs a trip through
// memory.
//
// Where one block cannot hold all query rows, several blocks with the same share, side by side in
// the grid (row blocks), divide them. They read the same keys at about the same time, so the keys
// come from memory once.
#pragma once

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/tile.cuh"

namespace encore::cuda::decode {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * kWarpSize;
inline constexpr int kTileKeys = 16;  // keys in a warp's tile, which lies in one page
inline constexpr int kBlockKeys = kWarps * kTileKeys;  // keys of a step in one block
inline constexpr int kTileRows = 8;  // query rows of a tile of results: the narrow side of an mma

// Sizes of a tile of keys in shared memory. A tile of the keys' values, of the same size, lies
// right behind it.
template <typename Kv, int C>
struct KeyTile {
  static constexpr int kWidth = C * sizeof(Kv) / 2;  // width of a key, in units of tile_offset()
  static constexpr int kPieces = kWidth / 8;         // 16-byte pieces of a key
  static constexpr int kPieceSize = C / kPieces;     // Units: elements
  static constexpr int kBytes = kTileKeys * kWidth * 2;
};

// Identifies a block within the launch by its worker and its rank there. A worker is one block, or
// several blocks of which each takes kBlockKeys of a step's keys.
struct Worker {
  int row_block = 0;
  int number = 0;  // its number among the `count` workers that have the same query rows
  int count = 0;
  int rank = 0;  // its number among the `ranks` blocks of the worker
  int ranks = 1;

  [[nodiscard]] __device__ bool leads() const { return rank == 0; }
};

// divide() returns a / b, rounded down, for numbers from 0 to kMostDivided, with a third of the
// instructions of an integer division. The result is exact: the rounding error of (a + 0.5) / b is
// less than its distance from a whole number.
inline constexpr int64_t kMostDivided = (1 << 21) - 1;
__device__ __forceinline__ int divide(int a, int b) {
  return __float2int_rd(__fdividef(static_cast<float>(a) + 0.5F, static_cast<float>(b)));
}

struct Chunks {
  int steps = 0;   // the most steps that one chunk has
  int length = 0;  // the most keys that one chunk has
  int count = 0;
};

// The parameters that decide, together with a sequence's length, how the sequence is cut into
// chunks. They are functions of the op and of padded sizes. A step is a step of all blocks of a
// worker.
struct Cutting {
  int step_log2 = 0;       // log2 of the keys of a step
  int min_steps = 1;       // the fewest steps of a chunk
  float growth = 0;        // steps of a chunk per square root of the sequence's steps
  int max_count_log2 = 0;  // log2 of the most chunks that a sequence has
  int fitting = 0;  // chunks that each kv head of equal sequences may have before a block gets two
  // Log2 of the number of parts into which each kv head of equal sequences is cut, so that all
  // shares get about equally many parts.
  int parts_log2 = 0;

  [[nodiscard]] __device__ Chunks chunks(int kv_len) const {
    const int total = steps(kv_len);
    int of_chunk = max(min_steps, (total + (1 << max_count_log2) - 1) >> max_count_log2);
    of_chunk = max(of_chunk, __float2int_rn(growth * root(total)));
    // With up to half more than `fitting` chunks, fewer and longer chunks end sooner than two in a
    // row on one block.
    if (total > fitting * of_chunk && total <= (fitting + fitting / 2) * of_chunk)
      of_chunk = divide(total + fitting - 1, fitting);
    if (parts_log2 > 0) of_chunk = min(of_chunk, max(kFewestSteps, total >> parts_log2));
    // Makes the chunks of the sequence about equally long without changing their number.
    const int count = divide(total + of_chunk - 1, of_chunk);
    if (count > 1) of_chunk = divide(total + count - 1, count);
    return {of_chunk, of_chunk << step_log2, count};
  }
  [[nodiscard]] __device__ int steps(int kv_len) const {
    return (kv_len + step_keys() - 1) >> step_log2;
  }
  [[nodiscard]] __host__ __device__ int step_keys() const { return 1 << step_log2; }

  // The fewest steps of a chunk where `parts_log2` cuts a kv head: a shorter one does not pay for
  // its exchange.
  static constexpr int kFewestSteps = 2;

 private:
  __device__ static float root(int x) {
    float result;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(static_cast<float>(x)));
    return result;
  }
};

// Holds the parameters of a launch of decode attention that AttentionParams does not have.
struct DecodePlan {
  int rows = 0;            // query rows of a kv head
  int row_blocks = 0;      // blocks that share these rows
  int rows_per_block = 0;  // the most rows that a block has
  int ranks = 1;           // blocks of a worker
  int tile_rows = 0;   // rows of a block's tile: its queries, then keys and values of new tokens
  int num_runs = 0;    // runs of query rows, with or without a sequence that owns them
  int max_chunks = 0;  // the most chunks of a sequence
  Cutting cutting;
  bool slot_per_head = false;    // a scratch area per kv head of the batch: see find_slot
  bool even_heads = false;       // kv heads of equal sequences are dealt out whole
  float* values = nullptr;       // [scratch areas, max_chunks, rows_per_block, C]
  float2* softmaxes = nullptr;   // [scratch areas, max_chunks, rows_per_block]: maximum, sum
  uint32_t* counters = nullptr;  // [scratch areas]
};

// Returns the first key that a new token of a sequence of `kv_len` keys sees, rounded down to the
// start of its tile of keys.
template <typename Params>
__device__ __forceinline__ int first_seen(const Params& params, int kv_len) {
  return max(0, kv_len - params.uniform_q + 1 - params.window) & -kTileKeys;
}
// Returns the number of keys of a sequence from first_seen() to the last key.
template <typename Params>
__device__ __forceinline__ int num_seen(const Params& params, int kv_len) {
  return kv_len - first_seen(params, kv_len);
}

// Walks the chunks of a share in order. Keys are counted from the first key that is seen. Positions
// count steps of work from the start of the batch.
struct Walk {
  int sequence = 0;
  int kv_head = 0;
  int chunk = 0;
  int last_chunk = 0;  // one past the last chunk of this kv head that the share has
  int kv_len = 0;
  int first_key = 0;  // number in the sequence of the first key that is seen
  Chunks chunks;
  int head_begin = 0;  // position of the kv head's chunk 0
  int share_end = 0;
  bool whole_heads = false;  // the share that has a kv head's first chunk has all its chunks

  [[nodiscard]] __device__ bool done() const { return chunk >= last_chunk; }
  // Returns the number of the kv head's chunks that begin in front of a position; 0 or less means
  // none.
  [[nodiscard]] __device__ int chunks_before(int position) const {
    if (whole_heads) return position > head_begin ? chunks.count : 0;
    return min(chunks.count, divide(position - head_begin + chunks.steps - 1, chunks.steps));
  }

  // Sets which of the `all` keys of a sequence are read: the keys within the window.
  template <typename Params>
  __device__ __forceinline__ void take_keys(const Params& params, int all) {
    first_key = first_seen(params, all);
    kv_len = all - first_key;
  }
  template <typename Params>
  __device__ __forceinline__ void next_head(const Params& params, const DecodePlan& plan) {
    head_begin += plan.cutting.steps(kv_len);
    if (++kv_head == params.kv_heads) {
      kv_head = 0;
      // While the share has not ended, some later sequence has keys, so this loop ends.
      while (head_begin < share_end) {
        take_keys(params, params.kv_len(++sequence));
        if (kv_len > 0) break;
      }
      chunks = plan.cutting.chunks(kv_len);
    }
    chunk = 0;
    last_chunk = chunks_before(share_end);
  }
  template <typename Params>
  __device__ __forceinline__ void next_chunk(const Params& params, const DecodePlan& plan) {
    if (++chunk == last_chunk) next_head(params, plan);
  }
};

// The share of the work of a batch that one worker takes.
struct Share {
  Walk first;               // done() where the share is empty
  int total = 0;            // steps of work in the batch
  int steps_each = 0;       // steps of a share; the first `steps_left` shares have one more
  int steps_left = 0;       // shares that have one step more
  bool some_empty = false;  // some sequence has no keys

  [[nodiscard]] __device__ int begin(int share) const {
    return share * steps_each + min(share, steps_left);
  }
  // Returns the number of the share that holds a position, which is counted in steps of work from
  // the start of the batch.
  [[nodiscard]] __device__ int at(int position) const {
    const int of_longer = steps_left * (steps_each + 1);
    return position < of_longer ? position / (steps_each + 1)
                                : steps_left + (position - of_longer) / steps_each;
  }
};

// Returns the index of the scratch area and counter for a kv head whose chunks are in several
// shares. Where there are fewer shares than kv heads, the index is the share that has the kv head's
// first chunk: no other kv head both begins in that share and goes on in another. Otherwise it is
// the number of the kv head in the batch.
template <typename Params>
__device__ __forceinline__ int find_slot(const Params& params, const DecodePlan& plan,
                                         const Worker& worker, const Share& share,
                                         const Walk& walk) {
  const int slot = plan.slot_per_head ? walk.sequence * params.kv_heads + walk.kv_head
                                      : share.at(walk.head_begin);
  return slot * plan.row_blocks + worker.row_block;
}

// The result of find_part().
struct Found {
  // The lane whose part holds the target; kWarpSize: the target lies beyond the line.
  int lane = kWarpSize;
  int begin = 0;  // start of the lane's part; the line's length where the target lies beyond it
};
__device__ __forceinline__ Found find_part(int amount, int target) {
  const int lane = threadIdx.x % kWarpSize;
  int end = amount;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const int before = __shfl_up_sync(0xffffffffU, end, distance);
    if (lane >= distance) end += before;
  }
  const unsigned past = __ballot_sync(0xffffffffU, end > target);
  if (past == 0) return {kWarpSize, __shfl_sync(0xffffffffU, end, kWarpSize - 1)};
  const int found = __ffs(static_cast<int>(past)) - 1;
  return {found, __shfl_sync(0xffffffffU, end - amount, found)};
}

// Returns the share of a worker. Each warp computes it by itself from the sequences' lengths.
template <typename Params>
__device__ __forceinline__ Share find_share(const Params& params, const DecodePlan& plan,
                                            const Worker& worker) {
  const int lane = threadIdx.x % kWarpSize;
  const int per_lane = (params.num_sequences + kWarpSize - 1) / kWarpSize;
  int kv_len = 0;
  int steps = 0;
  int longest = 0;
  bool empty = false;
#pragma unroll 4
  for (int i = 0; i < per_lane; ++i) {
    const int sequence = lane * per_lane + i;
    kv_len = max(0, params.kv_len(sequence));
    const int of_head = plan.cutting.steps(num_seen(params, kv_len));
    steps += of_head * params.kv_heads;
    longest = max(longest, of_head);
    empty = empty || (kv_len == 0 && sequence < params.num_sequences);
  }
  Share share;
  share.total = static_cast<int>(__reduce_add_sync(0xffffffffU, static_cast<unsigned>(steps)));
  longest = __reduce_max_sync(0xffffffffU, longest);
  share.some_empty = __any_sync(0xffffffffU, empty);
  share.steps_each =
      static_cast<int>(static_cast<unsigned>(share.total) / static_cast<unsigned>(worker.count));
  share.steps_left = share.total - share.steps_each * worker.count;
  const int begin = share.begin(worker.number);
  const int end = share.begin(worker.number + 1);
  if (begin == end) return share;

  // Finds the sequence in which the share begins: first the lane that counted it, then the sequence
  // among the lane's.
  Found found = find_part(steps, begin);
  int position = found.begin;
  int sequence = found.lane * per_lane;
  if (per_lane > 1) {
    for (const int end = sequence + per_lane;; sequence += kWarpSize) {
      kv_len = sequence + lane < end ? max(0, params.kv_len(sequence + lane)) : 0;
      const int of_head = plan.cutting.steps(num_seen(params, kv_len));
      found = find_part(of_head * params.kv_heads, begin - position);
      position += found.begin;
      if (found.lane < kWarpSize) break;
    }
    sequence += found.lane;
  }
  // Finds the share's first chunk: the first that begins at or behind the share's start.
  Walk& first = share.first;
  first.sequence = sequence;
  first.take_keys(params, __shfl_sync(0xffffffffU, kv_len, found.lane));
  first.chunks = plan.cutting.chunks(first.kv_len);
  first.share_end = end;
  first.whole_heads =
      plan.even_heads && longest * params.num_sequences * params.kv_heads == share.total;
  const int head_steps = plan.cutting.steps(first.kv_len);
  first.kv_head = divide(begin - position, head_steps);
  first.head_begin = position + first.kv_head * head_steps;
  first.chunk = first.chunks_before(begin);
  first.last_chunk = first.chunks_before(end);
  if (first.chunk == first.chunks.count) first.next_head(params, plan);
  return share;
}

// The work of a block on one kv head: its query rows and its chunks.
struct Place {
  int sequence = 0;
  int kv_head = 0;
  int first_row = 0;
  int rows = 0;
  // Keys from the first that is seen on; all numbers of keys in this struct count from there.
  int kv_len = 0;
  int first_chunk = 0;
  int last_chunk = 0;  // one past the block's last chunk
  int num_chunks = 0;  // chunks of the whole kv head
  // Index of the kv head in scratch, where this block does not have all its chunks.
  int64_t slot = 0;
  int cached = 0;  // keys that the cache holds; the keys behind them are those of new tokens
  // New tokens in the block's tile: all of them, or 0 where none of its chunks has one.
  int fresh = 0;
  bool writes_fresh = false;  // this block alone writes the new tokens to the cache
};

template <typename Params>
__device__ __forceinline__ Place find_place(const Params& params, const DecodePlan& plan,
                                            const Worker& worker, const Walk& walk) {
  Place place;
  place.sequence = walk.sequence;
  place.kv_head = walk.kv_head;
  place.first_row = worker.row_block * plan.rows_per_block;
  place.rows = min(plan.rows_per_block, plan.rows - place.first_row);
  place.kv_len = walk.kv_len;
  place.first_chunk = walk.chunk;
  place.last_chunk = walk.last_chunk;
  place.num_chunks = walk.chunks.count;
  place.cached = walk.kv_len - params.fresh.count;
  if (place.last_chunk * walk.chunks.length > place.cached) place.fresh = params.fresh.count;
  place.writes_fresh =
      worker.row_block == 0 && worker.leads() && place.last_chunk == place.num_chunks;
  return place;
}

// Returns the query head of row `row` of the place.
template <typename Params>
__device__ __forceinline__ int head_of(const Params& params, const Place& place, int row) {
  const int number = place.first_row + row;
  return place.kv_head * params.group + number - params.token_of(number) * params.group;
}

// Returns the number of elements from the start of q, or of the output, to row `row` of the place.
template <typename Params>
__device__ __forceinline__ int64_t row_offset(const Params& params, const Place& place, int row,
                                              int64_t stride) {
  const int token = params.token_of(place.first_row + row);
  const int head = place.kv_head * params.group + place.first_row + row - token * params.group;
  return (static_cast<int64_t>(place.sequence) * params.uniform_q + token) * stride +
         static_cast<int64_t>(head) * params.head_size;
}

}  // namespace encore::cuda::decode
