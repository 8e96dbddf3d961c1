// Applies pattern passes: rules in text, questions about a graph, and edits that take effect
// together.
//
// A pass walks the nodes as they were; matched nodes are removed or replaced by place, and commit()
// rebuilds the graph. Nodes that took part in one match are out of reach for the next.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "passes/program.h"

namespace encore::passes {

// Nodes to find, and the node that takes their place:
//
//       %s = silu(%gate)
//     @ %y = mul(%s, %up)
//     ->
//       %y = silu_mul(%gate, %up)
//
// A name stands for one value throughout. The new node stands where the node marked @ stood. A line
// that is repeated below the arrow stays as it is; the last line above it is where a search starts,
// and each of the others makes an operand of one behind it. Optional operands and outputs that a
// rule does not name go over to the new node by name, and so do the attributes of launches; but not
// under a name that means something else to the op at the place marked @.
// A rule holds only where nobody else reads a value that disappears, the new node can stand in its
// place, and its op takes all operands and gives the outputs the types that they have.
using Rule = std::string_view;

// Applies rules wherever they hold, the first that does.
// Errors: kCompile for a rule with an op that the set lacks, or an operand that the op does.
void rewrite(Program& program, const ir::OpSet& ops, const std::vector<Rule>& rules);

// An op at which the program is split is out of reach too: it must stay where a user named it.
//
// Lifetime: refers to the program, whose node list must not change before commit().
class Rewrite {
 public:
  explicit Rewrite(Program& program);

  [[nodiscard]] const ir::Graph& graph() const { return graph_; }
  [[nodiscard]] const ir::Node& node(int index) const { return graph_.nodes()[index]; }
  // Is this node an `op` that a match may take?
  [[nodiscard]] bool is(int index, std::string_view op) const;
  // Nodes that read the value, in order.
  [[nodiscard]] const std::vector<ir::NodeId>& readers(ir::ValueId value) const {
    return readers_[value.index];
  }

  void remove(int index) { replace(index, {}); }
  // Puts these nodes in the place of node `index`.
  void replace(int index, std::vector<ir::Node> nodes);
  // Rebuilds the graph; ids held from before are void.
  void commit();

 private:
  ir::Graph& graph_;
  const SplitOps& split_ops_;
  std::vector<std::vector<ir::NodeId>> readers_;
  std::vector<std::optional<std::vector<ir::Node>>> replacements_;  // by node; absent: stays
};

// One name for several merged values: what they share in front, theirs joined by '_', what they
// share behind. {"l0.q.weight", "l0.k.weight"} -> "l0.q_k.weight".
std::string join_names(std::vector<std::string> names);

}  // namespace encore::passes
