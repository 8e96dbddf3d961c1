#include <algorithm>

#include "ir/graph.h"

namespace encore::ir {
namespace {

template <typename... Args>
[[noreturn]] void fail_at(const Node& node, fmt::format_string<Args...> why, Args&&... args) {
  fail(ErrorKind::kCompile, "op '{}': {}", node.op->name,
       fmt::format(why, std::forward<Args>(args)...));
}

void check_types(const Graph& graph, const Node& node) {
  const Types made = infer(*node.op, types(graph, node.inputs), node.attrs);
  if (made.size() != node.outputs.size()) fail_at(node, "number of outputs differs from its row");
  for (size_t i = 0; i < made.size(); ++i) {
    const Value& output = graph.value(node.outputs.values()[i]);
    const Type& type = made.values()[i];
    for (const Dim& dim : type.dims) {
      if (dim.symbol == Symbol::kData) {
        fail_at(node,
                "the shape of %{} depends on data: a step's addresses are fixed "
                "before it runs, so every dim must be a number, T or B",
                output.name);
      }
      if (dim.is_number() && dim.value < 0) {
        fail_at(node, "%{} has a negative dim", output.name);
      }
    }
    if (output.type != type) {
      fail_at(node, "%{} is {}, its row says {}", output.name, output.type.to_string(),
              type.to_string());
    }
  }
}

// Returns whether a value is memory that may be mutated, or a new version of such a value that an
// op made. Follows the versions back to the first.
bool is_mutable_version(const Graph& graph, ValueId id) {
  const Value* value = &graph.value(id);
  while (value->kind == ValueKind::kNode) {
    const Node& producer = graph.node(value->producer);
    const auto mutations = producer.op->mutations();
    const auto mutation = std::ranges::find_if(mutations, [&](const InPlace& m) {
      const ValueId* const made = producer.outputs.find(m.output);
      return made != nullptr && *made == id;
    });
    if (mutation == mutations.end()) return false;
    id = producer.inputs[mutation->input];
    value = &graph.value(id);
  }
  return is_mutable(value->kind);
}

void check_memory(const Graph& graph, int index, const std::vector<std::vector<NodeId>>& readers) {
  const Node& node = graph.nodes()[index];
  const auto read_after = [&](ValueId id) {
    return std::ranges::any_of(readers[id.index],
                               [&](NodeId reader) { return reader.index > index; });
  };
  const auto mutations = node.op->mutations();
  for (const InPlace& mutation : mutations) {
    if (node.inputs.find(mutation.input) == nullptr) continue;  // the optional operand is absent
    const ValueId id = node.inputs[mutation.input];
    const std::string& name = graph.value(id).name;
    if (!is_mutable_version(graph, id))
      fail_at(node, "mutates %{}, which is neither a state nor a step input", name);
    if (read_after(id))
      fail_at(node, "%{} is read after it was mutated: use the new version", name);
  }
  for (const InPlace& place : node.in_place) {
    const ValueId id = node.inputs[place.input];
    const Value& input = graph.value(id);
    const bool is_mutation = std::ranges::count(mutations, place) > 0;
    if (!is_mutation && std::ranges::count(node.op->may_reuse, place) == 0)
      fail_at(node, "its row does not allow {} over {}", place.output, place.input);
    if (!is_mutation && input.kind != ValueKind::kNode)
      fail_at(node, "would overwrite %{}, which no node made", input.name);
    if (read_after(id) || std::ranges::count(graph.outputs(), id) > 0)
      fail_at(node, "overwrites %{}, which is still needed", input.name);
    if (input.type != graph.value(node.outputs[place.output]).type)
      fail_at(node, "%{} has another type than what is written over it", input.name);
  }
}

void check_dims(const Graph& graph) {
  for (const Value& value : graph.values()) {
    if (value.kind == ValueKind::kNode) continue;
    for (size_t i = 0; i < value.type.dims.size(); ++i) {
      if (value.type.dims[i].is_number()) continue;
      if (value.kind != ValueKind::kInput) {
        fail(ErrorKind::kCompile, "%{}: only step inputs and what nodes make vary in size",
             value.name);
      }
      if (i > 0) fail(ErrorKind::kCompile, "input %{}: only its first dim may vary", value.name);
    }
  }
}

}  // namespace

void verify(const Graph& graph) {
  check_dims(graph);
  const auto readers = graph.readers();
  std::vector<bool> defined(graph.num_values());
  for (int i = 0; i < graph.num_values(); ++i) {
    defined[i] = graph.values()[i].kind != ValueKind::kNode;
  }
  for (int i = 0; i < graph.num_nodes(); ++i) {
    const Node& node = graph.nodes()[i];
    for (const ValueId input : node.inputs) {
      if (!defined[input.index]) {
        fail_at(node, "reads %{} before it is made", graph.value(input).name);
      }
    }
    check_types(graph, node);
    check_memory(graph, i, readers);
    for (const ValueId output : node.outputs) {
      if (defined[output.index]) fail_at(node, "%{} is made twice", graph.value(output).name);
      defined[output.index] = true;
    }
  }
  for (const ValueId output : graph.outputs()) {
    ENCORE_CHECK(output.index >= 0 && output.index < graph.num_values());
    if (!defined[output.index]) {
      fail(ErrorKind::kCompile, "output %{} is never made", graph.value(output).name);
    }
  }
}

}  // namespace encore::ir
