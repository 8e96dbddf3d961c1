// Decode attention of one new token as a stage of a persistent kernel: its device code's
// surroundings (attention_decode.cuh) there, and what a stage is bound to. The bits are those of
// the launch: the same cutting, folded in the same order; who takes which share shows in neither.
//
// In each block that takes part, threads [0, kThreads) do the work. q, k and v come as the words of
// the stage before, and the output leaves as words (words.cuh), which carry their own proof that
// they are this launch's, so none of it needs a fence.
//
// A worker's blocks are no cluster. They send the first one their parts of a chunk through memory,
// in words of 64 bits: a float, and that it has been sent. The reader puts zeros back. Each chunk
// of each kv head has a place of its own, and each stage its own places; so a place is zero when a
// launch starts, is written once in it, and nobody has to say when the next part may come. Nothing
// counts, so nothing wraps around.
//
// What several workers have of a kv head goes through scratch and a counter, as in a launch.
// Scratch may be that of other stages: whoever writes it has q, which depends on all that earlier
// stages read there. Counters may not: the store of the zero is ordered by the end of the launch
// alone.
#pragma once

#include "backend/cuda/attention_decode.cuh"
#include "backend/cuda/words.cuh"

namespace encore::cuda::decode {

// A stage's arguments. attention_stage_args() gives the first three; the others are for whoever
// lays out the chain.
template <typename T>
struct AttentionStageArgs {
  AttentionParams<T> params;
  DecodePlan plan;
  int num_workers = 0;  // of plan.ranks blocks each: the kernel's first

  const T* x = nullptr;               // the row that q, k and v are parts of; never read there
  const uint32_t* x_words = nullptr;  // its words, aligned to 16 bytes
  uint32_t* out_words = nullptr;      // the same for the output
  uint64_t* parts = nullptr;          // what ranks send; null: a worker is one block
  bool stores_out = false;            // to memory, too: something after the chain reads it
};

// What a stage wants. Workspace: that of the launch, but its counters are the stage's own.
struct AttentionStageSizes {
  int num_blocks = 0;        // that take part
  int64_t shared_bytes = 0;  // of each, aligned to kTileAlignment
  int64_t num_parts = 0;     // words of 64 bits; zero before the first launch
};

// Tiles of keys that a warp has under way; how many shows in no bit.
inline constexpr int kStageTiles = 2;

// Can the launch be a stage: fused_attention.decode of one sequence's one token, 8 query rows a kv
// head at most, heads of 64 or 128, caches of the queries' dtype?
bool accepts_attention_stage(const Kernel& kernel, const KernelArgs& args);
// Are q, k and v parts of that row, at multiples of 16 bytes?
bool are_parts_of(const TensorView& row, const KernelArgs& args);
// Of such a launch, in a kernel of `num_blocks` blocks.
AttentionStageSizes attention_stage_sizes(const KernelArgs& args, int num_blocks,
                                          int num_tiles = kStageTiles);
// Lifetime: points where `args` does, scratch and counters too.
template <typename T>
AttentionStageArgs<T> attention_stage_args(const KernelArgs& args, int num_blocks);

// Two words of what ranks send, 16 bytes. Of each word's halves the lower is the float.
struct SentPair {
  uint64_t first;
  uint64_t second;

  static __device__ __forceinline__ void store(uint64_t* words, uint64_t first, uint64_t second) {
    asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(words), "l"(first),
                 "l"(second)
                 : "memory");
  }
  static __device__ __forceinline__ void send(uint64_t* words, float2 values) {
    constexpr uint64_t kSent = uint64_t{1} << 32U;
    store(words, kSent | __float_as_uint(values.x), kSent | __float_as_uint(values.y));
  }
  __device__ __forceinline__ void ask(const uint64_t* words) {
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(first), "=l"(second)
                 : "l"(words)
                 : "memory");
  }
  // Waits for both and leaves zeros.
  __device__ __forceinline__ float2 take(uint64_t* words) {
    while (first >> 32U == 0 || second >> 32U == 0)
      ask(words);
    store(words, 0, 0);
    return {__uint_as_float(static_cast<uint32_t>(first)),
            __uint_as_float(static_cast<uint32_t>(second))};
  }
};

// The surroundings. kBarrier: a named barrier of the block that only these threads use. `wait`
// returns when the words of the stage before are worth asking for and those of this one may be
// overwritten; every thread calls it, several times.
template <typename T, int kBarrier, typename Wait>
class KernelStage {
 public:
  __device__ __forceinline__ KernelStage(const AttentionStageArgs<T>& args, uint32_t tag,
                                         const Wait& wait)
      : args_(args), tag_(tag), wait_(wait) {}

