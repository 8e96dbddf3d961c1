// The tile of rows that a block of decode attention has of a kv head: queries, and keys and values
// of new tokens.
//
// New tokens (fused_attention). A block turns the queries it uses. Where it has a chunk with keys
// of new tokens, it turns those, too, and puts them, and their values, into the tile that has their
// place: they never come from the cache. The block with a kv head's last chunk writes them there.
// Angles come from the step's inputs and are found before the wait.
#pragma once

#include "backend/cuda/attention_work.cuh"
#include "backend/cuda/turn.cuh"

namespace encore::cuda::decode {

// Cosine and sine of the sequence's new tokens, [count][C/2].
template <typename T, int C>
__device__ __forceinline__ void find_angles(const AttentionParams<T>& params, int sequence,
                                            float2* angles) {
  const NewTokens<T>& fresh = params.fresh;
  const int32_t* positions = fresh.positions + int64_t{sequence} * fresh.count;
  for (int i = threadIdx.x; i < fresh.count * (C / 2); i += kThreads)
    angles[i] = find_angle(__ldcg(positions + i / (C / 2)), fresh.inv_freq[i % (C / 2)]);
}

// A row of a block's tile, where it comes from and what becomes of it.
template <typename T>
struct TileRow {
  const T* in = nullptr;
  const T* norm = nullptr;
  const float2* angles = nullptr;  // null: not turned
  T* cached = nullptr;             // null: not written there
};

template <typename T, int C>
__device__ __forceinline__ TileRow<T> find_row(const AttentionParams<T>& params, const Place& place,
                                               const float2* angles, int row) {
  const NewTokens<T>& fresh = params.fresh;
  if (row < place.rows) {
    const int token = (place.first_row + row) / params.group;
    return {params.q + row_offset(params, place, row, params.q_stride), fresh.q_norm,
            fresh.count > 0 ? angles + token * (C / 2) : nullptr, nullptr};
  }
  const bool is_key = row < place.rows + place.fresh;
  const int token = row - place.rows - (is_key ? 0 : place.fresh);
  const int64_t of_step = int64_t{place.sequence} * params.uniform_q + token;
  TileRow<T> result;
  result.in = (is_key ? fresh.k + of_step * fresh.k_stride : fresh.v + of_step * fresh.v_stride) +
              place.kv_head * C;
  if (is_key) {
    result.norm = fresh.k_norm;
    result.angles = angles + token * (C / 2);
  }
  const int slot = place.writes_fresh ? __ldcg(fresh.slots + of_step) : -1;
  if (slot >= 0 && slot < fresh.num_slots) {
    const int64_t page = slot >> params.page_shift;
    result.cached = (is_key ? fresh.k_cache : fresh.v_cache) +
                    ((page * params.kv_heads + place.kv_head) * params.page_size +
                     (slot & (params.page_size - 1))) *
                        C;
  }
  return result;
}

// Reads the place's query rows into `tile`, and behind them keys, then values of new tokens; what
// is left of the last kTileRows becomes zero.
template <typename T, int C>
__device__ __forceinline__ void load_rows(const AttentionParams<T>& params, const Place& place,
                                          const float2* angles, uint8_t* tile) {
  constexpr int kPieces = C / 8;
  constexpr int kLanes = C <= 64 ? 8 : C <= 128 ? 16 : 32;
  const NewTokens<T>& fresh = params.fresh;
  const TurnShape shape{C, kLanes, fresh.q_norm != nullptr, fresh.eps};
  const int piece = static_cast<int>(threadIdx.x) % kLanes;
  const int num_rows = place.rows + 2 * place.fresh;
  const int num_written = max(num_rows, (place.rows + kTileRows - 1) / kTileRows * kTileRows);
  // Whole warps stay in step for the exchanges.
  for (int first = 0; first < num_written; first += kThreads / kLanes) {
    const int number = first + static_cast<int>(threadIdx.x) / kLanes;
    const bool used = number < num_rows && piece < kPieces;
    const TileRow<T> row = used ? find_row<T, C>(params, place, angles, number) : TileRow<T>{};
    uint4 x = used ? *reinterpret_cast<const uint4*>(row.in + piece * 8) : uint4{};
    if (fresh.count > 0) x = turn_head<T>(x, shape, row.norm, row.angles);
    if (number >= num_written || piece >= kPieces) continue;
    *reinterpret_cast<uint4*>(tile + tile_offset<C>(number, piece)) = x;
    if (row.cached != nullptr) *reinterpret_cast<uint4*>(row.cached + piece * 8) = x;
  }
}

// Where a lane finds its row of the matrices of elements [0, 32) of 8 query rows, operands of two
// steps of products; from there, pair_address() leads to elements [32 * pair, 32 * pair + 32).
template <int C>
__device__ __forceinline__ uint32_t query_pair_address(uint32_t tile, int lane) {
  return tile + tile_offset<C>(lane % 8, lane / 8);
}
template <int C>
__device__ __forceinline__ uint32_t pair_address(uint32_t first, int pair) {
  if constexpr (C == 96) return first + pair * 64;
  return first ^ static_cast<uint32_t>(pair * 64);
}

// Puts keys and values of new tokens into a warp's tile of keys that starts at `first_key`.
template <int C>
__device__ __forceinline__ void add_fresh(const Place& place, const uint8_t* rows, uint8_t* k_tile,
                                          int first_key) {
  constexpr int kPieces = C / 8;
  const int lane = threadIdx.x % kWarpSize;
  for (int i = lane; i < kTileKeys * kPieces; i += kWarpSize) {
    const int key = i / kPieces;
    const int piece = i % kPieces;
    const int token = first_key + key - place.cached;
    if (token < 0 || token >= place.fresh) continue;
    uint8_t* to = k_tile + tile_offset<C>(key, piece);
    const int from = place.rows + token;
    *reinterpret_cast<uint4*>(to) =
        *reinterpret_cast<const uint4*>(rows + tile_offset<C>(from, piece));
    *reinterpret_cast<uint4*>(to + kTileKeys * C * 2) =
        *reinterpret_cast<const uint4*>(rows + tile_offset<C>(from + place.fresh, piece));
  }
  __syncwarp();
}

}  // namespace encore::cuda::decode
