// The tile of rows that a block of decode attention has of a kv head: queries, and keys and values
// of new tokens.
//
// New tokens (fused_attention). A block turns the queries it uses. Where it has a chunk with keys
// of new tokens, it turns those, too, and puts them, and their values, into the tile that has their
// place: they never come from the cache. The block with a kv head's last chunk writes them there.
//
// Reading ahead. While a block streams keys, a load waits behind all that are under way. So rows,
// and their tokens' positions and slots, are asked for one kv head before their use, where shared
// memory has room for them (DecodePlan::reads_ahead). The first head's are read after the wait, its
// angles found before.
#pragma once

#include "backend/cuda/attention_work.cuh"
#include "backend/cuda/turn.cuh"

namespace encore::cuda::decode {

// A row of a block's tile, where it comes from and what becomes of it.
template <typename T>
struct TileRow {
  const T* in = nullptr;
  const T* norm = nullptr;
  const float2* angles = nullptr;  // null: not turned
  T* cache = nullptr;              // null: not written there
  int token = 0;                   // of the sequence's new ones
};

template <typename T, int C>
__device__ __forceinline__ TileRow<T> find_row(const AttentionParams<T>& params, const Place& place,
                                               const float2* angles, int row) {
  const NewTokens<T>& fresh = params.fresh;
  TileRow<T> result;
  if (row < place.rows) {
    result.in = params.q + row_offset(params, place, row, params.q_stride);
    result.norm = fresh.q_norm;
    result.token = (place.first_row + row) / params.group;
    if (fresh.count > 0) result.angles = angles + result.token * (C / 2);
    return result;
  }
  const bool is_key = row < place.rows + place.fresh;
  result.token = row - place.rows - (is_key ? 0 : place.fresh);
  const int64_t of_step = int64_t{place.sequence} * params.uniform_q + result.token;
  result.in = (is_key ? fresh.k + of_step * fresh.k_stride : fresh.v + of_step * fresh.v_stride) +
              place.kv_head * C;
  if (is_key) {
    result.norm = fresh.k_norm;
    result.angles = angles + result.token * (C / 2);
  }
  if (place.writes_fresh) result.cache = is_key ? fresh.k_cache : fresh.v_cache;
  return result;
}

// What HeadRows has of a block's shared memory: the tile; as many rows under way, where they are
// read ahead; angles; a barrier. Units: bytes.
constexpr int64_t row_bytes(int head_size, int tile_rows, bool reads_ahead, int num_fresh) {
  return int64_t{tile_rows} * head_size * 2 * (reads_ahead ? 2 : 1) +
         int64_t{num_fresh} * head_size / 2 * int64_t{sizeof(float2)} + int64_t{sizeof(uint4)};
}

// The rows of the kv heads of a block's share, one after the other. All kThreads threads call each
// function at once.
template <typename T, int C>
class HeadRows {
 public:
  // Asks for what the first head's angles are made of. Shapes: `memory` has row_bytes(), aligned to
  // kTileAlignment.
  __device__ __forceinline__ HeadRows(const AttentionParams<T>& params, const DecodePlan& plan,
                                      int sequence, uint8_t* memory)
      : params_(params), plan_(plan), memory_(memory), sequence_(sequence) {
    if (threadIdx.x == 0) init_barrier(arrived(), kThreads);
    ask_for_token(sequence);
  }
  // Before the first turn().
  __device__ __forceinline__ void begin() {
    find_angles(sequence_);
    __syncthreads();
  }

  // Query rows; behind them keys, then values of new tokens; what is left of the last kTileRows is
  // zero.
  [[nodiscard]] __device__ __forceinline__ uint8_t* tile() const { return memory_; }

  // Asks for the rows of the next head.
  __device__ __forceinline__ void ask_for(const Place& place) {
    if (place.sequence != sequence_) ask_for_token(place.sequence);
    ++num_asked_;
    if (!plan_.reads_ahead) return;
    const int piece = static_cast<int>(threadIdx.x) % kLanes;
    const uint32_t to = shared_address(ahead()) + piece * 16;
#pragma unroll 1
    for (int row = threadIdx.x / kLanes; row < num_rows(place) && piece < kPieces;
         row += kRowsAtOnce) {
      copy_async(to + row * C * 2, find_row<T, C>(params_, place, angles(), row).in + piece * 8,
                 true);
    }
    arrive_when_copied(arrived());
  }

