// Computes which nodes must wait for which.
#pragma once

#include <vector>

#include <boost/dynamic_bitset.hpp>

#include "ir/graph.h"

namespace encore::passes {

// The order that must hold between nodes: readers after writers, a mutation after all readers of
// the old version, an in-place write after all readers of the value it overwrites. By node,
// ascending, and only the edges that no other edge implies. Views launch nothing, so no node waits
// for a view: it waits for the node that wrote the view's memory.
std::vector<std::vector<int>> dependencies(const ir::Graph& graph);

// The transitive closure of such edges: one bit for each pair of nodes.
class HappensBefore {
 public:
  // Room for `num_nodes`; nodes are then added in order.
  explicit HappensBefore(int num_nodes) : num_nodes_(num_nodes) {}
  // The closure of a whole graph: Program::after.
  explicit HappensBefore(const std::vector<std::vector<int>>& after);

  // The next node, which waits for these earlier ones.
  void add(const std::vector<int>& after);
  // Has `earlier` always finished when `later` starts? A node does not happen before itself.
  [[nodiscard]] bool before(int earlier, int later) const { return ancestors_[later][earlier]; }

 private:
  int num_nodes_;
  std::vector<boost::dynamic_bitset<>> ancestors_;  // by node
};

}  // namespace encore::passes