  __device__ __forceinline__ void wait() const { wait_(); }
  __device__ __forceinline__ void meet() const {
    asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
  }
  __device__ __forceinline__ bool meet_any(bool mine) const {
    uint32_t any;
    asm volatile(
        "{\n"
        ".reg .pred mine, any;\n"
        "setp.ne.u32 mine, %1, 0;\n"
        "bar.red.or.pred any, %2, %3, mine;\n"
        "selp.u32 %0, 1, 0, any;\n"
        "}\n"
        : "=r"(any)
        : "r"(static_cast<uint32_t>(mine)), "n"(kBarrier), "n"(kThreads)
        : "memory");
    return any != 0;
  }

  __device__ __forceinline__ uint4 load(const T* address) const {
    const uint32_t* words = args_.x_words + (address - args_.x);
    gemv::Received values;
    values.ask(words);
    return values.wait(words, tag_);
  }
  __device__ __forceinline__ void store(T* address, float4 x) const {
    if (args_.stores_out) store_four(address, x);
    const uint32_t low = pack_pair<T>(x.x, x.y);
    const uint32_t high = pack_pair<T>(x.z, x.w);
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(
                     args_.out_words + (address - args_.params.out)),
                 "r"(low << 16U | tag_), "r"((low & 0xffff0000U) | tag_), "r"(high << 16U | tag_),
                 "r"((high & 0xffff0000U) | tag_)
                 : "memory");
  }

  template <int C>
  __device__ __forceinline__ void begin(const Exchange<C>&, const Worker&) const {}
  template <int C>
  __device__ __forceinline__ void gather(const Exchange<C>& exchange, const Worker& worker,
                                         const Gathering& gathering, float scale) const {
    const int part_words = gathering.rows * kRowWords<C>;
    uint64_t* parts =
        args_.parts + static_cast<int64_t>(gathering.chunk) * (worker.ranks - 1) * part_words;
    if (worker.leads()) {
      take<C>(exchange, parts, (gathering.active - 1) * gathering.rows);
      meet();
      return;
    }
    if (worker.rank >= gathering.active) return;
    uint64_t* part = parts + (worker.rank - 1) * part_words;
    for_each_four<C>(gathering.rows, [&](int row, int column) {
      float2 softmax;
      const float4 value = exchange.read(row, column, scale, kWarps, softmax);
      uint64_t* words = part + row * kRowWords<C>;
      SentPair::send(words + column, {value.x, value.y});
      SentPair::send(words + column + 2, {value.z, value.w});
      if (column == 0) SentPair::send(words + C, softmax);
    });
  }

 private:
  template <int C>
  static constexpr int kRowWords = C + 2;  // its columns, then its softmax

  // Puts `num_rows` rows of parts, which lie one after the other, behind those of the block's own
  // warps. A part has as many rows as a tile of the exchange: ranks share one tile only.
  template <int C>
  __device__ __forceinline__ void take(const Exchange<C>& exchange, uint64_t* parts,
                                       int num_rows) const {
    constexpr int kRowPairs = kRowWords<C> / 2;
    constexpr int kAtOnce = C == 64 ? 4 : 8;  // what up to 256 keys of four rows ask for
    const int num_pairs = num_rows * kRowPairs;
    const int first_row = exchange.first_row_of(1);
    for (int first = threadIdx.x; first < num_pairs; first += kAtOnce * kThreads) {
      SentPair pairs[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int pair = first + i * kThreads;
        if (pair < num_pairs) pairs[i].ask(parts + 2 * pair);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int pair = first + i * kThreads;
        if (pair >= num_pairs) continue;
        const int row = first_row + pair / kRowPairs;
        const int column = pair % kRowPairs * 2;
        float2* to =
            column == C
                ? exchange.softmaxes + row
                : reinterpret_cast<float2*>(exchange.values + row * Exchange<C>::kStride + column);
        *to = pairs[i].take(parts + 2 * pair);
      }
    }
  }

  const AttentionStageArgs<T>& args_;
  uint32_t tag_;  // of this launch's words
  const Wait& wait_;
};

// A stage, by threads [0, kThreads) of every block of the kernel. Shapes: `shared` has
// attention_stage_sizes()'s bytes for `kTiles` tiles; it may be used otherwise once all those
// threads have come back. kBarrier, tag, wait: see KernelStage.
template <int C, int kBarrier, int kTiles = kStageTiles, typename T, typename Wait>
__device__ __forceinline__ void attend_stage(const AttentionStageArgs<T>& args, uint32_t tag,
                                             uint8_t* shared, const Wait& wait) {
  const int ranks = args.plan.ranks;
  const Worker worker{.row_block = 0,
                      .number = static_cast<int>(blockIdx.x) / ranks,
                      .count = args.num_workers,
                      .rank = static_cast<int>(blockIdx.x) % ranks,
                      .ranks = ranks};
  if (worker.number >= worker.count) return;
  KernelStage<T, kBarrier, Wait> around(args, tag, wait);
  attend_share<AttentionParams<T>, C, 1, kTiles, true>(args.params, args.plan, worker, shared,
                                                       around);
}

}  // namespace encore::cuda::decode
