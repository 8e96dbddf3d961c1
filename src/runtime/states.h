// Memory of a program's states (KV caches): addresses from the start, memory once it is known how
// much is left. Recordings are made against the addresses; their memory comes last.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/device.h"
#include "ir/graph.h"

namespace encore::runtime {

class States {
 public:
  // Reserves addresses for every state of the graph at its full size; maps nothing.
  States(Device& device, const ir::Graph& graph);

  [[nodiscard]] TensorView view(ir::ValueId state) const;

  // Puts memory behind the first `rows` rows (pages) of every state; what was there keeps its
  // content. Errors: kMemory, and then nothing is mapped beyond what was.
  void map(int64_t rows);
  // Gives all of it back. The addresses stay, and so do recordings made against them.
  void unmap();

  // What mapping `rows` rows of every state takes. Units: bytes, rounded up to what the device
  // maps.
  [[nodiscard]] int64_t bytes_for(int64_t rows) const;
  [[nodiscard]] int64_t mapped_bytes() const;

 private:
  struct State {
    ir::ValueId id;
    ir::Type type;
    std::unique_ptr<AddressRange> range;

    [[nodiscard]] int64_t bytes_for(int64_t rows) const;
  };
  std::vector<State> states_;
  std::vector<int> index_;  // in states_, by ValueId::index
};

}  // namespace encore::runtime
