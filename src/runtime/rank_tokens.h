// Compares the tokens of the ranks. Each rank chooses the tokens by itself, and all must choose the
// same ones. So each other rank compares its tokens with those of rank 0, one launch later. Where
// they differ, the ranks end with an error that names the first step and sequence.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/token_ring.h"

namespace encore::runtime {

// The number of rows of logits that the sequences of a step have, without padding rows.
struct TokenRows {
  int64_t count = 0;
  int64_t rows_each = 1;  // rows of logits of each sequence

  friend bool operator==(const TokenRows&, const TokenRows&) = default;
};

// The tokens of a published step. A token is -1 where a draft was wrong.
struct StepTokens {
  StepNumber step = 0;
  int64_t rows_each = 1;
  std::vector<int32_t> tokens;
};

// Collects the tokens that the steps of rank 0 publish. Threads: one.
class GivenTokens {
 public:
  // Starts at the step `first`; tokens of earlier steps are not collected.
  explicit GivenTokens(StepNumber first = 0) : next_(first) {}

  // Notes that the steps from `step` on have these rows.
  void launch(StepNumber step, const TokenRows& rows);
  // Returns the tokens of the steps that were published since the last call, the oldest first.
  // After a long burst, which may publish more steps than half of the ring holds, returns only the
  // last of them, which no step in flight overwrites.
  std::vector<StepTokens> take(const TokenRing& ring);

 private:
  struct Launched {
    StepNumber first = 0;
    TokenRows rows;
  };
  StepNumber next_;
  std::deque<Launched> launched_;  // rows of the steps from `next_` on
};

// Compares the tokens of this rank, which is not rank 0, with the tokens of rank 0. Threads: one.
class ExpectedTokens {
 public:
  // Compares the tokens of `steps` with those in this rank's `ring`. A step that this rank has not
  // published yet is compared at a later call. Errors: kDevice naming the first step and sequence
  // that differ.
  void expect(const std::vector<StepTokens>& steps, const TokenRing& ring);

 private:
  std::deque<StepTokens> expected_;  // steps that this rank has not published yet
};

}  // namespace encore::runtime
