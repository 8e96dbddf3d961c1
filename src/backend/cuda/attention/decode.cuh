// One block's work of decode attention (decode.cu has the launch).
//
// A block takes its share of the batch's chunks (work.cuh), one after the other; all
// query rows that use a kv head (tokens x heads of the group) share its reads. Where a step has few
// kv heads, several blocks take a share together, each its part of every step's keys, and the first
// of them brings their results together. Each of a block's four warps streams its own tiles of 16
// keys through a private ring in shared memory (stream.cuh), across the chunks, groups
// and sequences of the share, so warps meet only where a chunk ends, and nothing ends the stream of
// reads before the share does. What rows it has in front of it: rows.cuh; how results
// become one: fold.cuh.
//
// Reading ahead. A launch may start while those before it in its step still run, and this one reads
// the lengths, the page table and the K and V of older tokens before it waits for them: none of the
// step's launches writes these before it. Step inputs are copied, or advanced by the step before,
// in front of the step's first launch, and older K and V were written by earlier steps. That both
// are complete and visible follows by induction over the launches of the step: the first one lets
// the next start only when it has waited for all before it (rows.cu), the copy and the step before;
// each later launch starts after the one before it has started, by the order of programmatic edges.
// (What such an edge does not give is that the launch before has done anything: hence the wait
// before q, this step's own K and V, scratch and the output are touched.) Reads of what a copy
// wrote go past the L1 cache, which only the start of a launch clears. What would break this: a
// kernel that writes step inputs, or K and V of tokens that are not new, in front of an overlapping
// launch. Whoever adds one launches the next without overlap (Grid::overlap).
//
// Every block that has work waits, so a launch ends only after those before it.
#pragma once

#include "backend/cuda/attention/fold.cuh"
#include "backend/cuda/attention/rows.cuh"
#include "backend/cuda/attention/stream.cuh"

namespace encore::cuda::decode {

// The number of blocks of some row tiles that a multiprocessor has at once, where shared memory
// allows, and the number of tiles of keys that each of their warps has under way. More blocks hide
// latencies of arithmetic, too; registers limit them. As measured for KV of 16 bits; fp8 has as
// many bytes under way.
struct Residency {
  int blocks = 1;
  int stages = 2;
};
constexpr Residency residency(int head_size, int row_tiles, int kv_bytes) {
  if (kv_bytes == 1) {  // more arithmetic a byte, in fewer registers
    if (row_tiles == 1 && head_size == 128) return {3, 3};
    const Residency of_16_bits = residency(head_size, row_tiles, 2);
    return {of_16_bits.blocks, 2 * of_16_bits.stages};
  }
  if (head_size == 256) return row_tiles == 1 ? Residency{2, 1} : Residency{1, 2};
  if (row_tiles == 1 && head_size == 64) return {4, 2};
  if (row_tiles == 1 && head_size == 96) return {3, 2};
  if (row_tiles == 2 && head_size == 64) return {3, 2};
  return {2, 2};
}

// A block's dynamic shared memory: the warps' rings; a tile of the block's queries and of new
// tokens' keys and values; the exchange, which holds the angles of a kv head while its rows are
// turned. Units: bytes.
constexpr int ring_bytes(int head_size, int kv_bytes, int stages) {
  return stages * 2 * kTileKeys * head_size * kv_bytes;  // K and V
}
constexpr int64_t shared_bytes(int head_size, int ring_bytes, const DecodePlan& plan) {
  return kWarps * ring_bytes + plan.tile_rows * head_size * 2 +
         exchange_floats(head_size, plan.rows_per_block, plan.ranks) * int64_t{sizeof(float)};
}

// Two floats of one 8 x 8 matrix a thread become those of its transpose, rounded.
template <typename T>
__device__ __forceinline__ uint32_t transposed_pair(float low, float high) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
               : "=r"(result)
               : "r"(pack_pair<T>(low, high)));
  return result;
}

// First operands of a tile of 16 keys: two steps of products, which take 32 columns of keys or give
// as many of values. `lane_at`: of keys_at() or values_at().
template <typename T, typename Kv, int C>
struct TileOperands {
  static constexpr int kWidth = KeyTile<Kv, C>::kWidth;
  using Weight = std::conditional_t<kIsFp8<Kv>, __half, T>;  // what values are multiplied in

