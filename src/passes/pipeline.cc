#include "passes/pipeline.h"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

#include "base/elapsed.h"
#include "passes/passes.h"

namespace encore::passes {
namespace {

constexpr Pass kPasses[] = {
    {"remove_dead", "drop nodes whose outputs nothing uses", remove_dead},
    {"fuse_silu_mul", "silu(gate) * up in one launch", fuse_silu_mul},
    {"fuse_add_rms_norm", "residual add and the norm of its sum in one launch", fuse_add_rms_norm},
    {"fuse_all_reduce_rms_norm", "the ranks' sum, residual add and norm in one launch",
     fuse_all_reduce_rms_norm},
    {"fuse_rope_kv_write", "rotate q and k and write k and v to the cache in one launch",
     fuse_rope_kv_write},
    {"fuse_attention_prologue", "rotation and cache write in attention's launch",
     fuse_attention_prologue},
    {"merge_linears", "projections of one input as one product", merge_linears},
    {"fuse_route", "the norm in front of a router, its product and its choice in one launch",
     fuse_route},
    {"fuse_linear_prologue", "a norm, and the addition before it, in its linear's launch",
     fuse_linear_prologue},
    {"fuse_linear_epilogue", "silu_mul in its linear's launch", fuse_linear_epilogue},
    {"restore_in_place", "states keep their address, dying inputs are overwritten",
     restore_in_place, true},
    {"split_segments", "cut into segments: at split ops, tokens and sequences apart",
     split_segments, true},
    {"plan_arena", "an offset for every intermediate value", plan_arena, true},
};

constexpr std::string_view kAllPasses = "all";

// Returns Encore's own passes, with the passes from outside Encore inserted at the places that they
// name.
std::vector<Pass> list_passes(const std::vector<Pass>& from_outside) {
  std::vector<Pass> passes(std::begin(kPasses), std::end(kPasses));
  for (const Pass& pass : from_outside) {
    if (std::ranges::count(passes, pass.name, &Pass::name) > 0)
      fail(ErrorKind::kUsage, "there is a pass '{}' already: give yours another name", pass.name);
    const auto place = std::ranges::find(passes, pass.before, &Pass::name);
    if (place == passes.end()) {
      fail(ErrorKind::kUsage, "pass '{}' is to run before '{}', which there is not", pass.name,
           pass.before);
    }
    passes.insert(place, pass);
  }
  return passes;
}

void check_disabled(const std::vector<Pass>& passes, const std::vector<std::string>& disabled) {
  for (const std::string& name : disabled) {
    if (name == kAllPasses) continue;
    const auto pass = std::ranges::find(passes, name, &Pass::name);
    if (pass != passes.end() && !pass->required) continue;
    std::string choices;
    for (const Pass& other : passes) {
      if (!other.required) choices += fmt::format("{}{}", choices.empty() ? "" : ", ", other.name);
    }
    fail(ErrorKind::kUsage, "{} '{}'; these can be switched off, or all of them: {}",
         pass == passes.end() ? "no pass" : "a program needs pass", name, choices);
  }
}

bool is_disabled(const Pass& pass, const std::vector<std::string>& disabled) {
  return std::any_of(disabled.begin(), disabled.end(), [&](const std::string& name) {
    return name == pass.name || (name == kAllPasses && !pass.required);
  });
}

// Fails for a split op that no node of the program launches: its name was misspelled, or a pass
// took the node away.
void check_split_ops(const Program& program) {
  std::set<std::string_view> launched;
  for (const ir::Node& node : program.graph.nodes()) {
    if (!node.op->is_view) launched.insert(node.op->name);
  }
  for (const std::string& op : program.split_ops) {
    if (launched.contains(op)) continue;
    fail(ErrorKind::kUsage, "no launch of op '{}' to split at; the program's ops: {}", op,
         fmt::join(launched, ", "));
  }
}

// Checks that the facts beside the graph (order, segments, placements) fit this graph, which
// ir::verify cannot see.
void verify_facts(const Program& program) {
  const int num_nodes = program.graph.num_nodes();
  ENCORE_CHECK(program.after.empty() || static_cast<int>(program.after.size()) == num_nodes);
  ENCORE_CHECK(program.least_drafts.empty() ||
               static_cast<int>(program.least_drafts.size()) == num_nodes);
  int next = 0;
  for (const Segment& segment : program.segments) {
    ENCORE_CHECK(segment.first == next && segment.last > segment.first,
                 "segments must follow each other");
    next = segment.last;
  }
  ENCORE_CHECK(program.segments.empty() || next == num_nodes);
  ENCORE_CHECK(program.arena.placements.empty() ||
               static_cast<int>(program.arena.placements.size()) == program.graph.num_values());
}

// Runs the pass, verifies the graph if `verify` is set, and returns how long the pass took. Units:
// milliseconds.
double run_pass(const Pass& pass, Program& program, const ir::OpSet& ops, bool verify) {
  double ms = 0;
  try {
    ms = elapsed_ms([&] { pass.run(program, ops); });
    if (verify) ir::verify(program.graph);
  } catch (const Error& error) {
    fail(error.kind(), "pass {}: {}", pass.name, error.what());
  }
  verify_facts(program);
  return ms;
}

Program run_passes(ir::Graph graph, const std::vector<Pass>& passes, const ir::OpSet& ops,
                   const CompileOptions& options, bool verify_each) {
  Program program(std::move(graph));
  program.max_sizes = options.max_sizes;
  program.split_ops = options.split_ops;
  program.reuse_memory = options.reuse_memory;
  program.batch_invariant = options.batch_invariant;
  ir::verify(program.graph);
  if (options.dump) options.dump("trace", program, 0);
  for (const Pass& pass : passes) {
    const bool applies = pass.applies == nullptr || pass.applies(program.max_sizes);
    if (!applies || is_disabled(pass, options.disabled)) continue;
    const bool from_outside = std::ranges::count(kPasses, pass.name, &Pass::name) == 0;
    const double ms = run_pass(pass, program, ops, verify_each || from_outside);
    if (options.dump) options.dump(pass.name, program, ms);
  }
  ir::verify(program.graph);
  check_split_ops(program);
  return program;
}

}  // namespace

std::span<const Pass> all() {
  return kPasses;
}

// Verifying a graph takes as long as several passes. So the results of Encore's own passes are
// verified only once, behind the last pass. Where that fails, the passes run again with the graph
// verified after each of them, to name the pass that broke it. The result of a pass from outside
// Encore is verified before any other pass sees it.
Program compile(ir::Graph graph, const ir::OpSet& ops, const CompileOptions& options) {
  const std::vector<Pass> passes = list_passes(options.passes);
  check_disabled(passes, options.disabled);
  if (options.dump) return run_passes(std::move(graph), passes, ops, options, true);
  try {
    return run_passes(graph, passes, ops, options, false);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCompile) throw;
    return run_passes(std::move(graph), passes, ops, options, true);
  }
}

}  // namespace encore::passes
