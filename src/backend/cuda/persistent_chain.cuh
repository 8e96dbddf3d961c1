// A chain of linears with one row, and of attention between them, as the stages of one persistent
// kernel: a whole model's layers. What a stage computes is gemv.cuh's and attention_stage.cuh's.
//
// Three kinds of warps. The producer, a thread, has the weights of all stages copied into a ring in
// shared memory, in the order in which they are used, far across the ends of stages: what a stage
// waits for is x alone. The workers bring x and multiply it with what has arrived. The warps of
// attention read older keys and values while other stages run.
//
// How x goes from block to block: words.cuh. Words are asked for once all blocks have said, by
// adding to a counter, that theirs are on their way; that keeps readers from polling thousands of
// words, and is no more than a hint.
//
// The residual needs no words: each block adds up the whole row for itself and keeps it.
//
// Latency. A load waits in line behind the copies that the multiprocessor has asked for: 0.26 us
// with 32 KB under way, 2 us with 128 KB, at the same rate of copying. So the producer asks for no
// more than kWindow slots at a time, however many are free.
//
// Memory that stages write may be read by earlier stages of the same launch (buffers are reused),
// but never by slower blocks: a block goes on to a stage when all have said that they are done with
// the one before, and what it stores there depends on their words, which depend on what they read.
#pragma once

#include "backend/cuda/attention_stage.cuh"
#include "backend/cuda/gemv.cuh"
#include "backend/cuda/memory_order.cuh"
#include "backend/cuda/words.cuh"

namespace encore::cuda::persistent {

using namespace gemv;  // NOLINT(google-build-using-namespace): the code that kernels share

inline constexpr int64_t kSharedBytes = 224 * 1024;
inline constexpr int kWindow = 3;  // slots under way at most
inline constexpr int kMinSlots = kWindow + 1;
inline constexpr int kMaxLoads = 2;  // of a worker, of a row that is normalized
inline constexpr int kLine = 32;     // words of a cache line

// The block: warpgroups of 128 threads, which share out the registers of the multiprocessor.
struct Roles {
  static constexpr int kProducer = decode::kThreads;  // the thread; attention's come before
  static constexpr int kWorkers = kProducer + 128;    // the first of them
  static constexpr int kThreads = kWorkers + gemv::kWorkers;
};
static_assert(Roles::kWorkers % gemv::kWorkers == 0, "as gemv.cuh numbers them");

// Registers of a thread: what a launch of so many threads gives to each, and who takes how many.
struct Registers {
  static constexpr int kAtLaunch = 128;
  static constexpr int kAttention = 208;
  static constexpr int kProducer = 40;
};
static_assert(Registers::kAttention + Registers::kProducer <= 2 * Registers::kAtLaunch);

// Tiles of keys that a warp of attention has under way: what leaves room for the rings.
constexpr int tiles_of_head(int64_t head_size) {
  return head_size == 64 ? 2 : 1;
}

template <typename T>
struct StageArgs {
  GemvArgs<T> gemv;  // `out` and `sum` are null where nothing after the chain reads them
  const CUtensorMap* weight;
  const uint32_t* x_words;  // null: x is in memory, from before the launch
  uint32_t* out_words;      // null: no stage reads the output
  bool keeps_residual;      // it is the sum that the stages before have left in the block
  const decode::AttentionStageArgs<T>* attention;  // null: the stage is a linear
};

template <typename T>
struct ChainArgs {
  const StageArgs<T>* stages;
  int num_stages;
  int num_slots;        // of the ring
  int x_bytes;          // the widest row of x
  int attention_bytes;  // shared memory that attention takes
  uint32_t* arrivals;   // of blocks at ends of stages, in all launches so far
  uint32_t* launches;   // so far
};

// Shared memory. The stages' arguments are read from there, not from constant memory, whose cache
// does not hold them all.
template <typename T>
struct Layout {
  uint8_t* attention;
  const uint8_t* ring;
  const uint8_t* x;
  const uint8_t* sums;
  decode::AttentionStageArgs<T>* attention_args;  // of the stage that is the next
  StageArgs<T>* stages;

