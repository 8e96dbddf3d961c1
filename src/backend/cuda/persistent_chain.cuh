// A chain of linears with one row, and of attention between them, as the stages of one persistent
// kernel: a whole model's layers. What a stage computes is gemv.cuh's and attention_stage.cuh's.
//
// Four kinds of warps. The producers, a thread each, have the weights of all stages copied into
// rings in shared memory, in the order in which they are used, far across the ends of stages: what
// a stage waits for is x alone. (One producer for all would be too slow: it takes 0.23 us for a
// slot.) The multipliers multiply what arrives with x; two of them share a ring. The loaders bring
// x. The warps of attention read older keys and values while other stages run.
//
// How x goes from block to block: words.cuh. Words are asked for once all blocks have said, by
// adding to a counter, that theirs are on their way; that keeps readers from polling thousands of
// words, and is no more than a hint.
//
// The residual needs no words: each block adds up the whole row for itself and keeps it.
//
// Latency. A load waits in line behind the copies that the multiprocessor has asked for: 0.26 us
// with 32 KB under way, 2 us with 128 KB, at the same rate of copying. So the producers ask for no
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

inline constexpr int kRings = 4;
inline constexpr int kWarpsPerRing = kWarps / kRings;
inline constexpr int64_t kSharedBytes = 224 * 1024;
inline constexpr int kWindow = 3;  // slots of a ring under way at most
inline constexpr int kMinSlots = kWindow + 1;
inline constexpr int kMaxLoads = 2;  // of a loader, of a row that is normalized
inline constexpr int kLine = 32;     // words of a cache line

// The block: warpgroups of 128 threads, which share out the registers of the multiprocessor.
struct Roles {
  static constexpr int kProducers = decode::kThreads;  // first thread; attention's come before
  static constexpr int kLoaders = kProducers + 32 * kRings;
  static constexpr int kMultipliers = kLoaders + kLoaderThreads;
  static constexpr int kThreads = kMultipliers + kStreamThreads;
};
static_assert(Roles::kLoaders == kStreamThreads, "where gemv.cuh has the loaders");

// Registers of a thread: what a launch of so many threads gives to each, and who takes how many.
struct Registers {
  static constexpr int kAtLaunch = 80;
  static constexpr int kAttention = 136;
  static constexpr int kProducers = 40;
  static constexpr int kLoaders = kAtLaunch;
  static constexpr int kMultipliers = 72;
};
static_assert(Registers::kAttention + Registers::kProducers + 2 * Registers::kLoaders +
                  2 * Registers::kMultipliers <=
              Registers::kAtLaunch * Roles::kThreads / 128);

// Tiles of keys that a warp of attention has under way: what leaves room for the rings.
constexpr int tiles_of_head(int64_t head_size) {
  return head_size == 64 ? 2 : 1;
}

template <typename T>
struct StageArgs {
  GemvArgs<T> gemv;         // `out` and `sum` are null where nothing after the chain reads them
  const uint32_t* x_words;  // null: x is in memory, from before the launch
  uint32_t* out_words;      // null: no stage reads the output
  bool keeps_residual;      // it is the sum that the stages before have left in the block
  const decode::AttentionStageArgs<T>* attention;  // null: the stage is a linear
};

template <typename T>
struct ChainArgs {
  const StageArgs<T>* stages;
  int num_stages;
  int num_slots;        // of a ring
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
  decode::AttentionStageArgs<T>* attention_args;  // of the stage that is the next
  StageArgs<T>* stages;
  uint4* x;
  const uint8_t* rings;  // and their barriers

  __device__ __forceinline__ Layout(uint8_t* shared, const ChainArgs<T>& chain) {
    attention = shared;
    x = reinterpret_cast<uint4*>(shared + chain.attention_bytes);
    rings = shared + chain.attention_bytes + chain.x_bytes;
    attention_args = reinterpret_cast<decode::AttentionStageArgs<T>*>(
        shared + chain.attention_bytes + chain.x_bytes +
        kRings * chain.num_slots * (kStageBytes + 16));
    stages = reinterpret_cast<StageArgs<T>*>(attention_args + 1);
  }
};

