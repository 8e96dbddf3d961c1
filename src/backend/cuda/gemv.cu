// linear with one row, and what passes fuse to it: a norm of the row (and the addition before it)
// in front, silu_mul behind.
//
// All of the time goes into reading the weights, so the kernel is a stream. Each of a block's first
// warps takes two outputs at a time, one from either half (gate and up, where silu_mul follows),
// and keeps a ring of pieces of those two weight rows in flight with the bulk copy engine, whatever
// the arithmetic does. Weights are constants: the rings are filled before the launches before have
// ended. The last warps wait for those, bring x and normalize it; until then the L2 cache is asked
// for what comes after the rings, so that the memory does not idle.
//
// A block asks for more than half of a multiprocessor's shared memory, needed or not. Launches
// overlap, and without it blocks of one launch would crowd two by two onto the multiprocessors that
// happen to have room, and leave others idle. One multiprocessor copies at about 55 bytes a
// nanosecond and its fair share of the memory is 35, so a crowded one cannot keep up: 4.8 instead
// of 3.9 ms for a step of an 8B model on an H200.
//
// The order of additions depends on the number of columns alone.
#include "backend/cuda/gemv.h"

#include <algorithm>

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/fused_linear.h"

namespace encore::cuda {
namespace {

constexpr int kWarps = 8;  // that stream
constexpr int kStreamThreads = 32 * kWarps;
constexpr int kLoaderWarps = 8;
constexpr int kLoaderThreads = 32 * kLoaderWarps;
constexpr int kThreads = kStreamThreads + kLoaderThreads;
constexpr int kColumnsPerLoad = 8;  // 16 bytes
constexpr int kLoadsPerPiece = 4;   // per lane
constexpr int kPieceColumns = 32 * kLoadsPerPiece * kColumnsPerLoad;
constexpr int kPieceBytes = 2 * kPieceColumns;  // of one weight row
constexpr int kStageBytes = 2 * kPieceBytes;    // a piece of either row
constexpr int kMaxStages = 16;
constexpr int kMinStages = 2;
// More than half of a Hopper multiprocessor's 228 KB. With more than this, steps are slower again.
constexpr int64_t kSharedBytes = 160 * 1024;
constexpr int kStagesAhead = 12;      // that a warp has the L2 cache fetch, at most
constexpr int kCyclesPerStage = 700;  // at which it asks: about as fast as the memory delivers
constexpr int kMaxNormLoads = 4;      // per loader, kept in registers
constexpr int64_t kMaxNormColumns = int64_t{kMaxNormLoads} * kLoaderThreads * kColumnsPerLoad;

template <typename T>
struct GemvArgs {
  const T* weight;
  const T* x;
  const T* residual;  // null: none
  const T* norm;      // null: none
  const T* bias;      // null: none
  T* sum;
  void* out;
  bool out_is_float;
  bool silu_mul;
  float eps;
  int num_outputs;  // rows of weight
  int num_pairs;    // of outputs
  int num_columns;
  int num_stages;
};

// The two elements of 32 bits, lower address first.
template <typename T>
__device__ __forceinline__ float2 unpack_pair(uint32_t bits) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(bits));
  } else {
    return {__uint_as_float(bits << 16U), __uint_as_float(bits & 0xffff0000U)};
  }
}

// Adds the products of 8 columns of both weight rows to their sums.
template <typename T>
__device__ __forceinline__ void dot(const uint4& first, const uint4& second, const uint4& x,
                                    float& first_sum, float& second_sum) {
  const uint32_t a_pairs[4] = {first.x, first.y, first.z, first.w};
  const uint32_t b_pairs[4] = {second.x, second.y, second.z, second.w};
  const uint32_t x_pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 a = unpack_pair<T>(a_pairs[i]);
    const float2 b = unpack_pair<T>(b_pairs[i]);
    const float2 c = unpack_pair<T>(x_pairs[i]);
    first_sum = fmaf(a.x, c.x, first_sum);
    second_sum = fmaf(b.x, c.x, second_sum);
    first_sum = fmaf(a.y, c.y, first_sum);
    second_sum = fmaf(b.y, c.y, second_sum);
  }
}

