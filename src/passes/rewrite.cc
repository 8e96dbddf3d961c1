#include "passes/rewrite.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "ir/words.h"

namespace encore::passes {

using ir::Node;
using ir::ValueId;

Rewrite::Rewrite(Program& program)
    : graph_(program.graph),
      split_ops_(program.split_ops),
      readers_(graph_.readers()),
      replacements_(graph_.num_nodes()) {}

bool Rewrite::is(int index, std::string_view op) const {
  return !replacements_[index] && node(index).op->name == op && !split_ops_.contains(op);
}

void Rewrite::replace(int index, std::vector<Node> nodes) {
  ENCORE_CHECK(!replacements_[index], "node {} is already part of a match", index);
  replacements_[index] = std::move(nodes);
}

void Rewrite::commit() {
  std::vector<Node> nodes;
  for (int i = 0; i < graph_.num_nodes(); ++i) {
    if (!replacements_[i]) {
      nodes.push_back(std::move(graph_.node(ir::NodeId{i})));
    } else {
      std::ranges::move(*replacements_[i], std::back_inserter(nodes));
    }
  }
  graph_.replace_nodes(std::move(nodes));
}

std::string join_names(std::vector<std::string> names) {
  // Removes the prefix, up to a dot, that all names share, and returns it. Reverses the rest of
  // each name.
  const auto take_shared = [&] {
    std::string_view start = names[0];
    for (const std::string_view name : names)
      start = {start.begin(), std::ranges::mismatch(start, name).in1};
    const std::string shared(start.substr(0, start.rfind('.') + 1));
    for (std::string& name : names) {
      name.erase(0, shared.size());
      std::ranges::reverse(name);
    }
    return shared;
  };
  const std::string front = take_shared();
  std::string back = take_shared();
  std::ranges::reverse(back);
  return fmt::format("{}{}{}", front, fmt::join(names, "_"), back);
}

// The functions below read rules, find the nodes that match them, and put new nodes in their
// places.
namespace {

// A node as a rule writes it: the names of its values. Names of inputs are kept by operand.
struct NodeText {
  std::vector<std::string_view> outputs;
  std::string_view op;
  ir::Operands<std::string_view> inputs;
  ir::Attrs attrs;
};

NodeText read_node(std::string_view line) {
  std::string_view rest = line;
  const auto expect = [&](std::string_view token) {
    ENCORE_CHECK(ir::accept(rest, token), "rule '{}': no '{}' at '{}'", line, token, rest);
  };
  const auto take_value = [&] {
    expect("%");
    return ir::take_word(rest);
  };
  NodeText node;
  do {
    node.outputs.push_back(take_value());
  } while (ir::accept(rest, ", "));
  expect(" = ");
  node.op = ir::take_word(rest);
  expect("(");
  while (!ir::accept(rest, ")")) {
    // The operand's name is empty where the rule leaves it out. Then the name of the value belongs
    // to the op's next required operand.
    const std::string_view operand = ir::take_word(rest);
    if (!operand.empty()) expect("=");
    node.inputs.add(operand, take_value());
    ir::accept(rest, ", ");
  }
  if (!ir::accept(rest, " {")) return node;
  while (!ir::accept(rest, "}")) {
    const std::string_view key = ir::take_word(rest);
    expect("=");
    node.attrs.set(std::string(key), std::string(ir::take_word(rest)));
    ir::accept(rest, ", ");
  }
  return node;
}

struct ParsedRule {
  struct Line {
    NodeText text;  // the names of the node's values
    const ir::Op* op = nullptr;
    bool stays = false;
  };
  std::vector<Line> pattern;
  size_t place = 0;  // the index of the line that is marked @
  Line made;
};

bool same(const NodeText& a, const NodeText& b) {
  return a.op == b.op && a.inputs == b.inputs && a.outputs == b.outputs;
}

ParsedRule read_rule(Rule rule, const ir::OpSet& ops) {
  ParsedRule parsed;
  bool below = false;
  while (!rule.empty()) {
    std::string_view line = rule.substr(0, rule.find('\n'));
    rule.remove_prefix(std::min(rule.size(), line.size() + 1));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(' ')));
    if (line.empty()) continue;
    if (line.starts_with("->")) {
      below = true;
      continue;
    }
    if (line.starts_with("@ ")) {
      parsed.place = parsed.pattern.size();
      line.remove_prefix(2);
    }
    ParsedRule::Line read{read_node(line)};
    read.op = ops.find(read.text.op);
    if (read.op == nullptr) {
      fail(ErrorKind::kCompile, "the rule '{}' names an op '{}' that there is not", line,
           read.text.op);
    }
    for (size_t i = 0; i < read.text.inputs.size(); ++i) {
      const std::string_view operand = read.text.inputs.name(i);
      if (!operand.empty() && read.op->inputs.find(operand) == nullptr) {
        fail(ErrorKind::kCompile, "the rule '{}' names an operand '{}' that {} has not", line,
             operand, read.text.op);
      }
    }
    read.text.inputs = named(*read.op, read.text.inputs);
    if (!below) {
      parsed.pattern.push_back(std::move(read));
      continue;
    }
    const auto kept = std::ranges::find_if(
        parsed.pattern, [&](const auto& above) { return same(above.text, read.text); });
    if (kept != parsed.pattern.end()) {
      kept->stays = true;
    } else {
      parsed.made = std::move(read);
    }
  }
  return parsed;
}

