// Attention with tensor cores for runs of new tokens: mixed steps, and uniform steps of many
// tokens, of more sequences than varlen.cu takes.
//
// A block takes 128 query rows of one sequence and kv head (a row is a token and one of the group's
// heads, so the whole group shares the reads) and walks the keys in tiles of 64 from position 0.
// Where tiles begin never depends on the queries, and a tile of which a row sees nothing leaves
// that row's result as it is, so a row's bits depend on its own sequence and position alone.
#include "backend/cuda/attention/attention.h"
#include "backend/cuda/attention/tile.cuh"

namespace encore::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kWarpRows = 32;              // two fragments of 16
constexpr int kRows = kWarps * kWarpRows;  // query rows of a block
constexpr int kKeys = 64;                  // keys of a tile
constexpr int kStages = 2;

// Bytes of shared memory: the queries, then per stage K and V.
template <typename Kv, int C>
struct SharedParts {
  static constexpr int kWidth = C * sizeof(Kv) / 2;  // of a key, in units of tile_offset()
  static constexpr int kTile = kKeys * kWidth * 2;
  static constexpr int kStagesAt = kRows * C * 2;
  static constexpr int kBytes = kStagesAt + kStages * 2 * kTile;
};

// The part of the work that one block does.
struct Place {
  int sequence = 0;
  int kv_head = 0;
  int64_t first_token = 0;  // row of q of the sequence's first new token
  int first_row = 0;        // rows count token * group + head
  int num_rows = 0;         // of the sequence, from first_row on; may exceed kRows
  int first_position = 0;   // of the sequence's first new token
  int kv_len = 0;
  int first_seen = 0;  // key that some row of the block sees
};

template <typename Params>
__device__ __forceinline__ Place find_place(const Params& params) {
  Place place;
  place.sequence = blockIdx.z;
  place.kv_head = blockIdx.y;
  const int b = place.sequence;
  const int q = params.uniform_q;
  const int64_t start = q > 0 ? int64_t{b} * q : params.query_starts[b];
  const int length = static_cast<int>(q > 0 ? min(int64_t{q}, params.num_tokens - start)
                                            : params.query_starts[b + 1] - start);
  place.first_token = start;
  // Later rows see more keys: they start first.
  place.first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  place.num_rows = length * params.group - place.first_row;
  place.kv_len = params.kv_len(b);
  place.first_position = place.kv_len - length;
  place.first_seen =
      max(0, place.first_position + place.first_row / params.group + 1 - params.window);
  return place;
}

// Elements from the start of q, or of the output, to a row of this block.
template <typename Params>
__device__ __forceinline__ int64_t row_offset(const Params& params, const Place& place, int row,
                                              int64_t stride) {
  const int token = (place.first_row + row) / params.group;
  const int head = place.kv_head * params.group + (place.first_row + row) % params.group;
  return (place.first_token + token) * stride + static_cast<int64_t>(head) * params.head_size;
}

template <typename Params, int C>
__device__ __forceinline__ void start_queries(const Params& params, const Place& place,
                                              uint8_t* tile) {
#pragma unroll 4
  for (int i = threadIdx.x; i < kRows * (C / 8); i += kThreads) {
    const int row = i / (C / 8);
    const int piece = i % (C / 8);
    const bool used = row < place.num_rows;
    const auto* q =
        params.q + row_offset(params, place, used ? row : 0, params.q_stride) + piece * 8;
    if constexpr (kIsFp8<typename Params::Kv>) {  // no copy permutes
      const uint4 x = used ? *reinterpret_cast<const uint4*>(q) : uint4{};
      store_query_piece<typename Params::Kv, C>(tile, row, piece, x);
    } else {
      copy_async(shared_address(tile) + tile_offset<C>(row, piece), q, used);
    }
  }
}

