// Log probabilities of prompts: behind a step, those of its tokens that requests ask for.
#include "engine/engine.h"

namespace encore::engine {

void Engine::launch_scores(InFlightStep& step) {
  std::vector<runtime::PromptScorer::Row> rows;
  int64_t first_row = 0;
  for (const sched::ScheduledTokens& row : step.plan.rows) {
    const sched::Sequence* const sequence = scheduler_.find(row.sequence);
    const RequestState* const request = sequence != nullptr ? &state_of(*sequence) : nullptr;
    const bool asks = request != nullptr && request->scores;
    for (int64_t i = 0; asks && i < row.count; ++i) {
      const int64_t position = row.first + i;
      if (!request->is_to_be_scored(position)) continue;
      rows.push_back({static_cast<int32_t>(first_row + i),
                      sequence->tokens[static_cast<size_t>(position) + 1], request->scores->num_top,
                      request->slot()});
      step.scored.push_back({row.sequence, position});
    }
    first_row += row.num_tokens();
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
    RequestState& request = state_of(*sequence);
    PromptScores& scores = *request.scores;
    ENCORE_CHECK(position == scores.num_scored);
    scores.collected.push_back(model_.prompt_scorer().score(step.scores, static_cast<int64_t>(i)));
    ++scores.num_scored;
    sequence->max_cached.reset();
    if (request.is_to_be_scored(scores.num_scored)) sequence->max_cached = scores.num_scored;
  }
  step.scored.clear();
}

}  // namespace encore::engine
