#include <algorithm>
#include <utility>

#include "base/scale_block.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

namespace encore::passes {
namespace {

using ir::Graph;
using ir::Node;
using ir::ValueId;

// The operands but x: those that are cut along their rows.
std::vector<std::string_view> weights_of(const Node& node) {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    names.push_back(node.inputs.name(i));
  std::erase(names, "x");
  return names;
}

// Can its weights be cut out of their places: each read once, and made of checkpoint tensors?
bool can_merge(const Graph& graph, const Rewrite& rewrite, const Node& node) {
  return std::ranges::all_of(weights_of(node), [&](std::string_view name) {
    const ValueId id = node.inputs[name];
    return rewrite.readers(id).size() == 1 && !graph.value(id).recipe.pieces.empty();
  });
}

// Do rows of another product begin a block of scales where this one's end? A weight without blocks
// has no such borders.
bool ends_on_block(const Graph& graph, const Node& node) {
  const ValueId* scale = node.inputs.find("scale");
  return scale == nullptr || graph.value(*scale).type.dims.size() == 1 ||
         graph.value(node.inputs["weight"]).type.dims[0].value % kScaleBlock == 0;
}

// May the two be columns of one product?
bool are_siblings(const Graph& graph, const Node& a, const Node& b) {
  const auto dtype = [&](ValueId id) { return graph.value(id).type.dtype; };
  const auto rows_fit = [&](ValueId one, ValueId other) {
    const auto& dims = graph.value(one).type.dims;
    const auto& others = graph.value(other).type.dims;
    return dtype(one) == dtype(other) && dims.size() == others.size() &&
           std::equal(dims.begin() + 1, dims.end(), others.begin() + 1);
  };
  return a.inputs["x"] == b.inputs["x"] && a.inputs.size() == b.inputs.size() &&
         a.attrs == b.attrs && dtype(a.outputs["y"]) == dtype(b.outputs["y"]) &&
         std::ranges::all_of(weights_of(a), [&](std::string_view name) {
           const ValueId* other = b.inputs.find(name);
           return other != nullptr && rows_fit(*other, a.inputs[name]);
         });
}

// An operand (weight, scale or bias) of all siblings, one below the other.
ValueId concat_weights(Graph& graph, const std::vector<const Node*>& siblings,
                       std::string_view operand) {
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
  return graph.add_weight(join_names(std::move(names)), type, std::move(recipe));
}

// The product of all siblings, and the split that gives their outputs back.
std::vector<Node> merged(Graph& graph, const ir::Op& split,
                         const std::vector<const Node*>& siblings) {
  const Node& first = *siblings[0];
  Node product{first.op, first.inputs, {}, first.attrs, {}};
  for (const std::string_view name : weights_of(first))
    product.inputs[name] = concat_weights(graph, siblings, name);
  Node views{&split, {}, {}, {}, {}};
  std::vector<int64_t> sizes;
  std::vector<std::string> names;
  ir::Type type = graph.value(first.outputs["y"]).type;
  type.dims[1] = 0;
  for (const Node* node : siblings) {
    const ir::Value& output = graph.value(node->outputs["y"]);
    sizes.push_back(output.type.dims[1].value);
    type.dims[1].value += sizes.back();
    names.push_back(output.name);
    views.outputs.add("columns", node->outputs["y"]);
  }
  views.attrs.set("sizes", std::move(sizes));
  const ValueId y = graph.add_value(ir::ValueKind::kNode, join_names(std::move(names)), type);
  product.outputs = {{"y", y}};
  views.inputs = {{"x", y}};
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
    for (const ir::NodeId reader : rewrite.readers(rewrite.node(i).inputs["x"])) {
      const int j = reader.index;
      if (j <= i || !rewrite.is(j, "linear") || !can_merge(graph, rewrite, rewrite.node(j)) ||
          !are_siblings(graph, rewrite.node(i), rewrite.node(j)) ||
          !ends_on_block(graph, *siblings.back())) {
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
