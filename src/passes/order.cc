#include "passes/order.h"

#include <algorithm>
#include <functional>

#include "passes/memory_map.h"

namespace encore::passes {
namespace {

// Returns the nodes that must have finished before node `index`, which `memory` defines next, may
// start. A node may occur more than once in the result.
std::vector<int> waits_for(const ir::Graph& graph, const MemoryMap& memory,
                           const std::vector<std::vector<ir::NodeId>>& readers, int index) {
  const ir::Node& node = graph.nodes()[index];
  std::vector<int> earlier;
  for (const ir::ValueId input : node.inputs) {
    if (const auto made = writer(graph, input)) earlier.push_back(*made);
  }
  // The overwritten value is an input, so the node that wrote it is in `earlier` already. The
  // readers of that value may not be in it yet.
  for (const ir::InPlace& place : writes_over(node)) {
    for (const ir::ValueId old : memory.living_in(memory.region(node.inputs[place.input]))) {
      for (const ir::NodeId reader : readers[old.index]) {
        const bool reads_memory = !graph.node(reader).op->is_view;
        if (reader.index < index && reads_memory) earlier.push_back(reader.index);
      }
    }
  }
  return earlier;
}

// Returns the nodes of `earlier` for which no other node of `earlier` already waits, in ascending
// order and without duplicates.
std::vector<int> without_implied(std::vector<int> earlier, const HappensBefore& order) {
  std::sort(earlier.begin(), earlier.end(), std::greater<>());
  std::vector<int> kept;
  for (const int candidate : earlier) {
    const bool implied = std::any_of(kept.begin(), kept.end(), [&](int later) {
      return candidate == later || order.before(candidate, later);
    });
    if (!implied) kept.push_back(candidate);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace

std::vector<std::vector<int>> dependencies(const ir::Graph& graph) {
  const auto readers = graph.readers();
  MemoryMap memory(graph);
  HappensBefore order(graph.num_nodes());
  std::vector<std::vector<int>> after;
  for (int i = 0; i < graph.num_nodes(); ++i) {
    after.push_back(without_implied(waits_for(graph, memory, readers, i), order));
    order.add(after.back());
    memory.define(graph.nodes()[i]);
  }
  return after;
}

HappensBefore::HappensBefore(const std::vector<std::vector<int>>& after)
    : HappensBefore(static_cast<int>(after.size())) {
  for (const auto& earlier : after)
    add(earlier);
}

void HappensBefore::add(const std::vector<int>& after) {
  boost::dynamic_bitset<> ancestors(num_nodes_);
  for (const int earlier : after) {
    ENCORE_CHECK(earlier >= 0 && earlier < std::ssize(ancestors_), "node {} waits for node {}",
                 ancestors_.size(), earlier);
    ancestors |= ancestors_[earlier];
    ancestors.set(earlier);
  }
  ancestors_.push_back(std::move(ancestors));
}

}  // namespace encore::passes
