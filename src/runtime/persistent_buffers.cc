#include "runtime/persistent_buffers.h"

#include <cstring>

namespace encore::runtime {

PersistentBuffers::PersistentBuffers(Device& device, Stream& stream, const ir::Graph& graph)
    : views_(graph.num_values()) {
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

}  // namespace encore::runtime
