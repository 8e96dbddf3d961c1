// Helpers for tests of passes, which compare IR text before and after a pass.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "listing/listing.h"
#include "ops/ops.h"
#include "passes/passes.h"

namespace encore::passes {

using PassFunction = void (*)(Program& program, const ir::OpSet& ops);

// Parses lines of declarations and nodes as a graph.
inline ir::Graph graph_of(std::string_view lines) {
  return listing::parse("graph g {\n" + std::string(lines) + "}\n", ops::standard());
}

// Returns Encore's ops, but gives the op called `changed` other inputs.
inline ir::OpSet ops_with(std::string_view changed, ir::Signature inputs) {
  ir::OpSet ops;
  for (const auto& [name, row] : ops::standard().rows()) {
    ir::Op op = row;
    if (name == changed) op.inputs = inputs;
    ops.add(std::move(op));
  }
  return ops;
}

// Runs a pass over a graph in text, and verifies the graph before and after, as the pipeline does.
inline Program run(PassFunction pass, std::string_view lines) {
  Program program(graph_of(lines));
  ir::verify(program.graph);
  pass(program, ops::standard());
  ir::verify(program.graph);
  return program;
}

inline void expect_rewrite(PassFunction pass, std::string_view before, std::string_view after) {
  const ir::Graph expected = graph_of(after);
  ir::verify(expected);
  EXPECT_EQ(listing::print(run(pass, before).graph), listing::print(expected));
}

inline void expect_unchanged(PassFunction pass, std::string_view lines) {
  expect_rewrite(pass, lines, lines);
}

}  // namespace encore::passes