  __device__ __forceinline__ static uint32_t keys_at(uint32_t tile, int lane) {
    return query_address<kWidth>(tile, lane);
  }
  __device__ __forceinline__ static uint32_t values_at(uint32_t tile, int lane) {
    return kIsFp8<Kv> ? query_address<kWidth>(tile, lane) : key_address<kWidth>(tile, lane);
  }
  __device__ __forceinline__ static void load_keys(uint32_t (&out)[2][4], uint32_t lane_at,
                                                   int pair) {
    if constexpr (kIsFp8<Kv>) {
      uint32_t fours[4];
      load_matrices(fours, step_address<kWidth>(lane_at, pair));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        widen<T>(fours[i], out[i / 2][i % 2], out[i / 2][2 + i % 2]);
    } else {
      load_matrices(out[0], step_address<kWidth>(lane_at, 2 * pair));
      load_matrices(out[1], step_address<kWidth>(lane_at, 2 * pair + 1));
    }
  }
  __device__ __forceinline__ static void load_values(uint32_t (&out)[2][4], uint32_t lane_at,
                                                     int pair) {
    if constexpr (kIsFp8<Kv>) {
      uint32_t fours[4];
      load_matrices_transposed(fours, step_address<kWidth>(lane_at, pair));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        widen_columns(fours[i], out[i / 2][i % 2 * 2], out[i / 2][i % 2 * 2 + 1]);
    } else {
      load_matrices_transposed(out[0], step_address<kWidth>(lane_at, 2 * pair));
      load_matrices_transposed(out[1], step_address<kWidth>(lane_at, 2 * pair + 1));
    }
  }
};

// The state that one warp holds for a tile of rows: the running result over its keys of one chunk.
//
// Products are transposed, so that rows are the narrow side of mma.m16n8k16: scores are keys x
// rows, values columns x rows. With g = lane / 4 and t = lane % 4, a thread holds rows 2t and 2t +
// 1: of keys, or columns, g in [0] and [1], g + 8 in [2] and [3]; with fp8, of columns, 2g and 2g +
// 1.
template <typename Params, int C>
struct RowTile {
  using Kv = typename Params::Kv;
  using Weight = typename TileOperands<typename Params::Element, Kv, C>::Weight;

  float values[C / 16][4];
  float max[2];
  float offset[2];  // of scaled scores, so that the largest weight is 1
  float sum[2];     // of this thread's keys
  int last_key[2];  // that the row sees

  __device__ __forceinline__ void begin_head(const Params& params, const Place& place, int tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = place.first_row + tile * kTileRows + threadIdx.x % 4 * 2 + i;
      last_key[i] = place.kv_len - params.uniform_q + params.token_of(row);
    }
  }
  __device__ __forceinline__ void begin_chunk() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      max[i] = kMinusInfinity;
      offset[i] = 0.0F;
      sum[i] = 0.0F;
    }
#pragma unroll
    for (int n = 0; n < C / 16; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[n][i] = 0.0F;
    }
  }

  // Turns scores of 16 keys into weights, the second operand of the product with V.
  __device__ __forceinline__ void weigh(float (&scores)[4], float scale, uint32_t (&weights)[2]) {
    const float largest[2] = {fmaxf(scores[0], scores[2]), fmaxf(scores[1], scores[3])};
    // This is seldom so once the maxima have settled.
    if (__any_sync(0xffffffffU, largest[0] > max[0] || largest[1] > max[1])) raise(largest, scale);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scores[i] = exp2_fast(__fmaf_rn(scores[i], scale, -offset[i]));
      scores[2 + i] = exp2_fast(__fmaf_rn(scores[2 + i], scale, -offset[i]));
      sum[i] += scores[i] + scores[2 + i];
    }
    weights[0] = transposed_pair<Weight>(scores[0], scores[1]);
    weights[1] = transposed_pair<Weight>(scores[2], scores[3]);
  }

  // The maxima of the rows become at least what some thread has, and what was summed is rescaled.
  __device__ __forceinline__ void raise(const float (&some)[2], float scale) {
    float rescale[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float largest = fmaxf(max[i], some[i]);
#pragma unroll
      for (int distance = 4; distance < kWarpSize; distance *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, distance));
      const float reference = finite_max(largest);
      rescale[i] = exp2_fast((max[i] - reference) * scale);
      max[i] = largest;
      offset[i] = reference * scale;
      sum[i] *= rescale[i];
    }
