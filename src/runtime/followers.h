// The other ranks of a model that several devices compute together. Rank 0 plans and decides; the others
// enqueue what it enqueues.
#pragma once

#include <functional>

#include "base/error.h"

namespace encore::runtime {

class Executor;
class PromptScorer;

// The programs that one rank runs.
struct RankPrograms {
  Executor& executor;
  PromptScorer* prompt_scorer = nullptr;  // null: prompts are not scored
};

// Threads: that of rank 0.
class Followers {
 public:
  using Call = std::function<void(const RankPrograms& rank)>;

  virtual ~Followers() = default;
  // Every other rank makes this call soon, behind those posted before. Errors: what a rank has failed
  // with, once one has.
  virtual void post(Call call) = 0;
  // Rank 0 has failed, and with it all ranks.
  virtual void fail(const Error& error) noexcept = 0;
};

}  // namespace encore::runtime
