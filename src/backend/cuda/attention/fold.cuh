// Folds the partial results of decode attention into one: first those of the four warps for a
// chunk, with those of the other blocks of a worker, and then the chunks in order. The caller
// (decode.cuh) brings the other blocks' results to the worker's first block.
//
// Where one block has all chunks of a kv head, it folds them in shared memory. Otherwise each block
// writes its chunks to scratch, and the block that arrives last folds them. Both ways use the same
// operations in the same order, so neither the grid nor the order of arrival changes the bits.
#pragma once

#include <cuda/atomic>

#include "backend/cuda/attention/work.cuh"

namespace encore::cuda::decode {

template <typename T>
__device__ __forceinline__ void store_four(T* address, float4 x) {
  *reinterpret_cast<uint2*>(address) = make_uint2(pack_pair<T>(x.x, x.y), pack_pair<T>(x.z, x.w));
}

// The factors that merge a running softmax result with a later one: `old` multiplies the values and
// the sum of weights of the running result, `now` those of the later one.
struct Fold {
  float max = kMinusInfinity;
  float old = 0;
  float now = 0;
};
__device__ __forceinline__ Fold fold(float old_max, float now_max, float scale) {
  Fold result;
  result.max = fmaxf(old_max, now_max);
  const float reference = finite_max(result.max);
  result.old = exp2_fast((old_max - reference) * scale);
  result.now = exp2_fast((now_max - reference) * scale);
  return result;
}
__device__ __forceinline__ float apply(const Fold& fold, float old, float now) {
  return __fmaf_rn(now, fold.now, __fmul_rn(old, fold.old));
}
__device__ __forceinline__ float4 apply(const Fold& fold, float4 old, float4 now) {
  return {apply(fold, old.x, now.x), apply(fold, old.y, now.y), apply(fold, old.z, now.z),
          apply(fold, old.w, now.w)};
}
// Returns four columns of a row's output: the weighted sums of its values, divided by the sum of
// its softmax weights. The result is zero for a row that sees no key.
__device__ __forceinline__ float4 normalized(float4 value, float sum) {
  const float inverse = sum > 0.0F ? 1.0F / sum : sum;
  return {value.x * inverse, value.y * inverse, value.z * inverse, value.w * inverse};
}

// Sizes of the shared memory in which results are folded. Units: floats. Each part is a multiple of
// 4 floats, which keeps all parts aligned. The stride puts what a warp writes at once into
// different banks.
constexpr int exchange_stride(int head_size) {
  return head_size + 4;
}
constexpr int64_t exchange_floats(int head_size, int rows, int ranks) {
  const int tile_rows = rows < kTileRows ? rows : kTileRows;
  const int parts = kWarps + ranks - 1;
  const int barriers = ranks > 1 ? 4 : 0;  // barriers of a cluster
  return int64_t{tile_rows} * parts * (exchange_stride(head_size) + 2) + barriers +
         (tile_rows % 2 * 8) + int64_t{rows} * (head_size + 4);
}

// The shared memory in which results are folded. One tile of rows is folded at a time. It has one
// part per warp and, in the first block of a worker, one part per other block.
template <int C>
struct Exchange {
  static constexpr int kStride = exchange_stride(C);

  float* total;       // [row][C]: sums over the chunks so far
  float2* running;    // [2][row]: softmax before and after this chunk, by the chunk's parity
  float* values;      // [part][row of the tile][kStride]: results of a chunk
  float2* softmaxes;  // [part][row of the tile]; behind them, room for barriers
  int rows;
  int tile_rows;

  __device__ __forceinline__ Exchange(void* memory, int rows, int ranks)
      : rows(rows), tile_rows(min(rows, kTileRows)) {
    total = static_cast<float*>(memory);
    running = reinterpret_cast<float2*>(total + rows * C);
    values = total + rows * (C + 4);
    const int parts = kWarps + ranks - 1;
    softmaxes = reinterpret_cast<float2*>(values + parts * tile_rows * kStride);
  }

