// Every .cu file includes this header. It offers checked CUDA calls and launches, and includes
// operations on elements (element.cuh) and rounding.
//
// A kernel of Encore may start while the one before it on the stream still runs (programmatic
// dependent launch). So it calls begin_kernel() before it touches memory that another launch writes
// or reads, on every path and in every thread (or waits for a thread of its block that has called
// it, as the skinny GEMM's multipliers do):
//
//   template <typename T>
//   __global__ void scale_kernel(T* out, const T* x, int n) {
//     begin_kernel();
//     ...
//   }
//   launch(stream, {.blocks = blocks, .threads = 256}, scale_kernel<T>, out, x, n);
//
// A kernel that can do something useful with constants (weights) first calls allow_next_kernel(),
// works ahead, and then wait_for_inputs(). All launches of a chain wait for the whole of their
// predecessor, so memory is safe to reuse as on a plain stream.
//
// A block may wait for blocks of its own cluster, which the chip places together or not at all. It
// must not wait for other blocks: kernels of another process or model may hold the multiprocessors
// that these need for any length of time. So sums over blocks are folded by the last block to
// arrive, which need not wait for another (attention/fold.cuh). A launch that starts early waits
// only for a launch whose blocks have all been placed. residency_test.py checks the sources for
// this rule. Exchanges between GPUs (collectives/exchange.cuh) are the exception: their blocks wait
// for blocks of the same index on other GPUs. They make progress because blocks of a grid start in
// the order of their indices, and each sends before it waits. So the first block that has not ended
// on some GPU finds its data, or waits for blocks of the same index that need not wait for an
// earlier block. A deadline ends the wait for a GPU that does not come.
//
// The code behind wait_for_inputs() lies on the critical path of every step, and each of its
// instructions costs a block time: a multiprocessor fetches the code of a launch anew, about 100
// cycles for every eight instructions on an H200, whatever they do. (In a launch of 3 us, this took
// 1 us and more.) So addresses, counts and conditions are computed before the wait, with
// compute_now(), so that the compiler does not move the computation behind the wait. (The assembler
// still may do so to save registers.) The code behind the wait is kept short, and its loops are not
// unrolled.
//
// Arguments, too, arrive anew with each launch, in lines of 64 bytes of a cache of constants. The
// warp that reads the first of a line stands still for 60 to 280 cycles on an H200 with cold caches
// (ncu: stall_imc), for one line after the other; gridDim lies in a line of its own. Where a block
// reads many arguments before it copies anything, these arguments lie side by side
// (SkinnyGemmArgs). In kernels that wait for something else first, the order of arguments makes no
// difference.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/device.h"
#include "backend/kernel.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/rounding.h"
#include "base/tensor.h"

#ifdef __CUDACC__
#include "backend/cuda/element.cuh"
#endif

