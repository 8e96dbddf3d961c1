#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>

#include "listing/listing.h"

namespace encore::listing {
namespace {

using ir::Attrs;
using ir::Dim;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::OpSet;
using ir::Pad;
using ir::Type;
using ir::ValueId;
using ir::ValueKind;
using ir::WeightPiece;
using ir::WeightRecipe;

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<Dim> parse_dim(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const ir::Symbol symbol = text[0] == 'T'   ? ir::Symbol::kTokens
                            : text[0] == 'B' ? ir::Symbol::kSequences
                            : text[0] == 'L' ? ir::Symbol::kLogits
                            : text[0] == 'G' ? ir::Symbol::kGuessing
                            : text[0] == 'U' ? ir::Symbol::kUnguessed
                            : text[0] == '?' ? ir::Symbol::kData
                                             : ir::Symbol::kNone;
  if (symbol != ir::Symbol::kNone) {
    text.remove_prefix(1);
    if (text.empty()) return Dim(symbol);
    if (text[0] == '+') text.remove_prefix(1);
  }
  const auto number = parse_number(text);
  if (!number) return std::nullopt;
  return Dim(symbol, *number);
}

std::optional<Type> parse_type(std::string_view text) {
  const size_t open = text.find('[');
  if (open == std::string_view::npos || text.back() != ']') return std::nullopt;
  const auto dtype = parse_dtype(text.substr(0, open));
  if (!dtype) return std::nullopt;
  Type type{*dtype, {}};
  text = text.substr(open + 1, text.size() - open - 2);
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const auto dim = parse_dim(text.substr(0, comma));
    if (!dim) return std::nullopt;
    type.dims.push_back(*dim);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return type;
}

// The parts of one node's line, as text.
struct NodeText {
  struct Output {
    std::string name;
    std::optional<Type> type;
    std::string over;  // empty: the output has memory of its own
  };
  std::vector<Output> outputs;
  std::string op;
  ir::Operands<std::string> inputs;  // names of values; without a name as in ir::named()
  Attrs attrs;
};

// Reads one line of IR text from left to right.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text), number_(number) {}

  [[noreturn]] void fail_here(std::string_view what) const {
    fail(ErrorKind::kCompile, "IR text, line {}: {}{}", number_, what,
         rest_.empty() ? "" : fmt::format(" at '{}'", rest_));
  }
  void skip_spaces() {
    while (!rest_.empty() && rest_[0] == ' ')
      rest_.remove_prefix(1);
  }
  bool accept(std::string_view token) {
    skip_spaces();
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail_here(fmt::format("expected '{}'", token));
  }
  bool at(char c) {
    skip_spaces();
    return rest_.starts_with(c);
  }
  bool at_end() {
    skip_spaces();
    return rest_.empty() || rest_.substr(0, 2) == "//";
  }
  // Reads a word of letters, digits, '_' and '.'.
  std::string_view word() {
    skip_spaces();
    return take(
        [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; },
        "a name");
  }
  std::string_view value_name() {
    expect("%");
    return word();
  }
  std::string quoted() {
    expect("\"");
    std::string text;
    while (!rest_.empty() && rest_[0] != '"') {
      text += rest_[0];
      rest_.remove_prefix(1);
    }
    expect("\"");
    return text;
  }
  Type type() {
    skip_spaces();
    const size_t close = rest_.find(']');
    const auto parsed =
        close == std::string_view::npos ? std::nullopt : parse_type(rest_.substr(0, close + 1));
    if (!parsed) fail_here("expected a type such as bf16[T,64]");
    rest_.remove_prefix(close + 1);
    return *parsed;
  }
  std::string_view number_text() {
    skip_spaces();
    return take(
        [](char c) {
          return std::isdigit(static_cast<unsigned char>(c)) != 0 ||
                 std::string_view("+-.einfa").find(c) != std::string_view::npos;
        },
        "a number");
  }
  int64_t integer() {
    const std::string_view text = number_text();
    const auto value = parse_number(text);
    if (!value) fail_here(fmt::format("'{}' is not an integer", text));
    return *value;
  }
  double real() {
    const std::string text(number_text());
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end != text.c_str() + text.size()) fail_here(fmt::format("'{}' is not a number", text));
    return value;
  }
  Attrs::Value attr_value() {
    if (accept("[")) {
      std::vector<int64_t> list;
      while (!accept("]")) {
        list.push_back(integer());
        accept(",");
      }
      return list;
    }
    skip_spaces();
    const bool numeric =
        !rest_.empty() && (std::isdigit(static_cast<unsigned char>(rest_[0])) != 0 ||
                           rest_[0] == '-' || rest_[0] == '+');
    if (!numeric) return std::string(word());
    const Line before = *this;
    const std::string_view text = number_text();
    *this = before;
    if (text.find_first_of(".en") == std::string::npos) return integer();
    return real();
  }

