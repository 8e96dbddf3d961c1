// Defines the shape of a step, which is known when launches are lowered, and its lengths, which
// only the host knows.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "ir/type.h"

namespace encore {

// The shape of a step: its tokens, its sequences, and how many tokens each sequence has where all
// have the same. Everything that is made before serving begins (the table of launches, the
// recording) is made for one shape and found again by that shape, so a step whose shape has a
// recording is replayed.
//
// There are two kinds of shapes, uniform and mixed:
//   uniform(5)      five sequences of one token each: a decode step
//   uniform(5, 4)   five sequences of four tokens each: one token and three drafts
//   mixed(300, 5)   300 tokens of five sequences, divided in any way: a step with prompts in it
//   mixed(300, 5, 3)   the same, and those that generate may have up to three drafts each
//
// The scheduler asks for the shape that it needs. The step is launched with this shape padded up to
// a size of the ladder (runtime::choose). Both shapes are StepKeys.
struct StepKey {
  int64_t tokens = 0;         // T
  int64_t sequences = 0;      // B
  std::optional<int> q = {};  // tokens of each sequence of a uniform step; absent: a mixed step
  int drafts = 0;             // drafts a sequence of a mixed step may have; 0 in a uniform one

  static StepKey uniform(int64_t sequences, int64_t q = 1) {
    return {sequences * q, sequences, static_cast<int>(q)};
  }
  static StepKey mixed(int64_t tokens, int64_t sequences, int64_t drafts = 0) {
    return {tokens, sequences, {}, static_cast<int>(drafts)};
  }

  [[nodiscard]] bool is_uniform() const { return q.has_value(); }
  // Returns how many rows of logits each sequence has. In a uniform step, each token has a row of
  // logits. In a mixed step, each sequence has one row more than it may have drafts.
  [[nodiscard]] int64_t logits_each() const { return q.value_or(1 + drafts); }
  // Returns the sizes of the step by shape letter. The size `guessing` is set where each sequence
  // has more than one row of logits, and the size `unguessed` in mixed steps and in uniform steps
  // of one token per sequence.
  [[nodiscard]] ir::Sizes sizes() const {
    const int64_t num_logits = logits_each();
    ir::Sizes sizes{tokens, sequences, sequences * num_logits};
    if (num_logits > 1) sizes.guessing = sequences;
    if (q.value_or(1) == 1) sizes.unguessed = tokens;
    return sizes;
  }
  friend auto operator<=>(const StepKey&, const StepKey&) = default;
};

// The lengths of a step's longest sequences. A recording cannot depend on these lengths, since it
// is replayed for all lengths.
struct StepLengths {
  int64_t max_query_len = 0;  // new tokens of a sequence
  int64_t max_kv_len = 0;     // all tokens of a sequence, the new ones included
};

// A step as it is launched.
struct Step {
  StepKey key;  // the padded shape
  StepLengths lengths;
};

}  // namespace encore
