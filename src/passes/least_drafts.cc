#include "passes/least_drafts.h"

#include <algorithm>

#include "passes/memory_map.h"

namespace encore::passes {
namespace {

bool is_of_guesses(const ir::Graph& graph, ir::ValueId value) {
  return graph.value(value).type.rows() == ir::Symbol::kGuessing;
}

}  // namespace

std::vector<int64_t> least_drafts(const ir::Graph& graph) {
  const auto num_nodes = static_cast<size_t>(graph.num_nodes());
  std::vector<int64_t> pass_of_value(static_cast<size_t>(graph.num_values()));
  std::vector<int64_t> pass(num_nodes, -1);  // -1: the node is of no pass of a draft model
  std::vector<bool> leads_to_state(num_nodes);
  MemoryMap memory(graph);
  for (size_t i = 0; i < num_nodes; ++i) {
    const ir::Node& node = graph.nodes()[i];
    memory.define(node);
    for (const ir::ValueId input : node.inputs) {
      if (is_of_guesses(graph, input)) pass[i] = std::max(pass[i], pass_of_value[input.index]);
    }
    const bool begins_pass = node.op->name == "extend_drafts";
    for (const ir::ValueId output : node.outputs) {
      pass_of_value[output.index] =
          begins_pass ? node.attrs.get_int("place") : std::max<int64_t>(pass[i], 0);
      const ir::Value& root = graph.value(memory.region(output).root);
      if (root.kind == ir::ValueKind::kState) leads_to_state[i] = true;
    }
  }
  const auto readers = graph.readers();
  std::vector<int64_t> least(num_nodes);
  for (size_t i = num_nodes; i-- > 0;) {
    if (pass[i] < 0) continue;
    for (const ir::ValueId output : graph.nodes()[i].outputs) {
      if (!is_of_guesses(graph, output)) continue;
      for (const ir::NodeId reader : readers[output.index]) {
        const auto place = static_cast<size_t>(reader.index);
        if (pass[place] == pass[i] && leads_to_state[place]) leads_to_state[i] = true;
      }
    }
    least[i] = pass[i] + (leads_to_state[i] ? 0 : 1);
  }
  return least;
}

}  // namespace encore::passes