#pragma unroll
    for (int n = 0; n < C / 16; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        values[n][i] *= rescale[i % 2];
    }
  }

  // Hides the keys that a row does not see, of those from `first_key` on.
  __device__ __forceinline__ void mask(float (&scores)[4], int first_key, int window) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = first_key + static_cast<int>(threadIdx.x) % kWarpSize / 4 + i / 2 * 8;
      if (key > last_key[i % 2] || key <= last_key[i % 2] - window) scores[i] = kMinusInfinity;
    }
  }

  // The warp's part of a chunk, for the first `rows` rows of the tile.
  __device__ __forceinline__ void write(const Exchange<C>& exchange, int rows) const {
    const int warp = threadIdx.x / kWarpSize;
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float total = sum[i];
#pragma unroll
      for (int distance = 4; distance < kWarpSize; distance *= 2)
        total += __shfl_xor_sync(0xffffffffU, total, distance);
      const int row = lane % 4 * 2 + i;
      if (row >= rows) continue;
      if (lane < 4) exchange.softmaxes[warp * exchange.tile_rows + row] = {max[i], total};
      float* out = exchange.values + (warp * exchange.tile_rows + row) * Exchange<C>::kStride;
#pragma unroll
      for (int n = 0; n < C / 16; ++n) {
        const int column = n * 16 + lane / 4 * (kIsFp8<Kv> ? 2 : 1);
        out[column] = values[n][i];
        out[column + (kIsFp8<Kv> ? 1 : 8)] = values[n][2 + i];
      }
    }
  }
};

// The state that one warp holds for all rows of the block, in `kTiles` tiles.
template <typename Params, int C, int kTiles>
struct WarpState {
  using T = typename Params::Element;
  using Operands = TileOperands<T, typename Params::Kv, C>;
  using Weight = typename Operands::Weight;

  RowTile<Params, C> tiles[kTiles];

  __device__ __forceinline__ void begin_head(const Params& params, const Place& place) {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
      tiles[m].begin_head(params, place, m);
  }
  __device__ __forceinline__ void begin_chunk() {
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
      tiles[m].begin_chunk();
  }

  // Adds the tile of keys that starts at `first_key`. `masked`: some row may not see all of them.
  // `queries_at`: of query_pair_address().
  __device__ __forceinline__ void attend(const Params& params, uint32_t queries_at, uint32_t k_tile,
                                         int first_key, bool masked) {
    constexpr int kNextRows = kTileRows * C * 2;
    const int lane = threadIdx.x % kWarpSize;
    const uint32_t keys_at = Operands::keys_at(k_tile, lane);
    float scores[kTiles][4] = {};
#pragma unroll
    for (int pair = 0; pair < C / 32; ++pair) {
      uint32_t keys[2][4];
      Operands::load_keys(keys, keys_at, pair);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        uint32_t queries[4];
        load_matrices(queries, pair_address<C>(queries_at, pair) + m * kNextRows);
        multiply_add<T>(scores[m], keys[0], queries[0], queries[1]);
        multiply_add<T>(scores[m], keys[1], queries[2], queries[3]);
      }
    }
    uint32_t weights[kTiles][2];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      if (params.softcap_in > 0.0F) {
#pragma unroll
        for (float& score : scores[m])
          score = capped(params, score);
      }
      if (masked) tiles[m].mask(scores[m], first_key, params.window);
      tiles[m].weigh(scores[m], params.scale_log2e, weights[m]);
    }
    const uint32_t values_at =
        Operands::values_at(k_tile + KeyTile<typename Params::Kv, C>::kBytes, lane);
#pragma unroll
    for (int pair = 0; pair < C / 32; ++pair) {
      uint32_t columns[2][4];
      Operands::load_values(columns, values_at, pair);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          multiply_add<Weight>(tiles[m].values[2 * pair + i], columns[i], weights[m][0],
                               weights[m][1]);
        }
      }
    }
  }
};

