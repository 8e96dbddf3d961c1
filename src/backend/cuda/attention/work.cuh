// How decode attention cuts the KV of a batch into pieces of work, and which block takes which.
//
// A sequence's KV is cut into chunks by its own length alone, for that decides the bits of the
// result. Who computes a chunk does not: the work of the whole batch, counted in steps of
// kBlockKeys keys and ordered by sequence, kv head and chunk, is dealt out in equal shares to a
// grid as large as the card, whatever the batch; a chunk belongs to the share in which it begins.
// So one long sequence among many short ones has as many blocks as its bytes ask for, and where a
// share goes on to the next kv head, its keys are under way before the last one's are done. Equal
// sequences whose kv heads come out even are dealt out by the kv head: one in two shares costs a
// trip through memory.
//
// Query rows that are too many for one block are several blocks' with the same share, side by side
// in the grid (row blocks): they read the same keys at about the same time, so from memory once.
#pragma once

#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/tile.cuh"

namespace encore::cuda::decode {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * kWarpSize;
inline constexpr int kTileKeys = 16;                   // of one warp; a tile lies in one page
inline constexpr int kBlockKeys = kWarps * kTileKeys;  // of a step, in one block
inline constexpr int kTileRows = 8;  // query rows of a tile of results: the narrow side of an mma

// The keys of a tile; their values are another one right behind it.
template <typename Kv, int C>
struct KeyTile {
  static constexpr int kWidth = C * sizeof(Kv) / 2;  // of a key, in units of tile_offset()
  static constexpr int kPieces = kWidth / 8;         // 16 bytes each, of a key
  static constexpr int kPieceSize = C / kPieces;     // Units: elements
  static constexpr int kBytes = kTileKeys * kWidth * 2;
};

// Identifies a block within the launch. A worker is one block, or several, each of which takes
// kBlockKeys of a step's keys.
struct Worker {
  int row_block = 0;
  int number = 0;  // of `count` that have the same rows and take a share each
  int count = 0;
  int rank = 0;  // of `ranks` blocks of the worker
  int ranks = 1;

  [[nodiscard]] __device__ bool leads() const { return rank == 0; }
};

// a / b for numbers from 0 to kMostDivided, in a third of the instructions of a division. The
// result is exact: the rounding error of (a + 0.5) / b is less than its distance from a whole
// number.
inline constexpr int64_t kMostDivided = (1 << 21) - 1;
__device__ __forceinline__ int divide(int a, int b) {
  return __float2int_rd(__fdividef(static_cast<float>(a) + 0.5F, static_cast<float>(b)));
}

struct Chunks {
  int steps = 0;   // of one, at most
  int length = 0;  // keys
  int count = 0;
};

// The parameters that decide, together with its length, how a sequence is cut: functions of the op
// and of padded sizes. Lengths count steps of all blocks of a worker.
struct Cutting {
  int step_log2 = 0;       // keys of a step
  int min_steps = 1;       // of a chunk
  float growth = 0;        // of its length with the root of the sequence's
  int max_count_log2 = 0;  // chunks of a sequence
  int fitting = 0;         // chunks of each kv head of equal sequences, before a block has two
  int parts_log2 = 0;      // of each kv head of equal sequences that come out even on all blocks

  [[nodiscard]] __device__ Chunks chunks(int kv_len) const {
    const int total = steps(kv_len);
    int of_chunk = max(min_steps, (total + (1 << max_count_log2) - 1) >> max_count_log2);
    of_chunk = max(of_chunk, __float2int_rn(growth * root(total)));
    // With somewhat more than that, fewer and longer chunks end sooner than two in a row.
    if (total > fitting * of_chunk && total <= (fitting + fitting / 2) * of_chunk)
      of_chunk = divide(total + fitting - 1, fitting);
    if (parts_log2 > 0) of_chunk = min(of_chunk, max(kFewestSteps, total >> parts_log2));
    // Makes as many chunks equal in length.
    const int count = divide(total + of_chunk - 1, of_chunk);
    if (count > 1) of_chunk = divide(total + count - 1, count);
    return {of_chunk, of_chunk << step_log2, count};
  }
  [[nodiscard]] __device__ int steps(int kv_len) const {
    return (kv_len + step_keys() - 1) >> step_log2;
  }
  [[nodiscard]] __host__ __device__ int step_keys() const { return 1 << step_log2; }

  // A chunk of a sequence that is cut into parts has so many at least: it costs an exchange.
  static constexpr int kFewestSteps = 2;

 private:
  __device__ static float root(int x) {
    float result;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(static_cast<float>(x)));
    return result;
  }
};