// Starts reading the keys and values from `first_key` on. Those that no row sees are zeros: their
// weight is zero, and so is the product.
template <typename Params, int C>
__device__ __forceinline__ void start_tile(const Params& params, const Place& place, int first_key,
                                           uint32_t k_tile) {
  using Parts = SharedParts<typename Params::Kv, C>;
  // Several neighbouring lanes read one key; a pass of the block reads 16 keys, 32 or all.
  constexpr int kPieces = Parts::kWidth / 8;
  constexpr int kPieceSize = C / kPieces;  // Units: elements
  constexpr int kLanes = kPieces % 8 == 0 ? 8 : kPieces % 4 == 0 ? 4 : 2;
  constexpr int kPassKeys = kThreads / kLanes;
  constexpr int kPasses = kKeys / kPassKeys;
  const int row = static_cast<int>(threadIdx.x) / kLanes;
  const int piece = static_cast<int>(threadIdx.x) % kLanes;
  const uint32_t to = k_tile + tile_offset<Parts::kWidth>(row, piece);
  const int32_t* table = params.page_table + place.sequence * params.table_stride;
  int pages[kPasses];
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int key = first_key + pass * kPassKeys + row;
    const bool seen = key >= place.first_seen && key < place.kv_len;
    pages[pass] = seen ? table[key >> params.page_shift] : 0;
  }
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int key = first_key + pass * kPassKeys + row;
    const bool valid = key >= place.first_seen && key < place.kv_len;
    const int64_t slot =
        (static_cast<int64_t>(pages[pass]) * params.kv_heads + place.kv_head) * params.page_size +
        (key & (params.page_size - 1));
    const int64_t from = slot * C + piece * kPieceSize;
#pragma unroll
    for (int i = 0; i < kPieces / kLanes; ++i) {
      const uint32_t at = to + pass * kPassKeys * Parts::kWidth * 2 + i * kLanes * 16;
      copy_async(at, params.k_cache + from + i * kLanes * kPieceSize, valid);
      copy_async(at + Parts::kTile, params.v_cache + from + i * kLanes * kPieceSize, valid);
    }
  }
}

// Second operands of 16 keys of a tile: 16 columns of keys, and of values. `lane_at` is where the
// lane finds its rows.
template <typename T, typename Kv, int C>
struct KvOperands {
  static constexpr int kWidth = SharedParts<Kv, C>::kWidth;
  static constexpr int kNext16 = 16 * kWidth * 2;
  using Weight = std::conditional_t<kIsFp8<Kv>, __half, T>;  // what values are multiplied in

  __device__ __forceinline__ static uint32_t keys_at(uint32_t tile, int lane) {
    return kIsFp8<Kv> ? value_address<kWidth>(tile, lane) : key_address<kWidth>(tile, lane);
  }
  __device__ __forceinline__ static uint32_t values_at(uint32_t tile, int lane) {
    return value_address<kWidth>(tile, lane);
  }
  __device__ __forceinline__ static void load_keys(uint32_t (&out)[4], uint32_t lane_at, int column,
                                                   int keys) {
    if constexpr (kIsFp8<Kv>) {
      load_fp8_keys<T>(out, piece_address<kWidth>(lane_at, column) + keys * kNext16);
    } else {
      load_matrices(out, step_address<kWidth>(lane_at, column) + keys * kNext16);
    }
  }
  __device__ __forceinline__ static void load_values(uint32_t (&out)[4], uint32_t lane_at,
                                                     int column, int keys) {
    if constexpr (kIsFp8<Kv>) {
      load_fp8_values(out, piece_address<kWidth>(lane_at, column) + keys * kNext16);
    } else {
      load_matrices_transposed(out, step_address<kWidth>(lane_at, column) + keys * kNext16);
    }
  }
};

// The running result of a warp's 32 rows. Of 16 columns, tile 2n of `values` has the first eight
// and tile 2n + 1 the others; with fp8, the even and the odd ones.
template <typename T, typename Kv, int C>
struct WarpState {
  using Operands = KvOperands<T, Kv, C>;
  using Weight = typename Operands::Weight;

  float values[2][C / 8][4] = {};
  RunningSoftmax softmax[2];

