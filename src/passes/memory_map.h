// Follows, node by node, which memory a value occupies and which values share it through views and
// in-place writes.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace encore::passes {

// Columns [column, column + width) of every row of `root`'s buffer.
// Units: elements; a column is everything behind the first dim.
struct Region {
  ir::ValueId root;
  int64_t column = 0;
  int64_t width = 0;

  friend bool operator==(const Region&, const Region&) = default;
};

bool overlap(const Region& a, const Region& b);

// Lifetime: refers to the graph. Knows step inputs, weights and states from the start, and the
// outputs of each node from define() on.
class MemoryMap {
 public:
  explicit MemoryMap(const ir::Graph& graph);

  // Places the outputs of the next node in order: a view on its input's columns, a new version of a
  // state or an in-place output on its input's region, everything else in a buffer of its own.
  void define(const ir::Node& node);

  [[nodiscard]] const Region& region(ir::ValueId value) const { return regions_[value.index]; }
  // Values defined so far that share columns with `region` and have not been overwritten as a
  // whole.
  [[nodiscard]] std::vector<ir::ValueId> living_in(const Region& region) const;

 private:
  void overwrite(ir::ValueId output, const Region& region);
  void add(ir::ValueId value, const Region& region);

  const ir::Graph& graph_;
  std::vector<Region> regions_;                 // by ValueId::index
  std::vector<std::vector<ir::ValueId>> live_;  // by root
};

// The outputs that a node's row mutates, without those of operands that it lacks.
std::vector<ir::InPlace> mutations_of(const ir::Node& node);
// The outputs of a node that take an input's memory: those that its row mutates, and its in-place
// choices.
std::vector<ir::InPlace> writes_over(const ir::Node& node);

// The node whose launch wrote `value`, seen through views; nothing for a value that no node made.
std::optional<int> writer(const ir::Graph& graph, ir::ValueId value);

}  // namespace encore::passes
