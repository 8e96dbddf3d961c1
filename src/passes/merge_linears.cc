#include <algorithm>

#include "passes/passes.h"
#include "passes/rewrite.h"

namespace encore::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::ValueId;

// A weight that can be cut out of its place: read once, and made of checkpoint tensors.
bool is_own_weight(const Graph& graph, const Rewrite& rewrite, ValueId id) {
  return rewrite.used_once(id) && !graph.value(id).recipe.pieces.empty();
}

bool can_merge(const Graph& graph, const Rewrite& rewrite, const Node& node) {
  return std::all_of(node.inputs.begin() + 1, node.inputs.end(),
                     [&](ValueId id) { return is_own_weight(graph, rewrite, id); });
}

// May the two be columns of one product?
bool are_siblings(const Graph& graph, const Node& a, const Node& b) {
  if (a.inputs[0] != b.inputs[0] || a.inputs.size() != b.inputs.size() || a.attrs != b.attrs ||
      graph.value(a.outputs[0]).type.dtype != graph.value(b.outputs[0]).type.dtype) {
    return false;
  }
  for (size_t i = 1; i < a.inputs.size(); ++i) {
    const ir::Type& left = graph.value(a.inputs[i]).type;
    const ir::Type& right = graph.value(b.inputs[i]).type;
    if (left.dtype != right.dtype) return false;
  }
  return true;
}

// Input `operand` (weight or bias) of all siblings, one below the other.
ValueId concat_weights(Graph& graph, const std::vector<const Node*>& siblings, size_t operand) {
  ir::Type type = graph.value(siblings[0]->inputs[operand]).type;
  type.dims[0] = 0;
  ir::WeightRecipe recipe;
  std::vector<std::string> names;
  for (const Node* node : siblings) {
    const ir::Value& weight = graph.value(node->inputs[operand]);
    type.dims[0].value += weight.type.dims[0].value;
    recipe.pieces.insert(recipe.pieces.end(), weight.recipe.pieces.begin(),
                         weight.recipe.pieces.end());
    names.push_back(weight.name);
  }
  return graph.add_weight(join_names(names), type, std::move(recipe));
}

// The product of all siblings, and the split that gives their outputs back.
std::vector<Node> merged(Graph& graph, const ir::Op& split,
                         const std::vector<const Node*>& siblings) {
  const Node& first = *siblings[0];
  Node product{first.op, {first.inputs[0]}, {}, first.attrs, {}};
  for (size_t operand = 1; operand < first.inputs.size(); ++operand) {
    product.inputs.push_back(concat_weights(graph, siblings, operand));
  }
  Node views{&split, {}, {}, {}, {}};
  std::vector<int64_t> sizes;
  std::vector<std::string> names;
  ir::Type type = graph.value(first.outputs[0]).type;
  type.dims[1] = 0;
  for (const Node* node : siblings) {
    const ir::Value& output = graph.value(node->outputs[0]);
    sizes.push_back(output.type.dims[1].value);
    type.dims[1].value += sizes.back();
    names.push_back(output.name);
    views.outputs.push_back(node->outputs[0]);
  }
  views.attrs.set("sizes", std::move(sizes));
  product.outputs = {graph.add_value(join_names(names), type)};
  views.inputs = product.outputs;
  return {std::move(product), std::move(views)};
}

}  // namespace

// The product stands where the first sibling stood.
void merge_linears(Program& program, const ir::OpSet& ops) {
  const ir::Op* split = ops.find("split");
  if (split == nullptr) return;
  Graph& graph = program.graph;
  Rewrite rewrite(program);
  for (int i = 0; i < graph.num_nodes(); ++i) {
    if (!rewrite.is(i, "linear") || !can_merge(graph, rewrite, rewrite.node(i))) continue;
    std::vector<const Node*> siblings{&rewrite.node(i)};
    std::vector<int> others;
    for (const ir::NodeId reader : rewrite.readers(rewrite.node(i).inputs[0])) {
      const int j = reader.index;
      if (j <= i || !rewrite.is(j, "linear") || !can_merge(graph, rewrite, rewrite.node(j)) ||
          !are_siblings(graph, rewrite.node(i), rewrite.node(j))) {
        continue;
      }
      siblings.push_back(&rewrite.node(j));
      others.push_back(j);
    }
    if (others.empty()) continue;
    rewrite.replace(i, merged(graph, *split, siblings));
    for (const int other : others)
      rewrite.remove(other);
  }
  rewrite.commit();
}

}  // namespace encore::passes
