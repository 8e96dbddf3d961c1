// Limits how many prompt tokens one step takes, so that sequences that generate do not wait long
// for the step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "sched/plan.h"

namespace encore::sched {

// Adapts the number of prompt tokens to a target for the time of steps in which prompts run beside
// sequences that generate. The number falls after a step that took longer, and rises after a
// shorter step that used most of the number. Threads: one.
class PromptBudget {
 public:
  // `max_tokens`: the most prompt tokens of a step. The budget begins with this number, and never
  // falls below a sixteenth of it.
  PromptBudget(double target_ms, int64_t max_tokens)
      : target_ms_(target_ms),
        least_(std::max<int64_t>(1, max_tokens / 16)),
        most_(max_tokens),
        tokens_(max_tokens) {}

  // Returns the most prompt tokens that the next step may have.
  [[nodiscard]] int64_t tokens() const { return tokens_; }
  // Takes the time of a step with that plan. A step that consists of prompts only is ignored.
  // Units: milliseconds
  void measured(const sched::Plan& plan, int64_t max_q, double ms) {
    const int64_t prompt_tokens = plan.prompt_tokens(max_q);
    if (prompt_tokens < plan.num_tokens()) measured(prompt_tokens, ms);
  }
  // Takes the time of a step with `prompt_tokens` prompt tokens beside other tokens. The new budget
  // is `prompt_tokens` times the square root of target time / step time. The full ratio would meet
  // the target if times were proportional to tokens; the root, and a change by a factor of two at
  // most, keep one odd step from mattering much. Units: milliseconds
  void measured(int64_t prompt_tokens, double ms) {
    if (prompt_tokens <= 0 || ms <= 0) return;
    const double factor = std::clamp(std::sqrt(target_ms_ / ms), 0.5, 2.0);
    const auto wanted =
        std::clamp(static_cast<int64_t>(static_cast<double>(prompt_tokens) * factor), tokens_ / 2,
                   tokens_ * 2);
    // The time of a step that used little of the budget does not show how long a full step takes.
    const bool was_full = prompt_tokens * 4 >= tokens_ * 3;
    if (wanted < tokens_ ? ms > target_ms_ : was_full) tokens_ = std::clamp(wanted, least_, most_);
  }

 private:
  double target_ms_;
  int64_t least_;
  int64_t most_;
  int64_t tokens_;
};

}  // namespace encore::sched
