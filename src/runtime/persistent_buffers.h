// Memory of the small values that a step leaves for the next: zero at the start, never moved.
#pragma once

#include <vector>

#include "backend/device.h"
#include "ir/graph.h"

namespace encore::runtime {

class PersistentBuffers {
 public:
  // Errors: kMemory.
  PersistentBuffers(Device& device, Stream& stream, const ir::Graph& graph);

  // A persistent or a host-visible buffer; the latter is host memory.
  [[nodiscard]] TensorView view(ir::ValueId id) const { return views_[id.index]; }
  // On the device. Units: bytes.
  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  std::vector<Memory> memory_;
  std::vector<TensorView> views_;  // by ValueId::index
  int64_t bytes_ = 0;
};

}  // namespace encore::runtime
