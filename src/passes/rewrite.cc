#include "passes/rewrite.h"

#include <algorithm>

namespace encore::passes {

using ir::Node;
using ir::ValueId;

Rewrite::Rewrite(Program& program)
    : graph_(program.graph),
      split_ops_(program.split_ops),
      readers_(graph_.readers()),
      uses_(graph_.num_values()),
      replacements_(graph_.num_nodes()) {
  for (const Node& node : graph_.nodes()) {
    for (const ValueId input : node.inputs)
      ++uses_[input.index];
  }
  for (const ValueId output : graph_.outputs())
    ++uses_[output.index];
}

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
      nodes.push_back(node(i));
    } else {
      for (Node& replacement : *replacements_[i])
        nodes.push_back(std::move(replacement));
    }
  }
  graph_.replace_nodes(std::move(nodes));
}

std::string join_names(const std::vector<std::string>& names) {
  size_t prefix = names[0].size();
  for (const std::string& name : names) {
    const auto end =
        std::mismatch(names[0].begin(), names[0].end(), name.begin(), name.end()).first;
    prefix = std::min(prefix, static_cast<size_t>(end - names[0].begin()));
  }
  const size_t last_dot = names[0].substr(0, prefix).rfind('.');
  prefix = last_dot == std::string::npos ? 0 : last_dot + 1;

  const std::string first = names[0].substr(prefix);
  size_t suffix = first.size();
  for (const std::string& name : names) {
    const std::string rest = name.substr(prefix);
    const auto end = std::mismatch(first.rbegin(), first.rend(), rest.rbegin(), rest.rend()).first;
    suffix = std::min(suffix, static_cast<size_t>(end - first.rbegin()));
  }
  const size_t first_dot = first.find('.', first.size() - suffix);
  suffix = first_dot == std::string::npos ? 0 : first.size() - first_dot;

  std::string joined = names[0].substr(0, prefix);
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) joined += '_';
    joined += names[i].substr(prefix, names[i].size() - prefix - suffix);
  }
  return joined + first.substr(first.size() - suffix);
}

}  // namespace encore::passes
