#include <algorithm>

#include "passes/passes.h"

namespace encore::passes {

using ir::Node;
using ir::ValueId;

// Writing into a state is an effect, so the node counts as used even if nothing reads the new
// version.
void remove_dead(Program& program, const ir::OpSet&) {
  ir::Graph& graph = program.graph;
  std::vector<bool> needed(graph.num_values());
  for (const ValueId output : graph.outputs())
    needed[output.index] = true;
  std::vector<Node> kept;
  for (int i = graph.num_nodes() - 1; i >= 0; --i) {
    const Node& node = graph.nodes()[i];
    const bool is_used =
        std::ranges::any_of(node.outputs, [&](ValueId id) { return needed[id.index]; });
    if (!is_used && node.op->mutations().empty()) continue;
    for (const ValueId input : node.inputs)
      needed[input.index] = true;
    kept.push_back(node);
  }
  std::reverse(kept.begin(), kept.end());
  graph.replace_nodes(std::move(kept));
}

}  // namespace encore::passes