 private:
  template <typename Accept>
  std::string_view take(Accept accept, std::string_view what) {
    size_t length = 0;
    while (length < rest_.size() && accept(rest_[length]))
      ++length;
    if (length == 0) fail_here(fmt::format("expected {}", what));
    const std::string_view text = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return text;
  }

  std::string_view rest_;
  int number_;
};

NodeText node_text(Line& line) {
  NodeText node;
  do {
    NodeText::Output& output = node.outputs.emplace_back();
    output.name = line.value_name();
    if (line.accept(":")) output.type = line.type();
    if (line.accept("over ")) output.over = line.value_name();
  } while (line.accept(","));
  line.expect("=");
  node.op = line.word();
  line.expect("(");
  while (!line.accept(")")) {
    std::string_view operand;
    if (!line.at('%')) {
      operand = line.word();
      line.expect("=");
    }
    node.inputs.add(operand, std::string(line.value_name()));
    line.accept(",");
  }
  if (!line.accept("{")) return node;
  while (!line.accept("}")) {
    std::string key(line.word());
    line.expect("=");
    node.attrs.set(std::move(key), line.attr_value());
    line.accept(",");
  }
  return node;
}

class Parser {
 public:
  Parser(Graph& graph, const OpSet& ops) : graph_(graph), ops_(ops) {}

  // Parses one line of IR text into the graph. Errors: kCompile with the line.
  void parse_line(Line line) {
    if (line.accept("input ")) {
      const std::string name(line.value_name());
      line.expect(":");
      Type type = line.type();
      Pad pad = Pad::kZero;
      if (line.accept("pad -1")) pad = Pad::kMinusOne;
      if (line.accept("pad last")) pad = Pad::kRepeatLast;
      define(line, name, graph_.add_input(name, std::move(type), pad));
    } else if (line.accept("weight ")) {
      const std::string name(line.value_name());
      line.expect(":");
      Type type = line.type();
      line.expect("=");
      define(line, name, graph_.add_weight(name, std::move(type), recipe(line)));
    } else if (line.accept("state ")) {
      parse_state(line);
    } else if (line.accept("persistent ")) {
      parse_lasting(line, ValueKind::kPersistent);
    } else if (line.accept("host_visible ")) {
      parse_lasting(line, ValueKind::kHostVisible);
    } else if (line.accept("output ")) {
      graph_.add_output(use(line, std::string(line.value_name())));
    } else {
      parse_node(line);
    }
    if (!line.at_end()) line.fail_here("text left over");
  }

 private:
  void define(Line& line, const std::string& name, ValueId id) {
    if (!values_.emplace(name, id).second) line.fail_here(fmt::format("%{} exists already", name));
  }
  ValueId use(const Line& line, const std::string& name) {
    const auto place = values_.find(name);
    if (place == values_.end()) line.fail_here(fmt::format("%{} is not defined above", name));
    return place->second;
  }

  // Parses a state, "%name: type group 1". The group is left out where it is 0.
  void parse_state(Line& line) {
    const std::string name(line.value_name());
    line.expect(":");
    Type type = line.type();
    const int64_t group = line.accept("group") ? line.integer() : 0;
    define(line, name, graph_.add_state(name, std::move(type), static_cast<int>(group)));
  }

  // Parses a persistent or host-visible buffer, "%name: type".
  void parse_lasting(Line& line, ValueKind kind) {
    const std::string name(line.value_name());
    line.expect(":");
    define(line, name, graph_.add_value(kind, name, line.type()));
  }

  // Parses the range of a weight piece, "first:last". Returns nullopt for ":", which stands for
  // all.
  static std::optional<WeightPiece::Range> range(Line& line) {
    if (line.accept(":")) return std::nullopt;
    const int64_t first = line.integer();
    line.expect(":");
    return WeightPiece::Range{first, line.integer()};
  }
  // Parses the transform of a weight, "name(number, ...)".
  static ir::WeightTransform transform(Line& line) {
    ir::WeightTransform transform{.name = std::string(line.word())};
    line.expect("(");
    while (!line.accept(")")) {
      transform.numbers.push_back(line.integer());
      line.accept(",");
    }
    return transform;
  }

