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
//
// A scheduler asks for the shape that it needs; a launch has that shape padded up to a size of the
// ladder (runtime::choose). Both are StepKeys.
struct StepKey {
  int64_t tokens = 0;         // T
  int64_t sequences = 0;      // B
  std::optional<int> q = {};  // tokens of each sequence of a uniform step; absent: a mixed step

  static StepKey uniform(int64_t sequences, int64_t q = 1) {
    return {sequences * q, sequences, static_cast<int>(q)};
  }
  static StepKey mixed(int64_t tokens, int64_t sequences) { return {tokens, sequences, {}}; }

  [[nodiscard]] bool is_uniform() const { return q.has_value(); }
  // A uniform step has logits behind each of its tokens, and a mixed one behind as many tokens of each
  // sequence as a sequence may have drafts, and one more. `num_drafts`: that the program has at most. A uniform
  // step of one token a sequence guesses nothing; in a mixed one, some sequences guess and others read.
  [[nodiscard]] ir::Sizes sizes(int64_t num_drafts = 0) const {
    const int64_t num_logits = q.value_or(1 + num_drafts);  // of a sequence
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
