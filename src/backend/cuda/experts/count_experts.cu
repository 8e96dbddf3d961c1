// Kernel of count_experts. One block counts in shared memory, so atomics add integers only.
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/launch.h"
#include "backend/routing.h"

namespace encore::cuda {
namespace {

constexpr int kCountThreads = 256;

// The arguments of the kernel. Units: strides are in elements.
struct CountArgs {
  const int32_t* experts;
  int64_t experts_stride;
  int64_t num_pairs;
  int top_k;
  int num_experts;
  int32_t* counts;  // the layer's counts [E,2]
  int32_t* steps;   // the layer's number of steps
};

__global__ void __launch_bounds__(kCountThreads)
    count_experts_kernel(const __grid_constant__ CountArgs args) {
  extern __shared__ int32_t rows_of[];  // number of rows, by expert
  begin_kernel();
  const int thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < args.num_experts; e += kCountThreads)
    rows_of[e] = 0;
  __syncthreads();
  bool any = false;
  for (int64_t pair = thread; pair < args.num_pairs; pair += kCountThreads) {
    const int id = args.experts[pair / args.top_k * args.experts_stride + pair % args.top_k];
    if (id < 0 || id >= args.num_experts) continue;
    atomicAdd(&rows_of[id], 1);
    any = true;
  }
  any = __syncthreads_or(any ? 1 : 0) != 0;
  for (int e = thread; e < args.num_experts; e += kCountThreads) {
    if (rows_of[e] == 0) continue;
    int32_t* const count = args.counts + 2 * e;
    count[0] = count_after(count[0], rows_of[e]);
    count[1] = count_after(count[1], 1);
  }
  if (thread == 0 && any) *args.steps = count_after(*args.steps, 1);
}

}  // namespace

BoundLaunch bind_count_experts(Device& /*device*/, const KernelArgs& args) {
  const TensorView& experts = args.inputs["experts"];
  const TensorView& counts = args.outputs["counts"];
  const int64_t layer = args.attrs.get_int("layer");
  const CountArgs count{.experts = experts.as<const int32_t>(),
                        .experts_stride = experts.row_stride,
                        .num_pairs = num_pairs(args),
                        .top_k = static_cast<int>(experts.shape[1]),
                        .num_experts = static_cast<int>(counts.shape[1]),
                        .counts = counts.row<int32_t>(layer),
                        .steps = args.outputs["steps"].as<int32_t>() + layer};
  const Grid grid{.blocks = 1,
                  .threads = kCountThreads,
                  .shared_bytes = sizeof(int32_t) * static_cast<size_t>(count.num_experts)};
  return [count, grid](Stream& stream, const StepLengths&) {
    launch(stream, grid, count_experts_kernel, count);
  };
}

}  // namespace encore::cuda
