// The building blocks of tensor-core attention: tiles of K and V in shared memory, fragments for
// mma (see mma.cuh), and the running softmax.
#pragma once

#include <cstdint>

#include "backend/cuda/fp8.h"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/tile_copy.cuh"

namespace encore::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr float kMinusInfinity = -__builtin_huge_valf();

// Computes the addresses to which a lane's 16-byte pieces go when a warp copies a tile piece by
// piece and row by row. Where the number of pieces of a row is a power of two, each address is the
// first one combined with constants by an exclusive or and an addition.
template <int C>
struct PieceAddress {
  static constexpr int kPieces = C / 8;  // pieces of a row
  static constexpr bool kIsRegular = kWarpSize % kPieces == 0;

  uint32_t tile;
  int lane;
  uint32_t first;

  __device__ __forceinline__ PieceAddress(uint32_t tile, int lane)
      : tile(tile), lane(lane), first(tile + tile_offset<C>(lane / kPieces, lane % kPieces)) {}

  // Returns the shared-memory address to which this lane copies its 16-byte piece in copy number
  // `i` of the warp.
  [[nodiscard]] __device__ __forceinline__ uint32_t of_copy(int i) const {
    const int piece = i * kWarpSize + lane;
    if constexpr (!kIsRegular) return tile + tile_offset<C>(piece / kPieces, piece % kPieces);
    const int row = i * (kWarpSize / kPieces);
    const uint32_t permuted = tile_offset<C>(row, 0);  // where piece 0 lies in this row
    const auto row_start = static_cast<uint32_t>(row * kPieces * 16);
    return (first ^ (permuted - row_start)) + row_start;
  }
};

// query_address(), key_address() and value_address() return the address of a lane's row for
// ldmatrix, for elements [0, 16) of 16 rows of a tile. step_address() leads from there to elements
// [16 * step, 16 * step + 16). The next 16 rows are a constant away. The three functions map lanes
// to rows and halves of 16 elements in the ways that mma expects of its operands. query_address()
// is for queries, an A operand.
template <int C>
__device__ __forceinline__ uint32_t query_address(uint32_t tile, int lane) {
  return tile + tile_offset<C>(lane % 16, lane / 16);
}
// key_address() is for keys, B operands: matrices [0] and [1] have the first 8 keys, [2] and [3]
// the other 8.
template <int C>
__device__ __forceinline__ uint32_t key_address(uint32_t tile, int lane) {
  return tile + tile_offset<C>(lane % 8 + 8 * (lane / 16), lane / 8 % 2);
}
// value_address() is for values, which ldmatrix transposes into B operands: matrices [0] and [1]
// have the first 8 columns, [2] and [3] the other 8.
template <int C>
__device__ __forceinline__ uint32_t value_address(uint32_t tile, int lane) {
  return tile + tile_offset<C>(lane % 16, lane / 16);
}
// step_address() takes one exclusive or, instead of a register per step. It needs tiles aligned to
// kTileAlignment: only then are the bits that tile_offset() permutes, and the bits that number a
// row's pieces, bits of the address.
inline constexpr int kTileAlignment = 512;
template <int C>
__device__ __forceinline__ uint32_t step_address(uint32_t first, int step) {
  if constexpr (C == 48) return first + step * 32;
  if constexpr (C == 96) return (first ^ static_cast<uint32_t>(step % 2 * 32)) + step / 2 * 64;
  return first ^ static_cast<uint32_t>(step * 32);
}

// Returns the address of 16-byte piece `piece` of the row whose first piece lies at `first`. Unlike
// step_address(), it needs no map of lanes that depends on the operand.
template <int C>
__device__ __forceinline__ uint32_t piece_address(uint32_t first, int piece) {
  constexpr int kFlipped = C == 48 ? 2 : C == 32 || C == 96 ? 4 : 16;
  return (first ^ static_cast<uint32_t>(piece % kFlipped * 16)) + piece / kFlipped * kFlipped * 16;
}

// Loads keys and values of fp8. A 16-byte piece has 16 numbers of a row, and ldmatrix gives each
// lane four neighbours, which are widened to two pairs. Each pair must be what mma.m16n8k16 expects
// of the lane.
//
// Keys: a lane gets columns 4t to 4t + 3, where mma has two pairs eight columns apart (2t, 2t + 1,
// 2t + 8, 2t + 9). A dot product may take its columns in any order, so store_query_piece permutes
// the columns of the queries in the same way.
//
// Values: ldmatrix transposes pairs of neighbouring columns; two keys' pairs make four numbers.
// Sorted, these are a pair of keys of an even column and a pair of the odd column beside it. So the
// results of 16 columns come as eight even and eight odd columns.
//
// load_fp8_keys and load_fp8_values fill `out` as load_matrices() does from key_address() and
// value_address(). For an A operand, out[1] and out[2] are exchanged.
__device__ __forceinline__ void load_two_matrices(uint32_t (&out)[2], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(out[0]), "=r"(out[1])
               : "r"(shared)
               : "memory");
}
template <typename T>
__device__ __forceinline__ void load_fp8_keys(uint32_t (&out)[4], uint32_t shared) {
  uint32_t fours[2];
  load_two_matrices(fours, shared);
  widen<T>(fours[0], out[0], out[1]);
  widen<T>(fours[1], out[2], out[3]);
}
// Widens pairs of keys to halves, which hold the weights that multiply the values more exactly than
// bf16.
__device__ __forceinline__ void widen_columns(uint32_t four, uint32_t& even, uint32_t& odd) {
  widen_to_half(__byte_perm(four, 0, 0x3120), even, odd);
}
__device__ __forceinline__ void load_fp8_values(uint32_t (&out)[4], uint32_t shared) {
  uint32_t fours[2];
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(fours[0]), "=r"(fours[1])
               : "r"(shared)
               : "memory");
  widen_columns(fours[0], out[0], out[2]);
  widen_columns(fours[1], out[1], out[3]);
}

