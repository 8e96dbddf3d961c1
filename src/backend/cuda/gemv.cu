// linear with one row. All of its time goes into reading the weights, so the kernel is a stream:
// each warp owns every so-many-th output, and keeps a ring of pieces of those weight rows in flight
// with the bulk copy engine. About 80 to 96 KB a multiprocessor are under way at any time, whatever
// the arithmetic does. Weights are constants: the ring is filled before the launches before have
// ended.
//
// A block asks for more than half of a multiprocessor's shared memory, needed or not. Launches
// overlap, and without it the blocks of the next product would crowd two by two onto the
// multiprocessors that happen to have room, and leave the others idle: 5.7 instead of 4.3 ms for a
// step of an 8B model on an H200.
//
// The order of additions depends on the number of columns alone.
#include "backend/cuda/gemv.h"

#include <algorithm>

#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kPieceBytes = 2048;  // of one weight row
constexpr int kPieceColumns = kPieceBytes / 2;
constexpr int kMaxSlots = 6;  // pieces in a warp's ring
constexpr int kMinSlots = 2;
// More than half of a Hopper multiprocessor's 228 KB, a little of which the system keeps for each
// block.
constexpr int64_t kSharedBytes = 116 * 1024;
constexpr int kColumnsPerLoad = 8;                                    // 16 bytes
constexpr int kLoadsPerPiece = kPieceColumns / kColumnsPerLoad / 32;  // per lane

template <typename T>
struct GemvArgs {
  const T* weight;
  const T* x;
  const T* bias;  // null: none
  void* out;
  bool out_is_float;
  int num_outputs;
  int num_columns;
  int num_slots;
};

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void init_barrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void wait_for_phase(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Copies `bytes` of weights into shared memory; they are read once, so caches should drop them
// first.
__device__ __forceinline__ void start_copy(void* target, const void* source, uint32_t bytes,
                                           uint64_t* barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%2], [%3], %1, [%0], policy;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(bytes), "r"(shared_address(target)), "l"(source)
      : "memory");
}

// The two elements of 32 bits, lower address first.
template <typename T>
__device__ __forceinline__ float2 unpack_pair(uint32_t bits) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(bits));
  } else {
    return {__uint_as_float(bits << 16U), __uint_as_float(bits & 0xffff0000U)};
  }
}

template <typename T>
__device__ __forceinline__ float dot(const uint4& w, const uint4& x, float sum) {
  const uint32_t w_pairs[4] = {w.x, w.y, w.z, w.w};
  const uint32_t x_pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 a = unpack_pair<T>(w_pairs[i]);
    const float2 b = unpack_pair<T>(x_pairs[i]);
    sum = fmaf(a.x, b.x, sum);
    sum = fmaf(a.y, b.y, sum);
  }
  return sum;
}

// Adds this lane's products of one piece to its sums. `num_loads`: 16-byte loads in the piece.
template <typename T>
__device__ __forceinline__ void add_piece(const uint4* weight, const uint4* x, int num_loads,
                                          float (&sums)[kLoadsPerPiece]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (num_loads == 32 * kLoadsPerPiece) {
    uint4 w[kLoadsPerPiece];
#pragma unroll
    for (int i = 0; i < kLoadsPerPiece; ++i)
      w[i] = weight[lane + 32 * i];
#pragma unroll
    for (int i = 0; i < kLoadsPerPiece; ++i)
      sums[i] = dot<T>(w[i], x[lane + 32 * i], sums[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kLoadsPerPiece; ++i) {
    const int load = lane + 32 * i;
    if (load < num_loads) sums[i] = dot<T>(weight[load], x[load], sums[i]);
  }
}

// One warp's weight rows, piece by piece, as they are copied. Used by lane 0.
template <typename T>
struct Producer {
  const T* weight;
  int num_outputs;
  int num_columns;
  int stride;  // from one of the warp's outputs to its next
  int output;
  int column = 0;

  // Starts the copy of the next piece, if there is one.
  __device__ __forceinline__ void next(uint8_t* slot, uint64_t* barrier) {
    if (output >= num_outputs) return;
    const int columns = min(kPieceColumns, num_columns - column);
    start_copy(slot, weight + static_cast<int64_t>(output) * num_columns + column,
               static_cast<uint32_t>(columns) * sizeof(T), barrier);
    column += kPieceColumns;
    if (column >= num_columns) {
      column = 0;
      output += stride;
    }
  }
};

// By all threads, with several loads in flight.
__device__ __forceinline__ void copy_x(uint4* x, const uint4* source, int num_loads) {
  constexpr int kThreads = 32 * kWarps;
  constexpr int kBatch = 4;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); first < num_loads; first += kBatch * kThreads) {
    uint4 values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * kThreads < num_loads) values[i] = source[first + i * kThreads];
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i * kThreads < num_loads) x[first + i * kThreads] = values[i];
    }
  }
}

