// Limits how much of a prompt one step takes, so that sequences that generate do not wait long for
// it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "sched/plan.h"

namespace encore::sched {

// Follows a target for the time of steps in which prompts run beside sequences that generate: fewer
// tokens of prompts after a step that took longer, more after one that was shorter though it used
// all it might. Threads: one.
class PromptBudget {
 public:
  // `max_tokens`: what a step may have. It begins with all of it, and goes down to a sixteenth.
  PromptBudget(double target_ms, int64_t max_tokens)
      : target_ms_(target_ms),
        least_(std::max<int64_t>(1, max_tokens / 16)),
        most_(max_tokens),
        tokens_(max_tokens) {}

  // Tokens of prompts in the next step, at most.
  [[nodiscard]] int64_t tokens() const { return tokens_; }
  // That step took so long. It teaches nothing where all of it were prompts.
  void measured(const sched::Plan& plan, int64_t max_q, double ms) {
    const int64_t prompt_tokens = plan.prompt_tokens(max_q);
    if (prompt_tokens < plan.num_tokens()) measured(prompt_tokens, ms);
  }
  // A step with so many tokens of prompts beside others took so long. Goes half of the way to what
  // would have met the target if a step's time went with its tokens, and by a factor of two at most:
  // one odd step does not matter much then.
  void measured(int64_t prompt_tokens, double ms) {
    if (prompt_tokens <= 0 || ms <= 0) return;
    const double factor = std::clamp(std::sqrt(target_ms_ / ms), 0.5, 2.0);
    const auto wanted =
        std::clamp(static_cast<int64_t>(static_cast<double>(prompt_tokens) * factor), tokens_ / 2,
                   tokens_ * 2);
    // A shorter prompt says nothing about a step that uses all it may.
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
