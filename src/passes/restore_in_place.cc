#include <algorithm>

#include "passes/memory_map.h"
#include "passes/order.h"
#include "passes/passes.h"

namespace encore::passes {
namespace {

using ir::Graph;
using ir::InPlace;
using ir::Node;
using ir::ValueId;

// The facts that decide whether a node may overwrite memory.
struct Facts {
  const Graph& graph;
  bool reuse_memory;
  std::vector<std::vector<ir::NodeId>> readers;
  HappensBefore order;
};

// Returns whether all readers of `value`, other than node `index` itself, have read it when node
// `index` starts. A view reads nothing itself, but it must come before node `index`.
bool read_before(const Facts& facts, ValueId value, int index) {
  return std::ranges::all_of(facts.readers[value.index], [&](ir::NodeId reader) {
    if (reader.index == index) return true;
    if (facts.graph.node(reader).op->is_view) return reader.index < index;
    return facts.order.before(reader.index, index);
  });
}

// Returns whether output `place.output` of node `index` may overwrite input `place.input`. A node
// must have made the input's memory, the types must be equal, nothing may need the input
// afterwards, and the node itself must read that memory through this input alone.
bool dies_here(const Facts& facts, const MemoryMap& memory, int index, const InPlace& place) {
  const Node& node = facts.graph.nodes()[index];
  const ValueId input = node.inputs[place.input];
  const Region region = memory.region(input);
  if (facts.graph.value(region.root).kind != ir::ValueKind::kNode ||
      facts.graph.value(input).type != facts.graph.value(node.outputs[place.output]).type) {
    return false;
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const bool is_other = node.inputs.name(i) != place.input;
    if (is_other && overlap(memory.region(node.inputs.values()[i]), region)) return false;
  }
  const auto living = memory.living_in(region);
  return std::all_of(living.begin(), living.end(), [&](ValueId value) {
    const bool is_output = std::ranges::count(facts.graph.outputs(), value) > 0;
    return !is_output && read_before(facts, value, index);
  });
}

std::vector<InPlace> choose(const Facts& facts, const MemoryMap& memory, int index) {
  const Node& node = facts.graph.nodes()[index];
  std::vector<InPlace> chosen = mutations_of(node);
  if (!facts.reuse_memory) return chosen;
  for (const InPlace& place : node.op->may_reuse) {
    if (node.inputs.find(place.input) == nullptr) continue;
    if (node.outputs.find(place.output) == nullptr) continue;
    const bool taken = std::any_of(chosen.begin(), chosen.end(), [&](const InPlace& other) {
      return other.output == place.output || other.input == place.input;
    });
    if (!taken && dies_here(facts, memory, index, place)) chosen.push_back(place);
  }
  return chosen;
}

}  // namespace

void restore_in_place(Program& program, const ir::OpSet&) {
  Graph& graph = program.graph;
  for (int i = 0; i < graph.num_nodes(); ++i)
    graph.node(ir::NodeId{i}).in_place.clear();
  const Facts facts{graph, program.reuse_memory, graph.readers(),
                    HappensBefore(dependencies(graph))};
  MemoryMap memory(graph);
  for (int i = 0; i < graph.num_nodes(); ++i) {
    Node& node = graph.node(ir::NodeId{i});
    node.in_place = choose(facts, memory, i);
    memory.define(node);
  }
}

}  // namespace encore::passes