// A lane's sums of the two outputs of its warp, by load of a piece.
struct Sums {
  float first[kLoadsPerPiece] = {};
  float second[kLoadsPerPiece] = {};

  // `num_loads`: 16-byte loads in each piece of the stage.
  template <typename T>
  __device__ __forceinline__ void add(const uint4* stage, const uint4* x, int num_loads) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const uint4* other = stage + 32 * kLoadsPerPiece;
    if (num_loads == 32 * kLoadsPerPiece) {
#pragma unroll
      for (int i = 0; i < kLoadsPerPiece; ++i) {
        const int load = lane + 32 * i;
        dot<T>(stage[load], other[load], x[load], first[i], second[i]);
      }
      return;
    }
#pragma unroll
    for (int i = 0; i < kLoadsPerPiece; ++i) {
      const int load = lane + 32 * i;
      if (load < num_loads) dot<T>(stage[load], other[load], x[load], first[i], second[i]);
    }
  }

  // The sums of the warp, in every lane.
  __device__ __forceinline__ float2 total() const {
    float2 sums{0, 0};
#pragma unroll
    for (int i = 0; i < kLoadsPerPiece; ++i) {
      sums.x += first[i];
      sums.y += second[i];
    }
    return {warp_sum(sums.x), warp_sum(sums.y)};
  }
};

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

// Threads that bring x: the last warps of a block.
struct Loaders {
  static __device__ int index() { return static_cast<int>(threadIdx.x) - kStreamThreads; }
  // All loaders arrive, then go on.
  static __device__ void sync() {
    asm volatile("bar.sync 1, %0;" ::"n"(kLoaderThreads) : "memory");
  }
};

// Sum over the loaders, in every one of them.
__device__ __forceinline__ float loaders_sum(float value) {
  __shared__ float partial[kLoaderWarps];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) partial[Loaders::index() / 32] = value;
  Loaders::sync();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLoaderWarps; ++i)
    sum += partial[i];
  return sum;
}

// Brings x to shared memory, with several loads in flight.
template <typename T>
__device__ __forceinline__ void load_row(const GemvArgs<T>& args, uint4* x) {
  constexpr int kBatch = 7;
  const int num_loads = args.num_columns / kColumnsPerLoad;
  const auto* source = reinterpret_cast<const uint4*>(args.x);
#pragma unroll 1
  for (int first = Loaders::index(); first < num_loads; first += kBatch * kLoaderThreads) {
    uint4 values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * kLoaderThreads < num_loads) values[i] = source[first + i * kLoaderThreads];
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * kLoaderThreads < num_loads) x[first + i * kLoaderThreads] = values[i];
    }
  }
}

// Which 16 bytes of a row a loader's i-th load brings.
__device__ __forceinline__ int norm_load(int i) {
  return Loaders::index() + i * kLoaderThreads;
}

// A norm's weights, in registers of the loaders.
template <typename T>
struct NormWeights {
  Pack<T> packs[kMaxNormLoads];

  __device__ __forceinline__ explicit NormWeights(const GemvArgs<T>& args) {
#pragma unroll
    for (int i = 0; i < kMaxNormLoads; ++i) {
      const int load = norm_load(i);
      if (load >= 0 && load < args.num_columns / kColumnsPerLoad) {
        packs[i] = load_pack(args.norm + load * Pack<T>::kSize);
      }
    }
  }
};