  // Adds the keys [first_key, first_key + 64). `last_key(row)` is the last that the warp's row
  // sees; `masked`: some row may not see all of them.
  template <typename Params, typename LastKey>
  __device__ __forceinline__ void attend(const Params& params, uint32_t queries_at, uint32_t k_tile,
                                         int first_key, bool masked, const LastKey& last_key) {
    // The order of the loops is what fits 255 registers at C = 128: look for spills after any
    // change.
    constexpr int kNextRows = 16 * C * 2;
    const int lane = threadIdx.x % kWarpSize;
    const uint32_t keys_at = Operands::keys_at(k_tile, lane);
    float scores[2][kKeys / 8][4] = {};
#pragma unroll 4
    for (int step = 0; step < C / 16; ++step) {
      uint32_t queries[2][4];
      load_matrices(queries[0], step_address<C>(queries_at, step));
      load_matrices(queries[1], step_address<C>(queries_at, step) + kNextRows);
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t keys[4];
        Operands::load_keys(keys, keys_at, step, n);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          multiply_add<T>(scores[m][2 * n], queries[m], keys[0], keys[1]);
          multiply_add<T>(scores[m][2 * n + 1], queries[m], keys[2], keys[3]);
        }
      }
    }
    uint32_t weights[2][kKeys / 16][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      if (params.softcap_in > 0.0F) {
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
          for (float& score : scores[m][n])
            score = capped(params, score);
        }
      }
      if (masked) {
        mask(scores[m], first_key, last_key(m * 16 + lane / 4), last_key(m * 16 + 8 + lane / 4),
             params.window);
      }
      float rescale[2];
      softmax[m].update(scores[m], rescale, params.scale_log2e);
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        to_operand<Weight>(weights[m][n], scores[m][2 * n], scores[m][2 * n + 1]);
      }
      // Once the maximum has settled there is nothing to do.
      if (__any_sync(0xffffffffU, rescale[0] != 1.0F || rescale[1] != 1.0F)) {
#pragma unroll
        for (int n = 0; n < C / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            values[m][n][i] *= rescale[i / 2];
        }
      }
    }
    const uint32_t values_at = Operands::values_at(k_tile + SharedParts<Kv, C>::kTile, lane);
#pragma unroll
    for (int n = 0; n < C / 16; ++n) {
#pragma unroll
      for (int k = 0; k < kKeys / 16; ++k) {
        uint32_t columns[4];
        Operands::load_values(columns, values_at, n, k);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          multiply_add<Weight>(values[m][2 * n], weights[m][k], columns[0], columns[1]);
          multiply_add<Weight>(values[m][2 * n + 1], weights[m][k], columns[2], columns[3]);
        }
      }
    }
  }

  // Writes the normalized rows to the warp's part of the query tile, which it alone has read; zeros
  // for a row that saw no key.
  template <typename Params>
  __device__ __forceinline__ void write(const Params& params, const Place& place, uint8_t* q_tile,
                                        int first_row) const {
    const int lane = threadIdx.x % kWarpSize;
    __syncwarp();  // every lane has read its queries
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = first_row + m * 16 + r * 8 + lane / 4;
        const int head = place.kv_head * params.group + (place.first_row + row) % params.group;
        const float sum = divisor(params, head, softmax[m].max[r], softmax[m].row_sum(r));
        const float inverse = sum > 0.0F ? 1.0F / sum : sum;
#pragma unroll
        for (int n = 0; n < C / 16; ++n) {
          const auto pair = [&](int tile, int i, int other_tile, int j) {
            return pack_pair<T>(values[m][2 * n + tile][2 * r + i] * inverse,
                                values[m][2 * n + other_tile][2 * r + j] * inverse);
          };
          if constexpr (kIsFp8<Kv>) {
            *reinterpret_cast<uint2*>(q_tile + tile_offset<C>(row, 2 * n + lane % 4 / 2) +
                                      lane % 2 * 8) = {pair(0, 0, 1, 0), pair(0, 1, 1, 1)};
          } else {
#pragma unroll
            for (int tile = 0; tile < 2; ++tile) {
              *reinterpret_cast<uint32_t*>(q_tile + tile_offset<C>(row, 2 * n + tile) +
                                           lane % 4 * 4) = pair(tile, 0, tile, 1);
            }
          }
        }
      }
    }
  }

 private:
  __device__ __forceinline__ static void mask(float (&scores)[kKeys / 8][4], int first_key,
                                              int last0, int last1, int window) {
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + n * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
        const int last = i < 2 ? last0 : last1;
        if (key > last || key <= last - window) scores[n][i] = kMinusInfinity;
      }
    }
  }
};

// Copies the warp's finished rows from shared memory to the output; zeros when there is no tile.
template <typename Params, int C>
__device__ __forceinline__ void store_rows(const Params& params, const Place& place,
                                           const uint8_t* tile, int first_row) {
  const int lane = threadIdx.x % kWarpSize;
#pragma unroll 4
  for (int i = lane; i < kWarpRows * (C / 8); i += kWarpSize) {
    const int row = first_row + i / (C / 8);
    const int piece = i % (C / 8);
    if (row >= place.num_rows) break;
    auto* out = params.out + row_offset(params, place, row, params.out_stride) + piece * 8;
    *reinterpret_cast<uint4*>(out) =
        tile == nullptr ? uint4{}
                        : *reinterpret_cast<const uint4*>(tile + tile_offset<C>(row, piece));
  }
}