  // Returns the first row of the part that the block of rank `rank`, above 0, has in the worker's
  // first block.
  [[nodiscard]] __device__ __forceinline__ int first_row_of(int rank) const {
    return (kWarps + rank - 1) * tile_rows;
  }

  // Returns four columns of a tile's row, summed over `parts` parts, and sets `softmax` to the
  // row's softmax.
  __device__ __forceinline__ float4 read(int row, int column, float scale, int parts,
                                         float2& softmax) const {
    softmax = {kMinusInfinity, 0.0F};
#pragma unroll 4
    for (int part = 0; part < parts; ++part)
      softmax.x = fmaxf(softmax.x, softmaxes[part * tile_rows + row].x);
    const float reference = finite_max(softmax.x);
    float4 value = {};
#pragma unroll 4
    for (int part = 0; part < parts; ++part) {
      const float2 other = softmaxes[part * tile_rows + row];
      const auto* now =
          reinterpret_cast<const float4*>(values + (part * tile_rows + row) * kStride + column);
      const Fold step{softmax.x, 1.0F, exp2_fast((other.x - reference) * scale)};
      value = apply(step, value, *now);
      softmax.y = apply(step, softmax.y, other.y);
    }
    return value;
  }
};

// Calls `visitor(row, column)` for each group of four columns that this thread has in `rows` rows.
template <int C, typename Visitor>
__device__ __forceinline__ void for_each_four(int rows, Visitor&& visitor) {
  for (int i = threadIdx.x; i < rows * (C / 4); i += kThreads)
    visitor(i / (C / 4), i % (C / 4) * 4);
}

// Describes the results of a chunk's tile of rows that the blocks of a worker bring together in the
// first block.
struct Gathering {
  int active = 0;  // blocks that have a part: the first `active` of the worker
  int rows = 0;
  int chunk = 0;  // its number in the batch
};

// Identifies one tile of rows of a chunk, the unit that is added to a running result. `parts`
// partial results of it lie in the exchange.
struct ChunkTile {
  int chunk = 0;
  int tile = 0;
  int parts = kWarps;
};

// Adds a chunk's tile of rows to the running result of the chunks before it, all of which this
// block computed. After the last chunk it writes the output.
template <typename Params, int C>
__device__ __forceinline__ void add_chunk(const Params& params, const Place& place,
                                          const Exchange<C>& exchange,
                                          const ChunkTile& chunk_tile) {
  const float scale = params.scale_log2e;
  const int chunk = chunk_tile.chunk;
  const int first_row = chunk_tile.tile * kTileRows;
  for_each_four<C>(min(place.rows - first_row, kTileRows), [&](int row_of_tile, int column) {
    float2 softmax;
    float4 value = exchange.read(row_of_tile, column, scale, chunk_tile.parts, softmax);
    const int row = first_row + row_of_tile;
    auto* total = reinterpret_cast<float4*>(exchange.total + row * C + column);
    const float2 before = chunk == 0 ? make_float2(kMinusInfinity, 0.0F)
                                     : exchange.running[(chunk + 1) % 2 * exchange.rows + row];
    const Fold step = fold(before.x, softmax.x, scale);
    value = apply(step, chunk == 0 ? float4{} : *total, value);
    softmax = {step.max, apply(step, before.y, softmax.y)};
    if (chunk < place.num_chunks - 1) {
      *total = value;
      if (column == 0) exchange.running[chunk % 2 * exchange.rows + row] = softmax;
    } else {
      const float sum = divisor(params, head_of(params, place, row), softmax.x, softmax.y);
      store_four(params.out + row_offset(params, place, row, params.out_stride) + column,
                 normalized(value, sum));
    }
  });
}

// Writes a chunk's tile of rows to scratch, for a kv head whose chunks are in several shares.
template <int C>
__device__ __forceinline__ void publish_chunk(const DecodePlan& plan, const Place& place,
                                              const Exchange<C>& exchange,
                                              const ChunkTile& chunk_tile, float scale) {
  const int first_row = chunk_tile.tile * kTileRows;
  const int64_t first_cell =
      (place.slot * plan.max_chunks + chunk_tile.chunk) * plan.rows_per_block + first_row;
  for_each_four<C>(min(place.rows - first_row, kTileRows), [&](int row, int column) {
    float2 softmax;
    const float4 value = exchange.read(row, column, scale, chunk_tile.parts, softmax);
    *reinterpret_cast<float4*>(plan.values + (first_cell + row) * C + column) = value;
    if (column == 0) plan.softmaxes[first_cell + row] = softmax;
  });
}

// Counts `chunks` published chunks of a kv head that has `all`, and returns whether this block is
// the last to arrive. The last block sees what the other blocks wrote, and all blocks have read q
// by then.
//
// This is message passing at device scope. Each thread's writes happen before the barrier, and the
// barrier before the leader's fetch_add. Its release makes the writes visible to any fetch_add that
// acquires by reading from it or from a later operation of the release sequence, so to the last
// block. The store of zero for the next launch needs no order, because the end of the launch orders
// it.
__device__ __forceinline__ bool arrive(uint32_t* counter, int chunks, int all) {
  bool is_last = false;
  __syncthreads();
  if (threadIdx.x == 0) {
    ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_device> arrived(*counter);
    const uint32_t before = arrived.fetch_add(chunks, ::cuda::memory_order_acq_rel);
    is_last = before + chunks == static_cast<uint32_t>(all);
    if (is_last) arrived.store(0, ::cuda::memory_order_relaxed);
  }
  return __syncthreads_or(static_cast<int>(is_last)) != 0;
}

// Folds a kv head's chunks from scratch, in order, and writes the output. Each thread loads kAtOnce
// chunks at once to hide the latency.
template <typename Params, int C>
__device__ __forceinline__ void fold_chunks(const Params& params, const DecodePlan& plan,
                                            const Place& place) {
  constexpr int kAtOnce = C == 64 ? 4 : 8;  // as many loads as the registers of a block allow
  const int num_chunks = place.num_chunks;
  for_each_four<C>(place.rows, [&](int row, int column) {
    float4 value = {};
    float2 softmax = {kMinusInfinity, 0.0F};
    for (int first = 0; first < num_chunks; first += kAtOnce) {
      const int64_t cell = (place.slot * plan.max_chunks + first) * plan.rows_per_block + row;
      float4 values[kAtOnce];
      float2 softmaxes[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= num_chunks) continue;
        const int64_t from = cell + i * plan.rows_per_block;
        values[i] = __ldcg(reinterpret_cast<const float4*>(plan.values + from * C + column));
        softmaxes[i] = __ldcg(plan.softmaxes + from);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= num_chunks) continue;
        const Fold step = fold(softmax.x, softmaxes[i].x, params.scale_log2e);
        value = apply(step, value, values[i]);
        softmax = {step.max, apply(step, softmax.y, softmaxes[i].y)};
      }
    }
    const float sum = divisor(params, head_of(params, place, row), softmax.x, softmax.y);
    store_four(params.out + row_offset(params, place, row, params.out_stride) + column,
               normalized(value, sum));
  });
}

// Writes zeros to the rows of sequences without keys and to rows that no sequence owns. All blocks
// of the launch divide these rows among them.
template <typename Params, int C>
__device__ __forceinline__ void store_zeros(const Params& params, const DecodePlan& plan,
                                            const Worker& worker) {
  const int row_fours = params.kv_heads * params.group * (C / 4);
  const int number =
      (worker.number * plan.row_blocks + worker.row_block) * worker.ranks + worker.rank;
  const int stride = worker.count * plan.row_blocks * worker.ranks;
  for (int run = number; run < plan.num_runs; run += stride) {
    if (params.kv_len(run) > 0) continue;
    const int64_t first = int64_t{run} * params.uniform_q;
    const int count = static_cast<int>(min(int64_t{params.uniform_q}, params.num_tokens - first));
    for (int i = threadIdx.x; i < count * row_fours; i += kThreads) {
      store_four(params.out + (first + i / row_fours) * params.out_stride + i % row_fours * 4,
                 float4{});
    }
  }
}

}  // namespace encore::cuda::decode
