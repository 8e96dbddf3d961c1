// A recording: a CUDA graph, instantiated and uploaded. It has an executable of its own, or shares
// one with recordings like it.
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
  // The place for a CUDA function to put a handle that it creates. Invariant: empty until then.
  [[nodiscard]] T* put() { return &handle_; }

 private:
  T handle_ = nullptr;
};

using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using SharedGraph = std::shared_ptr<const GraphHandle>;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;
using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;

// The last node that a launch added to the graph, and the launch's label.
struct NodeLabel {
  cudaGraphNode_t last_node = nullptr;
  std::string label;
};

// An instantiated and uploaded graph. It can take the addresses of another graph that is like its
// own, also while launches with those of before are under way. For one of few kernels the driver
// takes about 120 kB of the device's memory and 50 us; to change it takes 2 us.
class Executable {
 public:
  // Errors: kDevice.
  Executable(SharedGraph graph, cudaStream_t stream);

  // Gives the executable the addresses of `graph`. Returns the driver's status.
  [[nodiscard]] cudaError_t update_to(const SharedGraph& graph);
  [[nodiscard]] cudaGraphExec_t get() const { return exec_.get(); }

 private:
  GraphExecHandle exec_;
  SharedGraph addresses_;  // whose; null when the last update failed
};

class CudaRecording final : public Recording {
 public:
  // Shares the executable of `like` where that is given and differs in addresses alone.
  // Errors: kDevice.
  CudaRecording(GraphHandle graph, std::vector<NodeLabel> labels, cudaStream_t stream,
                const CudaRecording* like);

  [[nodiscard]] int num_nodes() const override { return num_nodes_; }
  [[nodiscard]] bool shares_executable() const override { return shares_executable_; }
  [[nodiscard]] std::vector<RecordedNode> nodes() const override;
  // For each of nodes(), the number of the launch that made it, from 0.
  [[nodiscard]] std::vector<int> node_launches() const;
  [[nodiscard]] cudaGraph_t graph() const { return graph_->get(); }
  // The executable with this recording's addresses. Launch it before asking for any other
  // recording's. Errors: kDevice.
  [[nodiscard]] cudaGraphExec_t executable() const;

 private:
  // The nodes of each launch, in launch order.
  [[nodiscard]] std::vector<std::vector<cudaGraphNode_t>> nodes_by_launch() const;

  SharedGraph graph_;  // kept for nodes(), and for updates
  std::shared_ptr<Executable> executable_;
  bool shares_executable_ = false;
  std::vector<NodeLabel> labels_;  // in launch order
  int num_nodes_ = 0;
};

// The newest node of what `stream` records; null before the first.
// Errors: kCompile, naming the op, when something broke the recording.
cudaGraphNode_t newest_node(cudaStream_t stream);

// All nodes of a graph. Errors: kDevice.
std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph);

// "void f<int>(int)" for a mangled name; other names as they are.
std::string demangled(const char* name);

}  // namespace encore::cuda