// Puts eight columns of a query row into its tile: in their order, or permuted as load_fp8_keys
// needs them where keys are fp8.
template <typename Kv, int C>
__device__ __forceinline__ void store_query_piece(uint8_t* tile, int row, int piece, uint4 x) {
  if constexpr (kIsFp8<Kv>) {
    const int half = piece % 2 * 8;
    const int first = piece - piece % 2;
    *reinterpret_cast<uint2*>(tile + tile_offset<C>(row, first) + half) = {x.x, x.z};
    *reinterpret_cast<uint2*>(tile + tile_offset<C>(row, first + 1) + half) = {x.y, x.w};
  } else {
    *reinterpret_cast<uint4*>(tile + tile_offset<C>(row, piece)) = x;
  }
}

// Converts two neighbouring score accumulators (16 rows x 16 keys) into the A operand of the
// product with V.
template <typename T>
__device__ __forceinline__ void to_operand(uint32_t (&out)[4], const float (&left)[4],
                                           const float (&right)[4]) {
  out[0] = pack_pair<T>(left[0], left[1]);
  out[1] = pack_pair<T>(left[2], left[3]);
  out[2] = pack_pair<T>(right[0], right[1]);
  out[3] = pack_pair<T>(right[2], right[3]);
}

// Returns the maximum to subtract from scores: 0 for a row that has seen no key yet, whose maximum
// is -inf.
__device__ __forceinline__ float finite_max(float max) {
  return max == kMinusInfinity ? 0.0F : max;
}

// Returns the score of a key before it is scaled, in launches that cap scores: tanh((scale * q . k)
// / cap), where `product` is q . k.
template <typename Params>
__device__ __forceinline__ float capped(const Params& params, float product) {
  const float power = exp2_fast(product * params.softcap_in);
  return 1.0F - __fdividef(2.0F, 1.0F + power);
}

// Returns the divisor of a row's values: the sum of its weights relative to the maximum `max` of
// its scores, plus the weight of its head's sink where the model has sinks. It is zero for a row
// that saw no key.
template <typename Params>
__device__ __forceinline__ float divisor(const Params& params, int head, float max, float sum) {
  if (params.sinks == nullptr || !(sum > 0.0F)) return sum;
  constexpr float kLog2e = 1.44269504F;
  const float sink = to_float(params.sinks[head]) * kLog2e;
  return sum + exp2_fast(sink - max * params.scale_log2e);
}

// Holds the running softmax of the two rows of which a thread has parts. A tile without a visible
// key changes neither `max` nor `sum`, and rescales by exactly 1.
struct RunningSoftmax {
  float max[2] = {kMinusInfinity, kMinusInfinity};  // maximum of the raw scores over the whole row
  float sum[2] = {0.0F, 0.0F};  // sum of the weights in this thread's part of the row

  // Turns scores into weights relative to the new maximum, and sets `rescale` to the factor by
  // which the caller multiplies earlier sums. `scale` includes log2(e).
  template <int kTiles>
  __device__ __forceinline__ void update(float (&scores)[kTiles][4], float (&rescale)[2],
                                         float scale) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = max[r];
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        largest = fmaxf(largest, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
      }
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, 2));
      const float reference = finite_max(largest);
      rescale[r] = exp2_fast((max[r] - reference) * scale);
      max[r] = largest;
      const float offset = reference * scale;
      float total = 0.0F;
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          scores[n][i] = exp2_fast(__fmaf_rn(scores[n][i], scale, -offset));
          total += scores[n][i];
        }
      }
      sum[r] = __fmaf_rn(sum[r], rescale[r], total);
    }
  }

  // Returns the row's whole sum, in each thread that holds a part of the row.
  __device__ __forceinline__ float row_sum(int r) const {
    float total = sum[r];
    total += __shfl_xor_sync(0xffffffffU, total, 1);
    total += __shfl_xor_sync(0xffffffffU, total, 2);
    return total;
  }
};

}  // namespace encore::cuda
