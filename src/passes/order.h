// Computes the order that must hold between the nodes of a graph.
#pragma once

#include <vector>

#include <boost/dynamic_bitset.hpp>

#include "ir/graph.h"

namespace encore::passes {

// Returns, for each node, the nodes that must finish before it starts, in ascending order. A reader
// waits for the writer, a mutation waits for all readers of the old version, and an in-place write
// waits for all readers of the value that it overwrites. Only the edges that no other edge implies
// are listed. Views launch nothing, so no node waits for a view; it waits for the node that wrote
// the view's memory.
std::vector<std::vector<int>> dependencies(const ir::Graph& graph);

// The transitive closure of the edges that dependencies() returns. It holds one bit for each pair
// of nodes.
class HappensBefore {
 public:
  // Reserves room for `num_nodes` nodes, which add() then adds in order.
  explicit HappensBefore(int num_nodes) : num_nodes_(num_nodes) {}
  // Computes the closure of a whole graph from Program::after.
  explicit HappensBefore(const std::vector<std::vector<int>>& after);

  // Adds the next node, which waits for the earlier nodes in `after`.
  void add(const std::vector<int>& after);
  // Returns whether `earlier` has always finished when `later` starts. A node does not happen
  // before itself.
  [[nodiscard]] bool before(int earlier, int later) const { return ancestors_[later][earlier]; }

 private:
  int num_nodes_;
  std::vector<boost::dynamic_bitset<>> ancestors_;  // by node
};

}  // namespace encore::passes