// How the blocks of a worker, a cluster, bring what they have of a chunk together.
//
// The blocks of a cluster send what they have of a chunk into the first one's shared memory, where
// a barrier counts the bytes; so nothing of it goes through memory, and no fence is needed, which
// would wait for all copies that a multiprocessor has under way.
//
// Between two gatherings nothing holds the blocks together, and one may be far ahead of another. A
// wait tells a phase from the next by its parity alone, so no barrier may end two phases while a
// thread waits for the first: the first block tells others that they may send only where it then
// waits for what they send, and a thread that sends nothing does not wait.
class ClusterGather {
 public:
  // Sets up the barriers, before the first chunk. All threads of all blocks of a worker call it.
  template <int C>
  __device__ __forceinline__ void begin(const Exchange<C>& exchange, const Worker& worker) const {
    if (threadIdx.x == 0) {
      const uint32_t full = barrier_of(exchange, worker);
      init_barrier(full, 1);
      init_barrier(free_behind(full), 1);
      publish_barriers();
    }
    arrive_at_cluster();
    wait_for_cluster();  // others' barriers can be used
  }
  // Brings the parts of all blocks together in the first block's exchange. It comes behind a
  // barrier after the block's own parts were written. All threads of all blocks call it.
  template <int C>
  __device__ __forceinline__ void gather(const Exchange<C>& exchange, const Worker& worker,
                                         const Gathering& parts, float scale) {
    if (parts.active == 1) return;  // the first block has them
    const int before = num_gathered_++;
    const uint32_t full = barrier_of(exchange, worker);
    const uint32_t free = free_behind(full);
    if (worker.leads()) {
      if (threadIdx.x == 0) {
        // The parts of the gathering before have been read, so the others may send again.
        for (int rank = 1; before > 0 && rank < parts.active; ++rank)
          arrive_remote(address_at(free, static_cast<uint32_t>(rank)));
        const int bytes = (parts.active - 1) * parts.rows * (C + 2) * 4;
        arrive_expecting(full, static_cast<uint32_t>(bytes));
      }
      wait_for_phase_of_cluster(full, before & 1);
      return;
    }
    if (worker.rank >= parts.active) return;
    const int waits_before = num_waits_;
    if (before > 0) ++num_waits_;
    if (static_cast<int>(threadIdx.x) >= parts.rows * (C / 4)) return;  // has nothing to send
    if (before > 0) wait_for_phase_of_cluster(free, waits_before & 1);
    const int first_row = exchange.first_row_of(worker.rank);
    const uint32_t arrived = address_at(full, 0);
    const auto in_first = [](const void* shared) { return address_at(shared_address(shared), 0); };
    for_each_four<C>(parts.rows, [&](int row, int column) {
      const int to = first_row + row;
      float2 softmax;
      const float4 value = exchange.read(row, column, scale, kWarps, softmax);
      send(in_first(exchange.values + to * Exchange<C>::kStride + column), value, arrived);
      if (column == 0) send(in_first(exchange.softmaxes + to), softmax, arrived);
    });
  }

 private:
  // Two barriers behind the exchange's parts: the other blocks' have come; the next may be sent.
  template <int C>
  static __device__ __forceinline__ uint32_t barrier_of(const Exchange<C>& exchange,
                                                        const Worker& worker) {
    return shared_address(exchange.softmaxes + exchange.first_row_of(worker.ranks));
  }
  static __device__ __forceinline__ uint32_t free_behind(uint32_t full) { return full + 8; }

  int num_gathered_ = 0;  // from several blocks
  int num_waits_ = 0;     // until this block might send
};

// Does this block of its worker have any key of the place?
__device__ __forceinline__ bool has_keys(const Place& place, const Walk& walk,
                                         const Worker& worker) {
  return place.first_chunk * walk.chunks.length + worker.rank * kBlockKeys < place.kv_len;
}

