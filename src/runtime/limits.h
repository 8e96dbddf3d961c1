// The largest step the scheduler may ask for. Everything static is sized by it, and coverage is
// proved for all steps within it (coverage.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "ir/type.h"

namespace encore::runtime {

struct Limits {
  int64_t max_num_tokens = 2048;  // T of one step
  int64_t max_batch_size = 64;    // B of one step
  int64_t max_q = 1;              // tokens per sequence of a uniform step
  int64_t max_seq_len = 4096;     // tokens of one sequence, prompt and generated
  // T of a mixed step, where that is less than what a uniform step may have.
  std::optional<int64_t> max_mixed_tokens = {};

  [[nodiscard]] ir::Sizes max_sizes() const { return {max_num_tokens, max_batch_size}; }
  [[nodiscard]] int64_t mixed_tokens() const {
    return std::min(max_mixed_tokens.value_or(max_num_tokens), max_num_tokens);
  }
  friend bool operator==(const Limits&, const Limits&) = default;
};

}  // namespace encore::runtime