// A place in the ring, and how often the ring has gone round before it, modulo 2.
struct Position {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance(int count, int num_slots) {
    slot += count;
    if (slot < num_slots) return;
    slot -= num_slots;
    parity ^= 1U;
  }
};

// A ring of weights: a slot is a stage of gemv.cuh, full when its copies have arrived and empty
// when its warp has multiplied it.
struct Ring {
  const uint8_t* data;
  uint32_t barriers;  // full of each slot, then empty of each slot
  int num_slots;

  // Ring `number` of those that start there.
  __device__ __forceinline__ Ring(const uint8_t* rings, int number, int num_slots)
      : data(rings + number * num_slots * kStageBytes),
        barriers(shared_address(rings + kRings * num_slots * kStageBytes) +
                 static_cast<uint32_t>(2 * number * num_slots) * 8),
        num_slots(num_slots) {}

  [[nodiscard]] const __device__ __forceinline__ uint8_t* at(int slot) const {
    return data + slot * kStageBytes;
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t full(int slot) const {
    return barriers + static_cast<uint32_t>(slot) * 8;
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t empty(int slot) const {
    return full(num_slots + slot);
  }
};

// The order of a stage's pieces in a ring: the block's pairs of outputs by groups, one for each
// warp, and in a group piece after piece, each for all warps of the ring. Neighbouring outputs go
// to different blocks, so that all get their share.
struct Group {
  int first;   // pair, of the ring's first warp; its next warp is kRings further
  int active;  // warps of the ring that have one

  template <typename T>
  __device__ __forceinline__ Group(const GemvArgs<T>& args, int ring)
      : first(ring * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)) {
    count(args.num_pairs);
  }
  [[nodiscard]] __device__ __forceinline__ int pair(int warp) const {
    return first + warp * kRings * static_cast<int>(gridDim.x);
  }
  __device__ __forceinline__ void next(int num_pairs) {
    first = pair(kWarpsPerRing);
    count(num_pairs);
  }
  __device__ __forceinline__ void count(int num_pairs) {
    active = 0;
#pragma unroll
    for (int warp = 0; warp < kWarpsPerRing; ++warp)
      active += pair(warp) < num_pairs ? 1 : 0;
  }
};

// Named barriers. x goes from the loaders to the multipliers, and its memory back to the first warp
// of loaders,
__device__ __forceinline__ void hand_over_x() {
  asm volatile("bar.arrive 2, %0;" ::"n"(kStreamThreads + kLoaderThreads) : "memory");
}
__device__ __forceinline__ void wait_for_x() {
  asm volatile("bar.sync 2, %0;" ::"n"(kStreamThreads + kLoaderThreads) : "memory");
}
__device__ __forceinline__ void give_back_x() {
  asm volatile("bar.arrive 3, %0;" ::"n"(kStreamThreads + 32) : "memory");
}
__device__ __forceinline__ void wait_until_x_is_read() {
  asm volatile("bar.sync 3, %0;" ::"n"(kStreamThreads + 32) : "memory");
}
// and that warp tells attention that it is its turn, and attention that it is done.
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

// What a multiplier does.
template <typename T>
__device__ __forceinline__ void multiply(const ChainArgs<T>& chain, const Layout<T>& layout,
                                         const uint32_t& shared_tag) {
  const int number = (static_cast<int>(threadIdx.x) - Roles::kMultipliers) / 32;
  const int warp = number / kRings;  // of the ring
  const Ring ring(layout.rings, number % kRings, chain.num_slots);
  const bool is_leader = threadIdx.x % 32 == 0;
  Position base;  // of the ring's first warp
  for (int s = 0; s < chain.num_stages; ++s) {
    if (layout.stages[s].attention != nullptr) continue;
    const GemvArgs<T> args = layout.stages[s].gemv;
    uint32_t* words = layout.stages[s].out_words;
    const int x_loads = args.num_columns / kColumnsPerLoad;
    wait_for_x();
    const uint32_t tag = shared_tag;
    for (Group group(args, number % kRings); group.active > 0; group.next(args.num_pairs)) {
      const bool works = warp < group.active;
      const int pair = group.pair(warp);
      const float2 bias = works ? load_bias(args, pair) : float2{};
      Sums sums;
      for (int load = 0; load < x_loads; load += 32 * kLoadsPerPiece) {
        Position mine = base;
        base.advance(group.active, ring.num_slots);
        if (!works) continue;
        mine.advance(warp, ring.num_slots);
        wait_for_phase(ring.full(mine.slot), mine.parity);
        sums.add<T>(reinterpret_cast<const uint4*>(ring.at(mine.slot)), layout.x + load,
                    min(32 * kLoadsPerPiece, x_loads - load));
        __syncwarp();  // every lane has read the slot
        if (is_leader) arrive(ring.empty(mine.slot));
      }
      if (!works) continue;
      const float2 total = sums.total();
      if (is_leader) {
        finish_pair(args, pair, {total.x + bias.x, total.y + bias.y}, [&](int output, float value) {
          if (words != nullptr)
            st_relaxed<Scope::kDevice>(words + output, make_word(from_float<T>(value), tag));
          if (args.out != nullptr) store_output(args, output, value);
        });
      }
    }
    if (s + 1 < chain.num_stages) give_back_x();
  }
}

// What a ring's producer does.
template <typename T>
__device__ __forceinline__ void produce(const ChainArgs<T>& chain, const Layout<T>& layout) {
  const int number = (static_cast<int>(threadIdx.x) - Roles::kProducers) / 32;
  const Ring ring(layout.rings, number, chain.num_slots);
  Position next;
  Position oldest;  // under way
  int under_way = 0;
  for (int s = 0; s < chain.num_stages; ++s) {
    const GemvArgs<T> args = layout.stages[s].gemv;  // without outputs: an attention
    const int columns = args.num_columns;
    for (Group group(args, number); group.active > 0; group.next(args.num_pairs)) {
      for (int column = 0; column < columns; column += kPieceColumns) {
        const uint32_t bytes = static_cast<uint32_t>(min(kPieceColumns, columns - column)) * 2;
        for (int warp = 0; warp < group.active; ++warp) {
          if (under_way == kWindow) {
            wait_for_phase(ring.full(oldest.slot), oldest.parity);
            oldest.advance(1, ring.num_slots);
          } else {
            ++under_way;
          }
          wait_for_phase(ring.empty(next.slot), next.parity ^ 1U);
          const int pair = group.pair(warp);
          // An odd last output takes its own row again as the other one.
          const int second = min(pair + args.num_pairs, args.num_outputs - 1);
          const uint32_t slot = shared_address(ring.at(next.slot));
          const uint32_t barrier = ring.full(next.slot);
          arrive_expecting(barrier, 2 * bytes);
          copy_bytes_once(slot, args.weight + static_cast<int64_t>(pair) * columns + column, bytes,
                          barrier);
          copy_bytes_once(slot + kPieceBytes,
                          args.weight + static_cast<int64_t>(second) * columns + column, bytes,
                          barrier);
          next.advance(1, ring.num_slots);
        }
      }
    }
  }
}

// What the loaders keep from stage to stage.
template <typename T>
struct Passage {
  const ChainArgs<T>& chain;
  LoadersBarrier barrier;
  uint32_t launches = 0;
  uint32_t target = 0;  // of arrivals; they, and the launches, wrap together
  bool is_behind_attention = false;

