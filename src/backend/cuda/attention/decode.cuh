// The work of one block of decode attention (decode.cu has the launch).
//
// A block takes its share of the batch's chunks (work.cuh), one after the other. All query rows
// that use a kv head (tokens x heads of the group) share the reads of its keys. Where a step has
// few kv heads, several blocks take a share together: each takes its part of every step's keys, and
// the first of them brings their results together. Each of a block's four warps streams its own
// tiles of 16 keys through a private ring in shared memory (stream.cuh), across the chunks, groups
// and sequences of the share. So warps meet only where a chunk ends, and reads continue without a
// break until the share ends. rows.cuh loads the block's rows; fold.cuh merges partial results.
//
// Reading ahead. A launch may start while earlier launches of its step still run. This launch reads
// the lengths, the page table and the K and V of older tokens before it waits for them, because no
// launch of the step writes these before it. Step inputs are copied, or advanced by the step
// before, in front of the step's first launch, and older K and V were written by earlier steps.
// That both are complete and visible follows by induction over the launches of the step. The first
// launch lets the next one start only when it has waited for everything before it (rows.cu): the
// copy and the step before. Each later launch starts after the launch before it has started, by the
// order of programmatic edges. Such an edge does not promise that the launch before has written
// anything, so this launch waits before it touches q, the step's own K and V, scratch and the
// output. Reads of what a copy wrote go past the L1 cache, which is cleared only where a launch
// starts. A kernel that writes step inputs, or K and V of tokens that are not new, in front of an
// overlapping launch would break this: the launch behind such a kernel must not overlap it
// (Grid::overlap).
//
// Every block that has work waits, so a launch ends only after the launches before it.
#pragma once

#include "backend/cuda/attention/fold.cuh"
#include "backend/cuda/attention/rows.cuh"
#include "backend/cuda/attention/stream.cuh"

namespace encore::cuda::decode {

// Holds the number of blocks that a multiprocessor runs at once, where shared memory allows, and
// the number of tiles of keys that each of their warps copies at once. More blocks also hide
// latencies of arithmetic, but registers limit them. The numbers were measured for KV of 16 bits;
// fp8 keeps as many bytes under way.
struct Residency {
  int blocks = 1;
  int stages = 2;
};
constexpr Residency residency(int head_size, int row_tiles, int kv_bytes) {
  if (kv_bytes == 1) {  // fp8 takes more arithmetic per byte, in fewer registers
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

// ring_bytes() returns the bytes of one warp's ring, and shared_bytes() those of a block's dynamic
// shared memory: the warps' rings; a tile of the block's queries and of new tokens' keys and
// values; and the exchange, which holds the angles of a kv head while its rows are rotated.
constexpr int ring_bytes(int head_size, int kv_bytes, int stages) {
  return stages * 2 * kTileKeys * head_size * kv_bytes;  // K and V
}
constexpr int64_t shared_bytes(int head_size, int ring_bytes, const DecodePlan& plan) {
  return kWarps * ring_bytes + plan.tile_rows * head_size * 2 +
         exchange_floats(head_size, plan.rows_per_block, plan.ranks) * int64_t{sizeof(float)};
}

// Each thread gives two floats of an 8 x 8 matrix and gets the two elements that it holds of the
// transpose, rounded to T.
template <typename T>
__device__ __forceinline__ uint32_t transposed_pair(float low, float high) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
               : "=r"(result)
               : "r"(pack_pair<T>(low, high)));
  return result;
}

// Loads the first operands of a tile of 16 keys, for two steps of products: 32 columns of keys, or
// values for 32 columns of results. `lane_at` is an address from keys_at() or values_at().
template <typename T, typename Kv, int C>
struct TileOperands {
  static constexpr int kWidth = KeyTile<Kv, C>::kWidth;
  // The type in which softmax weights and values are multiplied.
  using Weight = std::conditional_t<kIsFp8<Kv>, __half, T>;

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

// Holds one warp's state for a tile of rows: the running result over the warp's keys of one chunk.
//
// Products are transposed, so that rows are the narrow side of mma.m16n8k16: scores are keys x
// rows, and values are columns x rows. With g = lane / 4 and t = lane % 4, a thread holds rows 2t
// and 2t + 1. Elements [0] and [1] are of key (or column) g, and [2] and [3] of key (or column) g +
// 8. With fp8, the columns are 2g and 2g + 1 instead.
template <typename Params, int C>
struct RowTile {
  using Kv = typename Params::Kv;
  using Weight = typename TileOperands<typename Params::Element, Kv, C>::Weight;

  float values[C / 16][4];
  float max[2];
  float offset[2];  // subtracted from scaled scores, so that the largest weight is 1
  float sum[2];     // sum of the weights of this thread's keys
  int last_key[2];  // last key that the row sees

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

