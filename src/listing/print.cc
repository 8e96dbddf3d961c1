#include <fmt/format.h>
#include <fmt/ranges.h>

#include "listing/listing.h"

namespace encore::listing {
namespace {

using ir::Graph;
using ir::InPlace;
using ir::Node;
using ir::Pad;
using ir::Value;
using ir::ValueId;
using ir::ValueKind;
using ir::WeightRecipe;
using passes::Program;

// Prints a double with a point or an exponent, so that it reads back as a double.
std::string number(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string print_attr(const ir::Attrs::Value& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&value)) return number(*d);
  if (const auto* s = std::get_if<std::string>(&value)) return *s;
  return fmt::format("[{}]", fmt::join(std::get<std::vector<int64_t>>(value), ","));
}

std::string print_range(const std::optional<ir::WeightPiece::Range>& range) {
  return range ? fmt::format("{}:{}", range->first, range->last) : ":";
}

std::string print_pieces(const std::vector<ir::WeightPiece>& pieces) {
  std::string text;
  for (const ir::WeightPiece& piece : pieces) {
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", piece.tensor);
    if (piece.transform) {
      text +=
          fmt::format(" | {}({})", piece.transform->name, fmt::join(piece.transform->numbers, ","));
    }
    if (piece.rows || piece.columns) text += fmt::format("[{}", print_range(piece.rows));
    if (piece.columns) text += fmt::format(",{}", print_range(piece.columns));
    if (piece.rows || piece.columns) text += ']';
    if (piece.factor != 1) text += fmt::format(" * {}", number(piece.factor));
  }
  return text;
}

// Returns the weight pieces of the first of several stacked matrices or rows of scales, as a
// pattern for all: # stands in place of the number in the tensor's name. Returns no pieces where
// the pieces of another matrix differ in more than that number.
std::vector<ir::WeightPiece> stacked_pattern(const WeightRecipe& recipe, const ir::Type& type) {
  const auto count = type.dims.size() > 1 ? static_cast<size_t>(type.dims[0].value) : 0;
  if (count < 2 || recipe.pieces.empty() || recipe.pieces.size() % count != 0) return {};
  const size_t of_each = recipe.pieces.size() / count;
  std::vector<ir::WeightPiece> pattern(recipe.pieces.begin(), recipe.pieces.begin() + of_each);
  for (ir::WeightPiece& piece : pattern) {
    const size_t place = piece.tensor.rfind(".0.");
    if (place == std::string::npos) return {};
    piece.tensor[place + 1] = '#';
  }
  for (size_t i = 0; i < recipe.pieces.size(); ++i) {
    ir::WeightPiece piece = pattern[i % of_each];
    piece.tensor.replace(piece.tensor.find('#'), 1, std::to_string(i / of_each));
    if (piece != recipe.pieces[i]) return {};
  }
  return pattern;
}

std::string print_recipe(const WeightRecipe& recipe, const ir::Type& type) {
  if (recipe.pieces.empty()) {
    std::string text = "constant(";
    for (size_t i = 0; i < recipe.constant.size(); ++i) {
      text += fmt::format("{}{}", i == 0 ? "" : ", ", recipe.constant[i]);
    }
    return text + ')';
  }
  if (recipe.has_slots) return fmt::format("slots({})", print_pieces(recipe.pieces));
  const std::vector<ir::WeightPiece> pattern = stacked_pattern(recipe, type);
  if (!pattern.empty())
    return fmt::format("stack({}, {})", type.dims[0].value, print_pieces(pattern));
  const std::string text = print_pieces(recipe.pieces);
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

}  // namespace

std::string print(const Graph& graph) {
  std::string text = fmt::format("graph {} {{\n", graph.name());
  for (const Value& value : graph.values()) {
    const std::string type = value.type.to_string();
    if (value.kind == ValueKind::kInput) {
      text += fmt::format("  input %{}: {}{}\n", value.name, type, pad_suffix(value.pad));
    } else if (value.kind == ValueKind::kWeight) {
      text += fmt::format("  weight %{}: {} = {}\n", value.name, type,
                          print_recipe(value.recipe, value.type));
    } else if (value.kind == ValueKind::kState) {
      text += fmt::format("  state %{}: {}{}\n", value.name, type,
                          value.group == 0 ? "" : fmt::format(" group {}", value.group));
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

std::string print_segments(const Program& program) {
  std::string text;
  for (size_t i = 0; i < program.segments.size(); ++i) {
    const passes::Segment& segment = program.segments[i];
    text += fmt::format("segment {}: nodes {}..{}, rows {}, in {}\n", i, segment.first,
                        segment.last - 1, segment.rows == ir::Symbol::kTokens ? "T" : "B",
                        segment.in_pieces ? "every recording" : "full recordings");
  }
  return text;
}

std::string print_arena(const Program& program) {
  const passes::ArenaPlan& arena = program.arena;
  std::string text =
      fmt::format("arena: {} bytes at T = {}, B = {}; {} without reuse\n", arena.bytes,
                  program.max_sizes.tokens, program.max_sizes.sequences, arena.unshared_bytes);
  for (const Node& node : program.graph.nodes()) {
    for (const ValueId id : node.outputs) {
      const Value& value = program.graph.value(id);
      const passes::Placement& place = arena.placements[id.index];
      if (place.root == id) {
        text += fmt::format("  %{} at {}, {} bytes\n", value.name, place.offset,
                            value.type.num_bytes(program.max_sizes));
      } else {
        text += fmt::format("  %{} in %{} from column {}\n", value.name,
                            program.graph.value(place.root).name, place.column);
      }
    }
  }
  return text;
}

std::string print(const Program& program) {
  std::string text = print(program.graph) + print_segments(program);
  if (!program.arena.placements.empty()) text += print_arena(program);
  return text;
}

}  // namespace encore::listing
