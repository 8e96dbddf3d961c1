// linear with one row, and what passes fuse to it: a norm of the row (and the addition before it)
// in front, silu_mul behind.
//
// All of the time goes into reading the weights, so the kernel is a stream. Each of a block's first
// warps takes two outputs at a time, one from either half (gate and up, where silu_mul follows),
// and keeps a ring of pieces of those two weight rows in flight with the bulk copy engine, whatever
// the arithmetic does. Weights are constants: the rings are filled before the launches before have
// ended, a piece at a time. The last warps wait for those, bring x and normalize it; until then the
// L2 cache is asked for what comes after the rings, so that the memory does not idle. Copies are
// counted by barriers in shared memory; x is handed over by a named barrier of the block.
//
// A block has more than half of a multiprocessor's shared memory. Launches overlap, and without it
// blocks of one launch would crowd two by two onto the multiprocessors that happen to have room,
// and leave others idle. One multiprocessor copies at about 55 bytes a nanosecond and its fair
// share of the memory is 35, so a crowded one cannot keep up: 4.8 instead of 3.9 ms for a step of
// an 8B model on an H200. It has no more than it needs, of registers either: what is left lets
// blocks of attention start beside it. Where a warp has a few pieces only, as in a model of 0.6B, a
// short ring is the faster one: copies under way are what other launches' loads wait for in line
// (0.60 instead of 0.64 ms a step).
//
// The order of additions depends on the number of columns alone.
#include "backend/cuda/gemv.h"

#include <algorithm>

#include "backend/cuda/gemv.cuh"

namespace encore::cuda {
namespace {

using namespace gemv;  // NOLINT(google-build-using-namespace): the code that kernels share

constexpr int kThreads = kStreamThreads + kLoaderThreads;
constexpr int kMaxStages = 4;
constexpr int kMinStages = 2;
constexpr int64_t kFewPieces = 4;  // of a warp: no more stages than kMinStages
constexpr int64_t kMaxSharedBytes = 160 * 1024;
// Stages of a warp under way before x is there, at most: a load of x waits in line behind them.
constexpr int kWindow = 1;
constexpr int kStagesAhead = 12;      // that a warp has the L2 cache fetch, at most
constexpr int kCyclesPerStage = 700;  // at which it asks: about as fast as the memory delivers

// One warp's weights, stage by stage, as they are asked for. Used by lane 0.
template <typename T>
struct Producer {
  const GemvArgs<T>& args;
  int pair;
  int column = 0;

  [[nodiscard]] __device__ bool done() const { return pair >= args.num_pairs; }
  [[nodiscard]] const __device__ T* row(int output) const {
    return args.weight + static_cast<int64_t>(output) * args.num_columns + column;
  }
  // An odd last output takes its own row again as the other one.
  [[nodiscard]] __device__ int second_output() const {
    return min(pair + args.num_pairs, args.num_outputs - 1);
  }
  [[nodiscard]] __device__ uint32_t piece_bytes() const {
    return static_cast<uint32_t>(min(kPieceColumns, args.num_columns - column)) * sizeof(T);
  }
  __device__ __forceinline__ void next() {
    column += kPieceColumns;
    if (column < args.num_columns) return;
    column = 0;
    pair += kWarps * static_cast<int>(gridDim.x);
  }
  __device__ __forceinline__ void copy(uint32_t stage, uint32_t barrier) {
    const uint32_t bytes = piece_bytes();
    arrive_expecting(barrier, 2 * bytes);
    copy_bytes_once(stage, row(pair), bytes, barrier);
    copy_bytes_once(stage + kPieceBytes, row(second_output()), bytes, barrier);
    next();
  }
  __device__ __forceinline__ void prefetch() {
    prefetch_bytes(row(pair), piece_bytes());
    prefetch_bytes(row(second_output()), piece_bytes());
    next();
  }
};

// While x is not there and the ring is full, has the L2 cache fetch what `producer` would copy
// next. Loads of x wait behind all that was asked for before them, so asking is spread over time.
template <typename T>
__device__ __forceinline__ void fetch_ahead(Producer<T> producer, uint32_t ring_full,
                                            uint32_t x_soon) {
  long long last = clock64();
  for (int left = kStagesAhead; !is_over(x_soon, 0);) {
    if (left == 0 || producer.done() || clock64() - last < kCyclesPerStage ||
        !is_over(ring_full, 0)) {
      continue;
    }
    producer.prefetch();
    last = clock64();
    --left;
  }
}

// x is complete: the loaders arrive, the others wait.
__device__ __forceinline__ void hand_over_x() {
  asm volatile("bar.arrive 2, %0;" ::"n"(kThreads) : "memory");
}
__device__ __forceinline__ void wait_for_x() {
  asm volatile("bar.sync 2, %0;" ::"n"(kThreads) : "memory");
}

// What one of the first warps does. `x_soon`: a barrier that says that x is as good as there.
template <typename T>
__device__ __forceinline__ void stream_weights(const GemvArgs<T>& args, int num_stages,
                                               uint8_t* rings, const uint4* x, uint32_t x_soon) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int x_loads = args.num_columns / kColumnsPerLoad;
  const uint8_t* ring = rings + warp * num_stages * kStageBytes;
  const uint32_t copied = shared_address(ring);
  const uint32_t barriers = x_soon + 8 + static_cast<uint32_t>(warp * num_stages * 8);
  // Neighbouring outputs go to different multiprocessors, so that all get their share.
  const int first = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  const int stride = kWarps * static_cast<int>(gridDim.x);
  Producer<T> producer{args, first};
  if (lane < num_stages) {
    init_barrier(barriers + static_cast<uint32_t>(lane) * 8, 1);
    publish_barriers();
  }
  __syncwarp();
  if (lane == 0) {
#pragma unroll 1
    for (int i = 0; i < num_stages && !producer.done();) {
      const uint32_t barrier = barriers + static_cast<uint32_t>(i) * 8;
      const bool is_few = i < kWindow || is_over(barrier - kWindow * 8, 0);
      if (!is_few && !is_over(x_soon, 0)) continue;
      producer.copy(copied + static_cast<uint32_t>(i * kStageBytes), barrier);
      ++i;
    }
    fetch_ahead(producer, barriers + static_cast<uint32_t>(num_stages - 1) * 8, x_soon);
  }
  __syncwarp();
  wait_for_x();