  // Turns the scores of 16 keys into weights, in the form of the second operand of the product with
  // V.
  __device__ __forceinline__ void weigh(float (&scores)[4], float scale, uint32_t (&weights)[2]) {
    const float largest[2] = {fmaxf(scores[0], scores[2]), fmaxf(scores[1], scores[3])};
    // A score seldom exceeds the maximum once the maxima have settled.
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

  // Raises the rows' maxima to at least `some`, which each thread gives for its own keys, and
  // rescales the sums so far.
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

  // Hides the keys that a row does not see. The first of these keys is `first_key`.
  __device__ __forceinline__ void mask(float (&scores)[4], int first_key, int window) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = first_key + static_cast<int>(threadIdx.x) % kWarpSize / 4 + i / 2 * 8;
      if (key > last_key[i % 2] || key <= last_key[i % 2] - window) scores[i] = kMinusInfinity;
    }
  }

  // Writes the warp's part of a chunk to the exchange, for the first `rows` rows of the tile.
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

// Holds one warp's state for all rows of the block, in `kTiles` tiles of rows.
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

  // Adds the tile of keys that starts at `first_key`. With `masked`, some row may not see all of
  // these keys. `queries_at` is an address from query_pair_address().
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

// Brings the results of a worker's blocks, which are a cluster, together for each chunk.
//
// The blocks of a cluster send their parts of a chunk into the first block's shared memory, where a
// barrier counts the bytes. So nothing goes through memory, and no fence is needed; a fence would
// wait for all copies that a multiprocessor has under way.
//
// Between two gatherings nothing keeps the blocks in step, and one block may be far ahead of
// another. A wait tells one phase from the next by parity alone, so no barrier may end two phases
// while a thread waits for the first. For that reason, the first block allows other blocks to send
// only where it then waits for what they send, and a thread that sends nothing does not wait.
class ClusterGather {
 public:
  // Initializes the barriers, before the first chunk. All threads of all blocks of a worker call
  // this.
  template <int C>
  __device__ __forceinline__ void begin(const Exchange<C>& exchange, const Worker& worker) const {
    if (threadIdx.x == 0) {
      const uint32_t full = barrier_of(exchange, worker);
      init_barrier(full, 1);
      init_barrier(free_behind(full), 1);
      publish_barriers();
    }
    arrive_at_cluster();
    wait_for_cluster();  // now the barriers of other blocks can be used
  }
  // Brings the parts of all blocks together in the first block's exchange. The caller passes a
  // barrier between writing the block's own parts and this call. All threads of all blocks call it.
  template <int C>
  __device__ __forceinline__ void gather(const Exchange<C>& exchange, const Worker& worker,
                                         const Gathering& parts, float scale) {
    if (parts.active == 1) return;  // the first block has every part already
    const int before = num_gathered_++;
    const uint32_t full = barrier_of(exchange, worker);
    const uint32_t free = free_behind(full);
    if (worker.leads()) {
      if (threadIdx.x == 0) {
        // The parts of the previous gathering have been read, so the other blocks may send again.
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
    // This thread has nothing to send.
    if (static_cast<int>(threadIdx.x) >= parts.rows * (C / 4)) return;
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
  // Returns the address of the first of two barriers behind the exchange's parts. The first ends a
  // phase when the other blocks' parts have come, the second when the next parts may be sent.
  template <int C>
  static __device__ __forceinline__ uint32_t barrier_of(const Exchange<C>& exchange,
                                                        const Worker& worker) {
    return shared_address(exchange.softmaxes + exchange.first_row_of(worker.ranks));
  }
  static __device__ __forceinline__ uint32_t free_behind(uint32_t full) { return full + 8; }

  int num_gathered_ = 0;  // gatherings of more than one block so far
  int num_waits_ = 0;     // waits of this block for permission to send so far
};

// Returns whether this block of its worker has any key of the place.
__device__ __forceinline__ bool has_keys(const Place& place, const Walk& walk,
                                         const Worker& worker) {
  return place.first_chunk * walk.chunks.length + worker.rank * kBlockKeys < place.kv_len;
}

// Computes the share of one worker. `shared` has shared_bytes() bytes, aligned to kTileAlignment.
// The block's kTiles tiles hold rows_per_block rows, each warp has kStages tiles of keys under way,
// and kAsksFirst is passed to TileStream. Threads: the first kThreads threads of a block call this.
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
      __syncthreads();  // the exchange of the previous kv head has been read
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
        __syncthreads();  // the previous contents of the exchange have been read
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
  // A worker without work exits at once, to make room. The other workers keep the launch from
  // ending before the launches in front of it.
  if (share.total > 0 && !share.some_empty && plan.num_runs <= params.num_sequences) return;
  wait_for_inputs();
  store_zeros<Params, C>(params, plan, worker);
}

}  // namespace encore::cuda::decode
