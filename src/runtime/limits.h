// Says how large a step the scheduler may ask for. All fixed buffers are sized by these limits, and
// coverage.h proves that every step within them can run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/type.h"

namespace encore::runtime {

struct Limits {
  int64_t max_num_tokens = 2048;  // T of one step
  int64_t max_batch_size = 64;    // B of one step
  int64_t max_q = 1;              // tokens per sequence of a uniform step
  int64_t max_seq_len = 4096;     // tokens of one sequence, prompt and generated
  // The most tokens of a mixed step, where that is less than max_num_tokens.
  std::optional<int64_t> max_mixed_tokens = {};
  // The number K of drafts that a step may guess behind each sequence's last token; the step checks
  // all of them at once. A uniform step with drafts has 1 + K tokens for each sequence. REQUIRES:
  // max_q is 1 where K is above 0.
  int64_t num_drafts = 0;
  // Smaller numbers of drafts that steps may also have, ascending, from 1 on. Where this is not
  // empty, each step has the number of drafts, or no drafts, with which the most tokens per second
  // are expected.
  std::vector<int64_t> fewer_drafts = {};
  // Steps of more sequences than this guess no drafts, because drafts are known to cost more there
  // than they gain. Smaller steps choose among the numbers of drafts, or none. Absent: all steps
  // may guess.
  std::optional<int64_t> max_drafting_sequences = {};

  // Returns all numbers of drafts that steps may have, ascending, without 0.
  [[nodiscard]] std::vector<int64_t> draft_counts() const {
    std::vector<int64_t> counts = fewer_drafts;
    if (num_drafts > 0) counts.push_back(num_drafts);
    return counts;
  }
  [[nodiscard]] bool adapts_drafts() const {
    return !fewer_drafts.empty() || max_drafting_sequences.has_value();
  }
  // Returns whether a step of this many sequences may have drafts.
  [[nodiscard]] bool may_draft(int64_t sequences) const {
    return num_drafts > 0 && sequences <= max_drafting_sequences.value_or(sequences);
  }

  [[nodiscard]] ir::Sizes max_sizes() const {
    ir::Sizes sizes{max_num_tokens, max_batch_size, max_batch_size * (1 + num_drafts)};
    sizes.guessing = max_batch_size;
    sizes.unguessed = max_num_tokens;
    return sizes;
  }
  [[nodiscard]] int64_t most_uniform_q() const { return std::max(max_q, 1 + num_drafts); }
  // Returns the numbers of tokens per sequence that uniform steps of this many sequences may have,
  // the largest first.
  [[nodiscard]] std::vector<int64_t> uniform_qs(int64_t sequences) const {
    std::vector<int64_t> qs;
    for (const int64_t count : draft_counts()) {
      if (may_draft(sequences) && sequences * (1 + count) <= max_num_tokens)
        qs.insert(qs.begin(), 1 + count);
    }
    for (int64_t q = std::min(max_q, max_num_tokens / sequences); q >= 1; --q)
      qs.push_back(q);
    return qs;
  }
  [[nodiscard]] int64_t mixed_tokens() const {
    return std::min(max_mixed_tokens.value_or(max_num_tokens), max_num_tokens);
  }
  friend bool operator==(const Limits&, const Limits&) = default;
};

}  // namespace encore::runtime