// The same, and normalizes it, after adding the residual if there is one. Every block does so for
// itself; each writes its share of the sum.
template <typename T>
__device__ __forceinline__ void load_normed_row(const GemvArgs<T>& args, uint4* x,
                                                const NormWeights<T>& weights) {
  constexpr int kSize = Pack<T>::kSize;
  const int num_loads = args.num_columns / kColumnsPerLoad;
  Pack<T> values[kMaxNormLoads];
  Pack<T> residuals[kMaxNormLoads];
#pragma unroll
  for (int i = 0; i < kMaxNormLoads; ++i) {
    const int load = norm_load(i);
    if (load >= num_loads) continue;
    values[i] = load_pack(args.x + load * kSize);
    if (args.residual != nullptr) residuals[i] = load_pack(args.residual + load * kSize);
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kMaxNormLoads; ++i) {
    const int load = norm_load(i);
    if (load >= num_loads) continue;
    float row[kSize];
    unpack(values[i], row);
    if (args.residual != nullptr) {
      float residual[kSize];
      unpack(residuals[i], residual);
#pragma unroll
      for (int j = 0; j < kSize; ++j)
        row[j] += residual[j];
      values[i] = to_pack<T>(row);
      unpack(values[i], row);
      if (load % static_cast<int>(gridDim.x) == static_cast<int>(blockIdx.x)) {
        store_pack(args.sum + load * kSize, values[i]);
      }
    }
#pragma unroll
    for (int j = 0; j < kSize; ++j)
      squares += row[j] * row[j];
  }
  const float scale =
      rsqrtf(loaders_sum(squares) / static_cast<float>(args.num_columns) + args.eps);
#pragma unroll
  for (int i = 0; i < kMaxNormLoads; ++i) {
    const int load = norm_load(i);
    if (load >= num_loads) continue;
    float row[kSize];
    float weight[kSize];
    unpack(values[i], row);
    unpack(weights.packs[i], weight);
#pragma unroll
    for (int j = 0; j < kSize; ++j)
      row[j] = row[j] * scale * weight[j];
    const Pack<T> normed = to_pack<T>(row);
    x[load] = reinterpret_cast<const uint4&>(normed);
  }
}

template <typename T>
__device__ __forceinline__ float rounded(float value) {
  return to_float(from_float<T>(value));
}

template <typename T>
__device__ __forceinline__ void write(const GemvArgs<T>& args, int output, float value) {
  if (args.out_is_float) {
    static_cast<float*>(args.out)[output] = value;
  } else {
    static_cast<T*>(args.out)[output] = from_float<T>(value);
  }
}

// By one lane.
template <typename T>
__device__ __forceinline__ void write_pair(const GemvArgs<T>& args, int pair, float2 values) {
  const int second = pair + args.num_pairs;
  if (args.silu_mul) {
    if (!args.out_is_float) values = {rounded<T>(values.x), rounded<T>(values.y)};
    write(args, pair, silu(values.x) * values.y);
    return;
  }
  write(args, pair, values.x);
  if (second < args.num_outputs) write(args, second, values.y);
}

template <typename T>
__device__ __forceinline__ float2 load_bias(const GemvArgs<T>& args, int pair) {
  if (args.bias == nullptr) return {0, 0};
  const int second = min(pair + args.num_pairs, args.num_outputs - 1);
  return {to_float(args.bias[pair]), to_float(args.bias[second])};
}

// While x is not there and the ring is full, has the L2 cache fetch what `producer` would copy
// next. Loads of x wait behind all that was asked for before them, so asking is spread over time.
template <typename T>
__device__ __forceinline__ void fetch_ahead(Producer<T> producer, uint32_t ring_full,
                                            uint32_t x_ready) {
  long long last = clock64();
  for (int left = kStagesAhead; !is_over(x_ready, 0);) {
    if (left == 0 || producer.done() || clock64() - last < kCyclesPerStage ||
        !is_over(ring_full, 0)) {
      continue;
    }
    producer.prefetch();
    last = clock64();
    --left;
  }
}

