#include "backend/cuda/device/stamp.h"

#include <vector>

#include "backend/cuda/device/context.h"
#include "backend/cuda/device/recording.h"

namespace encore::cuda {
namespace {

__device__ uint64_t global_timer() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
  return now;
}

// Launches of the kernels that write stamps do not overlap, so plain loads and stores of the stamps
// are enough.
__global__ void begin_kernel_stamp(Stamps* stamps) {
  if (stamps->count < Stamps::kMax) stamps->pairs[stamps->count].begin_ns = global_timer();
}
__global__ void end_kernel_stamp(Stamps* stamps) {
  if (stamps->count < Stamps::kMax) stamps->pairs[stamps->count].end_ns = global_timer();
  ++stamps->count;
}

using StampKernel = void (*)(Stamps*);

cudaGraphNode_t add_kernel(cudaGraph_t graph, StampKernel kernel, Stamps* stamps,
                           const std::vector<cudaGraphNode_t>& after) {
  void* arguments[] = {&stamps};
  cudaKernelNodeParams parameters{};
  parameters.func = reinterpret_cast<void*>(kernel);
  parameters.gridDim = dim3(1);
  parameters.blockDim = dim3(1);
  parameters.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  check(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &parameters),
        "cudaGraphAddKernelNode");
  return node;
}

}  // namespace

void add_stamps(cudaGraph_t graph, Stamps* device_stamps) {
  std::vector<cudaGraphNode_t> first;
  std::vector<cudaGraphNode_t> last;
  for (const cudaGraphNode_t node : nodes_of(graph)) {
    size_t before = 0;
    size_t behind = 0;
    check(cudaGraphNodeGetDependencies(node, nullptr, nullptr, &before),
          "cudaGraphNodeGetDependencies");
    check(cudaGraphNodeGetDependentNodes(node, nullptr, nullptr, &behind),
          "cudaGraphNodeGetDependentNodes");
    if (before == 0) first.push_back(node);
    if (behind == 0) last.push_back(node);
  }
  const cudaGraphNode_t begin = add_kernel(graph, begin_kernel_stamp, device_stamps, {});
  for (const cudaGraphNode_t node : first) {
    check(cudaGraphAddDependencies(graph, &begin, &node, nullptr, 1), "cudaGraphAddDependencies");
  }
  add_kernel(graph, end_kernel_stamp, device_stamps, last);
}

void stamp_now(cudaStream_t stream, Stamps* device_stamps) {
  begin_kernel_stamp<<<1, 1, 0, stream>>>(device_stamps);
  end_kernel_stamp<<<1, 1, 0, stream>>>(device_stamps);
  check(cudaGetLastError(), "launching a stamp");
}

}  // namespace encore::cuda
