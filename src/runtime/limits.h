// The largest step the scheduler may ask for. Everything static is sized by it, and coverage is
// proved for all steps within it (coverage.h).
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
  // T of a mixed step, where that is less than what a uniform step may have.
  std::optional<int64_t> max_mixed_tokens = {};
  // K: tokens that a step may guess behind the one of each sequence, to check them all at once.
  // Such steps are uniform, of 1 + K tokens a sequence. REQUIRES: max_q of 1 where there are any.
  int64_t num_drafts = 0;

  [[nodiscard]] ir::Sizes max_sizes() const {
    ir::Sizes sizes{max_num_tokens, max_batch_size, max_batch_size * (1 + num_drafts)};
    sizes.guessing = max_batch_size;
    sizes.unguessed = max_num_tokens;
    return sizes;
  }
  [[nodiscard]] int64_t most_uniform_q() const { return std::max(max_q, 1 + num_drafts); }
  // Tokens per sequence that uniform steps of so many sequences may have, the most first.
  [[nodiscard]] std::vector<int64_t> uniform_qs(int64_t sequences) const {
    std::vector<int64_t> qs;
    if (num_drafts > 0 && sequences * (1 + num_drafts) <= max_num_tokens)
      qs.push_back(1 + num_drafts);
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