  // Fills the tile with the rows of a head, the first or the one asked for, and writes new tokens
  // to the caches where the place does. Before it, no thread still reads the tile; after it, all
  // may. `wait`: returns when what the launches before wrote can be read.
  template <typename Wait>
  __device__ __forceinline__ void turn(const Place& place, const Wait& wait) {
    const int num_used = num_rows(place);
    const int num_written = max(num_used, (place.rows + kTileRows - 1) / kTileRows * kTileRows);
    // The first head's rows, where they take several rounds: all are under way at once.
    if (num_asked_ == 0 && num_used > kRowsAtOnce) {
      wait();
      ask_for(place);
    }
    const bool are_here = plan_.reads_ahead && num_asked_ > 0;
    if (are_here) wait_for_phase(arrived(), (num_asked_ - 1) % 2);
    if (place.sequence != sequence_) {
      find_angles(place.sequence);
      __syncthreads();
    }
    const NewTokens<T>& fresh = params_.fresh;
    const TurnShape shape{C, kLanes, fresh.q_norm != nullptr, fresh.eps};
    const int piece = static_cast<int>(threadIdx.x) % kLanes;
    // Whole warps stay in step for the exchanges.
    for (int first = 0; first < num_written; first += kRowsAtOnce) {
      const int number = first + static_cast<int>(threadIdx.x) / kLanes;
      const bool used = number < num_used && piece < kPieces;
      const TileRow<T> row = used ? find_row<T, C>(params_, place, angles(), number) : TileRow<T>{};
      wait();
      uint4 x = {};
      if (used) {
        const void* from = are_here ? static_cast<const void*>(ahead() + number * C * 2) : row.in;
        x = static_cast<const uint4*>(from)[piece];
      }
      if (fresh.count > 0) {
        x = turn_head<T>(x, shape, row.norm, row.angles);
        write_to_cache(place, row, __shfl_sync(0xffffffffU, token_.slot, row.token), piece, x);
      }
      if (number < num_written && piece < kPieces)
        *reinterpret_cast<uint4*>(memory_ + tile_offset<C>(number, piece)) = x;
    }
    __syncthreads();
  }

 private:
  static constexpr int kPieces = C / 8;  // 16 bytes each, of one row
  static constexpr int kLanes = C <= 64 ? 8 : C <= 128 ? 16 : 32;
  static constexpr int kRowsAtOnce = kThreads / kLanes;

  [[nodiscard]] __device__ static int num_rows(const Place& place) {
    return place.rows + 2 * place.fresh;
  }

  // Rows as they come, asked for.
  __device__ __forceinline__ uint8_t* ahead() const {
    return memory_ + plan_.tile_rows * C * 2;
  }
  // [count][C/2]
  __device__ __forceinline__ float2* angles() const {
    return reinterpret_cast<float2*>(memory_ + plan_.tile_rows * C * (plan_.reads_ahead ? 4 : 2));
  }
  // A barrier: a phase for each head's rows.
  __device__ __forceinline__ uint32_t arrived() const {
    return shared_address(angles() + params_.fresh.count * (C / 2));
  }

  struct Token {
    int position = 0;
    int slot = -1;  // of the caches
  };

  __device__ __forceinline__ void ask_for_token(int sequence) {
    const NewTokens<T>& fresh = params_.fresh;
    const int lane = threadIdx.x % kWarpSize;
    if (lane >= fresh.count) return;
    const int64_t of_step = int64_t{sequence} * fresh.count + lane;
    token_ = {__ldcg(fresh.positions + of_step), __ldcg(fresh.slots + of_step)};
  }
  // Cosine and sine, of the tokens asked for last.
  __device__ __forceinline__ void find_angles(int sequence) {
    sequence_ = sequence;
    const int count = params_.fresh.count * (C / 2);
    for (int first = 0; first < count; first += kThreads) {
      const int i = first + static_cast<int>(threadIdx.x);
      // Asked for before the position is waited for.
      const float inv_freq = i < count ? params_.fresh.inv_freq[i % (C / 2)] : 0.0F;
      const int position = __shfl_sync(0xffffffffU, token_.position, i / (C / 2) % kWarpSize);
      if (i < count) angles()[i] = find_angle(position, inv_freq);
    }
  }
  __device__ __forceinline__ void write_to_cache(const Place& place, const TileRow<T>& row,
                                                 int slot, int piece, uint4 x) const {
    if (row.cache == nullptr || slot < 0 || slot >= params_.fresh.num_slots) return;
    const int64_t page = slot >> params_.page_shift;
    const int64_t head = page * params_.kv_heads + place.kv_head;
    const int64_t first = (head * params_.page_size + (slot & (params_.page_size - 1))) * C;
    reinterpret_cast<uint4*>(row.cache + first)[piece] = x;
  }

  const AttentionParams<T>& params_;
  const DecodePlan& plan_;
  uint8_t* memory_;
  int num_asked_ = 0;  // heads
  int sequence_;       // of the angles
  Token token_;        // lane's, of the sequence asked for last
};

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
