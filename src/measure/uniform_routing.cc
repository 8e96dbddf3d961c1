#include "measure/uniform_routing.h"

#include <algorithm>
#include <set>

#include "backend/routing.h"
#include "measure/op_cost.h"

namespace encore::measure {
namespace {

void draw_experts(passes::Program& program, const ir::OpSet& /*ops*/) {
  ir::Graph& graph = program.graph;
  const std::optional<ir::ValueId> clock = graph.find_value("step_clock");
  if (!clock) return;
  int64_t layer = 0;
  for (int i = 0; i < graph.num_nodes(); ++i) {
    ir::Node& node = graph.node(ir::NodeId{i});
    if (node.op->name != "route") continue;
    node.inputs.add("step_clock", *clock, true);
    node.attrs.set("drawn", ++layer);
  }
}

// Counts the experts that the rows of a step draw.
int64_t num_drawn(const ir::Graph& graph, const ir::Node& route, int64_t rows, int32_t step) {
  const auto num_experts = static_cast<int>(graph.value(route.inputs["logits"]).type.dims[1].value);
  const auto drawn = static_cast<int>(route.attrs.get_int("drawn"));
  std::set<int> experts;
  for (int64_t row = 0; row < rows; ++row) {
    std::set<int> of_row;
    for (int k = 0; k < route.attrs.get_int("top_k"); ++k) {
      int attempt = 0;
      while (!of_row.insert(drawn_expert(drawn, step, row, k, attempt, num_experts)).second)
        ++attempt;
    }
    experts.merge(of_row);
  }
  return std::ssize(experts);
}

}  // namespace

passes::Pass uniform_routing_pass() {
  return {.name = "draw_experts",
          .what = "experts drawn at random in the place of those that rows choose",
          .run = draw_experts};
}

std::optional<DistinctExperts> distinct_experts(const ir::Graph& graph, int64_t rows,
                                                int64_t num_steps) {
  DistinctExperts distinct;
  double num_layers = 0;
  double drawn = 0;
  for (const ir::Node& node : graph.nodes()) {
    if (node.op->name == "expert_mlp") {
      distinct.num_experts = graph.value(node.inputs["gate_up"]).type.dims[0].value;
      distinct.expected +=
          weight_share(graph, node, {rows, rows}) * static_cast<double>(distinct.num_experts);
      ++num_layers;
    }
    if (node.op->name != "route" || node.inputs.find("step_clock") == nullptr) continue;
    for (int64_t step = 0; step < num_steps; ++step)
      drawn += static_cast<double>(num_drawn(graph, node, rows, static_cast<int32_t>(step)));
  }
  if (num_layers == 0) return std::nullopt;
  distinct.expected /= num_layers;
  if (drawn > 0) distinct.drawn = drawn / num_layers / static_cast<double>(num_steps);
  return distinct;
}

}  // namespace encore::measure
