// The list of passes, and the harness that runs it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/program.h"

namespace encore::passes {

// One pass: a function from program to program. Required ones cannot be switched off.
struct Pass {
  std::string_view name;
  std::string_view what;  // one line for people
  void (*run)(Program& program, const ir::OpSet& ops);
  bool required = false;
};

// All passes in order.
std::span<const Pass> all();

struct CompileOptions {
  ir::Sizes max_sizes{2048, 64};
  std::vector<std::string> disabled;  // names of passes to leave out
  // Called with the text of the program before the first pass ("trace") and after each pass.
  std::function<void(std::string_view pass, const Program& program)> dump;
};

struct PassReport {
  std::string name;
  double milliseconds = 0;
  int nodes_before = 0;
  int nodes_after = 0;
};

struct Compiled {
  Program program;
  std::vector<PassReport> reports;
};

// Runs every pass, verifying the graph after each.
// Errors: kUsage for an unknown or required name in `disabled`; kCompile naming the pass and the
// op.
Compiled compile(ir::Graph graph, const ir::OpSet& ops, const CompileOptions& options);

}  // namespace encore::passes