  __device__ __forceinline__ Layout(uint8_t* shared, const ChainArgs<T>& chain) {
    attention = shared;
    ring = shared + chain.attention_bytes;
    x = ring + Ring::bytes(chain.num_slots);
    sums = x + chain.x_bytes;
    attention_args = reinterpret_cast<decode::AttentionStageArgs<T>*>(
        shared + chain.attention_bytes + Ring::bytes(chain.num_slots) + chain.x_bytes +
        kMostSumsBytes);
    stages = reinterpret_cast<StageArgs<T>*>(attention_args + 1);
  }
};

// Named barriers. The first warp of the workers tells attention that it is its turn, and attention
// that it is done.
__device__ __forceinline__ void start_attention() {
  asm volatile("bar.arrive 4, %0;" ::"n"(decode::kThreads + 32) : "memory");
}
__device__ __forceinline__ void wait_for_start() {
  asm volatile("bar.sync 4, %0;" ::"n"(decode::kThreads + 32) : "memory");
}
__device__ __forceinline__ void end_attention() {
  asm volatile("bar.arrive 5, %0;" ::"n"(decode::kThreads + 32) : "memory");
}
__device__ __forceinline__ void wait_for_attention() {
  asm volatile("bar.sync 5, %0;" ::"n"(decode::kThreads + 32) : "memory");
}
inline constexpr int kBarrierOfAttention = 6;  // that its threads meet at
__device__ __forceinline__ void meet_in_attention() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrierOfAttention), "n"(decode::kThreads) : "memory");
}

// What the producer does.
template <typename T>
__device__ __forceinline__ void produce(const ChainArgs<T>& chain, const Layout<T>& layout) {
  const Ring ring(layout.ring, chain.num_slots);
  Slot next;
  Slot oldest;  // under way
  int under_way = 0;
  for (int s = 0; s < chain.num_stages; ++s) {
    const GemvArgs<T> args = layout.stages[s].gemv;  // without outputs: an attention
    for (SlotWalk<T> walk{args}; !walk.done(); walk.next()) {
      if (under_way == kWindow) {
        wait_for_phase(ring.full(oldest.number), oldest.parity);
        oldest.advance(ring.num_slots);
      } else {
        ++under_way;
      }
      wait_for_phase(ring.empty(next.number), next.parity ^ 1U);
      walk.copy(*layout.stages[s].weight, ring, next.number);
      next.advance(ring.num_slots);
    }
  }
}

// How workers go from stage to stage.
template <typename T>
struct Passage {
  const ChainArgs<T>& chain;
  uint32_t launches = 0;
  uint32_t target = 0;  // of arrivals; they, and the launches, wrap together
  bool is_behind_attention = false;

  // The launches before have ended.
  __device__ __forceinline__ void begin() {
    wait_for_inputs();
    launches = __ldcg(chain.launches);
    target = launches * static_cast<uint32_t>(chain.num_stages - 1) * gridDim.x;
  }
  // This block is done with the stage before, and all blocks have sent its words. The first warp,
  // behind a meeting of the workers.
  __device__ __forceinline__ void pass() {
    if (is_behind_attention) wait_for_attention();
    if (Workers::index() == 0) {
      red_add_relaxed<Scope::kDevice>(chain.arrivals, 1);
      while (static_cast<int32_t>(ld_relaxed<Scope::kDevice>(chain.arrivals) - target) < 0) {
      }
    }
    __syncwarp();
  }
  __device__ __forceinline__ void pass_to_attention() {
    target += gridDim.x;
    Workers::meet();
    if (Workers::warp() == 0) {
      pass();
      start_attention();
    }
    is_behind_attention = true;
  }
  __device__ __forceinline__ void pass_to_linear() {
    target += gridDim.x;
    Workers::meet();
    if (Workers::warp() == 0) pass();
    Workers::meet();
    is_behind_attention = false;
  }
};