// The share of one worker. Shapes: `shared` has shared_bytes(), aligned to kTileAlignment; kTiles
// tiles hold rows_per_block rows, and a warp has kStages tiles of keys under way; kAsksFirst: of
// TileStream. The first kThreads threads of a block call this.
template <typename Params, int C, int kTiles, int kStages, bool kAsksFirst>
__device__ __forceinline__ void attend_share(const Params& params, const DecodePlan& plan,
                                             const Worker& worker, uint8_t* shared) {
  using Kv = typename Params::Kv;
  constexpr int kRingBytes = ring_bytes(C, sizeof(Kv), kStages);
  const int warp = threadIdx.x / kWarpSize;
  const Share share = find_share(params, plan, worker);
  uint8_t* ring = shared + warp * kRingBytes;
  TileStream<Params, C, kStages, kAsksFirst> stream(params, plan, share.first, worker.rank,
                                                    shared_address(ring));
  uint8_t* rows = shared + kWarps * kRingBytes;
  uint8_t* exchange_at = rows + plan.tile_rows * C * 2;
  const Exchange<C> exchange(exchange_at, plan.rows_per_block, worker.ranks);
  ClusterGather cluster;
  if (worker.ranks > 1) cluster.begin(exchange, worker);
  auto* angles = reinterpret_cast<float2*>(exchange_at);
  const uint32_t queries_at =
      query_pair_address<C>(shared_address(rows), static_cast<int>(threadIdx.x) % kWarpSize);
  WarpState<Params, C, kTiles> state;

  for (Walk walk = share.first; !walk.done(); walk.next_head(params, plan)) {
    Place place = find_place(params, plan, worker, walk);
    const int num_taken = place.last_chunk - place.first_chunk;
    const bool is_alone = num_taken == place.num_chunks;
    if (!is_alone) place.slot = find_slot(params, plan, worker, share, walk);
    if (has_keys(place, walk, worker)) {
      __syncthreads();  // the exchange of the kv head before has been read
      find_angles<Params, C>(params, place.sequence, angles);
      wait_for_inputs();
      __syncthreads();
      load_rows<Params, C>(params, place, angles, rows);
      state.begin_head(params, place);
      __syncthreads();
    }
    for (int chunk = place.first_chunk; chunk < place.last_chunk; ++chunk) {
      state.begin_chunk();
      const int begin = chunk * walk.chunks.length;
      const int end = min(begin + walk.chunks.length, place.kv_len);
      for (int step = begin; step < end; step += plan.cutting.step_keys()) {
        const int key = step + worker.rank * kBlockKeys + warp * kTileKeys;
        const uint32_t tile = stream.wait();
        if (key < end) {
          if (place.fresh > 0 && key + kTileKeys > place.cached) {
            add_fresh<Kv, C>(place, rows, ring + (tile - shared_address(ring)), key);
          }
          const bool masked = key + kTileKeys > place.kv_len - params.uniform_q + 1 ||
                              key < place.kv_len - params.window;
          state.attend(params, queries_at, tile, key, masked);
        }
        stream.release();
      }
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        if (m * kTileRows >= place.rows) break;
        __syncthreads();  // what was exchanged before has been read
        state.tiles[m].write(exchange, place.rows - m * kTileRows);
        __syncthreads();
        ChunkTile chunk_tile{.chunk = chunk, .tile = m};
        if (worker.ranks > 1) {
          const int active = min(worker.ranks, (end - begin + kBlockKeys - 1) / kBlockKeys);
          const int rows_of_tile = min(place.rows - m * kTileRows, kTileRows);
          const int head = place.sequence * params.kv_heads + place.kv_head;
          const Gathering gathering{active, rows_of_tile, head * plan.max_chunks + chunk};
          cluster.gather(exchange, worker, gathering, params.scale_log2e);
          chunk_tile.parts += active - 1;
        }
        if (!worker.leads()) continue;
        if (is_alone) {
          add_chunk<Params, C>(params, place, exchange, chunk_tile);
        } else {
          publish_chunk<C>(plan, place, exchange, chunk_tile, params.scale_log2e);
        }
      }
    }
    if (!is_alone && worker.leads() &&
        arrive(plan.counters + place.slot, num_taken, place.num_chunks)) {
      fold_chunks<Params, C>(params, plan, place);
    }
  }
  // A worker with nothing to do goes at once, to make room; the others see to it that the launch
  // does not end before those before it.
  if (share.total > 0 && !share.some_empty && plan.num_runs <= params.num_sequences) return;
  wait_for_inputs();
  store_zeros<Params, C>(params, plan, worker);
}

}  // namespace encore::cuda::decode
