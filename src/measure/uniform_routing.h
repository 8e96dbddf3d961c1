// Routes at random in benchmarks of models with experts, whose steps take as long as they read
// experts: with random weights or prompts that resemble each other, rows choose alike, and steps
// seem faster.
#pragma once

#include <optional>

#include "passes/pipeline.h"

namespace encore::measure {

// Has every row draw its experts at random, all of them as likely, and others in every step and
// layer, behind the router's full work. The pass is given as CompileOptions::passes.
//     %e, %w = route(%logits, %live)  ->  %e, %w = route(%logits, %live, step_clock=%step_clock) {drawn=1}
passes::Pass uniform_routing_pass();

// Counts the distinct experts of a layer in a step of so many rows: the mean over layers.
struct DistinctExperts {
  int64_t num_experts = 0;
  double expected = 0;          // where rows choose at random
  std::optional<double> drawn;  // over so many steps; none: rows are routed by the model

  bool operator==(const DistinctExperts&) const = default;
};
// Returns nothing where the program has no experts.
std::optional<DistinctExperts> distinct_experts(const ir::Graph& graph, int64_t rows,
                                                int64_t num_steps);

}  // namespace encore::measure