// An attempt to apply a rule. It starts with a given node, which must match the rule's last line,
// and finds the nodes of the other lines in front of that node.
class Match {
 public:
  Match(const ParsedRule& rule, const Rewrite& rewrite) : rule_(rule), rewrite_(rewrite) {}

  // Returns whether the rule applies where node `last` matches the rule's last line.
  bool find(int last) {
    nodes_.resize(rule_.pattern.size());
    for (size_t i = nodes_.size(); i-- > 0;) {
      const auto node = i + 1 == nodes_.size() ? std::optional(last) : maker(rule_.pattern[i]);
      if (!node || !bind(rule_.pattern[i], *node)) return false;
      nodes_[i] = *node;
      if (!rule_.pattern[i].stays) removed_.insert(*node);
    }
    return make() && can_stand();
  }
  void apply(Rewrite& rewrite) const {
    for (const int node : removed_) {
      if (node != nodes_[rule_.place]) rewrite.remove(node);
    }
    rewrite.replace(nodes_[rule_.place], {made_});
  }

 private:
  // Returns the node that made an output of this line. At least one of these outputs must be known
  // from a later line.
  [[nodiscard]] std::optional<int> maker(const ParsedRule::Line& line) const {
    for (const std::string_view output : line.text.outputs) {
      const auto value = values_.find(output);
      if (value == values_.end()) continue;
      const ir::Value& made = rewrite_.graph().value(value->second);
      if (made.kind == ir::ValueKind::kNode) return made.producer.index;
    }
    return std::nullopt;
  }
  bool bind(std::string_view name, ValueId value) {
    return values_.emplace(name, value).first->second == value;
  }
  // Returns whether an operand of this line has the name of a different operand of the op that
  // stands where the new node goes. A norm's bias must not become the product's bias.
  [[nodiscard]] bool is_anothers(const ParsedRule::Line& line, std::string_view name) const {
    const ParsedRule::Line& at_place = rule_.pattern[rule_.place];
    return &line != &at_place && at_place.op->inputs.find(name) != nullptr;
  }
  bool bind(const ParsedRule::Line& line, int index) {
    const Node& node = rewrite_.node(index);
    if (line.stays ? node.op != line.op : !rewrite_.is(index, line.text.op)) return false;
    size_t num_bound = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const std::string_view* value = line.text.inputs.find(node.inputs.name(i));
      if (value != nullptr && !bind(*value, node.inputs.values()[i])) return false;
      num_bound += value != nullptr ? 1 : 0;
      if (value != nullptr || line.stays) continue;
      if (is_anothers(line, node.inputs.name(i))) return false;
      inputs_.add(node.inputs.name(i), node.inputs.values()[i]);
    }
    if (num_bound != line.text.inputs.size()) return false;
    auto name = line.text.outputs.begin();
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId output = node.outputs.values()[i];
      if (node.outputs.is_optional(i)) {
        outputs_.add(node.outputs.name(i), output, true);
      } else if (name == line.text.outputs.end() || !bind(*name++, output)) {
        return false;
      }
    }
    return name == line.text.outputs.end();
  }

  // Makes the new node. Returns false if its op does not take the operands that there are.
  bool make() {
    made_.op = rule_.made.op;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = rewrite_.node(nodes_[i]);
      if (rule_.pattern[i].stays || node.op->is_view) continue;
      for (const auto& [key, value] : node.attrs) {
        const auto* other = made_.attrs.find(key);
        if (other != nullptr && *other != value) return false;
        made_.attrs.set(key, value);
      }
    }
    for (const auto& [key, value] : rule_.made.text.attrs)
      made_.attrs.set(key, value);
    try {
      const ir::Operands<std::string_view>& named_inputs = rule_.made.text.inputs;
      for (size_t i = 0; i < named_inputs.size(); ++i)
        inputs_.add(named_inputs.name(i), values_.at(named_inputs.values()[i]));
      made_.inputs = named(*made_.op, inputs_);
      const ir::Graph& graph = rewrite_.graph();
      const ir::Types types = infer(*made_.op, ir::types(graph, made_.inputs), made_.attrs);
      auto name = rule_.made.text.outputs.begin();
      for (size_t i = 0; i < types.size(); ++i) {
        const ValueId* given = outputs_.find(types.name(i));
        if (given == nullptr && name == rule_.made.text.outputs.end()) return false;
        const ValueId value = given != nullptr ? *given : values_.at(*name++);
        if (graph.value(value).type != types.values()[i]) return false;
        made_.outputs.add(types.name(i), value, types.is_optional(i));
      }
      return name == rule_.made.text.outputs.end();
    } catch (const Error&) {
      return false;
    }
  }

  // Returns whether the new node can stand in its place. Its inputs must be made before that place,
  // its outputs may be read only behind it, and no other node may need the removed values.
  [[nodiscard]] bool can_stand() const {
    const int place = nodes_[rule_.place];
    const auto is_removed = [&](int node) { return removed_.contains(node); };
    const auto is_ready = [&](ValueId id) {
      const ir::Value& input = rewrite_.graph().value(id);
      const int producer = input.producer.index;
      return input.kind != ir::ValueKind::kNode || (producer < place && !is_removed(producer));
    };
    if (!std::ranges::all_of(made_.inputs, is_ready)) return false;
    for (const int node : removed_) {
      for (const ValueId output : rewrite_.node(node).outputs) {
        const bool stays = std::ranges::count(made_.outputs, output) > 0;
        const auto misses_it = [&](ir::NodeId reader) {
          return !is_removed(reader.index) && (!stays || reader.index < place);
        };
        if (std::ranges::any_of(rewrite_.readers(output), misses_it)) return false;
        if (!stays && std::ranges::count(rewrite_.graph().outputs(), output) > 0) return false;
      }
    }
    return true;
  }

  const ParsedRule& rule_;
  const Rewrite& rewrite_;
  std::map<std::string_view, ValueId> values_;  // by their names in the rule
  std::vector<int> nodes_;                      // the matched node of each line
  std::set<int> removed_;
  ir::Operands<ValueId> inputs_;   // the new node's inputs; at first those that no line names
  ir::Operands<ValueId> outputs_;  // the new node's outputs that no line names
  Node made_;
};

}  // namespace

void rewrite(Program& program, const ir::OpSet& ops, const std::vector<Rule>& rules) {
  std::vector<ParsedRule> parsed;
  for (const Rule rule : rules)
    parsed.push_back(read_rule(rule, ops));
  Rewrite rewrite(program);
  for (int i = 0; i < program.graph.num_nodes(); ++i) {
    for (const ParsedRule& rule : parsed) {
      Match match(rule, rewrite);
      if (!match.find(i)) continue;
      match.apply(rewrite);
      break;
    }
  }
  rewrite.commit();
}

}  // namespace encore::passes
