// How the decode kernel's partial results become one: four warps' of a chunk, then chunks in order.
#pragma once

#include <cuda/atomic>

#include "backend/cuda/attention.h"
#include "backend/cuda/attention_tile.cuh"

namespace encore::cuda::decode {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * kWarpSize;
inline constexpr int kMaxChunks = kWarpSize;  // of a sequence; one lane each in the last fold
inline constexpr int kMaxRows = 32;           // query rows of a block

// The launch beyond AttentionParams.
struct DecodePlan {
  int rows = 0;        // query rows of a kv head
  int row_blocks = 0;  // blocks that share them
  int rows_per_block = 0;
  int min_chunk = 0;
  int max_chunks = 0;  // partial results that scratch holds per sequence, kv head and row block
  float* values = nullptr;       // [.., max_chunks, rows_per_block, C]
  float2* softmaxes = nullptr;   // [.., max_chunks, rows_per_block]: maximum and sum
  uint32_t* counters = nullptr;  // one per sequence, kv head and row block
};

// Where one block works.
struct Place {
  int sequence = 0;
  int kv_head = 0;
  int first_row = 0;
  int rows = 0;
  int kv_len = 0;
  int64_t group = 0;  // of partial results, and of the counter
};

template <typename T>
__device__ __forceinline__ Place find_place(const AttentionParams<T>& params,
                                            const DecodePlan& plan) {
  Place place;
  place.sequence = blockIdx.z;
  place.kv_head = blockIdx.y / plan.row_blocks;
  place.first_row = blockIdx.y % plan.row_blocks * plan.rows_per_block;
  place.rows = min(plan.rows_per_block, plan.rows - place.first_row);
  place.kv_len = params.kv_len(place.sequence);
  place.group = static_cast<int64_t>(blockIdx.z) * gridDim.y + blockIdx.y;
  return place;
}

// Elements from the start of q, or of the output, to a row of this block.
template <typename T>
__device__ __forceinline__ int64_t row_offset(const AttentionParams<T>& params, const Place& place,
                                              int row, int64_t stride) {
  const int token = (place.first_row + row) / params.group;
  const int head = place.kv_head * params.group + (place.first_row + row) % params.group;
  return (static_cast<int64_t>(place.sequence) * params.uniform_q + token) * stride +
         static_cast<int64_t>(head) * params.head_size;
}

template <typename T>
__device__ __forceinline__ void store_four(T* address, float4 x) {
  *reinterpret_cast<uint2*>(address) = make_uint2(pack_pair<T>(x.x, x.y), pack_pair<T>(x.z, x.w));
}

// A running result and a later one become one: `old` and `now` scale their values and sums.
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
// Zeros for a row that sees no key.
__device__ __forceinline__ float4 normalized(float4 value, float sum) {
  const float inverse = sum > 0.0F ? 1.0F / sum : sum;
  return {value.x * inverse, value.y * inverse, value.z * inverse, value.w * inverse};
}

// Where the four warps' results of a chunk become one.
template <int C>
struct Exchange {
  static constexpr int kStride = C + 8;  // floats; keeps rows of one column in different banks
  float* values;                         // [warp][row][kStride]
  float2 (*softmaxes)[kMaxRows];         // [warp][row]
  float2 (*running)[kMaxRows];           // [2][row]: before and after this chunk, by its parity
  int rows;

  // A warp's part: fragments of its rows.
  template <int kRowTiles>
  __device__ __forceinline__ void write(const float (&parts)[kRowTiles][C / 8][4],
                                        const RunningSoftmax (&softmax)[kRowTiles]) {
    const int warp = threadIdx.x / kWarpSize;
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = m * 16 + r * 8 + lane / 4;
        const float sum = softmax[m].row_sum(r);
        if (row >= rows) continue;
        if (lane % 4 == 0) softmaxes[warp][row] = {softmax[m].max[r], sum};
        float* out = values + (warp * rows + row) * kStride + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < C / 8; ++n) {
          *reinterpret_cast<float2*>(out + n * 8) = {parts[m][n][2 * r], parts[m][n][2 * r + 1]};
        }
      }
    }
  }
  // Four columns of a row over the whole chunk, and its softmax.
  __device__ __forceinline__ float4 read(int row, int column, float scale, float2& softmax) const {
    softmax = softmaxes[0][row];
    float4 total = *reinterpret_cast<const float4*>(values + row * kStride + column);
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) {
      const float2 other = softmaxes[warp][row];
      const Fold step = fold(softmax.x, other.x, scale);
      const auto* now =
          reinterpret_cast<const float4*>(values + (warp * rows + row) * kStride + column);
      total = apply(step, total, *now);
      softmax = {step.max, apply(step, softmax.y, other.y)};
    }
    return total;
  }
};

