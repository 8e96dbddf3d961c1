#include "engine/prompt_budget.h"

#include <algorithm>
#include <cmath>

namespace encore::engine {

PromptBudget::PromptBudget(double target_ms, int64_t max_tokens)
    : target_ms_(target_ms),
      least_(std::max<int64_t>(1, max_tokens / 16)),
      most_(max_tokens),
      tokens_(max_tokens) {}

// Half of the way to what would have met the target if a step's time went with its tokens, and a
// factor of two at most: one odd step does not matter much then.
void PromptBudget::measured(int64_t prompt_tokens, double ms) {
  if (prompt_tokens <= 0 || ms <= 0) return;
  const double factor = std::clamp(std::sqrt(target_ms_ / ms), 0.5, 2.0);
  const auto wanted = std::clamp(static_cast<int64_t>(static_cast<double>(prompt_tokens) * factor),
                                 tokens_ / 2, tokens_ * 2);
  // A shorter prompt says nothing about a step that uses all it may.
  const bool was_full = prompt_tokens * 4 >= tokens_ * 3;
  if (wanted < tokens_ ? ms > target_ms_ : was_full) tokens_ = std::clamp(wanted, least_, most_);
}

}  // namespace encore::engine
