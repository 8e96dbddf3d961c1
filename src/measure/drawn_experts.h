// Replaces the choice of experts by random draws in benchmarks. A step's time depends on how many
// distinct experts it reads. With random weights, or with prompts that resemble each other, rows
// choose the same experts, and steps seem faster than they would be in use.
#pragma once

#include <optional>

#include "measure/expert_counts.h"
#include "passes/pipeline.h"

namespace encore::measure {

// Makes every row draw its experts at random, after the router's full work. All experts are equally
// likely, and the draws differ in every step and layer. Give the pass as CompileOptions::passes.
//     %e, %w = route(%logits, %live)  ->  %e, %w = route(%logits, %live, step_clock=%step_clock) {drawn=1}
passes::Pass drawn_experts_pass();

// Makes rows draw experts with the frequencies of a recorded run. Until draw_by() has given these
// frequencies to the loaded program, all experts are equally likely.
//     %e, %w = route(%logits, %live, step_clock=%step_clock, shares=%expert_shares) {drawn=1}
passes::Pass recorded_experts_pass();
// Gives the program the recorded counts by which its rows draw experts. Errors: kUsage where the
// counts belong to another model, or where this model has no experts. Threads: the thread of the
// program's stream, between steps.
void draw_by(const ExpertCounts& counts, runtime::LoadedProgram& loaded);

// Holds the number of distinct experts that one layer reads in a step, as a mean over layers.
struct DistinctExperts {
  int64_t num_experts = 0;
  double expected = 0;          // expected number if rows choose uniformly at random
  std::optional<double> drawn;  // mean over simulated steps; absent: the model routes its rows

  bool operator==(const DistinctExperts&) const = default;
};
// Returns the distinct experts of a step of `rows` rows, with `drawn` averaged over `num_steps`
// steps. Returns nothing where the program has no experts. `counts` are the counts by which rows
// draw; if null, all experts are equally likely.
std::optional<DistinctExperts> distinct_experts(const ir::Graph& graph, int64_t rows,
                                                int64_t num_steps,
                                                const ExpertCounts* counts = nullptr);

}  // namespace encore::measure
