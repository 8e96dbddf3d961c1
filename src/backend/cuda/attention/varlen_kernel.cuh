// Attention of prompts and of mixed steps on Hopper. The launch has a fixed size whatever the
// lengths are: only the device reads them (varlen.cuh).
//
// One of a block's three warpgroups copies. It copies a tile's queries, and then, page by page, the
// keys and values of one tile of keys after the other into a ring in shared memory. Where caches
// keep fp8, it copies into another ring, from which the warpgroup's other warps widen them into the
// first. Each of the two other warpgroups takes half of the query rows, and holds their scores,
// weights and results in registers. While it turns scores into weights, the tensor cores compute
// its product with the values of the last keys, and the products of the other warpgroup.
//
// Keys are walked from the last that a row sees to the first, in tiles that begin at multiples of
// kKeys. A tile of keys that a row does not see leaves that row's result as it is, so a row's bits
// depend on its own sequence and position alone.
#pragma once

#include <cuda/atomic>

#include "backend/cuda/attention/varlen_launch.cuh"
#include "backend/cuda/wgmma.cuh"

namespace encore::cuda::varlen {

inline constexpr int kProducerRegisters = 40;
inline constexpr int kConsumerRegisters = 232;

// Numbers of hardware barriers: kOfGroup + g joins the threads of consumer g, and kOfConsumers
// joins those of all consumers.
inline constexpr int kOfGroup = 1;
inline constexpr int kOfConsumers = kOfGroup + kConsumers;

// A warpgroup that multiplies 64 query rows. A thread holds parts of two of these rows.
template <typename Params, int C>
struct Consumer {
  using L = Layout<typename Params::Kv, C>;
  using T = typename Params::Element;
  static constexpr int kKeys = L::kKeys;

  const Params& params;
  const Arguments& args;
  const L& layout;
  int group;  // number of the consumer: 0 or 1

  float scores[kKeys / 2];
  uint32_t weights[kKeys / 16][4];
  float values[C / 2];
  RunningSoftmax softmax;

  __device__ __forceinline__ int thread() const {
    return static_cast<int>(threadIdx.x) % kGroupThreads;
  }
  __device__ __forceinline__ int lane() const { return static_cast<int>(threadIdx.x) % kWarpSize; }
  __device__ __forceinline__ int first_warp_row() const {
    return group * kGroupRows + thread() / kWarpSize * 16;
  }
  __device__ __forceinline__ int position(const Tile& tile, int row) const {
    return tile.position + params.token_of(row);
  }

  __device__ __forceinline__ void start_scores(uint32_t queries, uint32_t keys) {
    const uint32_t a = describe_rows(queries + group * kGroupRows * kBoxRowBytes);
    const uint32_t b = describe_rows(keys);
    begin_products();
#pragma unroll
    for (int step = 0; step < C / 16; ++step) {
      const uint32_t half = step / 4;
      const uint32_t column = step % 4 * kNextColumns;
      start_product<T, kKeys>(scores, a + half * L::kQueryBox / 16 + column,
                              b + half * L::kBox / 16 + column, step > 0 ? 1 : 0);
    }
    commit_products();
  }
  __device__ __forceinline__ void start_values(uint32_t tile) {
    const uint32_t b = describe_summed_rows(tile, L::kBox);
    begin_products();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
      start_weighted_sum<T, C>(values, weights[step], b + step * 16 * kBoxRowBytes / 16);
    commit_products();
  }

