#include "backend/cuda/device/recording.h"

#include <algorithm>
#include <cstdlib>
#include <cxxabi.h>
#include <tuple>
#include <unordered_map>

#include "backend/cuda/device/context.h"
#include "backend/cuda/device/driver.h"
#include "backend/fault.h"

namespace encore::cuda {

template <typename T, cudaError_t (*Destroy)(T)>
Handle<T, Destroy>::~Handle() {
  if (handle_ == nullptr) return;
  when_not_recording([handle = handle_] { Destroy(handle); });
}
template class Handle<cudaGraph_t, cudaGraphDestroy>;
template class Handle<cudaGraphExec_t, cudaGraphExecDestroy>;
template class Handle<cudaStream_t, cudaStreamDestroy>;
template class Handle<cudaEvent_t, cudaEventDestroy>;

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  if (status != 0 || text == nullptr) return name;
  std::string result = text;
  std::free(text);  // NOLINT(cppcoreguidelines-no-malloc): __cxa_demangle's memory
  return result;
}

std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  return nodes;
}

namespace {

cudaGraphNodeType type_of(cudaGraphNode_t node) {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
  return type;
}

// Returns whether both nodes launch the same kernel in grids of the same size, or fill equally much
// memory (libraries such as cuBLASLt may record fills).
bool are_alike(cudaGraphNode_t a, cudaGraphNode_t b) {
  const cudaGraphNodeType type = type_of(a);
  if (type != type_of(b)) return false;
  if (type == cudaGraphNodeTypeMemset) {
    cudaMemsetParams first{};
    cudaMemsetParams second{};
    check(cudaGraphMemsetNodeGetParams(a, &first), "cudaGraphMemsetNodeGetParams");
    check(cudaGraphMemsetNodeGetParams(b, &second), "cudaGraphMemsetNodeGetParams");
    const auto fill = [](const cudaMemsetParams& p) {
      return std::tuple(p.elementSize, p.value, p.width, p.height, p.pitch);
    };
    return fill(first) == fill(second);
  }
  if (type != cudaGraphNodeTypeKernel) return false;
  const auto launch = [](const CUDA_KERNEL_NODE_PARAMS& p) {
    return std::tuple(p.func, p.kern, p.gridDimX, p.gridDimY, p.gridDimZ, p.blockDimX, p.blockDimY,
                      p.blockDimZ, p.sharedMemBytes);
  };
  CUDA_KERNEL_NODE_PARAMS first{};
  CUDA_KERNEL_NODE_PARAMS second{};
  return driver().graph_kernel_node_get_params(a, &first) == CUDA_SUCCESS &&
         driver().graph_kernel_node_get_params(b, &second) == CUDA_SUCCESS &&
         launch(first) == launch(second);
}

// The nodes that a node depends on, with the kind of each dependency's edge.
struct Dependencies {
  std::vector<cudaGraphNode_t> nodes;
  std::vector<cudaGraphEdgeData> edges;  // one for each of `nodes`
};

Dependencies dependencies_of(cudaGraphNode_t node) {
  size_t count = 0;
  check(cudaGraphNodeGetDependencies(node, nullptr, nullptr, &count),
        "cudaGraphNodeGetDependencies");
  Dependencies before{std::vector<cudaGraphNode_t>(count), std::vector<cudaGraphEdgeData>(count)};
  if (count > 0) {
    check(cudaGraphNodeGetDependencies(node, before.nodes.data(), before.edges.data(), &count),
          "cudaGraphNodeGetDependencies");
  }
  return before;
}

// Lists, for each node of a CUDA graph, the indices of the nodes that it depends on, and the kinds
// of these edges.
auto edges_among(const std::vector<cudaGraphNode_t>& nodes) {
  std::vector<std::tuple<ptrdiff_t, int, int, int>> edges;
  for (const cudaGraphNode_t node : nodes) {
    const Dependencies before = dependencies_of(node);
    for (size_t i = 0; i < before.nodes.size(); ++i) {
      const auto place = std::find(nodes.begin(), nodes.end(), before.nodes[i]) - nodes.begin();
      const cudaGraphEdgeData& edge = before.edges[i];
      edges.emplace_back(place, edge.type, edge.from_port, edge.to_port);
    }
    edges.emplace_back(-1, 0, 0, 0);  // separates this node's edges from the next one's
  }
  return edges;
}

// Returns whether two CUDA graphs differ only in the addresses of memory. Also returns false if
// there are nodes other than kernels and fills.
bool are_alike(cudaGraph_t a, cudaGraph_t b) {
  const std::vector<cudaGraphNode_t> nodes = nodes_of(a);
  const std::vector<cudaGraphNode_t> others = nodes_of(b);
  const auto alike = [](cudaGraphNode_t node, cudaGraphNode_t other) {
    return are_alike(node, other);
  };
  return std::equal(nodes.begin(), nodes.end(), others.begin(), others.end(), alike) &&
         edges_among(nodes) == edges_among(others);
}

// Returns the name of a kernel node's device function, or "" if the driver does not tell it.
std::string kernel_name(cudaGraphNode_t node) {
  CUDA_KERNEL_NODE_PARAMS parameters{};
  if (driver().graph_kernel_node_get_params(node, &parameters) != CUDA_SUCCESS) return "";
  const char* name = nullptr;
  if (parameters.kern != nullptr) {
    if (driver().kernel_get_name(&name, parameters.kern) != CUDA_SUCCESS) return "";
  } else if (driver().func_get_name(&name, parameters.func) != CUDA_SUCCESS) {
    return "";
  }
  return name == nullptr ? "" : demangled(name);
}

std::string kind_name(cudaGraphNodeType type) {
  switch (type) {
    case cudaGraphNodeTypeKernel:
      return "kernel";
    case cudaGraphNodeTypeMemcpy:
      return "copy";
    case cudaGraphNodeTypeMemset:
      return "fill";
    case cudaGraphNodeTypeEmpty:
      return "empty";
    default:
      return "other";
  }
}

Edge edge_of(cudaGraphNode_t node) {
  const std::vector<cudaGraphEdgeData> edges = dependencies_of(node).edges;
  if (edges.empty()) return Edge::kNone;
  const bool all = std::all_of(edges.begin(), edges.end(), [](const cudaGraphEdgeData& edge) {
    return edge.type == cudaGraphDependencyTypeProgrammatic;
  });
  return all ? Edge::kProgrammatic : Edge::kFull;
}

}  // namespace

