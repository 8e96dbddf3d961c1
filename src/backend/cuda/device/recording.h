// A recording: a CUDA graph, instantiated and uploaded. It has an executable of its own, or shares
// one with recordings whose nodes differ from its nodes only in the addresses of memory.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "backend/device.h"

namespace encore::cuda {

// Owns a CUDA handle that is a pointer, and calls `Destroy` for it. While this thread records, that
// call is put off until the recording is over.
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
  // Returns the place where a CUDA function stores a handle that it creates. Invariant: the handle
  // is empty until then.
  [[nodiscard]] T* put() { return &handle_; }

 private:
  T handle_ = nullptr;
};

using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using SharedGraph = std::shared_ptr<const GraphHandle>;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;
using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;

// The last node that a launch added to the CUDA graph that is being captured, and the launch's
// label.
struct NodeLabel {
  cudaGraphNode_t last_node = nullptr;
  std::string label;
};

// An instantiated and uploaded CUDA graph. It can be updated to the addresses in another CUDA graph
// that is equal except for addresses, even while launches with the earlier addresses are running.
// With few kernels, an executable costs about 120 kB of device memory and 50 us to make, and an
// update costs 2 us.
class Executable {
 public:
  // Instantiates the CUDA graph and uploads it. Errors: kDevice.
  Executable(SharedGraph graph, cudaStream_t stream);

  // Updates the executable to the addresses in the CUDA graph `graph`. Returns the driver's status.
  [[nodiscard]] cudaError_t update_to(const SharedGraph& graph);
  [[nodiscard]] cudaGraphExec_t get() const { return exec_.get(); }

 private:
  GraphExecHandle exec_;
  SharedGraph addresses_;  // has the current addresses; null when the last update failed
};

class CudaRecording final : public Recording {
 public:
  // Shares the executable of `like` if `like` is not null and differs from `graph` in addresses
  // alone.
  // Errors: kDevice.
  CudaRecording(GraphHandle graph, std::vector<NodeLabel> labels, cudaStream_t stream,
                const CudaRecording* like);

  [[nodiscard]] int num_nodes() const override { return num_nodes_; }
  [[nodiscard]] bool shares_executable() const override { return shares_executable_; }
  [[nodiscard]] std::vector<RecordedNode> nodes() const override;
  // Returns, for each of nodes(), the number of the launch that made it. Launches are numbered from
  // 0.
  [[nodiscard]] std::vector<int> node_launches() const;
  [[nodiscard]] cudaGraph_t graph() const { return graph_->get(); }
  // Returns the executable, updated to this recording's addresses. It must be launched before
  // executable() is called on any other recording, which may change the addresses.
  // Errors: kDevice.
  [[nodiscard]] cudaGraphExec_t executable() const;

 private:
  // Returns the nodes of each launch, in launch order.
  [[nodiscard]] std::vector<std::vector<cudaGraphNode_t>> nodes_by_launch() const;

  SharedGraph graph_;  // kept for nodes(), and for updates
  std::shared_ptr<Executable> executable_;
  bool shares_executable_ = false;
  std::vector<NodeLabel> labels_;  // in launch order
  int num_nodes_ = 0;
};

// Returns the node that was last added to the CUDA graph that `stream` captures, or null if there
// is none yet.
// Errors: kCompile, naming the op, when something broke the recording.
cudaGraphNode_t newest_node(cudaStream_t stream);

// Returns all nodes of a CUDA graph. Errors: kDevice.
std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph);

// Returns "void f<int>(int)" for a mangled name, and any other name unchanged.
std::string demangled(const char* name);

}  // namespace encore::cuda
