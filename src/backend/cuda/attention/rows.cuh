// Loads the tile of rows that a block of decode attention holds for a kv head: queries, and keys
// and values of new tokens.
//
// In fused_attention, a block rotates the queries it uses. Where it has a chunk with keys of new
// tokens, it rotates those keys, too, and puts them and their values where the copies would have
// put them: it never reads them from the cache. The block with a kv head's last chunk writes them
// to the cache. The rotation's angles depend on step inputs only, and are computed before the block
// waits for the launches before it.
#pragma once

#include "backend/cuda/attention/work.cuh"
#include "backend/cuda/rows/rope.cuh"

namespace encore::cuda::decode {

// Computes cosine and sine for each of the sequence's new tokens: angles[count][C/2].
template <typename Params, int C>
__device__ __forceinline__ void find_angles(const Params& params, int sequence, float2* angles) {
  const auto& fresh = params.fresh;
  const int32_t* positions = fresh.positions + int64_t{sequence} * fresh.count;
  for (int i = threadIdx.x; i < fresh.count * (C / 2); i += kThreads)
    angles[i] = find_angle(__ldcg(positions + i / (C / 2)), fresh.inv_freq[i % (C / 2)]);
}

// Describes the source of one row of a block's tile, its norm's weights, and its rotation.
template <typename T>
struct TileRow {
  const T* in = nullptr;
  const T* norm = nullptr;
  const float2* angles = nullptr;  // null: the row is not rotated
};

template <typename Params, int C>
__device__ __forceinline__ TileRow<typename Params::Element> find_row(const Params& params,
                                                                      const Place& place,
                                                                      const float2* angles,
                                                                      int row) {
  const auto& fresh = params.fresh;
  if (row < place.rows) {
    const int token = params.token_of(place.first_row + row);
    return {params.q + row_offset(params, place, row, params.q_stride), fresh.q_norm,
            fresh.count > 0 ? angles + token * (C / 2) : nullptr};
  }
  const bool is_key = row < place.rows + place.fresh;
  const int token = row - place.rows - (is_key ? 0 : place.fresh);
  const int64_t of_step = int64_t{place.sequence} * params.uniform_q + token;
  const int column = place.kv_head * C;
  if (is_key)
    return {fresh.k + of_step * fresh.k_stride + column, fresh.k_norm, angles + token * (C / 2)};
  return {fresh.v + of_step * fresh.v_stride + column, nullptr, nullptr};
}

// Returns the address in the caches to which a row behind the queries is written, or null where
// this block does not write it.
template <typename Params, int C>
__device__ __forceinline__ typename Params::Kv* find_cached(const Params& params,
                                                            const Place& place, int row) {
  const auto& fresh = params.fresh;
  if (!place.writes_fresh || row < place.rows) return nullptr;
  const bool is_key = row < place.rows + place.fresh;
  const int token = row - place.rows - (is_key ? 0 : place.fresh);
  const int slot = __ldcg(fresh.slots + int64_t{place.sequence} * params.uniform_q + token);
  if (slot < 0 || slot >= fresh.num_slots) return nullptr;
  const int64_t page = slot >> params.page_shift;
  return (is_key ? fresh.k_cache : fresh.v_cache) +
         ((page * params.kv_heads + place.kv_head) * params.page_size +
          (slot & (params.page_size - 1))) *
             C;
}

// Reads the place's query rows into `tile`, and behind them the keys, then the values of new
// tokens, in the cache's type. An fp8 row has eight numbers in each 16-byte piece, followed by
// zeros. Rows that are left in the last kTileRows of the queries become zero.
template <typename Params, int C>
__device__ __forceinline__ void load_rows(const Params& params, const Place& place,
                                          const float2* angles, uint8_t* tile) {
  using T = typename Params::Element;
  using Kv = typename Params::Kv;
  constexpr int kPieces = C / 8;
  constexpr int kLanes = C <= 64 ? 8 : C <= 128 ? 16 : 32;
  const auto& fresh = params.fresh;
  const RopeShape shape{C, kLanes, fresh.q_norm != nullptr, fresh.eps, fresh.norm_offset};
  const int piece = static_cast<int>(threadIdx.x) % kLanes;
  const int num_rows = place.rows + 2 * place.fresh;
  const int num_written = max(num_rows, (place.rows + kTileRows - 1) / kTileRows * kTileRows);
  // All lanes of a warp run every iteration, because rope_head exchanges values between lanes.
  for (int first = 0; first < num_written; first += kThreads / kLanes) {
    const int number = first + static_cast<int>(threadIdx.x) / kLanes;
    const bool used = number < num_rows && piece < kPieces;
    const TileRow<T> row = used ? find_row<Params, C>(params, place, angles, number) : TileRow<T>{};
    uint4 x = used ? *reinterpret_cast<const uint4*>(row.in + piece * 8) : uint4{};
    // The row's slot is read while x is on its way.
    Kv* const cached = used ? find_cached<Params, C>(params, place, number) : nullptr;
    if (fresh.count > 0) x = rope_head<T>(x, shape, row.norm, row.angles);
    if (number >= num_written || piece >= kPieces) continue;
    const auto pack = std::bit_cast<Pack<T>>(x);
    if (kIsFp8<Kv> && used && number >= place.rows) {
      const uint2 narrow = to_fp8(pack);
      *reinterpret_cast<uint4*>(tile + tile_offset<C>(number, piece)) = {narrow.x, narrow.y, 0, 0};
    } else {
      store_query_piece<Kv, C>(tile, number, piece, x);
    }
    if (cached != nullptr) store_kv(cached + piece * 8, pack);
  }
}

// query_pair_address() returns the address of a lane's row for ldmatrix, for elements [0, 32) of 8
// query rows, the operands of two steps of products. pair_address() leads from there to elements
// [32 * pair, 32 * pair + 32).
template <int C>
__device__ __forceinline__ uint32_t query_pair_address(uint32_t tile, int lane) {
  return tile + tile_offset<C>(lane % 8, lane / 8);
}
template <int C>
__device__ __forceinline__ uint32_t pair_address(uint32_t first, int pair) {
  if constexpr (C == 96) return first + pair * 64;
  return first ^ static_cast<uint32_t>(pair * 64);
}

// Copies the keys and values of new tokens from the block's rows into a warp's tile of keys, whose
// first key is `first_key`.
template <typename Kv, int C>
__device__ __forceinline__ void add_fresh(const Place& place, const uint8_t* rows, uint8_t* k_tile,
                                          int first_key) {
  using Tile = KeyTile<Kv, C>;
  const int lane = threadIdx.x % kWarpSize;
  const auto row_piece = [&](int row, int piece) {
    if constexpr (kIsFp8<Kv>) {
      const uint8_t* first = rows + tile_offset<C>(row, 2 * piece);
      const uint8_t* second = rows + tile_offset<C>(row, 2 * piece + 1);
      const uint2 low = *reinterpret_cast<const uint2*>(first);
      const uint2 high = *reinterpret_cast<const uint2*>(second);
      return make_uint4(low.x, low.y, high.x, high.y);
    } else {
      return *reinterpret_cast<const uint4*>(rows + tile_offset<C>(row, piece));
    }
  };
  for (int i = lane; i < kTileKeys * Tile::kPieces; i += kWarpSize) {
    const int key = i / Tile::kPieces;
    const int piece = i % Tile::kPieces;
    const int token = first_key + key - place.cached;
    if (token < 0 || token >= place.fresh) continue;
    uint8_t* to = k_tile + tile_offset<Tile::kWidth>(key, piece);
    const int from = place.rows + token;
    *reinterpret_cast<uint4*>(to) = row_piece(from, piece);
    *reinterpret_cast<uint4*>(to + Tile::kBytes) = row_piece(from + place.fresh, piece);
  }
  __syncwarp();
}

}  // namespace encore::cuda::decode
