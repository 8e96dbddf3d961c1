// A recording: a CUDA graph, instantiated and uploaded.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "backend/device.h"

namespace encore::cuda {

// Ends `Destroy` for a CUDA handle that is a pointer; puts it off while this thread records.
template <typename T, cudaError_t (*Destroy)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T handle) : handle_(handle) {}
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Handle();

  [[nodiscard]] T get() const { return handle_; }
  // Where a CUDA function that creates a handle puts it. Invariant: empty until then.
  [[nodiscard]] T* put() { return &handle_; }

 private:
  T handle_ = nullptr;
};

using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;
using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;

// The last node that a launch added to the graph, and the launch's label.
struct NodeLabel {
  cudaGraphNode_t last_node = nullptr;
  std::string label;
};

class CudaRecording final : public Recording {
 public:
  // Instantiates and uploads. Errors: kDevice.
  CudaRecording(GraphHandle graph, std::vector<NodeLabel> labels, cudaStream_t stream);

  [[nodiscard]] int num_nodes() const override { return num_nodes_; }
  [[nodiscard]] std::vector<RecordedNode> nodes() const override;
  // Of each of nodes(), which of the launches made it, from 0.
  [[nodiscard]] std::vector<int> node_launches() const;
  [[nodiscard]] cudaGraph_t graph() const { return graph_.get(); }
  [[nodiscard]] cudaGraphExec_t exec() const { return exec_.get(); }

 private:
  // The nodes of one launch after the other, in order.
  [[nodiscard]] std::vector<std::vector<cudaGraphNode_t>> nodes_by_launch() const;

  GraphHandle graph_;  // kept for nodes()
  GraphExecHandle exec_;
  std::vector<NodeLabel> labels_;  // in launch order
  int num_nodes_ = 0;
};

// The newest node of what `stream` records; null before the first.
// Errors: kCompile, naming the op, when something broke the recording.
cudaGraphNode_t newest_node(cudaStream_t stream);

// "void f<int>(int)" for a mangled name; other names as they are.
std::string demangled(const char* name);

}  // namespace encore::cuda
