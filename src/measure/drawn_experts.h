// Routes at random in benchmarks of models with experts, whose steps take as long as they read
// experts: with random weights or prompts that resemble each other, rows choose alike, and steps
// seem faster.
#pragma once

#include <optional>

#include "measure/expert_counts.h"
#include "passes/pipeline.h"

namespace encore::measure {

// Has every row draw its experts at random, all of them as likely, and others in every step and
// layer, behind the router's full work. The pass is given as CompileOptions::passes.
//     %e, %w = route(%logits, %live)  ->  %e, %w = route(%logits, %live, step_clock=%step_clock) {drawn=1}
passes::Pass drawn_experts_pass();

// Has rows draw as often as experts were chosen when somebody counted, once draw_by() has told the
// loaded program so; before that, all are as likely.
//     %e, %w = route(%logits, %live, step_clock=%step_clock, shares=%expert_shares) {drawn=1}
passes::Pass recorded_experts_pass();
// Errors: kUsage where the counts are those of another model, or this one has no experts. Threads: that of the program's stream,
// between steps.
void draw_by(const ExpertCounts& counts, runtime::LoadedProgram& loaded);

// Counts the distinct experts of a layer in a step of so many rows: the mean over layers.
struct DistinctExperts {
  int64_t num_experts = 0;
  double expected = 0;          // where rows choose at random
  std::optional<double> drawn;  // over so many steps; none: rows are routed by the model

  bool operator==(const DistinctExperts&) const = default;
};
// Returns nothing where the program has no experts. `counts`: those by which rows draw; null: all alike.
std::optional<DistinctExperts> distinct_experts(const ir::Graph& graph, int64_t rows,
                                                int64_t num_steps,
                                                const ExpertCounts* counts = nullptr);

}  // namespace encore::measure