  static WeightRecipe recipe(Line& line) {
    WeightRecipe recipe;
    if (line.accept("constant(")) {
      while (!line.accept(")")) {
        recipe.constant.push_back(static_cast<float>(line.real()));
        line.accept(",");
      }
      return recipe;
    }
    const bool is_stack = line.accept("stack(");
    recipe.has_slots = line.accept("slots(");
    const bool several = is_stack || recipe.has_slots || line.accept("concat(");
    const int64_t count = is_stack ? line.integer() : 1;
    constexpr int64_t kMaxStacked = 1 << 16;
    if (count < 1 || count > kMaxStacked)
      line.fail_here(fmt::format("{} matrices in a stack, of at most {}", count, kMaxStacked));
    if (is_stack) line.expect(",");
    do {
      recipe.pieces.push_back(piece(line));
    } while (several && line.accept(","));
    if (several) line.expect(")");
    return is_stack ? stacked(recipe.pieces, count) : recipe;
  }

  static WeightPiece piece(Line& line) {
    WeightPiece piece{.tensor = line.quoted()};
    if (line.accept("|")) piece.transform = transform(line);
    if (line.accept("[")) {
      piece.rows = range(line);
      if (line.accept(",")) piece.columns = range(line);
      line.expect("]");
    }
    if (line.accept("*")) piece.factor = line.real();
    return piece;
  }

  // Returns the recipe that repeats the weight pieces of `pattern` `count` times, with the number
  // of the repetition in place of the # in a tensor's name.
  static WeightRecipe stacked(const std::vector<WeightPiece>& pattern, int64_t count) {
    WeightRecipe recipe;
    for (int64_t i = 0; i < count; ++i) {
      for (WeightPiece piece : pattern) {
        const size_t place = piece.tensor.find('#');
        if (place != std::string::npos) piece.tensor.replace(place, 1, std::to_string(i));
        recipe.pieces.push_back(std::move(piece));
      }
    }
    return recipe;
  }

  void parse_node(Line& line) {
    const NodeText text = node_text(line);
    const Op* op = ops_.find(text.op);
    if (op == nullptr) line.fail_here(fmt::format("no op '{}' in the set", text.op));
    const auto inputs = text.inputs.map([&](const auto& name) { return use(line, name); });
    const NodeId id{graph_.num_nodes()};
    try {
      graph_.add_node(*op, inputs, text.attrs, text.outputs[0].name);
    } catch (const Error& error) {
      line.fail_here(error.what());
    }
    Node& node = graph_.node(id);
    if (node.outputs.size() != text.outputs.size())
      line.fail_here("number of outputs differs from the op's");
    for (size_t i = 0; i < text.outputs.size(); ++i) {
      const NodeText::Output& output = text.outputs[i];
      const ValueId made = node.outputs.values()[i];
      graph_.rename(made, output.name);
      const Type& type = graph_.value(made).type;
      if (output.type != type) {
        line.fail_here(
            fmt::format("%{}: op '{}' gives {}", output.name, op->name, type.to_string()));
      }
      define(line, output.name, made);
      if (output.over.empty()) continue;
      const auto& read = node.inputs.values();
      const auto input = std::find(read.begin(), read.end(), use(line, output.over));
      if (input == read.end()) line.fail_here("'over' names a value that is not an input");
      node.in_place.push_back({node.outputs.name(i), node.inputs.name(input - read.begin())});
    }
  }

  Graph& graph_;
  const OpSet& ops_;
  std::map<std::string, ValueId, std::less<>> values_;
};

}  // namespace

Graph parse(std::string_view text, const OpSet& ops) {
  std::optional<Graph> graph;
  std::optional<Parser> parser;
  bool closed = false;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    Line line(text.substr(0, end), number);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.at_end()) continue;
    if (closed) line.fail_here("text after the graph");
    if (!graph) {
      line.expect("graph");
      graph.emplace(std::string(line.word()));
      parser.emplace(*graph, ops);
      line.expect("{");
    } else if (line.accept("}")) {
      closed = true;
    } else {
      parser->parse_line(line);
    }
  }
  if (!closed) fail(ErrorKind::kCompile, "IR text: expected 'graph NAME {{ ... }}'");
  return std::move(*graph);
}

}  // namespace encore::listing