// The parameters of a launch beyond AttentionParams.
struct DecodePlan {
  int rows = 0;            // query rows of a kv head
  int row_blocks = 0;      // blocks that share them
  int rows_per_block = 0;  // at most
  int ranks = 1;           // blocks of a worker
  int tile_rows = 0;       // of a block: its queries, then keys and values of new tokens
  int num_runs = 0;        // of query rows, owned by a sequence or not
  int max_chunks = 0;      // of a sequence
  Cutting cutting;
  bool slot_per_head = false;    // see find_slot
  bool even_heads = false;       // those of equal sequences are dealt out whole
  float* values = nullptr;       // [slots, max_chunks, rows_per_block, C]
  float2* softmaxes = nullptr;   // [slots, max_chunks, rows_per_block]: maximum and sum
  uint32_t* counters = nullptr;  // [slots]
};

// The first key that a new token of a sequence of `kv_len` keys sees, or one of the few before it that
// are in its tile.
template <typename Params>
__device__ __forceinline__ int first_seen(const Params& params, int kv_len) {
  return max(0, kv_len - params.uniform_q + 1 - params.window) & -kTileKeys;
}
// The number of keys from there on.
template <typename Params>
__device__ __forceinline__ int num_seen(const Params& params, int kv_len) {
  return kv_len - first_seen(params, kv_len);
}

// Walks the chunks of a share in order. Keys count from the first that is seen. Positions count steps of work from the start of the batch.
struct Walk {
  int sequence = 0;
  int kv_head = 0;
  int chunk = 0;
  int last_chunk = 0;  // one past the last that the share has of this kv head
  int kv_len = 0;
  int first_key = 0;  // the sequence's key of number 0
  Chunks chunks;
  int head_begin = 0;  // position of the kv head's chunk 0
  int share_end = 0;
  bool whole_heads = false;  // a share that has a kv head's first chunk has all

  [[nodiscard]] __device__ bool done() const { return chunk >= last_chunk; }
  // Chunks of the kv head that are dealt out in front of a position; 0 or less, when none.
  [[nodiscard]] __device__ int chunks_before(int position) const {
    if (whole_heads) return position > head_begin ? chunks.count : 0;
    return min(chunks.count, divide(position - head_begin + chunks.steps - 1, chunks.steps));
  }

  // Sets which keys are read of a sequence that has `all` keys: those within the window.
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
      // As long as the share has not ended, a later sequence has keys.
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

// The share of the batch that a block takes.
struct Share {
  Walk first;               // done() when there is nothing to do
  int total = 0;            // steps of the batch
  int steps_each = 0;       // of a share; of the first ones one more,
  int steps_left = 0;       // as many as these
  bool some_empty = false;  // sequences without keys

  [[nodiscard]] __device__ int begin(int share) const {
    return share * steps_each + min(share, steps_left);
  }
  // The share that has that position.
  [[nodiscard]] __device__ int at(int position) const {
    const int of_longer = steps_left * (steps_each + 1);
    return position < of_longer ? position / (steps_each + 1)
                                : steps_left + (position - of_longer) / steps_each;
  }
};

// The place in scratch and the counter of a kv head that is in several shares: by its sequence and
// number; or, when there are fewer shares than kv heads, by the share that has its first chunk, for
// no other kv head both begins there and goes on elsewhere.
template <typename Params>
__device__ __forceinline__ int find_slot(const Params& params, const DecodePlan& plan,
                                         const Worker& worker, const Share& share,
                                         const Walk& walk) {
  const int slot = plan.slot_per_head ? walk.sequence * params.kv_heads + walk.kv_head
                                      : share.at(walk.head_begin);
  return slot * plan.row_blocks + worker.row_block;
}

// The lane in whose part of the line of all lanes' amounts `target` lies, and where that part
// begins.
struct Found {
  int lane = kWarpSize;  // that: beyond the line
  int begin = 0;         // of the part; the line's length, when beyond
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

// Each warp finds the block's share by itself, from the lengths.
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

  // The sequence in which it begins: first the lane, then one of the lane's.
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
  // The chunk: the first that begins there or later.
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
  int kv_len = 0;  // from the first key that is seen on, as all numbers of keys here
  int first_chunk = 0;
  int last_chunk = 0;         // one past it
  int num_chunks = 0;         // of the kv head
  int64_t slot = 0;           // of the kv head in scratch, when this block does not have all chunks
  int cached = 0;             // keys that the cache holds; those behind are new tokens'
  int fresh = 0;              // new tokens in the block's tile: all, or none when no chunk has one
  bool writes_fresh = false;  // this block writes them to the cache, alone
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

// The query head of a row of the place.
template <typename Params>
__device__ __forceinline__ int head_of(const Params& params, const Place& place, int row) {
  const int number = place.first_row + row;
  return place.kv_head * params.group + number - params.token_of(number) * params.group;
}

// Elements from the start of q, or of the output, to a row of the place.
template <typename Params>
__device__ __forceinline__ int64_t row_offset(const Params& params, const Place& place, int row,
                                              int64_t stride) {
  const int token = params.token_of(place.first_row + row);
  const int head = place.kv_head * params.group + place.first_row + row - token * params.group;
  return (static_cast<int64_t>(place.sequence) * params.uniform_q + token) * stride +
         static_cast<int64_t>(head) * params.head_size;
}

}  // namespace encore::cuda::decode
