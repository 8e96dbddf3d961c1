// The list of passes, and the harness that runs it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/program.h"

namespace encore::passes {

// One pass as a row: a function from program to program. Lifetime: the names are literals.
struct Pass {
  std::string_view name;
  std::string_view what;  // one line for people
  void (*run)(Program& program, const ir::OpSet& ops);
  bool required = false;  // cannot be switched off
  // For a pass from outside the library: the pass in front of which it runs, behind passes from
  // outside that were given before it.
  std::string_view before = "restore_in_place";
  // Tells whether the pass runs for a program whose largest step is this; null: always. A program
  // serves every step up to that one, so a choice that depends on the size of a single step belongs
  // in a kernel's `accepts`.
  bool (*applies)(const ir::Sizes& max_sizes) = nullptr;
};

// The library's passes in order.
std::span<const Pass> all();

struct CompileOptions {
  ir::Sizes max_sizes{2048, 64};
  std::vector<std::string> disabled = {};  // names of passes to leave out, or "all"
  // Called with the program before the first pass ("trace") and after each pass, and how long that
  // took. Units: milliseconds
  std::function<void(std::string_view pass, const Program& program, double ms)> dump = {};
  std::vector<Pass> passes = {};  // from outside the library, with those of all()
  SplitOps split_ops = {};        // see Program
  bool reuse_memory = true;       // see Program
  bool batch_invariant = false;   // see Program

  void add_pass(const Pass& pass) { passes.push_back(pass); }
  void add_split_op(std::string op) { split_ops.insert(std::move(op)); }
};

// Runs every pass. The graph is verified after the last pass, after each pass whose result is
// dumped, and after each pass from outside the library.
// Errors: kUsage for an unknown or required name in `disabled`, a pass from outside whose name is
// taken or whose place does not exist, a split op that launches nothing; kCompile naming the pass
// and the op.
Program compile(ir::Graph graph, const ir::OpSet& ops, const CompileOptions& options);

}  // namespace encore::passes