  __device__ __forceinline__ void cap() {
    if (!(params.softcap_in > 0.0F)) return;
#pragma unroll
    for (float& score : scores)
      score = capped(params, score);
  }
  __device__ __forceinline__ void mask(const Tile& tile, int key_tile) {
    const int first_key = key_tile * kKeys;
    const int last_row = min(tile.num_rows, (group + 1) * kGroupRows) - 1;
    if (first_key + kKeys - 1 <= position(tile, group * kGroupRows) &&
        first_key >= first_seen(params, position(tile, last_row)))
      return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int last =
          position(tile, first_warp_row() + lane() / 4 + 8 * h) - first_key - 2 * (lane() % 4);
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (8 * n + i > last || 8 * n + i <= last - params.window)
            scores[4 * n + 2 * h + i] = kMinusInfinity;
        }
      }
    }
  }
  __device__ __forceinline__ void update(float (&rescale)[2]) {
    softmax.update(reinterpret_cast<float(&)[kKeys / 8][4]>(scores), rescale, params.scale_log2e);
  }
  __device__ __forceinline__ void weigh() {
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        weights[n][i] = pack_pair<T>(scores[8 * n + 2 * i], scores[8 * n + 2 * i + 1]);
    }
  }
  __device__ __forceinline__ void scale_values(const float (&by)[2]) {
#pragma unroll
    for (int i = 0; i < C / 2; ++i)
      values[i] *= by[i / 2 % 2];
  }

  // Sets rows [first_row, end_row) of a tile of values to zero. A weight of zero times infinity or
  // NaN is NaN, and such values may lie behind the last value and before the first that is seen.
  // With `both`, all consumers see the same tile and clear it together.
  __device__ __forceinline__ void clear_values(uint32_t values_tile, int first_row, int end_row,
                                               bool both) {
    constexpr int kPieces = kBoxRowBytes / 16;
    const int unused_pieces = (end_row - first_row) * kPieces;
    const int threads = both ? kConsumerThreads : kGroupThreads;
    for (int i = (both ? group : 0) * kGroupThreads + thread(); i < unused_pieces; i += threads) {
#pragma unroll
      for (int half = 0; half < L::kHalves; ++half) {
        const uint32_t at = values_tile + half * L::kBox + (first_row * kPieces + i) * 16;
        asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
      }
    }
    publish_to_copies();
    if (both) {
      meet_at<kConsumerThreads>(kOfConsumers);
    } else {
      meet_at<kGroupThreads>(kOfGroup + group);
    }
  }

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (L::kWidens || lane() == 0) arrive(barrier);
  }

  // Passes over a tile of which only the other consumer has rows: waits for its keys and values and
  // releases them.
  __device__ __forceinline__ void pass(const Tile& tile, Slot& next) const {
    for (int i = 2 * (tile.end_keys - tile.first_keys); i > 0; --i) {
      wait_for_phase(layout.full(next.number), next.parity);
      __syncwarp();  // a lane that has not seen this phase might miss it once the next has begun
      release(layout.free(next.number));
      next.advance(L::kSlots);
    }
  }

  // Begins a tile. Tensor cores compute all 64 rows, and their time depends on the numbers that
  // they multiply. So where most rows are not the tile's, as with a sequence of one new token, the
  // unused rows of the queries are set to zero, and their maximum to a number that no score
  // reaches, which makes their weights zero.
  __device__ __forceinline__ void begin(const Tile& tile, uint32_t queries) {
    constexpr int kPieces = C / 8;
    constexpr float kNoScore = 1e30F;
    softmax = {};
    const int end_row = (group + 1) * kGroupRows;
    const int num_unused = end_row - tile.num_rows;
    if (num_unused <= kGroupRows / 2) return;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (first_warp_row() + lane() / 4 + 8 * h >= tile.num_rows) softmax.max[h] = kNoScore;
    }
    for (int i = thread(); i < num_unused * kPieces; i += kGroupThreads)
      store_shared(piece_at(queries, tile.num_rows + i / kPieces, i % kPieces), uint4{});
    publish_to_copies();
    meet_at<kGroupThreads>(kOfGroup + group);
  }

  __device__ __forceinline__ void attend(const Tile& tile, uint32_t queries, Slot& next) {
    const bool both = tile.num_rows > kGroupRows;
    const auto take = [&] {
      const Slot slot = next;
      next.advance(L::kSlots);
      return slot;
    };
    begin(tile, queries);
#pragma unroll
    for (float& value : values)
      value = 0.0F;
    int key_tile = tile.end_keys - 1;
    Slot keys = take();
    wait_for_phase(layout.full(keys.number), keys.parity);
    start_scores(queries, layout.tile(keys.number));
    wait_for_products<0>();
    settle(scores);
    release(layout.free(keys.number));
    cap();
    mask(tile, key_tile);
    float rescale[2];
    update(rescale);
    weigh();
    if (const int first_unused = tile.kv_len - key_tile * kKeys; first_unused < kKeys) {
      Slot last = next;
      if (key_tile > tile.first_keys) last.advance(L::kSlots);
      wait_for_phase(layout.full(last.number), last.parity);
      clear_values(layout.tile(last.number), first_unused, kKeys, both);
    }
    if (key_tile > tile.first_keys) wait_for_phase(layout.full(next.number), next.parity);
    while (--key_tile >= tile.first_keys) {
      keys = take();
      const Slot last = take();
      start_scores(queries, layout.tile(keys.number));
      wait_for_phase(layout.full(last.number), last.parity);
      start_values(layout.tile(last.number));
      wait_for_products<1>();
      settle(scores);
      release(layout.free(keys.number));
      cap();
      mask(tile, key_tile);
      update(rescale);
      settle(scores);
      // The wait for the next keys stands at this place because the assembler would otherwise move
      // wait_for_products<0>() in front of the softmax; a branch between the two prevents that.
      if (key_tile > tile.first_keys) wait_for_phase(layout.full(next.number), next.parity);
      wait_for_products<0>();
      settle(values);
      release(layout.free(last.number));
      weigh();
      scale_values(rescale);
    }
    const Slot last = take();
    wait_for_phase(layout.full(last.number), last.parity);
    const int num_hidden = first_seen(params, tile.position) - tile.first_keys * kKeys;
    if (num_hidden > 0) clear_values(layout.tile(last.number), 0, num_hidden, both);
    start_values(layout.tile(last.number));
    wait_for_products<0>();
    settle(values);
    release(layout.free(last.number));
  }

  // Writes the rows' results by way of the queries' place in shared memory. A row that saw no key
  // gets zeros.
  __device__ __forceinline__ void write(const Tile& tile, uint32_t queries) {
    const int first_row = first_warp_row();
    meet_at<kGroupThreads>(kOfGroup + group);  // all threads of the group have read their queries
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + 8 * h + lane() / 4;
      const float sum = divisor(params, head_of(tile, row), softmax.max[h], softmax.row_sum(h));
      const float inverse = sum > 0.0F ? 1.0F / sum : sum;
#pragma unroll
      for (int n = 0; n < C / 8; ++n) {
        store_shared(
            piece_at(queries, row, n) + lane() % 4 * 4,
            pack_pair<T>(values[4 * n + 2 * h] * inverse, values[4 * n + 2 * h + 1] * inverse));
      }
    }
    __syncwarp();
    store_rows(tile, first_row,
               [&](int row, int piece) { return load_shared(piece_at(queries, row, piece)); });
    publish_to_copies();
  }
  // Returns the index at which a part's results for a row lie: of its softmax, and of its C values.
  __device__ __forceinline__ int64_t part_row(const Tile& tile, int part, int row) const {
    const int token = params.token_of(row);
    const int num_tokens = params.token_of(tile.num_rows - 1) + 1;
    const int of_sequence = part * num_tokens + token;
    return (int64_t{tile.sequence} * kMostPartRows + of_sequence) * params.kv_heads * params.group +
           head_of(tile, row);
  }
  __device__ __forceinline__ void write_part(const Tile& tile) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = softmax.row_sum(h);
      const int row = first_warp_row() + 8 * h + lane() / 4;
      if (row >= tile.num_rows) continue;
      const int64_t to = part_row(tile, tile.part, row);
      auto* out = reinterpret_cast<float2*>(args.values + to * C);
