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

// The operands that all merged products have in common: x, and the adapter of each row.
constexpr std::string_view kShared[] = {"x", "adapters"};

// Returns the names of the node's operands that the merged products do not share. They are cut
// along their outputs.
std::vector<std::string_view> weights_of(const Node& node) {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (std::ranges::count(kShared, node.inputs.name(i)) == 0) names.push_back(node.inputs.name(i));
  }
  return names;
}

// Returns the dim along which a weight is cut. It is the dim of rows, which comes second where the
// weight's first dim is that of adapter slots.
size_t cut_dim(const ir::Value& weight) {
  return weight.recipe.has_slots ? 1 : 0;
}

// Returns whether the node's weights can move into a merged weight. Each must be made of checkpoint
// tensors, and nothing else may read it but the same product with another x, as in a graph that
// runs its layers more than once.
bool can_merge(const Graph& graph, const Rewrite& rewrite, const Node& node) {
  return std::ranges::all_of(weights_of(node), [&](std::string_view name) {
    const ValueId id = node.inputs[name];
    const auto reads_alike = [&](ir::NodeId reader) {
      const Node& other = rewrite.node(reader.index);
      if (&other == &node) return true;
      const ValueId* const read = other.op == node.op ? other.inputs.find(name) : nullptr;
      return read != nullptr && *read == id && other.inputs["x"] != node.inputs["x"];
    };
    return std::ranges::all_of(rewrite.readers(id), reads_alike) &&
           !graph.value(id).recipe.pieces.empty();
  });
}

// Returns whether the rows of another weight may follow the rows of this product's weight without
// sharing with them a block of 128 x 128 elements that has one scale. That is always so where the
// weight has no such blocks.
bool ends_on_block(const Graph& graph, const Node& node) {
  const ValueId* scale = node.inputs.find("scale");
  return scale == nullptr || graph.value(*scale).type.dims.size() == 1 ||
         graph.value(node.inputs["weight"]).type.dims[0].value % kScaleBlock == 0;
}

// Returns whether two products may become columns of one product.
bool are_siblings(const Graph& graph, const Node& a, const Node& b) {
  const auto dtype = [&](ValueId id) { return graph.value(id).type.dtype; };
  const auto rows_fit = [&](ValueId one, ValueId other) {
    auto dims = graph.value(one).type.dims;
    auto others = graph.value(other).type.dims;
    const size_t cut = cut_dim(graph.value(one));
    if (dtype(one) != dtype(other) || dims.size() != others.size()) return false;
    dims[cut] = others[cut];
    return dims == others;
  };
  const auto shares = [&](std::string_view name) {
    const ValueId* one = a.inputs.find(name);
    const ValueId* other = b.inputs.find(name);
    return one == nullptr ? other == nullptr : other != nullptr && *one == *other;
  };
  return std::ranges::all_of(kShared, shares) && a.inputs.size() == b.inputs.size() &&
         a.attrs == b.attrs && dtype(a.outputs["y"]) == dtype(b.outputs["y"]) &&
         std::ranges::all_of(weights_of(a), [&](std::string_view name) {
           const ValueId* other = b.inputs.find(name);
           return other != nullptr && rows_fit(*other, a.inputs[name]);
         });
}

// Returns one operand (weight, scale, bias or that of adapters) of all siblings, stacked in the
// order of the siblings.
ValueId concat_weights(Graph& graph, const std::vector<const Node*>& siblings,
                       std::string_view operand) {
  const ir::Value& first = graph.value(siblings[0]->inputs[operand]);
  ir::Type type = first.type;
  ir::Dim& rows = type.dims[cut_dim(first)];
  rows = 0;
  ir::WeightRecipe recipe{.has_slots = first.recipe.has_slots};
  std::vector<std::string> names;
  for (const Node* node : siblings) {
    const ir::Value& weight = graph.value(node->inputs[operand]);
    const int64_t num_rows = weight.type.dims[cut_dim(weight)].value;
    rows.value += num_rows;
    std::vector<ir::WeightPiece> pieces = weight.recipe.pieces;
    if (pieces.size() == 1) pieces[0].num_rows = num_rows;
    recipe.pieces.insert(recipe.pieces.end(), pieces.begin(), pieces.end());
    names.push_back(weight.name);
  }
  const std::string name = join_names(std::move(names));
  // The weights were merged before, where the graph runs the same layers more than once.
  if (const auto merged = graph.find_value(name); merged && graph.value(*merged).recipe == recipe)
    return *merged;
  return graph.add_weight(name, type, std::move(recipe));
}

// Returns the product of all siblings, and the split that gives back their outputs.
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
  if (product.inputs.find("adapters") != nullptr) product.attrs.set("lora_blocks", sizes);
  views.attrs.set("sizes", std::move(sizes));
  const ValueId y = graph.add_value(ir::ValueKind::kNode, join_names(std::move(names)), type);
  product.outputs = {{"y", y}};
  views.inputs = {{"x", y}};
  return {std::move(product), std::move(views)};
}

}  // namespace

// The merged product stands where the first sibling stood.
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
