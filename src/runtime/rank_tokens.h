// Ranks choose the same tokens, each for itself, and nobody tells another which. So what rank 0's device has given is
// compared with what each other rank's has, a launch later: ranks that have parted end with an error that says where.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/token_ring.h"

namespace encore::runtime {

// The rows of logits of a step that are sequences' own, without padding.
struct TokenRows {
  int64_t count = 0;
  int64_t rows_each = 1;  // of a sequence

  friend bool operator==(const TokenRows&, const TokenRows&) = default;
};

// The tokens of a published step. Those of drafts that were wrong are -1.
struct StepTokens {
  StepNumber step = 0;
  int64_t rows_each = 1;
  std::vector<int32_t> tokens;
};

// Collects the tokens that rank 0's steps give. Threads: one.
class GivenTokens {
 public:
  // Leaves out the steps before `first`.
  explicit GivenTokens(StepNumber first = 0) : next_(first) {}

  // Steps from that one on have these rows.
  void launch(StepNumber step, const TokenRows& rows);
  // Returns the tokens of steps that were published since the last call, oldest first. Where more steps were than
  // half of the ring holds, as in a long burst, the last ones alone: no step in flight writes over those.
  std::vector<StepTokens> take(const TokenRing& ring);

 private:
  struct Launched {
    StepNumber first = 0;
    TokenRows rows;
  };
  StepNumber next_;
  std::deque<Launched> launched_;  // steps from `next_` on
};

// Compares the tokens of another rank with what rank 0's device gave. Threads: one.
class ExpectedTokens {
 public:
  // Compares now, or at a later call where a step is not published here yet. Errors: kDevice naming the first step
  // and sequence that differ.
  void expect(const std::vector<StepTokens>& steps, const TokenRing& ring);

 private:
  std::deque<StepTokens> expected_;  // not published here yet
};

}  // namespace encore::runtime