#pragma unroll
      for (int n = 0; n < C / 8; ++n)
        out[4 * n + lane() % 4] = {values[4 * n + 2 * h], values[4 * n + 2 * h + 1]};
      if (lane() % 4 == 0) args.softmaxes[to] = {softmax.max[h], sum};
    }
  }
  // Adds up the results of all parts, one after the other, in the block whose part arrives last.
  __device__ __forceinline__ void combine(const Tile& tile) {
    const int counter = (tile.sequence * params.kv_heads + tile.kv_head) * kConsumers + group;
    if (!arrives_last(args.arrived + counter, tile.num_parts)) return;
    constexpr int kFours = C / 4;
    const int first_row = group * kGroupRows;
    const int num_rows = min(kGroupRows, tile.num_rows - first_row);
    for (int i = thread(); i < num_rows * kFours; i += kGroupThreads) {
      const int row = first_row + i / kFours;
      const int column = i % kFours * 4;
      float largest = kMinusInfinity;
      for (int part = 0; part < tile.num_parts; ++part)
        largest = fmaxf(largest, __ldcg(args.softmaxes + part_row(tile, part, row)).x);
      const float reference = finite_max(largest);
      float sum = 0.0F;
      float4 total{};
      for (int part = 0; part < tile.num_parts; ++part) {
        const int64_t from = part_row(tile, part, row);
        const float2 of_part = __ldcg(args.softmaxes + from);
        const float4 x = __ldcg(reinterpret_cast<const float4*>(args.values + from * C + column));
        const float scale = exp2_fast((of_part.x - reference) * params.scale_log2e);
        sum = __fmaf_rn(scale, of_part.y, sum);
        total.x = __fmaf_rn(scale, x.x, total.x);
        total.y = __fmaf_rn(scale, x.y, total.y);
        total.z = __fmaf_rn(scale, x.z, total.z);
        total.w = __fmaf_rn(scale, x.w, total.w);
      }
      sum = divisor(params, head_of(tile, row), reference, sum);
      const float inverse = sum > 0.0F ? 1.0F / sum : sum;
      *reinterpret_cast<uint2*>(output_at(tile, row) + column) = {
          pack_pair<T>(total.x * inverse, total.y * inverse),
          pack_pair<T>(total.z * inverse, total.w * inverse)};
    }
  }
  // Counts the arrival of the whole warpgroup, publishes what it has written, and returns whether
  // it is the last.
  __device__ __forceinline__ bool arrives_last(uint32_t* counter, int num_parts) const {
    meet_at<kGroupThreads>(kOfGroup + group);
    bool is_last = false;
    if (thread() == 0) {
      ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_device> arrived(*counter);
      is_last = arrived.fetch_add(1, ::cuda::memory_order_acq_rel) + 1 ==
                static_cast<uint32_t>(num_parts);
      if (is_last) *counter = 0;
    }
    return meet_any_at<kGroupThreads>(kOfGroup + group, is_last);
  }

  __device__ __forceinline__ int head_of(const Tile& tile, int row) const {
    return tile.kv_head * params.group + row - params.token_of(row) * params.group;
  }
  __device__ __forceinline__ T* output_at(const Tile& tile, int row) const {
    return params.out + (tile.token + params.token_of(row)) * params.out_stride +
           head_of(tile, row) * C;
  }
  // Returns the address of 8 columns of a row, in the layout of the copy engine.
  __device__ __forceinline__ static uint32_t piece_at(uint32_t queries, int row, int piece) {
    return queries + piece / 8 * L::kQueryBox + row * kBoxRowBytes + (piece % 8 ^ row % 8) * 16;
  }
  template <typename Load>
  __device__ __forceinline__ void store_rows(const Tile& tile, int first_row, const Load& load) {
    constexpr int kPieces = C / 8;
#pragma unroll 4
    for (int i = lane(); i < 16 * kPieces; i += kWarpSize) {
      const int row = first_row + i / kPieces;
      const int piece = i % kPieces;
      if (row >= tile.num_rows) break;
      *reinterpret_cast<uint4*>(output_at(tile, row) + piece * 8) = load(row, piece);
    }
  }

  __device__ __forceinline__ void run() {
    Slot queries{};
    Slot next{};
    while (true) {
      wait_for_phase(layout.queries_full(queries.number), queries.parity);
      const Tile tile = layout.work(queries.number);
      if (tile.num_parts == 0) break;
      if (!tile.has_keys()) {
        store_rows(tile, first_warp_row(), [](int, int) { return uint4{}; });
      } else if (tile.num_rows <= group * kGroupRows) {
        pass(tile, next);
      } else {
        attend(tile, layout.queries(queries.number), next);
        if (tile.num_parts > 1) {
          write_part(tile);
          combine(tile);
        } else {
          write(tile, layout.queries(queries.number));
        }
      }
      meet_at<kGroupThreads>(kOfGroup + group);
      arrive(layout.queries_free(queries.number));
      queries.advance(L::kQuerySlots);
    }
  }
};