  int stage = 0;
  uint32_t parity = 0;
  for (int pair = first; pair < args.num_pairs; pair += stride) {
    const float2 bias = load_bias(args, pair);
    Sums sums;
    for (int load = 0; load < x_loads; load += 32 * kLoadsPerPiece) {
      const uint32_t barrier = barriers + static_cast<uint32_t>(stage) * 8;
      wait_for_phase(barrier, parity);
      sums.add<T>(reinterpret_cast<const uint4*>(ring + stage * kStageBytes), x + load,
                  min(32 * kLoadsPerPiece, x_loads - load));
      __syncwarp();  // every lane has read the stage
      if (lane == 0 && !producer.done()) {
        producer.copy(copied + static_cast<uint32_t>(stage * kStageBytes), barrier);
      }
      if (++stage == num_stages) {
        stage = 0;
        parity ^= 1U;
      }
    }
    const float2 total = sums.total();
    if (lane == 0) {
      finish_pair(args, pair, {total.x + bias.x, total.y + bias.y},
                  [&](int output, float value) { store_output(args, output, value); });
    }
  }
}

// Shared memory: x, then the warps' rings, then the barrier that says that x comes, and theirs, one
// for each stage.
// kNormLoads: of a loader, of a row that is normalized; 0: it is not. kShares: a block leaves half
// of the registers to the next launch's.
template <typename T, int kNormLoads, bool kShares = false>
__global__ void __launch_bounds__(kThreads, kShares ? 2 : 1)
    gemv_kernel(const __grid_constant__ GemvArgs<T> args, int num_stages) {
  extern __shared__ __align__(128) uint8_t shared[];
  allow_next_kernel();
  const int x_loads = args.num_columns / kColumnsPerLoad;
  auto* x = reinterpret_cast<uint4*>(shared);
  uint8_t* rings = shared + (x_loads * 16 + 127) / 128 * 128;
  const uint32_t x_soon = shared_address(rings + kWarps * num_stages * kStageBytes);
  const bool is_loader = threadIdx.x >= kStreamThreads;
  if (threadIdx.x == kStreamThreads) {
    init_barrier(x_soon, 1);
    LoadersBarrier::init();
  }
  using Share = RowShare<T, std::max(1, kNormLoads)>;
  Share weights;
  if constexpr (kNormLoads > 0)
    weights.fetch(args.norm, x_loads);  // before the flood of the others
  __syncthreads();
  if (!is_loader) return stream_weights(args, num_stages, rings, x, x_soon);
  wait_for_inputs();
  if constexpr (kNormLoads > 0) {
    Share values;
    Share residual;
    values.fetch(args.x, x_loads);
    if (args.residual != nullptr) residual.fetch(args.residual, x_loads);
    LoadersBarrier barrier;
    normalize_row(args, values, residual, weights, barrier, x);
  } else {
    const auto* row = reinterpret_cast<const uint4*>(args.x);
    load_row<7>(x_loads, x, [&](int load) { return row[load]; });
  }
  if (threadIdx.x == kStreamThreads) arrive(x_soon);
  hand_over_x();
}

int64_t shared_bytes(int64_t columns, int64_t stages) {
  return round_up(2 * columns, 128) + 8 + stages * kWarps * (kStageBytes + 8);
}

int num_stages(int64_t columns) {
  int stages = kMaxStages;
  while (stages > 0 && shared_bytes(columns, stages) > kMaxSharedBytes)
    --stages;
  return stages;
}

// Of one warp, where the outputs are dealt to so many blocks.
template <typename T>
int64_t num_pieces(const GemvArgs<T>& gemv, int64_t blocks) {
  return div_up(gemv.num_pairs, kWarps * blocks) * div_up(gemv.num_columns, kPieceColumns);
}

// Should blocks of the next launch start beside this one's, as far as shared memory lets them? A
// step of a 1B model takes 0.71 instead of 0.73 ms then. In a smaller one most launches are short,
// and blocks would crowd (0.635 instead of 0.607 ms for 0.6B); in a larger one no two fit.
template <typename T>
bool shares_multiprocessor(const GemvArgs<T>& gemv) {
  constexpr int kMedium = 2048;
  constexpr int kLarge = 4096;
  const int side = std::min(gemv.num_outputs, gemv.num_columns);
  return side >= kMedium && side < kLarge;
}

template <typename T>
auto kernel_for(const GemvArgs<T>& gemv) -> void (*)(GemvArgs<T>, int) {
  const bool shares = shares_multiprocessor(gemv);
  if (gemv.norm == nullptr) return shares ? gemv_kernel<T, 0, true> : gemv_kernel<T, 0>;
  constexpr int kColumns = kLoaderThreads * kColumnsPerLoad;  // that all bring at once
  if (gemv.num_columns <= kColumns) return shares ? gemv_kernel<T, 1, true> : gemv_kernel<T, 1>;
  if (gemv.num_columns <= 2 * kColumns) return gemv_kernel<T, 2>;
  return gemv_kernel<T, kMaxNormLoads>;
}

template <typename T>
BoundLaunch bind_for(Device& device, const KernelArgs& args) {
  const GemvArgs<T> gemv = gemv_args<T>(args);
  const auto kernel = kernel_for(gemv);
  allow_shared_memory(kernel, kMaxSharedBytes);
  const int64_t blocks = std::min<int64_t>(chip(device).num_multiprocessors, gemv.num_pairs);
  const int stages =
      num_pieces(gemv, blocks) <= kFewPieces ? kMinStages : num_stages(gemv.num_columns);
  const Grid grid{.blocks = static_cast<unsigned>(blocks),
                  .threads = kThreads,
                  .shared_bytes = static_cast<size_t>(shared_bytes(gemv.num_columns, stages))};
  return [gemv, grid, kernel, stages](Stream& stream, const StepShape& /*step*/) {
    launch(stream, grid, kernel, gemv, stages);
  };
}

}  // namespace

bool accepts_gemv(const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  const int64_t columns = o.weight->row_elements();
  const bool types = size_of(o.x->dtype) == 2 && o.weight->dtype == o.x->dtype &&
                     (o.out->dtype == o.x->dtype || o.out->dtype == DType::kF32);
  const auto aligned = [](const TensorView* view) { return view == nullptr || is_aligned(*view); };
  return types && o.x->num_rows() == 1 && o.weight->num_rows() > 0 && columns > 0 &&
         columns % kColumnsPerLoad == 0 && (o.norm == nullptr || columns <= kMaxNormColumns) &&
         o.weight->is_dense() && aligned(o.x) && aligned(o.weight) && aligned(o.residual) &&
         aligned(o.norm) && aligned(o.sum) && num_stages(columns) >= kMinStages;
}

BoundLaunch bind_gemv(Device& device, const KernelArgs& args) {
  return args.inputs[0].dtype == DType::kF16 ? bind_for<__half>(device, args)
                                             : bind_for<__nv_bfloat16>(device, args);
}

}  // namespace encore::cuda