namespace encore::cuda {

// Throws if `status` is an error. The message names `what`, CUDA's error and the op that this
// thread is launching, if it is launching one.
// Errors: kDevice; kMemory for an allocation that failed; kCompile for a call that a recording
// forbids.
void check(cudaError_t status, std::string_view what);

// Returns the op that this thread is launching, or an empty string outside of Stream::launch.
std::string_view current_op();

cudaStream_t handle(Stream& stream);

// The properties of the chip that bind() needs. Units: bytes, for each multiprocessor or block.
struct Chip {
  int num_multiprocessors = 0;
  int max_shared_bytes_per_block = 0;  // the limit with allow_shared_memory()
  int max_shared_bytes_per_multiprocessor = 0;
  double read_bytes_per_us = 0;  // the best rate of reading memory that its clock and its bus allow
};
const Chip& chip(Device& device);

// The number of multiprocessors of an H200. Where the way in which work is cut shows in the bits of
// results, work is cut for this number of multiprocessors on every chip.
inline constexpr int kMultiprocessors = 132;

// The environment variable that keeps launches from overlapping, for tools that watch memory
// accesses and cannot follow overlapping launches.
inline constexpr const char* kSerialLaunches = "ENCORE_SERIAL_LAUNCHES";

// Returns whether a launch may start before the launch in front of it has ended. All kernels of
// Encore follow this one switch.
inline bool overlap_launches() {
  static const bool overlap = std::getenv(kSerialLaunches) == nullptr;
  return overlap;
}

// The shape of one launch.
struct Grid {
  dim3 blocks;
  dim3 threads;
  size_t shared_bytes = 0;  // dynamic shared memory
  // Is false where the kernel does not call begin_kernel() or wait_for_inputs().
  bool overlap = true;
  unsigned cluster = 1;  // blocks whose shared memory is visible to each other; divides blocks.x
};

// Launches `kernel`, or does nothing when the grid is empty (in a step of 0 rows).
// Errors: kDevice naming the op.
template <typename... Params, typename... Args>
void launch(Stream& stream, const Grid& grid, void (*kernel)(Params...), Args&&... args) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
  cudaLaunchAttribute attributes[3] = {};
  unsigned num_attributes = 0;
  if (grid.overlap && overlap_launches()) {
    cudaLaunchAttribute& attribute = attributes[num_attributes++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  // All launches that use much shared memory ask for the same division between shared memory and
  // the L1 cache. A multiprocessor changes the division only when it runs no block, so launches
  // that want different divisions do not overlap. With the driver's own choice, a step of a 0.6B
  // model takes 3 % longer. Launches with little shared memory fit any division, and may profit
  // from a larger L1 cache.
  constexpr size_t kMuchShared = 16 * 1024;
  if (grid.shared_bytes >= kMuchShared) {
    cudaLaunchAttribute& attribute = attributes[num_attributes++];
    attribute.id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attribute.val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  }
  if (grid.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[num_attributes++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = grid.cluster;
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = handle(stream);
  config.attrs = attributes;
  config.numAttrs = num_attributes;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), "cudaLaunchKernelEx");
}

// Lets `kernel` use more than 48 KB of dynamic shared memory. bind() calls it; launches never do.
template <typename... Params>
void allow_shared_memory(void (*kernel)(Params...), int64_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "cudaFuncSetAttribute");
}

// Returns the number of clusters of this kernel that the chip runs at once, with nothing beside
// them.
template <typename... Params>
int max_active_clusters(const Grid& grid, void (*kernel)(Params...)) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {grid.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config),
        "cudaOccupancyMaxActiveClusters");
  return clusters;
}

template <typename T>
struct TypeTag {
  using type = T;
};

// Returns the attribute `offset`, which is added to a norm's weight, or 0 where it is absent.
inline float norm_offset(const ir::Attrs& attrs) {
  return attrs.find("offset") == nullptr ? 0.0F : static_cast<float>(attrs.get_double("offset"));
}

// Calls `visitor(TypeTag<T>{})` with the C++ type that stores `dtype`, which must be a float type.
template <typename Visitor>
decltype(auto) visit_element(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::kF16:
      return visitor(TypeTag<__half>{});
    case DType::kBF16:
      return visitor(TypeTag<__nv_bfloat16>{});
    case DType::kF32:
      return visitor(TypeTag<float>{});
    default:
      fail(ErrorKind::kCompile, "a kernel that computes in floats was given {}", name(dtype));
  }
}

// Returns whether every row of `view` begins at a multiple of `bytes`. In a vector, the first
// element must.
inline bool is_aligned(const TensorView& view, int64_t bytes = 16) {
  const bool one_row = view.shape.rank() <= 1 || view.num_rows() <= 1;
  return reinterpret_cast<uintptr_t>(view.data) % static_cast<uintptr_t>(bytes) == 0 &&
         (one_row || view.row_stride * size_of(view.dtype) % bytes == 0);
}

#ifdef __CUDACC__

// Lets the next launch start, up to its wait_for_inputs().
__device__ __forceinline__ void allow_next_kernel() {
  cudaTriggerProgrammaticLaunchCompletion();
}
// Waits until the launch before this one has ended and its writes are visible.
__device__ __forceinline__ void wait_for_inputs() {
  cudaGridDependencySynchronize();
}
// Makes the compiler compute the value at this point, not where it is used first.
__device__ __forceinline__ void compute_now(uint32_t& value) {
  asm volatile("" : "+r"(value));
}
__device__ __forceinline__ void compute_now(int& value) {
  asm volatile("" : "+r"(value));
}
__device__ __forceinline__ void compute_now(float& value) {
  asm volatile("" : "+f"(value));
}
// Makes the compiler compute the pointer at this point. The compiler then no longer knows that the
// pointer refers to global memory, so use load_global() and store_global().
template <typename U>
__device__ __forceinline__ void compute_now(U*& value) {
  asm volatile("" : "+l"(value));
}
__device__ __forceinline__ uint4 load_global(const uint4* address) {
  uint4 value;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address)
               : "memory");
  return value;
}
__device__ __forceinline__ void store_global(uint4* address, const uint4& value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

__device__ __forceinline__ void begin_kernel() {
  allow_next_kernel();
  wait_for_inputs();
}

#endif  // __CUDACC__

}  // namespace encore::cuda
