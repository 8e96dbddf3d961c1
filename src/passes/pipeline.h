// Declares the list of passes, and compile(), which runs it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/program.h"

namespace encore::passes {

// A pass: a function that rewrites a program, and the facts about it. Lifetime: the names are
// literals.
struct Pass {
  std::string_view name;
  std::string_view what;  // one line that says what the pass does, for people
  void (*run)(Program& program, const ir::OpSet& ops);
  bool required = false;  // cannot be switched off
  // The pass of Encore in front of which this pass runs, if it comes from outside Encore. Passes
  // from outside that name the same pass run in the order in which they were given.
  std::string_view before = "restore_in_place";
  // Returns whether the pass runs for a program whose largest step has the sizes `max_sizes`. Null
  // means that it always runs. A program serves every step up to that size, so a choice that
  // depends on the size of a single step belongs in a kernel's `accepts`.
  bool (*applies)(const ir::Sizes& max_sizes) = nullptr;
};

// Returns Encore's own passes in the order in which they run.
std::span<const Pass> all();

struct CompileOptions {
  ir::Sizes max_sizes{2048, 64};
  std::vector<std::string> disabled = {};  // names of passes to leave out, or "all"
  // A function that is called with the program before the first pass (then `pass` is "trace") and
  // after each pass. `ms` is how long the pass took, in milliseconds.
  std::function<void(std::string_view pass, const Program& program, double ms)> dump = {};
  // Passes from outside Encore, which run in addition to the passes of all().
  std::vector<Pass> passes = {};
  SplitOps split_ops = {};       // see Program::split_ops
  bool reuse_memory = true;      // see Program::reuse_memory
  bool batch_invariant = false;  // see Program::batch_invariant

  void add_pass(const Pass& pass) { passes.push_back(pass); }
  void add_split_op(std::string op) { split_ops.insert(std::move(op)); }
};

// Runs every pass that is not disabled. The graph is verified after the last pass, after each pass
// whose result is dumped, and after each pass from outside Encore.
// Errors: kUsage for an unknown or required name in `disabled`, a pass from outside whose name is
// taken or whose place does not exist, a split op that launches nothing; kCompile naming the pass
// and the op.
Program compile(ir::Graph graph, const ir::OpSet& ops, const CompileOptions& options);

}  // namespace encore::passes
