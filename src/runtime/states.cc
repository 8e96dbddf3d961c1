#include "runtime/states.h"

#include <algorithm>

namespace encore::runtime {

States::States(Device& device, const ir::Graph& graph) : index_(graph.num_values(), -1) {
  for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kState)) {
    const ir::Type& type = graph.value(id).type;
    index_[id.index] = static_cast<int>(states_.size());
    states_.push_back({id, type, device.reserve(type.num_bytes({}))});
  }
}

TensorView States::view(ir::ValueId state) const {
  ENCORE_CHECK(index_[state.index] >= 0);
  const State& found = states_[index_[state.index]];
  return {found.range->data(), found.type.dtype, found.type.resolve({})};
}

int64_t States::State::bytes_for(int64_t rows) const {
  const Shape shape = type.resolve({});
  return std::min(rows, shape[0]) * shape.num_elements_from(1) * size_of(type.dtype);
}

void States::map(int64_t rows) {
  for (State& state : states_)
    state.range->map(state.bytes_for(rows));
}

void States::unmap() {
  for (State& state : states_)
    state.range->unmap();
}

int64_t States::bytes_for(int64_t rows) const {
  int64_t bytes = 0;
  for (const State& state : states_) {
    const int64_t granularity = state.range->granularity();
    bytes += (state.bytes_for(rows) + granularity - 1) / granularity * granularity;
  }
  return bytes;
}

int64_t States::mapped_bytes() const {
  int64_t bytes = 0;
  for (const State& state : states_)
    bytes += state.range->mapped_bytes();
  return bytes;
}

}  // namespace encore::runtime
