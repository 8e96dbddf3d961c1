// Follows the memory of values, node by node: the region that each value occupies, and which values
// share it through views and in-place writes.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace encore::passes {

// A region of memory: columns [column, column + width) of every row of `root`'s buffer.
// Units: elements. All dims behind the first are counted together as columns.
struct Region {
  ir::ValueId root;
  int64_t column = 0;
  int64_t width = 0;

  friend bool operator==(const Region&, const Region&) = default;
};

bool overlap(const Region& a, const Region& b);

// Maps each value to its region of memory. It knows step inputs, weights and states from the start,
// and the outputs of a node from define() on. Lifetime: refers to the graph.
class MemoryMap {
 public:
  explicit MemoryMap(const ir::Graph& graph);

  // Places the outputs of the next node in order. A view gets columns of its input's region. A new
  // version of a state, or an in-place output, gets the region of its input. Any other output gets
  // a buffer of its own.
  void define(const ir::Node& node);

  [[nodiscard]] const Region& region(ir::ValueId value) const { return regions_[value.index]; }
  // Returns the values defined so far that share columns with `region` and have not been
  // overwritten as a whole.
  [[nodiscard]] std::vector<ir::ValueId> living_in(const Region& region) const;

 private:
  void overwrite(ir::ValueId output, const Region& region);
  void add(ir::ValueId value, const Region& region);

  const ir::Graph& graph_;
  std::vector<Region> regions_;                 // by ValueId::index
  std::vector<std::vector<ir::ValueId>> live_;  // by root
};

// Returns the in-place writes that the node's op prescribes (mutated operands). Optional operands
// that the node lacks are left out.
std::vector<ir::InPlace> mutations_of(const ir::Node& node);
// Returns all outputs of a node that take an input's memory: those of mutations_of(), and those of
// the in-place choices that restore_in_place made.
std::vector<ir::InPlace> writes_over(const ir::Node& node);

// Returns the node whose launch wrote `value`: views are followed back to the node that made their
// memory. Returns nullopt for a value that no node made.
std::optional<int> writer(const ir::Graph& graph, ir::ValueId value);

}  // namespace encore::passes