// Attention of prompts and mixed steps. The grid has as many blocks as the card runs at once.
template <typename T, typename Kv, int C>
__global__ void __launch_bounds__(kThreads, 1)
    attention_varlen(const __grid_constant__ AttentionParams<T, Kv> params,
                     const __grid_constant__ Arguments args) {
  using Params = AttentionParams<T, Kv>;
  using L = Layout<Kv, C>;
  extern __shared__ __align__(1024) uint8_t shared[];
  const L layout(shared);
  allow_next_kernel();
  if (threadIdx.x == 0) {
    layout.init();
    prefetch_map(args.query_map);
    if constexpr (!L::kWidens) {
      prefetch_map(args.key_map);
      prefetch_map(args.value_map);
    }
  }
  wait_for_inputs();
  layout.list().template build<kThreads, L::kKeys>(params, args.limits);
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread >= kConsumerThreads) {
    give_up_registers<kProducerRegisters>();
    if (thread < kConsumerThreads + kWarpSize) {
      Producer<Params, C>{params, args, layout}.run();
    } else if constexpr (L::kWidens) {
      Widener<Params, C>{layout, thread - kConsumerThreads - kWarpSize}.run();
    }
  } else {
    take_registers<kConsumerRegisters>();
    Consumer<Params, C> consumer{params, args, layout, thread / kGroupThreads};
    consumer.run();
  }
}

