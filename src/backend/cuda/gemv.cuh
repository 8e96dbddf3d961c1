// The device code of linears with one row, shared by the kernel that runs one (gemv.cu) and the one
// that runs several as its stages (persistent.cu), so that both make the same bits.
//
// Weights arrive in shared memory as pieces of two weight rows at a time, one from either half of
// the outputs (gate and up, where silu_mul follows), and a warp multiplies them. Other warps, the
// loaders, bring x and normalize it. The order of additions depends on the number of columns alone.
#pragma once

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/fused_linear.h"

namespace encore::cuda::gemv {

inline constexpr int kWarps = 8;  // that multiply
inline constexpr int kStreamThreads = 32 * kWarps;
inline constexpr int kLoaderWarps = 8;  // right behind them
inline constexpr int kLoaderThreads = 32 * kLoaderWarps;
inline constexpr int kColumnsPerLoad = 8;  // 16 bytes
inline constexpr int kLoadsPerPiece = 4;   // per lane
inline constexpr int kPieceColumns = 32 * kLoadsPerPiece * kColumnsPerLoad;
inline constexpr int kPieceBytes = 2 * kPieceColumns;  // of one weight row
inline constexpr int kStageBytes = 2 * kPieceBytes;    // a piece of either row
inline constexpr int kMaxNormLoads = 4;                // per loader, kept in registers
inline constexpr int64_t kMaxNormColumns =
    int64_t{kMaxNormLoads} * kLoaderThreads * kColumnsPerLoad;

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
};

template <typename T>
GemvArgs<T> gemv_args(const KernelArgs& args) {
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
  return gemv;
}

#ifdef __CUDACC__

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

template <typename T>
__device__ __forceinline__ float2 load_bias(const GemvArgs<T>& args, int pair) {
  if (args.bias == nullptr) return {0, 0};
  const int second = min(pair + args.num_pairs, args.num_outputs - 1);
  return {to_float(args.bias[pair]), to_float(args.bias[second])};
}

// What becomes of a pair's sums: calls `put(output, value)` for each output. By one lane.
template <typename T, typename Put>
__device__ __forceinline__ void finish_pair(const GemvArgs<T>& args, int pair, float2 values,
                                            Put&& put) {
  const int second = pair + args.num_pairs;
  if (args.silu_mul) {
    const auto rounded = [](float value) { return to_float(from_float<T>(value)); };
    if (!args.out_is_float) values = {rounded(values.x), rounded(values.y)};
    put(pair, silu(values.x) * values.y);
    return;
  }
  put(pair, values.x);
  if (second < args.num_outputs) put(second, values.y);
}

template <typename T>
__device__ __forceinline__ void store_output(const GemvArgs<T>& args, int output, float value) {
  if (args.out_is_float) {
    static_cast<float*>(args.out)[output] = value;
  } else {
    static_cast<T*>(args.out)[output] = from_float<T>(value);
  }
}

// Threads that bring x.
struct Loaders {
  static __device__ int index() { return static_cast<int>(threadIdx.x) - kStreamThreads; }
};

// Where the loaders meet. A barrier in shared memory, not a named one of the block, behind which
// racecheck would lose the order of what follows.
class LoadersBarrier {
 public:
  // By one thread, before the block's first barrier.
  static __device__ __forceinline__ void init() {
    init_barrier(address(), kLoaderWarps);
    publish_barriers();
  }
  // All loaders arrive, then go on.
  __device__ __forceinline__ void meet() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(address());
    wait_for_phase(address(), parity_);
    parity_ ^= 1U;
  }

 private:
  static __device__ __forceinline__ uint32_t address() {
    __shared__ uint64_t barrier;
    return shared_address(&barrier);
  }
  uint32_t parity_ = 0;
};

// Sum over the loaders, in every one of them.
__device__ __forceinline__ float loaders_sum(float value, LoadersBarrier& barrier) {
  __shared__ float partial[kLoaderWarps];
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) partial[Loaders::index() / 32] = value;
  barrier.meet();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLoaderWarps; ++i)
    sum += partial[i];
  return sum;
}

// A loader's share of a row that is normalized, in registers: packs of 16 bytes, at most kLoads.
template <typename T, int kLoads>
struct RowShare {
  Pack<T> packs[kLoads];

  // Which 16 bytes of a row the i-th pack is.
  static __device__ __forceinline__ int load(int i) {
    return Loaders::index() + i * kLoaderThreads;
  }

  // Calls `visitor(pack, load)` for those packs that a row of so many has.
  template <typename Visitor>
  __device__ __forceinline__ void for_each(int num_loads, Visitor&& visitor) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int at = load(i);
      if (at >= 0 && at < num_loads) visitor(packs[i], at);
    }
  }
  __device__ __forceinline__ void fetch(const T* row, int num_loads) {
    for_each(num_loads,
             [&](Pack<T>& pack, int at) { pack = load_pack(row + at * Pack<T>::kSize); });
  }
};

// Adds the residual, if there is one, normalizes and writes the row to shared memory. Every block
// does so for itself; each writes its share of the sum, where that is wanted. `values` becomes the
// sum. All loaders.
template <typename T, int kLoads>
__device__ __forceinline__ void normalize_row(const GemvArgs<T>& args, RowShare<T, kLoads>& values,
                                              const RowShare<T, kLoads>& residual,
                                              const RowShare<T, kLoads>& weights,
                                              LoadersBarrier& barrier, uint4* x) {
  constexpr int kSize = Pack<T>::kSize;
  const int num_loads = args.num_columns / kColumnsPerLoad;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int load = RowShare<T, kLoads>::load(i);
    if (load >= num_loads) continue;
    float row[kSize];
    unpack(values.packs[i], row);
    if (args.residual != nullptr) {
      float other[kSize];
      unpack(residual.packs[i], other);
#pragma unroll
      for (int j = 0; j < kSize; ++j)
        row[j] += other[j];
      values.packs[i] = to_pack<T>(row);
      unpack(values.packs[i], row);
      if (args.sum != nullptr &&
          load % static_cast<int>(gridDim.x) == static_cast<int>(blockIdx.x)) {
        store_pack(args.sum + load * kSize, values.packs[i]);
      }
    }
#pragma unroll
    for (int j = 0; j < kSize; ++j)
      squares += row[j] * row[j];
  }
  const float scale =
      rsqrtf(loaders_sum(squares, barrier) / static_cast<float>(args.num_columns) + args.eps);
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int load = RowShare<T, kLoads>::load(i);
    if (load >= num_loads) continue;
    float row[kSize];
    float weight[kSize];
    unpack(values.packs[i], row);
    unpack(weights.packs[i], weight);
#pragma unroll
    for (int j = 0; j < kSize; ++j)
      row[j] = row[j] * scale * weight[j];
    const Pack<T> normed = to_pack<T>(row);
    x[load] = reinterpret_cast<const uint4&>(normed);
  }
}

// Brings a row to shared memory as it is: `fetch(load)` gives 16 bytes of it. kBatch of a loader's
// are under way at once.
template <int kBatch, typename Fetch>
__device__ __forceinline__ void load_row(int num_loads, uint4* x, Fetch&& fetch) {
#pragma unroll 1
  for (int first = Loaders::index(); first < num_loads; first += kBatch * kLoaderThreads) {
    uint4 values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * kLoaderThreads < num_loads) values[i] = fetch(first + i * kLoaderThreads);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * kLoaderThreads < num_loads) x[first + i * kLoaderThreads] = values[i];
    }
  }
}

#endif  // __CUDACC__

}  // namespace encore::cuda::gemv