  // The launches before have ended.
  __device__ __forceinline__ void begin(uint32_t& shared_tag) {
    wait_for_inputs();
    launches = __ldcg(chain.launches);
    target = launches * static_cast<uint32_t>(chain.num_stages - 1) * gridDim.x;
    if (Loaders::index() == 0) shared_tag = tag_of(launches);
  }
  // This block is done with the stage before, and all blocks have sent its words. The first warp.
  __device__ __forceinline__ void pass() {
    if (is_behind_attention) {
      wait_for_attention();
    } else {
      wait_until_x_is_read();
    }
    if (Loaders::index() == 0) {
      red_add_relaxed<Scope::kDevice>(chain.arrivals, 1);
      while (static_cast<int32_t>(ld_relaxed<Scope::kDevice>(chain.arrivals) - target) < 0) {
      }
    }
    __syncwarp();
  }
  __device__ __forceinline__ void pass_to_attention() {
    target += gridDim.x;
    if (Loaders::index() < 32) {
      pass();
      start_attention();
    }
    is_behind_attention = true;
  }
  __device__ __forceinline__ void pass_to_linear() {
    target += gridDim.x;
    if (Loaders::index() < 32) pass();
    barrier.meet();
    is_behind_attention = false;
  }
};

// What the loaders do.
template <int kLoads, typename T>
__device__ __forceinline__ void bring_rows(const ChainArgs<T>& chain, const Layout<T>& layout,
                                           uint32_t& shared_tag) {
  using Share = RowShare<T, kLoads>;
  Share kept;
  Passage<T> passage{chain};
  for (int s = 0; s < chain.num_stages; ++s) {
    const StageArgs<T>& stage = layout.stages[s];
    if (stage.attention != nullptr) {
      passage.pass_to_attention();
      continue;
    }
    const GemvArgs<T> args = stage.gemv;
    const int num_loads = args.num_columns / kColumnsPerLoad;
    const uint32_t* words = stage.x_words;
    const bool keeps_residual = stage.keeps_residual;
    Share weights;
    if (args.norm != nullptr) weights.fetch(args.norm, num_loads);
    if (s == 0) passage.begin(shared_tag);
    if (args.residual != nullptr && !keeps_residual) kept.fetch(args.residual, num_loads);
    if (s > 0) passage.pass_to_linear();
    const uint32_t tag = tag_of(passage.launches);
    if (args.norm == nullptr) {
      const auto* row = reinterpret_cast<const uint4*>(args.x);
      if (words == nullptr) {
        load_row<2>(num_loads, layout.x, [&](int load) { return row[load]; });
      } else {
        receive_row(num_loads, layout.x, words, tag);
      }
    } else {
      Share values;
      if (words == nullptr) {
        values.fetch(args.x, num_loads);
      } else {
        receive_share(values, num_loads, words, tag);
      }
      normalize_row(args, values, kept, weights, passage.barrier, layout.x);
      if (args.residual != nullptr) kept = values;
    }
    hand_over_x();
  }
  // Every block has read it: all have come to the last stage.
  if (blockIdx.x == 0 && Loaders::index() == 0) *chain.launches = passage.launches + 1;
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

// kLoads: of a loader, of a row that is normalized. C: attention's head size.
template <typename T, int kLoads, int C>
__global__ void __launch_bounds__(Roles::kThreads, 1)
    persistent_chain(const __grid_constant__ ChainArgs<T> chain) {
  extern __shared__ __align__(1024) uint8_t shared[];
  __shared__ uint32_t tag;  // of this launch's words
  allow_next_kernel();
  const Layout<T> layout(shared, chain);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 2 * kRings * chain.num_slots) {
    init_barrier(Ring(layout.rings, 0, chain.num_slots).full(thread), 1);
    publish_barriers();
  }
  if (thread == 0) LoadersBarrier::init();
  for (int s = thread; s < chain.num_stages; s += Roles::kThreads)
    layout.stages[s] = chain.stages[s];
  __syncthreads();
  if (thread < Roles::kProducers) {
    take_registers<Registers::kAttention>();
    attend<C>(chain, layout);
  } else if (thread < Roles::kLoaders) {
    give_registers<Registers::kProducers>();
    if (thread % 32 == 0) produce(chain, layout);
  } else if (thread < Roles::kMultipliers) {
    bring_rows<kLoads>(chain, layout, tag);
  } else {
    give_registers<Registers::kMultipliers>();
    multiply(chain, layout, tag);
  }
}

}  // namespace encore::cuda::persistent
