// Writes graphs and programs as text, and reads graphs back. People look at the text, and tests of
// passes are written in it; no step of the engine needs it.
#pragma once

#include <string>
#include <string_view>

#include "passes/program.h"

namespace encore::listing {

// Returns the graph as text, in the form that ir/graph.h shows. parse(print(g)) prints the same
// text.
std::string print(const ir::Graph& graph);
// Reads a graph from text. Errors: kCompile with the line number. Lifetime: `ops` must outlive the
// graph.
ir::Graph parse(std::string_view text, const ir::OpSet& ops);

// Returns the graph in the language of Graphviz.
std::string print_dot(const ir::Graph& graph);

// print() returns a program as text, as far as the passes have come: the graph, the segments one a
// line, and the arena once it is planned. print_segments() and print_arena() return the parts.
std::string print(const passes::Program& program);
std::string print_segments(const passes::Program& program);
std::string print_arena(const passes::Program& program);

}  // namespace encore::listing
