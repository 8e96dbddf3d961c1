// Which nodes must wait for which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace encore::passes {

// Node order that must hold: readers after writers, a mutation after all readers of the old
// version, an in-place write after all readers of what it overwrites. By node, ascending, and only
// the edges that no other edge implies. Views launch nothing: nobody waits for one, but for whoever
// wrote its memory.
std::vector<std::vector<int>> dependencies(const ir::Graph& graph);

// The transitive closure of those. One bit a pair of nodes: 1600 nodes take 0.3 MB, and a question
// takes one load.
class HappensBefore {
 public:
  // Room for `num_nodes`; nodes are then added in order.
  explicit HappensBefore(int num_nodes);
  // The closure of a whole graph: Program::after.
  explicit HappensBefore(const std::vector<std::vector<int>>& after);

  // The next node, which waits for these earlier ones.
  void add(const std::vector<int>& after);
  // Has `earlier` always finished when `later` starts? A node does not happen before itself.
  [[nodiscard]] bool before(int earlier, int later) const {
    const uint64_t word = bits_[static_cast<size_t>(later) * words_ + earlier / 64];
    return ((word >> (static_cast<unsigned>(earlier) % 64U)) & 1U) != 0;
  }

 private:
  size_t words_ = 0;  // 64-bit words of one row
  int num_added_ = 0;
  std::vector<uint64_t> bits_;  // row `later`, bit `earlier`
};

}  // namespace encore::passes