// What the workers do.
template <int kLoads, typename T>
__device__ __forceinline__ void work(const ChainArgs<T>& chain, const Layout<T>& layout) {
  constexpr int kAtOnce = 2;  // loads of a row that is not normalized
  const Ring ring(layout.ring, chain.num_slots);
  const Products<1> products(layout.sums);
  Slot next;
  Passage<T> passage{chain};
  RowShare<kLoads> kept;  // the sum that the stages before have left
  for (int s = 0; s < chain.num_stages; ++s) {
    const StageArgs<T>& stage = layout.stages[s];
    if (stage.attention != nullptr) {
      passage.pass_to_attention();
      continue;
    }
    const GemvArgs<T>& args = stage.gemv;
    const uint32_t* words = stage.x_words;
    const Part<1> part(args);
    const XRows<1> x(layout.x, 1, args.num_loads());
    const RowPlace<1> row(args, words == nullptr ? args.x : nullptr, 0);
    const auto bring = [&](auto& share, int first, uint32_t tag) {
      if (words == nullptr) {
        row.fetch(share, first);
      } else {
        receive(share, x, words, tag, first);
      }
    };
    const auto begin = [&] {
      if (s == 0) {
        passage.begin();
      } else {
        passage.pass_to_linear();
      }
      x.clear_rest(part.slots_per_tile);
      return tag_of(passage.launches);
    };
    uint32_t tag;
    if (args.norm != nullptr) {
      const Norm<T, 1, kLoads> norm(args);
      tag = begin();
      RowShare<kLoads> values;
      bring(values, 0, tag);
      if (!stage.keeps_residual) RowPlace<1>(args, args.residual, 0).fetch(kept);
      norm.apply(values, kept, x);
      kept = values;
    } else {
      tag = begin();
#pragma unroll 1
      for (int first = 0; x.has(first); first += kAtOnce) {
        RowShare<kAtOnce> values;
        bring(values, first, tag);
        x.put(values, first);
      }
    }
    Workers::meet();
    uint32_t* out_words = stage.out_words;
    products.multiply(args, part, ring, next, x, [&](int row_number, int output, float value) {
      if (out_words != nullptr)
        st_relaxed<Scope::kDevice>(out_words + output, make_word(from_float<T>(value), tag));
      if (args.out != nullptr) store_output(args, row_number, output, value);
    });
  }
  // Every block has read it: all have come to the last stage.
  if (blockIdx.x == 0 && Workers::index() == 0) *chain.launches = passage.launches + 1;
}

// What the warps of attention do: everything that does not depend on the step's own rows is under
// way before their turn comes.
template <int C, typename T>
__device__ __forceinline__ void attend(const ChainArgs<T>& chain, const Layout<T>& layout) {
  constexpr int kTiles = tiles_of_head(C);
  constexpr int kWords = sizeof(decode::AttentionStageArgs<T>) / 4;
  wait_for_inputs();
  const uint32_t tag = tag_of(__ldcg(chain.launches));
  for (int s = 0; s < chain.num_stages; ++s) {
    const auto* args = reinterpret_cast<const uint32_t*>(layout.stages[s].attention);
    if (args == nullptr) continue;
    meet_in_attention();  // nobody needs the last stage's arguments, or its memory
    for (int i = threadIdx.x; i < kWords; i += decode::kThreads)
      reinterpret_cast<uint32_t*>(layout.attention_args)[i] = args[i];
    meet_in_attention();
    bool has_started = false;
    const auto wait = [&] {
      if (!has_started) wait_for_start();
      has_started = true;
    };
    decode::attend_stage<C, kBarrierOfAttention, kTiles>(*layout.attention_args, tag,
                                                         layout.attention, wait);
    wait();  // blocks without a share
    end_attention();
  }
}

template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// kLoads: of a worker, of a row that is normalized. C: attention's head size.
template <typename T, int kLoads, int C>
__global__ void __launch_bounds__(Roles::kThreads, 1)
    persistent_chain(const __grid_constant__ ChainArgs<T> chain) {
  extern __shared__ __align__(1024) uint8_t shared[];
  allow_next_kernel();
  const Layout<T> layout(shared, chain);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == Roles::kProducer)
    Ring(layout.ring, chain.num_slots).init(0, static_cast<uint32_t>(chain.num_slots));
  for (int s = thread; s < chain.num_stages; s += Roles::kThreads)
    layout.stages[s] = chain.stages[s];
  __syncthreads();
  if (thread < Roles::kProducer) {
    take_registers<Registers::kAttention>();
    attend<C>(chain, layout);
  } else if (thread < Roles::kWorkers) {
    give_registers<Registers::kProducer>();
    if (thread == Roles::kProducer) produce(chain, layout);
  } else {
    work<kLoads>(chain, layout);
  }
}

}  // namespace encore::cuda::persistent
