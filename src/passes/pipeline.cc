#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>

#include "ir/verify.h"
#include "passes/passes.h"

namespace encore::passes {
namespace {

constexpr Pass kPasses[] = {
    {"remove_dead", "drop nodes whose outputs nothing uses", remove_dead},
    {"fuse_silu_mul", "silu(gate) * up in one launch", fuse_silu_mul},
    {"fuse_add_rms_norm", "residual add and the norm of its sum in one launch", fuse_add_rms_norm},
    {"fuse_rope_kv_write", "rotate q and k and write k and v to the cache in one launch",
     fuse_rope_kv_write},
    {"fuse_attention_prologue", "rotation and cache write in attention's launch",
     fuse_attention_prologue},
    {"merge_linears", "projections of one input as one product", merge_linears},
    {"fuse_linear_prologue", "a norm, and the addition before it, in its linear's launch",
     fuse_linear_prologue},
    {"fuse_linear_epilogue", "silu_mul in its linear's launch", fuse_linear_epilogue},
    {"restore_in_place", "states keep their address, dying inputs are overwritten",
     restore_in_place, true},
    {"split_at_attention", "cut into segments: attention alone, tokens and sequences apart",
     split_at_attention, true},
    {"plan_arena", "an offset for every intermediate value", plan_arena, true},
};

void check_disabled(const std::vector<std::string>& disabled) {
  for (const std::string& name : disabled) {
    const auto pass = std::find_if(std::begin(kPasses), std::end(kPasses),
                                   [&](const Pass& pass) { return pass.name == name; });
    if (pass != std::end(kPasses) && !pass->required) continue;
    std::string choices;
    for (const Pass& other : kPasses) {
      if (!other.required) choices += fmt::format("{}{}", choices.empty() ? "" : ", ", other.name);
    }
    fail(ErrorKind::kUsage, "{} '{}'; these can be switched off: {}",
         pass == std::end(kPasses) ? "no pass" : "a program needs pass", name, choices);
  }
}

// What ir::verify cannot see: the facts beside the graph speak of this graph.
void verify_facts(const Program& program) {
  const int num_nodes = program.graph.num_nodes();
  ENCORE_CHECK(program.after.empty() || static_cast<int>(program.after.size()) == num_nodes);
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

PassReport run_pass(const Pass& pass, Program& program, const ir::OpSet& ops) {
  const auto start = std::chrono::steady_clock::now();
  PassReport report{std::string(pass.name), 0, program.graph.num_nodes(), 0};
  try {
    pass.run(program, ops);
    const auto elapsed = std::chrono::steady_clock::now() - start;
    report.milliseconds = std::chrono::duration<double, std::milli>(elapsed).count();
    ir::verify(program.graph);
  } catch (const Error& error) {
    fail(error.kind(), "pass {}: {}", pass.name, error.what());
  }
  verify_facts(program);
  report.nodes_after = program.graph.num_nodes();
  return report;
}

}  // namespace

std::span<const Pass> all() {
  return kPasses;
}

Compiled compile(ir::Graph graph, const ir::OpSet& ops, const CompileOptions& options) {
  check_disabled(options.disabled);
  Compiled compiled{Program(std::move(graph)), {}};
  Program& program = compiled.program;
  program.max_sizes = options.max_sizes;
  ir::verify(program.graph);
  if (options.dump) options.dump("trace", program);
  for (const Pass& pass : kPasses) {
    const bool is_disabled = std::find(options.disabled.begin(), options.disabled.end(),
                                       pass.name) != options.disabled.end();
    if (is_disabled) continue;
    compiled.reports.push_back(run_pass(pass, program, ops));
    if (options.dump) options.dump(pass.name, program);
  }
  return compiled;
}

}  // namespace encore::passes
