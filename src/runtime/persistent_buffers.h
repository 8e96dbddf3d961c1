// Owns the memory of the small values that a step leaves for the next one. The memory is zero at
// the start and never moves.
#pragma once

#include <cstring>
#include <string_view>
#include <vector>

#include "backend/device.h"
#include "ir/graph.h"

namespace encore::runtime {

// The persistent and the host-visible buffers of a graph. Lifetime: refers to the graph.
class PersistentBuffers {
 public:
  // Allocates the buffers and fills them with zeros. Errors: kMemory.
  PersistentBuffers(Device& device, Stream& stream, const ir::Graph& graph)
      : graph_(graph), views_(graph.num_values()) {
    const auto add = [&](ir::ValueId id, Memory memory) {
      const ir::Type& type = graph.value(id).type;
      views_[id.index] = TensorView(memory.data(), type.dtype, type.resolve({}));
      memory_.push_back(std::move(memory));
    };
    for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kPersistent)) {
      Memory memory = device.allocate(graph.value(id).type.num_bytes({}));
      stream.fill(memory.data(), 0, memory.bytes());
      bytes_ += memory.bytes();
      add(id, std::move(memory));
    }
    for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kHostVisible)) {
      Memory memory = device.allocate_host(graph.value(id).type.num_bytes({}));
      std::memset(memory.data(), 0, static_cast<size_t>(memory.bytes()));
      add(id, std::move(memory));
    }
  }

  // Returns a persistent or a host-visible buffer. Host-visible buffers lie in host memory.
  [[nodiscard]] TensorView view(ir::ValueId id) const { return views_[id.index]; }
  // Returns the buffer of that name, or a view without memory where the graph has no such buffer.
  [[nodiscard]] TensorView find(std::string_view name) const {
    const auto id = graph_.find_value(name);
    return id ? views_[id->index] : TensorView{};
  }
  // Returns the bytes that the buffers take on the device.
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  const ir::Graph& graph_;
  std::vector<Memory> memory_;
  std::vector<TensorView> views_;  // by ValueId::index
  int64_t bytes_ = 0;
};

}  // namespace encore::runtime