template <typename T, typename Kv, int C>
BoundLaunch bind_shape(Device& device, const KernelArgs& args) {
  using L = Layout<Kv, C>;
  const AttentionShape shape = attention_shape(args);
  const auto kernel = attention_varlen<T, Kv, C>;
  allow_shared_memory(kernel, L::kBytes);
  const auto map_of_rows = [&](const TensorView& cache) {
    if (L::kWidens) return CUtensorMap{};
    TensorView rows(cache.data, cache.dtype, {cache.shape.num_elements() / C, C});
    return map_of_boxes(rows, {.rows = shape.page_size});
  };
  const int64_t tile_tokens = kTileRows / shape.group();
  auto* values = static_cast<float*>(args.scratch);
  const Arguments arguments{
      .query_map = map_of_heads(args.inputs["q"], C, shape.group(), tile_tokens),
      .key_map = map_of_rows(args.inputs["k_cache"]),
      .value_map = map_of_rows(args.inputs["v_cache"]),
      .limits = {.tokens = static_cast<int>(tile_tokens), .split_tokens = most_split_tokens(args)},
      .next_tile = args.counters,
      .arrived = args.counters + 1,
      .values = values,
      .softmaxes = reinterpret_cast<float2*>(values + num_part_rows(args) * C)};
  const auto blocks = static_cast<unsigned>(chip(device).num_multiprocessors);
  const Grid grid{.blocks = blocks, .threads = kThreads, .shared_bytes = L::kBytes};
  return [=, params = attention_params<T, Kv>(args)](Stream& stream, const StepLengths&) {
    launch(stream, grid, kernel, params, arguments);
  };
}

template <int C>
BoundLaunch bind_varlen(Device& device, const KernelArgs& args) {
  return visit_tensor_core_types(args, [&](auto element, auto kv) {
    return bind_shape<typename decltype(element)::type, typename decltype(kv)::type, C>(device,
                                                                                        args);
  });
}

}  // namespace encore::cuda::varlen