// What one of the first warps does.
template <typename T>
__device__ __forceinline__ void stream_weights(const GemvArgs<T>& args, uint8_t* rings,
                                               const uint4* x, uint32_t x_barrier,
                                               uint32_t barriers) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int x_loads = args.num_columns / kColumnsPerLoad;
  const int num_stages = args.num_stages;
  const uint8_t* ring = rings + warp * num_stages * kStageBytes;
  const uint32_t copied = shared_address(ring);
  barriers += static_cast<uint32_t>(warp * num_stages * 8);
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
    for (int i = 0; i < num_stages && !producer.done(); ++i) {
      producer.copy(copied + static_cast<uint32_t>(i * kStageBytes),
                    barriers + static_cast<uint32_t>(i) * 8);
    }
    fetch_ahead(producer, barriers + static_cast<uint32_t>(num_stages - 1) * 8, x_barrier);
  }
  __syncwarp();
  wait_for_phase(x_barrier, 0);

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
    if (lane == 0) write_pair(args, pair, {total.x + bias.x, total.y + bias.y});
  }
}

// Shared memory: x, then the warps' rings, then the barrier of x and theirs, one for each stage.
template <typename T, bool kNorm>
__global__ void __launch_bounds__(kThreads, 1)
    gemv_kernel(const __grid_constant__ GemvArgs<T> args) {
  extern __shared__ __align__(128) uint8_t shared[];
  allow_next_kernel();
  const int x_loads = args.num_columns / kColumnsPerLoad;
  auto* x = reinterpret_cast<uint4*>(shared);
  uint8_t* rings = shared + (x_loads * 16 + 127) / 128 * 128;
  const uint32_t x_barrier = shared_address(rings + kWarps * args.num_stages * kStageBytes);
  const bool is_loader = threadIdx.x >= kStreamThreads;
  if (threadIdx.x == kStreamThreads) {
    init_barrier(x_barrier, kLoaderThreads);
    publish_barriers();
  }
  if constexpr (kNorm) {
    const NormWeights<T> weights(args);  // asked for before the flood of the others
    __syncthreads();
    if (is_loader) {
      wait_for_inputs();
      load_normed_row(args, x, weights);
    }
  } else {
    __syncthreads();
    if (is_loader) {
      wait_for_inputs();
      load_row(args, x);
    }
  }
  if (is_loader) {
    arrive(x_barrier);
  } else {
    stream_weights(args, rings, x, x_barrier, x_barrier + 8);
  }
}

int num_stages(int64_t columns) {
  const int64_t x_bytes = round_up(2 * columns, 128);
  const int64_t barrier_bytes = 8;
  const int64_t fitting =
      (kSharedBytes - x_bytes - barrier_bytes) / (kWarps * (kStageBytes + barrier_bytes));
  return static_cast<int>(std::min<int64_t>(fitting, kMaxStages));
}

template <typename T>
BoundLaunch bind_for(Device& device, const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  GemvArgs<T> gemv{};
  gemv.weight = o.weight->as<const T>();
  gemv.x = o.x->as<const T>();
  if (o.residual != nullptr) {
    gemv.residual = o.residual->as<const T>();
    gemv.sum = o.sum->as<T>();
  }
  if (o.norm != nullptr) gemv.norm = o.norm->as<const T>();
  if (o.bias != nullptr) gemv.bias = o.bias->as<const T>();
  gemv.out = o.out->data;
  gemv.out_is_float = o.out->dtype == DType::kF32;
  gemv.silu_mul = o.silu_mul;
  gemv.eps = static_cast<float>(o.eps);
  gemv.num_outputs = static_cast<int>(o.weight->num_rows());
  gemv.num_pairs = (gemv.num_outputs + 1) / 2;
  gemv.num_columns = static_cast<int>(o.weight->row_elements());
  gemv.num_stages = num_stages(gemv.num_columns);
  const auto kernel = gemv.norm != nullptr ? gemv_kernel<T, true> : gemv_kernel<T, false>;
  allow_shared_memory(kernel, kSharedBytes);
  const int64_t blocks = std::min<int64_t>(chip(device).num_multiprocessors, gemv.num_pairs);
  const Grid grid{.blocks = static_cast<unsigned>(blocks),
                  .threads = kThreads,
                  .shared_bytes = static_cast<size_t>(kSharedBytes)};
  return [gemv, grid, kernel](Stream& stream, const StepShape& /*step*/) {
    launch(stream, grid, kernel, gemv);
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
