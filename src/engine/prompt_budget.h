// How much of a prompt one step may take, so that those who generate do not wait long for it.
#pragma once

#include <cstdint>

namespace encore::engine {

// Follows a target for the time of steps in which prompts run beside sequences that generate: fewer
// tokens of prompts after a step that took longer, more after one that was shorter though it used
// all it might. Threads: one.
class PromptBudget {
 public:
  // `max_tokens`: what a step may have. It begins with all of it, and goes down to a sixteenth.
  PromptBudget(double target_ms, int64_t max_tokens);

  // Tokens of prompts in the next step, at most.
  [[nodiscard]] int64_t tokens() const { return tokens_; }
  // A step with so many tokens of prompts beside others took so long.
  void measured(int64_t prompt_tokens, double ms);

 private:
  double target_ms_;
  int64_t least_;
  int64_t most_;
  int64_t tokens_;
};

}  // namespace encore::engine
