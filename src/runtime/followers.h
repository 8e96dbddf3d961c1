// Interface to the other ranks of a model that several devices compute together. Rank 0 plans and
// decides, and the other ranks enqueue the same steps as rank 0.
#pragma once

#include <functional>

#include "base/error.h"

namespace encore::runtime {

class Executor;
class PromptScorer;

// The executor and the prompt scorer of one rank.
struct RankPrograms {
  Executor& executor;
  PromptScorer* prompt_scorer = nullptr;  // null: prompts are not scored
};

// Passes the calls of rank 0 on to the other ranks. Threads: only the thread of rank 0 calls it.
class Followers {
 public:
  using Call = std::function<void(const RankPrograms& rank)>;

  virtual ~Followers() = default;
  // Has every other rank make this call soon, after the calls that were posted before. Errors:
  // where a rank has failed, the error that it failed with.
  virtual void post(Call call) = 0;
  // Tells all other ranks that rank 0 has failed, which ends them.
  virtual void fail(const Error& error) noexcept = 0;
};

}  // namespace encore::runtime
