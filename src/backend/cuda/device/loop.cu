// Makes loops inside a recording: a conditional node of a CUDA graph repeats its body.
#include "backend/cuda/device/stream.h"
#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

__global__ void loop_end_kernel(cudaGraphConditionalHandle goes_on, const int32_t* again) {
  begin_kernel();
  cudaGraphSetConditional(goes_on, *again != 0 ? 1U : 0U);
}

}  // namespace

std::pair<LoopCapture, cudaGraph_t> create_loop(const int32_t* again) {
  LoopCapture loop;
  loop.again = again;
  check(cudaGraphCreate(loop.graph.put(), 0), "cudaGraphCreate");
  check(cudaGraphConditionalHandleCreate(&loop.goes_on, loop.graph.get(), 1,
                                         cudaGraphCondAssignDefault),
        "cudaGraphConditionalHandleCreate");
  cudaGraphNodeParams parameters{};
  parameters.type = cudaGraphNodeTypeConditional;
  parameters.conditional.handle = loop.goes_on;
  parameters.conditional.type = cudaGraphCondTypeWhile;
  parameters.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
  check(cudaGraphAddNode(&node, loop.graph.get(), nullptr, nullptr, 0, &parameters),
        "cudaGraphAddNode");
  return {std::move(loop), parameters.conditional.phGraph_out[0]};
}

void launch_loop_end(Stream& stream, const LoopCapture& loop) {
  launch(stream, {.blocks = 1, .threads = 1}, loop_end_kernel, loop.goes_on, loop.again);
}

}  // namespace encore::cuda
