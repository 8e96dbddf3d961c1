// What a pattern pass needs: questions about a graph, and edits that take effect together.
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

// An op at which the program is split is out of reach too: it must stay where a user named it.
//
// Lifetime: refers to the program, whose node list must not change before commit().
class Rewrite {
 public:
  explicit Rewrite(Program& program);

  [[nodiscard]] const ir::Node& node(int index) const { return graph_.nodes()[index]; }
  // Is this node an `op` that a match may take?
  [[nodiscard]] bool is(int index, std::string_view op) const;
  // The node that makes `value`, when it is an `op` that a match may take.
  [[nodiscard]] std::optional<int> made_by(ir::ValueId value, std::string_view op) const;
  // Does the value appear exactly once: as one input of one node, and not as a graph output?
  [[nodiscard]] bool used_once(ir::ValueId value) const { return uses_[value.index] == 1; }
  // Nodes that read the value, in order.
  [[nodiscard]] const std::vector<ir::NodeId>& readers(ir::ValueId value) const {
    return readers_[value.index];
  }
  // Could this node stand at place `index`: its inputs made before, its outputs read only after?
  [[nodiscard]] bool can_stand_at(int index, const ir::Node& node) const;
  // Does the op's shape function accept the inputs and give the outputs the types they have?
  [[nodiscard]] bool fits(const ir::Node& node) const;

  void remove(int index) { replace(index, {}); }
  // These nodes take the place of node `index`.
  void replace(int index, std::vector<ir::Node> nodes);
  // Rebuilds the graph; ids held from before are void.
  void commit();

 private:
  ir::Graph& graph_;
  const SplitOps& split_ops_;
  std::vector<std::vector<ir::NodeId>> readers_;
  std::vector<int> uses_;
  std::vector<std::optional<std::vector<ir::Node>>> replacements_;  // by node; absent: stays
};

// One name for several merged values: what they share in front, theirs joined by '_', what they
// share behind. {"l0.q.weight", "l0.k.weight"} -> "l0.q_k.weight".
std::string join_names(const std::vector<std::string>& names);

}  // namespace encore::passes
