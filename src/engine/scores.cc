// Log probabilities of prompts: behind a step, those of its tokens that requests ask for.
#include "engine/engine.h"

namespace encore::engine {

void Engine::launch_scores(InFlightStep& step) {
  std::vector<runtime::PromptScorer::Row> rows;
  int64_t first_row = 0;
  for (const sched::ScheduledTokens& row : step.plan.rows) {
    const sched::Sequence* const sequence = scheduler_.find(row.sequence);
    const bool asks = sequence != nullptr && sequence->num_prompt_logprobs >= 0;
    for (int64_t i = 0; asks && i < row.count; ++i) {
      const int64_t position = row.first + i;
      if (!sequence->is_to_be_scored(position)) continue;
      rows.push_back({static_cast<int32_t>(first_row + i),
                      sequence->tokens[static_cast<size_t>(position) + 1],
                      sequence->num_prompt_logprobs, sequence->adapter});
      step.scored.push_back({row.sequence, position});
    }
    first_row += row.count;
  }
  if (!rows.empty()) step.scores = model_.prompt_scorer().launch(rows);
}

// Scores come in the order of positions: a sequence that lost its pages is planned again only once
// the steps in flight are collected.
void Engine::collect_scores(InFlightStep& step) {
  if (step.scored.empty()) return;
  step.scores.done->synchronize();
  for (size_t i = 0; i < step.scored.size(); ++i) {
    const auto [id, position] = step.scored[i];
    sched::Sequence* const sequence = scheduler_.find(id);
    if (sequence == nullptr) continue;
    ENCORE_CHECK(position == sequence->num_scored);
    sequence->prompt_logprobs.push_back(
        model_.prompt_scorer().score(step.scores, static_cast<int64_t>(i)));
    ++sequence->num_scored;
  }
  step.scored.clear();
}

}  // namespace encore::engine
