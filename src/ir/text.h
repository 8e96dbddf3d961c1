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

}  // namespace encore::ir
