#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/text.h"

namespace encore::ir {
namespace {

// Doubles keep a point or an exponent, so that they read back as doubles.
std::string number(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string print_attr(const Attrs::Value& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&value)) return number(*d);
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  return fmt::format("[{}]", fmt::join(std::get<std::vector<int64_t>>(value), ","));
}

std::string print_recipe(const WeightRecipe& recipe) {
  if (recipe.pieces.empty()) {
    std::string text = "constant(";
    for (size_t i = 0; i < recipe.constant.size(); ++i) {
      text += fmt::format("{}{}", i == 0 ? "" : ", ", recipe.constant[i]);
    }
    return text + ')';
  }
  std::string text;
  for (size_t i = 0; i < recipe.pieces.size(); ++i) {
    const WeightPiece& piece = recipe.pieces[i];
    text += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", piece.tensor);
    if (piece.rows) text += fmt::format("[{}:{}]", piece.rows->first, piece.rows->last);
    if (piece.factor != 1) text += fmt::format(" * {}", number(piece.factor));
  }
  return recipe.pieces.size() == 1 ? text : fmt::format("concat({})", text);
}

std::string_view pad_suffix(Pad pad) {
  switch (pad) {
    case Pad::kZero:
      return "";
    case Pad::kMinusOne:
      return " pad -1";
    case Pad::kRepeatLast:
      return " pad last";
  }
  return "";
}

}  // namespace

std::string print_node(const Graph& graph, const Node& node) {
  std::string text;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const Value& output = graph.value(node.outputs.values()[i]);
    text += fmt::format("{}%{}: {}", i == 0 ? "" : ", ", output.name, output.type.to_string());
    for (const InPlace& place : node.in_place) {
      if (place.output == node.outputs.name(i))
        text += fmt::format(" over %{}", graph.value(node.inputs[place.input]).name);
    }
  }
  text += fmt::format(" = {}(", node.op->name);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i > 0) text += ", ";
    if (node.inputs.is_optional(i)) text += fmt::format("{}=", node.inputs.name(i));
    text += fmt::format("%{}", graph.value(node.inputs.values()[i]).name);
  }
  text += ')';
  if (!node.attrs.empty()) {
    text += " {";
    bool first = true;
    for (const auto& [key, value] : node.attrs) {
      text += fmt::format("{}{}={}", first ? "" : ", ", key, print_attr(value));
      first = false;
    }
    text += '}';
  }
  return text;
}

std::string print(const Graph& graph) {
  std::string text = fmt::format("graph {} {{\n", graph.name());
  for (const Value& value : graph.values()) {
    const std::string type = value.type.to_string();
    if (value.kind == ValueKind::kInput) {
      text += fmt::format("  input %{}: {}{}\n", value.name, type, pad_suffix(value.pad));
    } else if (value.kind == ValueKind::kWeight) {
      text += fmt::format("  weight %{}: {} = {}\n", value.name, type, print_recipe(value.recipe));
    } else if (value.kind == ValueKind::kState) {
      text += fmt::format("  state %{}: {}\n", value.name, type);
    } else if (value.kind == ValueKind::kPersistent) {
      text += fmt::format("  persistent %{}: {}\n", value.name, type);
    } else if (value.kind == ValueKind::kHostVisible) {
      text += fmt::format("  host_visible %{}: {}\n", value.name, type);
    }
  }
  for (const Node& node : graph.nodes())
    text += "  " + print_node(graph, node) + '\n';
  for (const ValueId output : graph.outputs()) {
    text += fmt::format("  output %{}\n", graph.value(output).name);
  }
  return text + "}\n";
}

std::string print_dot(const Graph& graph) {
  std::string text =
      fmt::format("digraph \"{}\" {{\n  node [shape=box, fontname=monospace];\n", graph.name());
  for (int i = 0; i < graph.num_nodes(); ++i) {
    const Node& node = graph.nodes()[i];
    text += fmt::format("  n{} [label=\"{}\"];\n", i, node.op->name);
    for (const ValueId input : node.inputs) {
      const Value& value = graph.value(input);
      if (value.kind == ValueKind::kNode) {
        text += fmt::format("  n{} -> n{} [label=\"%{} {}\"];\n", value.producer.index, i,
                            value.name, value.type.to_string());
      }
    }
  }
  return text + "}\n";
}

}  // namespace encore::ir
