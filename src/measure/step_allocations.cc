#include "measure/step_allocations.h"

#include <algorithm>

#include "base/rounding.h"

namespace encore::measure {
namespace {

constexpr int64_t kGranule = 512;  // sizes of buffers are rounded up to a multiple of this

}  // namespace

StepAllocations::StepAllocations(Device& device, const passes::Program& program,
                                 const ir::Sizes& sizes)
    : device_(device) {
  const ir::Graph& graph = program.graph;
  // A buffer belongs to a root value; views of it, and values written over it, share the buffer.
  const auto root_of = [&](ir::ValueId value) {
    return program.arena.placements[value.index].root;
  };
  std::vector<int> last_use(static_cast<size_t>(graph.num_values()), -1);
  for (int i = 0; i < graph.num_nodes(); ++i) {
    const ir::Node& node = graph.nodes()[i];
    for (const ir::ValueId input : node.inputs)
      last_use[root_of(input).index] = i;
    for (const ir::ValueId output : node.outputs)
      last_use[root_of(output).index] = i;
  }
  std::map<int, std::vector<size_t>> ends;  // key: the node after which the buffers are freed
  for (int i = 0; i < graph.num_nodes(); ++i) {
    for (const ir::ValueId output : graph.nodes()[i].outputs) {
      const ir::Value& value = graph.value(output);
      const int64_t bytes = value.type.num_bytes(sizes);
      if (root_of(output) != output || value.kind != ir::ValueKind::kNode || bytes == 0) continue;
      const auto buffer = static_cast<size_t>(num_buffers_++);
      events_.push_back({buffer, round_up(bytes, kGranule)});
      ends[last_use[output.index]].push_back(buffer);
    }
    for (const size_t buffer : ends[i])
      events_.push_back({buffer, 0});
  }
  live_.resize(static_cast<size_t>(num_buffers_));
}

void StepAllocations::run() {
  for (const Event& event : events_) {
    Memory& memory = live_[event.buffer];
    if (event.bytes > 0) {
      memory = take(event.bytes);
    } else {
      free_.emplace(memory.bytes(), std::move(memory));
    }
  }
}

Memory StepAllocations::take(int64_t bytes) {
  const auto fitting = free_.lower_bound(bytes);
  if (fitting != free_.end()) {
    Memory memory = std::move(fitting->second);
    free_.erase(fitting);
    return memory;
  }
  device_bytes_ += bytes;
  return device_.allocate(bytes);
}

}  // namespace encore::measure
