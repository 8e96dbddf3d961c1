// Steps as launches see them: a shape that is known beforehand, and lengths that only the host knows.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "ir/type.h"

namespace encore {

// The shape of a step: its tokens, its sequences, and how many tokens each sequence has where all have
// the same. Everything that is made before serving begins (the table of launches, the recording) is
// made for one shape and found by it again, so a step whose shape has a recording is replayed.
//
// Two kinds of steps have shapes of their own:
//   uniform(5)      five sequences of one token each: a decode step
//   uniform(5, 4)   five sequences of four tokens each: one token and three drafts
//   mixed(300, 5)   300 tokens of five sequences, divided in any way: a step with prompts in it
//   mixed(300, 5, 3)   the same, and those that generate may have up to three drafts each
//
// A scheduler asks for the shape that it needs; a launch has that shape padded up to a size of the
// ladder (runtime::choose). Both are StepKeys.
struct StepKey {
  int64_t tokens = 0;         // T
  int64_t sequences = 0;      // B
  std::optional<int> q = {};  // tokens of each sequence of a uniform step; absent: a mixed step
  int drafts = 0;             // that a sequence of a mixed step may have; 0 in a uniform one

  static StepKey uniform(int64_t sequences, int64_t q = 1) {
    return {sequences * q, sequences, static_cast<int>(q)};
  }
  static StepKey mixed(int64_t tokens, int64_t sequences, int64_t drafts = 0) {
    return {tokens, sequences, {}, static_cast<int>(drafts)};
  }

  [[nodiscard]] bool is_uniform() const { return q.has_value(); }
  // Rows of logits of a sequence: a uniform step has them behind each of its tokens, and a mixed one behind as many
  // tokens of each sequence as a sequence may have drafts, and one more.
  [[nodiscard]] int64_t logits_each() const { return q.value_or(1 + drafts); }
  // Where a sequence has logits behind one token alone, nobody guesses; in a mixed step in which some do, others read.
  [[nodiscard]] ir::Sizes sizes() const {
    const int64_t num_logits = logits_each();
    ir::Sizes sizes{tokens, sequences, sequences * num_logits};
    if (num_logits > 1) sizes.guessing = sequences;
    if (q.value_or(1) == 1) sizes.unguessed = tokens;
    return sizes;
  }
  friend auto operator<=>(const StepKey&, const StepKey&) = default;
};

// The lengths of a step's longest sequences. A recording cannot depend on them, since it is replayed
// for all lengths.
struct StepLengths {
  int64_t max_query_len = 0;  // new tokens
  int64_t max_kv_len = 0;     // all tokens, the new ones included
};

// A step as it is launched.
struct Step {
  StepKey key;  // padded
  StepLengths lengths;
};

}  // namespace encore
