#include "ir/graph.h"

#include <algorithm>

namespace encore::ir {

ValueId Graph::add_named(Value value) {
  const std::string wanted = value.name;
  while (!names_.emplace(value.name, 1).second)
    value.name = fmt::format("{}.{}", wanted, names_[wanted]++);
  values_.push_back(std::move(value));
  return ValueId{num_values() - 1};
}

ValueId Graph::add_input(std::string name, Type type, Pad pad) {
  return add_named({std::move(name), std::move(type), ValueKind::kInput, pad, {}, {}});
}

ValueId Graph::add_weight(std::string name, Type type, WeightRecipe recipe) {
  return add_named(
      {std::move(name), std::move(type), ValueKind::kWeight, Pad::kZero, std::move(recipe), {}});
}

ValueId Graph::add_value(ValueKind kind, std::string name, Type type) {
  return add_named({.name = std::move(name), .type = std::move(type), .kind = kind});
}

ValueId Graph::add_state(std::string name, Type type, int group) {
  if (group < 0) fail(ErrorKind::kCompile, "state '{}': a group is 0 or more, not {}", name, group);
  return add_named({.name = std::move(name),
                    .type = std::move(type),
                    .kind = ValueKind::kState,
                    .group = group});
}

const Node& Graph::add_node(const Op& op, const Operands<ValueId>& inputs, Attrs attrs,
                            const std::string& name) {
  Node node{&op, named(op, inputs), {}, std::move(attrs), {}};
  const NodeId id{num_nodes()};
  node.outputs = infer(op, types(*this, node.inputs), node.attrs).map([&](const Type& type) {
    const ValueId output = add_value(ValueKind::kNode, name, type);
    value(output).producer = id;
    return output;
  });
  return nodes_.emplace_back(std::move(node));
}

std::vector<ValueId> Graph::values_of_kind(ValueKind kind) const {
  std::vector<ValueId> found;
  for (int i = 0; i < num_values(); ++i) {
    if (values_[i].kind == kind) found.push_back(ValueId{i});
  }
  return found;
}

std::optional<ValueId> Graph::find_value(std::string_view name) const {
  for (int i = 0; i < num_values(); ++i) {
    if (values_[i].name == name) return ValueId{i};
  }
  return std::nullopt;
}

std::vector<std::vector<NodeId>> Graph::readers() const {
  std::vector<std::vector<NodeId>> readers(values_.size());
  for (int i = 0; i < num_nodes(); ++i) {
    for (const ValueId input : nodes_[i].inputs) {
      auto& list = readers[input.index];
      if (list.empty() || list.back() != NodeId{i}) list.push_back(NodeId{i});
    }
  }
  return readers;
}

void Graph::rename(ValueId id, const std::string& name) {
  Value& renamed = value(id);
  if (renamed.name == name) return;
  if (!names_.emplace(name, 1).second) fail(ErrorKind::kCompile, "the name %{} is taken", name);
  names_.erase(renamed.name);
  renamed.name = name;
}

void Graph::replace_nodes(std::vector<Node> nodes) {
  std::vector<bool> used(values_.size(), false);
  for (const Node& node : nodes) {
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids)
        used[id.index] = true;
    }
  }
  for (const ValueId id : outputs_)
    used[id.index] = true;
  // Step inputs, which the host writes, and values that live across steps are kept even if no node
  // uses them.
  std::vector<ValueId> renumbered(values_.size());
  std::vector<Value> kept;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (!used[i] && !is_mutable(values_[i].kind)) {
      names_.erase(values_[i].name);
      continue;
    }
    renumbered[i] = ValueId{static_cast<int32_t>(kept.size())};
    kept.push_back(std::move(values_[i]));
  }
  values_ = std::move(kept);
  nodes_ = std::move(nodes);
  const auto renumber = [&](auto& ids) {
    for (ValueId& id : ids)
      id = renumbered[id.index];
  };
  for (int i = 0; i < num_nodes(); ++i) {
    renumber(nodes_[i].inputs);
    renumber(nodes_[i].outputs);
    for (const ValueId id : nodes_[i].outputs)
      values_[id.index].producer = NodeId{i};
  }
  renumber(outputs_);
}

Types types(const Graph& graph, const Operands<ValueId>& values) {
  return values.map([&](ValueId id) { return graph.value(id).type; });
}

}  // namespace encore::ir
