// Applies passes that are rules in text, and gives other passes questions about a graph and edits
// that take effect together.
//
// A pass walks the nodes as they were. Matched nodes are removed or replaced, and commit() rebuilds
// the graph. Nodes that took part in one match are not available to the next.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "passes/program.h"

namespace encore::passes {

// A rule in text: the nodes to find, and the node that replaces them.
//
//       %s = silu(%gate)
//     @ %y = mul(%s, %up)
//     ->
//       %y = silu_mul(%gate, %up)
//
// A name stands for one value throughout. The new node stands where the node marked @ stood. A line
// that is repeated below the arrow describes a node that stays as it is. The search starts with the
// last line above the arrow, and each line before it makes an operand of a later one. Optional
// operands and outputs that a rule does not name become those of the new node with the same names,
// and it also gets the attributes of launches. The rule does not apply where such a name means
// something else to the op at the place marked @. A rule applies only where no other node reads a
// value that disappears, the new node can stand in its place, and its op takes all operands and
// gives the outputs the types that they have.
using Rule = std::string_view;

// Applies the rules to all nodes that they match. Where several rules match, the first one is
// applied.
// Errors: kCompile for a rule that names an op that the set lacks, or an operand that the op lacks.
void rewrite(Program& program, const ir::OpSet& ops, const std::vector<Rule>& rules);

// Edits a program's graph. All edits take effect together in commit(). An op at which the program
// is split is not available to matches, because it must stay where a user named it.
//
// Lifetime: refers to the program, whose node list must not change before commit().
class Rewrite {
 public:
  explicit Rewrite(Program& program);

  [[nodiscard]] const ir::Graph& graph() const { return graph_; }
  [[nodiscard]] const ir::Node& node(int index) const { return graph_.nodes()[index]; }
  // Returns whether this node is an `op` that a match may take.
  [[nodiscard]] bool is(int index, std::string_view op) const;
  // Returns the nodes that read the value, in order.
  [[nodiscard]] const std::vector<ir::NodeId>& readers(ir::ValueId value) const {
    return readers_[value.index];
  }

  void remove(int index) { replace(index, {}); }
  // Puts these nodes in the place of node `index`.
  void replace(int index, std::vector<ir::Node> nodes);
  // Rebuilds the graph with all edits. Ids of nodes and values from before become invalid.
  void commit();

 private:
  ir::Graph& graph_;
  const SplitOps& split_ops_;
  std::vector<std::vector<ir::NodeId>> readers_;
  // The new nodes by the node that they replace. Absent where that node stays.
  std::vector<std::optional<std::vector<ir::Node>>> replacements_;
};

// Returns one name for several merged values. It consists of the prefix that they share, their
// different parts joined by '_', and the suffix that they share.
// {"l0.q.weight", "l0.k.weight"} -> "l0.q_k.weight".
std::string join_names(std::vector<std::string> names);

}  // namespace encore::passes