// Writes a chunk's result where it belongs: the output, when nothing more comes; the running
// result, when this block has all chunks; else its place in scratch.
template <typename T, int C>
__device__ __forceinline__ void finish_chunk(const AttentionParams<T>& params,
                                             const DecodePlan& plan, const Place& place,
                                             const Exchange<C>& exchange, int chunk,
                                             int num_chunks) {
  const float scale = params.scale_log2e;
  const bool alone = gridDim.x == 1 || num_chunks == 1;
  const int64_t slot = alone ? place.group : place.group * plan.max_chunks + chunk;
  for (int i = threadIdx.x; i < place.rows * (C / 4); i += kThreads) {
    const int row = i / (C / 4);
    const int column = i % (C / 4) * 4;
    float2 softmax;
    float4 value = exchange.read(row, column, scale, softmax);
    const int64_t cell = slot * plan.rows_per_block + row;
    auto* partial = reinterpret_cast<float4*>(plan.values + cell * C + column);
    if (alone) {
      const float2 before =
          chunk == 0 ? make_float2(kMinusInfinity, 0.0F) : exchange.running[(chunk + 1) % 2][row];
      const Fold step = fold(before.x, softmax.x, scale);
      value = apply(step, chunk == 0 ? float4{} : *partial, value);
      softmax = {step.max, apply(step, before.y, softmax.y)};
      if (column == 0) exchange.running[chunk % 2][row] = softmax;
    }
    if (alone && chunk == num_chunks - 1) {
      store_four(params.out + row_offset(params, place, row, params.out_stride) + column,
                 normalized(value, softmax.y));
    } else {
      *partial = value;
      if (!alone && column == 0) plan.softmaxes[cell] = softmax;
    }
  }
}

// Is this the last of `num_blocks` blocks to get here? If so, it sees what the others wrote, and
// has read q as they have.
__device__ __forceinline__ bool arrive(uint32_t* counter, int num_blocks) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) {
    ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_device> arrived(*counter);
    is_last =
        arrived.fetch_add(1, ::cuda::memory_order_acq_rel) + 1 == static_cast<uint32_t>(num_blocks);
    if (is_last) arrived.store(0, ::cuda::memory_order_relaxed);
  }
  __syncthreads();
  return is_last;
}

// Folds all chunks' partial results, in order, and writes the output.
template <typename T, int C>
__device__ __forceinline__ void fold_chunks(const AttentionParams<T>& params,
                                            const DecodePlan& plan, const Place& place,
                                            int num_chunks, float4* steps) {
  const float scale = params.scale_log2e;
  const int lane = threadIdx.x % kWarpSize;
  const int64_t first_cell = place.group * plan.max_chunks * plan.rows_per_block;
  // Lane i finds how chunk i joins the ones before it: {old, now, sum}.
  for (int row = threadIdx.x / kWarpSize; row < place.rows; row += kWarps) {
    float2 softmax = {kMinusInfinity, 0.0F};
    if (lane < num_chunks) {
      softmax = __ldcg(plan.softmaxes + first_cell + lane * plan.rows_per_block + row);
    }
    float largest = softmax.x;
#pragma unroll
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const float other = __shfl_up_sync(0xffffffffU, largest, distance);
      if (lane >= distance) largest = fmaxf(largest, other);
    }
    const float before = __shfl_up_sync(0xffffffffU, largest, 1);
    const Fold step = fold(lane == 0 ? kMinusInfinity : before, softmax.x, scale);
    steps[row * kMaxChunks + lane] = {step.old, step.now, softmax.y, 0.0F};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < place.rows * (C / 4); i += kThreads) {
    const int row = i / (C / 4);
    const int column = i % (C / 4) * 4;
    const float* partial = plan.values + (first_cell + row) * C + column;
    float4 value = {};
    float sum = 0.0F;
#pragma unroll 8
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      const float4 step = steps[row * kMaxChunks + chunk];
      const Fold join{0.0F, step.x, step.y};
      const auto* now = reinterpret_cast<const float4*>(partial + static_cast<int64_t>(chunk) *
                                                                      plan.rows_per_block * C);
      value = apply(join, value, __ldcg(now));
      sum = apply(join, sum, step.z);
    }
    store_four(params.out + row_offset(params, place, row, params.out_stride) + column,
               normalized(value, sum));
  }
}

// Zeros for rows without keys, as far as there are rows.
template <typename T, int C>
__device__ __forceinline__ void store_zeros(const AttentionParams<T>& params, const Place& place) {
  for (int i = threadIdx.x; i < place.rows * (C / 4); i += kThreads) {
    const int64_t offset = row_offset(params, place, i / (C / 4), params.out_stride);
    const int token = (place.first_row + i / (C / 4)) / params.group;
    if (int64_t{place.sequence} * params.uniform_q + token >= params.num_tokens) continue;
    store_four(params.out + offset + i % (C / 4) * 4, float4{});
  }
}

}  // namespace encore::cuda::decode