cudaGraphNode_t newest_node(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  const cudaError_t result =
      cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count);
  if (result != cudaSuccess || status != cudaStreamCaptureStatusActive) {
    cudaGetLastError();
    fail(ErrorKind::kCompile,
         "op '{}' broke the recording: it allocated or freed memory, synchronised, or used another "
         "stream in its launch",
         current_op());
  }
  return count == 0 ? nullptr : nodes[count - 1];
}

Executable::Executable(SharedGraph graph, cudaStream_t stream) : addresses_(std::move(graph)) {
  fault::checkpoint("instantiate");
  check(cudaGraphInstantiate(exec_.put(), addresses_->get(), 0), "cudaGraphInstantiate");
  fault::checkpoint("upload");
  check(cudaGraphUpload(exec_.get(), stream), "cudaGraphUpload");
}

cudaError_t Executable::update_to(const SharedGraph& graph) {
  if (addresses_ == graph) return cudaSuccess;
  fault::checkpoint("update");
  cudaGraphExecUpdateResultInfo result{};
  const cudaError_t status = cudaGraphExecUpdate(exec_.get(), graph->get(), &result);
  addresses_ = status == cudaSuccess ? graph : nullptr;
  return status;
}

CudaRecording::CudaRecording(GraphHandle graph, std::vector<NodeLabel> labels, cudaStream_t stream,
                             const CudaRecording* like)
    : graph_(std::make_shared<const GraphHandle>(std::move(graph))), labels_(std::move(labels)) {
  num_nodes_ = static_cast<int>(nodes_of(graph_->get()).size());
  if (like != nullptr && are_alike(graph_->get(), like->graph())) {
    shares_executable_ = like->executable_->update_to(graph_) == cudaSuccess;
    if (!shares_executable_) cudaGetLastError();
  }
  executable_ =
      shares_executable_ ? like->executable_ : std::make_shared<Executable>(graph_, stream);
}

cudaGraphExec_t CudaRecording::executable() const {
  check(executable_->update_to(graph_), "cudaGraphExecUpdate");
  return executable_->get();
}

std::vector<std::vector<cudaGraphNode_t>> CudaRecording::nodes_by_launch() const {
  std::vector<std::vector<cudaGraphNode_t>> result;
  std::unordered_map<cudaGraphNode_t, bool> seen;
  // The nodes of a launch are its last node and all nodes that this node depends on and that belong
  // to no earlier launch.
  for (const NodeLabel& entry : labels_) {
    std::vector<cudaGraphNode_t> nodes;
    std::vector<cudaGraphNode_t> pending = {entry.last_node};
    while (!pending.empty()) {
      const cudaGraphNode_t node = pending.back();
      pending.pop_back();
      if (node == nullptr || !seen.emplace(node, true).second) continue;
      nodes.push_back(node);
      for (const cudaGraphNode_t before : dependencies_of(node).nodes)
        pending.push_back(before);
    }
    std::reverse(nodes.begin(), nodes.end());
    result.push_back(std::move(nodes));
  }
  return result;
}

std::vector<RecordedNode> CudaRecording::nodes() const {
  std::vector<RecordedNode> result;
  const auto launches = nodes_by_launch();
  for (size_t i = 0; i < launches.size(); ++i) {
    for (const cudaGraphNode_t node : launches[i]) {
      const cudaGraphNodeType type = type_of(node);
      result.push_back({kind_name(type), labels_[i].label,
                        type == cudaGraphNodeTypeKernel ? kernel_name(node) : "", edge_of(node)});
    }
  }
  return result;
}

std::vector<int> CudaRecording::node_launches() const {
  std::vector<int> result;
  const auto launches = nodes_by_launch();
  for (size_t i = 0; i < launches.size(); ++i)
    result.insert(result.end(), launches[i].size(), static_cast<int>(i));
  return result;
}

}  // namespace encore::cuda
