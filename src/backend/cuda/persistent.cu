// A chain of linears with one row as the stages of one persistent kernel; what a stage computes is
// gemv.cuh's.
//
// Three kinds of warps. The producers, a thread each, have the weights of all stages copied into
// rings in shared memory, in the order in which they are used, far across the ends of stages: what
// a stage waits for is x alone. The first warps multiply what arrives with x; two of them share a
// ring. (One producer for all would be too slow: it takes 0.23 us for a slot.) The loaders bring x.
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
#include "backend/cuda/persistent.h"

#include <algorithm>
#include <array>
#include <memory>

#include "backend/cuda/gemv.cuh"
#include "backend/cuda/gemv.h"
#include "backend/cuda/memory_order.cuh"
#include "backend/cuda/words.cuh"

namespace encore::cuda {
namespace {

using namespace gemv;  // NOLINT(google-build-using-namespace): the code that kernels share

constexpr int kRings = 4;
constexpr int kWarpsPerRing = kWarps / kRings;
constexpr int kFirstProducer = kWarps + kLoaderWarps;  // warp
constexpr int kThreads = 32 * (kFirstProducer + kRings);
constexpr int kMaxStages = 16;
constexpr int64_t kSharedBytes = 184 * 1024;
constexpr int kWindow = 3;  // slots of a ring under way at most
constexpr int kMinSlots = kWindow + 1;

template <typename T>
struct StageArgs {
  GemvArgs<T> gemv;         // `out` and `sum` are null where nothing after the chain reads them
  const uint32_t* x_words;  // null: x is in memory, from before the launch
  uint32_t* out_words;      // null: no stage reads the output
  bool keeps_residual;      // it is the sum that the stages before have left in the block
};

template <typename T>
struct ChainArgs {
  StageArgs<T> stages[kMaxStages];
  int num_stages;
  int num_slots;       // of a ring
  int x_bytes;         // the widest row of x
  uint32_t* arrivals;  // of blocks at ends of stages, in all launches so far
  uint32_t* launches;  // so far
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

// x goes from the loaders to the warps that multiply, and its memory back to the first warp of
// loaders, by named barriers.
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

// What one of the warps that multiply does.
template <typename T>
__device__ __forceinline__ void multiply(const ChainArgs<T>& chain, const uint8_t* rings,
                                         const uint4* x, const uint32_t& tag) {
  const int number = static_cast<int>(threadIdx.x) / 32 % kRings;
  const int warp = static_cast<int>(threadIdx.x) / 32 / kRings;  // of the ring
  const Ring ring(rings, number, chain.num_slots);
  const bool is_leader = threadIdx.x % 32 == 0;
  Position base;  // of the ring's first warp
  for (int s = 0; s < chain.num_stages; ++s) {
    const GemvArgs<T>& args = chain.stages[s].gemv;
    uint32_t* words = chain.stages[s].out_words;
    const int x_loads = args.num_columns / kColumnsPerLoad;
    wait_for_x();
    for (Group group(args, number); group.active > 0; group.next(args.num_pairs)) {
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
        sums.add<T>(reinterpret_cast<const uint4*>(ring.at(mine.slot)), x + load,
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
__device__ __forceinline__ void produce(const ChainArgs<T>& chain, const uint8_t* rings) {
  const int number = static_cast<int>(threadIdx.x) / 32 - kFirstProducer;
  const Ring ring(rings, number, chain.num_slots);
  Position next;
  Position oldest;  // under way
  int under_way = 0;
  for (int s = 0; s < chain.num_stages; ++s) {
    const GemvArgs<T>& args = chain.stages[s].gemv;
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

// This block is done with x, and all blocks have sent this stage's words. All loaders.
template <typename T>
__device__ __forceinline__ void pass_stage(const ChainArgs<T>& chain, uint32_t target,
                                           LoadersBarrier& barrier) {
  if (Loaders::index() < 32) {
    wait_until_x_is_read();
    if (Loaders::index() == 0) {
      atom_add_relaxed<Scope::kDevice>(chain.arrivals, 1);
      while (static_cast<int32_t>(ld_relaxed<Scope::kDevice>(chain.arrivals) - target) < 0) {
      }
    }
  }
  barrier.meet();
}

// What the loaders do.
template <int kLoads, typename T>
__device__ __forceinline__ void bring_rows(const ChainArgs<T>& chain, uint4* x, uint32_t& tag) {
  using Share = RowShare<T, kLoads>;
  Share kept;
  LoadersBarrier barrier;
  uint32_t launches = 0;
  uint32_t target = 0;  // of arrivals; they, and the launches, wrap together
  for (int s = 0; s < chain.num_stages; ++s) {
    const StageArgs<T>& stage = chain.stages[s];
    const GemvArgs<T>& args = stage.gemv;
    const int num_loads = args.num_columns / kColumnsPerLoad;
    const uint32_t* words = stage.x_words;
    Share weights;
    if (args.norm != nullptr) weights.fetch(args.norm, num_loads);
    if (s == 0) {
      wait_for_inputs();
      launches = __ldcg(chain.launches);
      target = launches * static_cast<uint32_t>(chain.num_stages - 1) * gridDim.x;
      if (Loaders::index() == 0) tag = tag_of(launches);
    }
    if (args.residual != nullptr && !stage.keeps_residual) kept.fetch(args.residual, num_loads);
    if (s > 0) pass_stage(chain, target += gridDim.x, barrier);
    if (args.norm == nullptr) {
      const auto* row = reinterpret_cast<const uint4*>(args.x);
      if (words == nullptr) {
        load_row<2>(num_loads, x, [&](int load) { return row[load]; });
      } else {
        receive_row(num_loads, x, words, tag_of(launches));
      }
    } else {
      Share values;
      if (words == nullptr) {
        values.fetch(args.x, num_loads);
      } else {
        receive_share(values, num_loads, words, tag_of(launches));
      }
      normalize_row(args, values, kept, weights, barrier, x);
      if (args.residual != nullptr) kept = values;
    }
    hand_over_x();
  }
  // Every block has read it: all have come to the last stage.
  if (blockIdx.x == 0 && Loaders::index() == 0) *chain.launches = launches + 1;
}

// Shared memory: x, the rings, their barriers. kLoads: of a loader, of a row that is normalized.
template <typename T, int kLoads>
__global__ void __launch_bounds__(kThreads, 1)
    persistent_linear(const __grid_constant__ ChainArgs<T> chain) {
  extern __shared__ __align__(128) uint8_t shared[];
  __shared__ uint32_t tag;  // of this launch's words
  allow_next_kernel();
  auto* x = reinterpret_cast<uint4*>(shared);
  const uint8_t* rings = shared + chain.x_bytes;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 2 * kRings * chain.num_slots) {
    init_barrier(Ring(rings, 0, chain.num_slots).full(thread), 1);
    publish_barriers();
  }
  if (thread == 0) LoadersBarrier::init();
  __syncthreads();
  if (thread < kStreamThreads) {
    multiply(chain, rings, x, tag);
  } else if (thread < 32 * kFirstProducer) {
    bring_rows<kLoads>(chain, x, tag);
  } else if (thread % 32 == 0) {
    produce(chain, rings);
  }
}

int64_t x_bytes(std::span<const Stage> chain) {
  int64_t columns = 0;
  for (const Stage& stage : chain)
    columns = std::max(columns, linear_operands(*stage.args).weight->row_elements());
  return round_up(2 * columns, 128);
}

int64_t num_slots(std::span<const Stage> chain) {
  return (kSharedBytes - x_bytes(chain)) / (kRings * (kStageBytes + 16));
}

// Which input of a launch is an operand?
size_t input_of(const KernelArgs& args, const TensorView* operand) {
  return static_cast<size_t>(operand - args.inputs.data());
}

// Every stage's x is what the stage before it has made, and its residual either from before the
// chain, or the last sum in it.
bool is_chain(std::span<const Stage> chain) {
  int last_sum = -1;  // stage
  for (int s = 0; s < static_cast<int>(chain.size()); ++s) {
    const KernelArgs& args = *chain[s].args;
    const LinearOperands o = linear_operands(args);
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      const Stage::Origin& origin = chain[s].inputs[i];
      const bool is_x = i == 0;
      if (is_x && s > 0) {
        const auto made = static_cast<int>(chain[s - 1].args->outputs.size()) - 1;
        if (origin.stage != s - 1 || origin.output != made) return false;
      } else if (origin.stage >= 0) {
        const bool is_kept = o.residual != nullptr && i == input_of(args, o.residual) &&
                             origin.stage == last_sum && origin.output == 0;
        if (!is_kept) return false;
      }
    }
    if (o.residual != nullptr) last_sum = s;
  }
  return true;
}

bool accepts_stage(const Kernel& kernel, const KernelArgs& /*args*/) {
  return kernel.bind == bind_gemv;
}

bool accepts(std::span<const Stage> chain) {
  const DType dtype = chain.front().args->inputs[0].dtype;
  const bool same_type = std::all_of(chain.begin(), chain.end(), [&](const Stage& stage) {
    return stage.args->inputs[0].dtype == dtype;
  });
  return same_type && chain.size() <= kMaxStages && num_slots(chain) >= kMinSlots &&
         is_chain(chain);
}

// Numbers of a chain's stages, on the device; zero before the first launch.
struct RunMemory {
  static constexpr int64_t kLine = 32;  // words; counts lie in lines of their own
  static constexpr int64_t kCounts = 2 * kLine;

  Memory memory;

  RunMemory(Device& device, int64_t num_words)
      : memory(device.allocate((kCounts + num_words) * 4)) {
    const auto stream = device.create_stream();
    stream->fill(memory.data(), 0, memory.bytes());
    stream->synchronize();
  }
  [[nodiscard]] uint32_t* at(int64_t word) const {
    return reinterpret_cast<uint32_t*>(memory.data()) + word;
  }
};

template <typename T>
auto kernel_for(std::span<const Stage> chain) {
  int64_t columns = 0;
  for (const Stage& stage : chain) {
    const LinearOperands o = linear_operands(*stage.args);
    if (o.norm != nullptr) columns = std::max(columns, o.weight->row_elements());
  }
  constexpr int64_t kColumns = int64_t{kLoaderThreads} * kColumnsPerLoad;
  return columns <= kColumns       ? persistent_linear<T, 1>
         : columns <= 2 * kColumns ? persistent_linear<T, 2>
                                   : persistent_linear<T, kMaxNormLoads>;
}

template <typename T>
BoundLaunch bind_for(Device& device, std::span<const Stage> chain) {
  const auto width = [](const Stage& stage) { return stage.args->outputs.back().row_elements(); };
  int64_t num_words = 0;
  for (const Stage& stage : chain.first(chain.size() - 1))
    num_words += round_up(width(stage), RunMemory::kLine);
  // Shared by the copies of the launch function.
  const auto memory = std::make_shared<const RunMemory>(device, num_words);

  ChainArgs<T> args{};
  args.num_stages = static_cast<int>(chain.size());
  args.num_slots = static_cast<int>(num_slots(chain));
  args.x_bytes = static_cast<int>(x_bytes(chain));
  args.arrivals = memory->at(0);
  args.launches = memory->at(RunMemory::kLine);
  const uint32_t* x_words = nullptr;
  uint32_t* words = memory->at(RunMemory::kCounts);
  for (size_t s = 0; s < chain.size(); ++s) {
    const Stage& stage = chain[s];
    const LinearOperands o = linear_operands(*stage.args);
    StageArgs<T>& to = args.stages[s];
    to.gemv = gemv_args<T>(*stage.args);
    if (!stage.read_after.back()) to.gemv.out = nullptr;
    if (o.residual != nullptr) {
      if (!stage.read_after.front()) to.gemv.sum = nullptr;
      to.keeps_residual = stage.inputs[input_of(*stage.args, o.residual)].stage >= 0;
    }
    to.x_words = x_words;
    if (s + 1 == chain.size()) break;
    to.out_words = words;
    x_words = words;
    words += round_up(width(stage), RunMemory::kLine);
  }
  const auto kernel = kernel_for<T>(chain);
  allow_shared_memory(kernel, kSharedBytes);
  const Grid grid{.blocks = static_cast<unsigned>(chip(device).num_multiprocessors),
                  .threads = kThreads,
                  .shared_bytes = static_cast<size_t>(kSharedBytes)};
  return [args, grid, kernel, memory](Stream& stream, const StepShape& /*step*/) {
    launch(stream, grid, kernel, args);
  };
}

BoundLaunch bind(Device& device, std::span<const Stage> chain) {
  return chain.front().args->inputs[0].dtype == DType::kF16
             ? bind_for<__half>(device, chain)
             : bind_for<__nv_bfloat16>(device, chain);
}

}  // namespace

std::span<const PersistentKernel> persistent_kernels() {
  static constexpr std::array<PersistentKernel, 1> kRows = {
      {{{.op = "", .name = "persistent.linear"}, accepts_stage, accepts, bind}}};
  return kRows;
}

}  // namespace encore::cuda