// Grid: (128 rows of the longest run, the last first; kv heads; runs of query rows).
template <typename T, typename Kv, int C>
__global__ void __launch_bounds__(kThreads, 2)
    attention_prefill(const __grid_constant__ AttentionParams<T, Kv> params) {
  using Params = AttentionParams<T, Kv>;
  using Parts = SharedParts<Kv, C>;
  begin_kernel();
  extern __shared__ __align__(kTileAlignment) uint8_t shared[];
  const Place place = find_place(params);
  if (place.num_rows <= 0) return;
  const int first_row = static_cast<int>(threadIdx.x) / kWarpSize * kWarpRows;  // of this warp
  const auto position = [&](int row) {
    return place.first_position + (place.first_row + row) / params.group;
  };
  const int last_position = position(min(kRows, place.num_rows) - 1);
  if (last_position < 0) {  // no row sees a key
    if (params.uniform_q > 0 || place.kv_len > 0) {
      store_rows<Params, C>(params, place, nullptr, first_row);
    }
    return;
  }
  const uint32_t q_tile = shared_address(shared);
  const uint32_t stages = q_tile + Parts::kStagesAt;
  const auto stage = [&](int first_key) {
    return stages + first_key / kKeys % kStages * 2 * Parts::kTile;
  };
  const int first_tile = place.first_seen / kKeys * kKeys;
  start_tile<Params, C>(params, place, first_tile, stage(first_tile));
  start_queries<Params, C>(params, place, shared);
  commit_copies();

  WarpState<T, Kv, C> state;
  const int first_seen = position(first_row);
  const int last_seen =
      first_row < place.num_rows ? position(min(first_row + kWarpRows, place.num_rows) - 1) : -1;
  const uint32_t queries_at =
      query_address<C>(q_tile + first_row * C * 2, static_cast<int>(threadIdx.x) % kWarpSize);
  for (int first_key = first_tile; first_key <= last_position; first_key += kKeys) {
    wait_for_copies<0>();
    __syncthreads();  // this tile is there, and the one before has been used
    const int next_key = first_key + kKeys;
    if (next_key <= last_position) {
      start_tile<Params, C>(params, place, next_key, stage(next_key));
      commit_copies();
    }
    if (first_key <= last_seen) {
      const bool masked = next_key - 1 > first_seen || first_key <= last_seen - params.window;
      state.attend(params, queries_at, stage(first_key), first_key, masked,
                   [&](int row) { return position(first_row + row); });
    }
  }
  state.write(params, place, shared, first_row);
  __syncwarp();
  store_rows<Params, C>(params, place, shared, first_row);
}

bool accepts(const KernelArgs& args) {
  return !args.batch_invariant && accepts_tensor_cores(args, 128);
}

template <typename T, typename Kv, int C>
BoundLaunch bind_shape(const KernelArgs& args) {
  const auto kernel = attention_prefill<T, Kv, C>;
  allow_shared_memory(kernel, SharedParts<Kv, C>::kBytes);
  const AttentionShape shape = attention_shape(args);
  return [=, q = args.step.q, params = attention_params<T, Kv>(args)](Stream& stream,
                                                                      const StepLengths& lengths) {
    const int64_t tokens = q ? *q : lengths.max_query_len;
    const Grid grid{.blocks = dim3(static_cast<unsigned>(div_up(tokens * shape.group(), kRows)),
                                   static_cast<unsigned>(shape.kv_heads),
                                   static_cast<unsigned>(shape.num_runs(q))),
                    .threads = kThreads,
                    .shared_bytes = SharedParts<Kv, C>::kBytes};
    launch(stream, grid, kernel, params);
  };
}

BoundLaunch bind(Device&, const KernelArgs& args) {
  return visit_tensor_core_shape<128>(args, [&](auto element, auto kv, auto head_size) {
    return bind_shape<typename decltype(element)::type, typename decltype(kv)::type,
                      head_size.value>(args);
  });
}

}  // namespace

Kernel attention_prefill_kernel() {
  return {.op = "attention",
          .name = "attention.prefill",
          .accepts = accepts,
          .bind = bind,
          .optional = {"sinks"},
          .reads_lengths = follows_longest_run};
}

}  // namespace encore::cuda