template <typename T>
__device__ __forceinline__ void write_output(const GemvArgs<T>& args, int output, float value) {
  if (args.bias != nullptr) value += to_float(args.bias[output]);
  if (args.out_is_float) {
    static_cast<float*>(args.out)[output] = value;
  } else {
    static_cast<T*>(args.out)[output] = from_float<T>(value);
  }
}

// Shared memory: x, then the warps' rings, then their barriers, one for each slot.
template <typename T>
__global__ void __launch_bounds__(32 * kWarps)
    gemv_kernel(const __grid_constant__ GemvArgs<T> args) {
  extern __shared__ __align__(128) uint8_t shared[];
  allow_next_kernel();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int x_loads = args.num_columns / kColumnsPerLoad;
  auto* x = reinterpret_cast<uint4*>(shared);
  uint8_t* rings = shared + (x_loads * 16 + 127) / 128 * 128;
  auto* barriers = reinterpret_cast<uint64_t*>(rings + kWarps * args.num_slots * kPieceBytes);
  uint8_t* ring = rings + warp * args.num_slots * kPieceBytes;
  uint64_t* full = barriers + warp * args.num_slots;
  // Neighbouring outputs go to different multiprocessors, so that all get their share.
  const int first = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  const int stride = kWarps * static_cast<int>(gridDim.x);
  Producer<T> producer{args.weight, args.num_outputs, args.num_columns, stride, first};
  if (lane < args.num_slots) {
    init_barrier(full + lane);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncwarp();
  if (lane == 0) {
#pragma unroll 1
    for (int slot = 0; slot < args.num_slots; ++slot) {
      producer.next(ring + slot * kPieceBytes, full + slot);
    }
  }
  wait_for_inputs();
  copy_x(x, reinterpret_cast<const uint4*>(args.x), x_loads);
  __syncthreads();

  int slot = 0;
  uint32_t parity = 0;
  for (int output = first; output < args.num_outputs; output += stride) {
    float sums[kLoadsPerPiece] = {};
    for (int load = 0; load < x_loads; load += 32 * kLoadsPerPiece) {
      wait_for_phase(full + slot, parity);
      add_piece<T>(reinterpret_cast<const uint4*>(ring + slot * kPieceBytes), x + load,
                   min(32 * kLoadsPerPiece, x_loads - load), sums);
      __syncwarp();  // every lane has read the slot
      if (lane == 0) producer.next(ring + slot * kPieceBytes, full + slot);
      if (++slot == args.num_slots) {
        slot = 0;
        parity ^= 1U;
      }
    }
    const float sum = warp_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    if (lane == 0) write_output(args, output, sum);
  }
}
static_assert(kLoadsPerPiece == 4);

int64_t x_bytes(int64_t columns) {
  return round_up(2 * columns, 128);
}

int num_slots(int64_t columns) {
  // A slot costs its piece and its barrier.
  const int64_t fitting = (kSharedBytes - x_bytes(columns)) / (kWarps * (kPieceBytes + 8));
  return static_cast<int>(std::min<int64_t>(fitting, kMaxSlots));
}

template <typename T>
BoundLaunch bind_for(Device& device, const KernelArgs& args) {
  const TensorView& weight = args.inputs[1];
  GemvArgs<T> gemv{};
  gemv.x = args.inputs[0].as<const T>();
  gemv.weight = weight.as<const T>();
  gemv.bias = args.inputs.size() > 2 ? args.inputs[2].as<const T>() : nullptr;
  gemv.out = args.outputs[0].data;
  gemv.out_is_float = args.outputs[0].dtype == DType::kF32;
  gemv.num_outputs = static_cast<int>(weight.num_rows());
  gemv.num_columns = static_cast<int>(weight.row_elements());
  gemv.num_slots = num_slots(gemv.num_columns);
  allow_shared_memory(gemv_kernel<T>, kSharedBytes);
  const int64_t blocks = std::min<int64_t>(chip(device).num_multiprocessors, gemv.num_outputs);
  const Grid grid{.blocks = static_cast<unsigned>(blocks),
                  .threads = 32 * kWarps,
                  .shared_bytes = static_cast<size_t>(kSharedBytes)};
  return [gemv, grid](Stream& stream, const StepShape& /*step*/) {
    launch(stream, grid, gemv_kernel<T>, gemv);
  };
}

}  // namespace

bool accepts_gemv(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& weight = args.inputs[1];
  const TensorView& out = args.outputs[0];
  const int64_t columns = weight.row_elements();
  const bool types = size_of(x.dtype) == 2 && weight.dtype == x.dtype &&
                     (out.dtype == x.dtype || out.dtype == DType::kF32);
  return types && x.num_rows() == 1 && columns > 0 && columns % kColumnsPerLoad == 0 &&
         weight.is_dense() && is_aligned(x) && is_aligned(weight) &&
         num_slots(columns) >= kMinSlots;
}

BoundLaunch bind_gemv(Device& device, const KernelArgs& args) {
  return args.inputs[0].dtype == DType::kF16 ? bind_for<__half>(device, args)
                                             : bind_for<__nv_bfloat16>(device, args);
}

}  // namespace encore::cuda
