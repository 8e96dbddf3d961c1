// Graphs and programs as text, and graphs back: what people look at, and what tests of passes are
// written in. No step needs any of it.
#pragma once

#include <string>
#include <string_view>

#include "passes/program.h"

namespace encore::listing {

// The form shown in ir/graph.h; parse(print(g)) prints the same text.
std::string print(const ir::Graph& graph);
// Errors: kCompile with the line number. Lifetime: `ops` must outlive the graph.
ir::Graph parse(std::string_view text, const ir::OpSet& ops);

// The graph in Graphviz' language.
std::string print_dot(const ir::Graph& graph);

// The graph, the segments one a line, and (once planned) the arena, as far as the passes have come.
std::string print(const passes::Program& program);
std::string print_segments(const passes::Program& program);
std::string print_arena(const passes::Program& program);

}  // namespace encore::listing
