// Graphs as text, and back.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"

namespace encore::ir {

// The form shown in graph.h; parse(print(g)) prints the same text.
std::string print(const Graph& graph);
// One node's line, without indentation.
std::string print_node(const Graph& graph, const Node& node);
// The graph in Graphviz' language.
std::string print_dot(const Graph& graph);

// Errors: kCompile with the line number. Lifetime: `ops` must outlive the graph.
Graph parse(std::string_view text, const OpSet& ops);

// One node's line as it is written. Patterns of passes leave the types out.
// Lifetime: names of operands refer to the text.
struct NodeText {
  struct Output {
    std::string name;
    std::optional<Type> type;
    std::string over;  // empty: in memory of its own
  };
  std::vector<Output> outputs;
  std::string op;
  Operands<std::string> inputs;  // names of values; those without a name as in ir::named()
  Attrs attrs;
};
// Errors: kCompile.
NodeText parse_node(std::string_view line);

}  // namespace encore::ir
