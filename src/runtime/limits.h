// The largest step the scheduler may ask for. Everything static is sized by it.
#pragma once

#include <cstdint>

#include "ir/type.h"

namespace encore::runtime {

struct Limits {
  int64_t max_num_tokens = 2048;  // T of one step
  int64_t max_batch_size = 64;    // B of one step
  int64_t max_q = 1;              // tokens per sequence of a uniform step
  int64_t max_seq_len = 4096;     // tokens of one sequence, prompt and generated

  [[nodiscard]] ir::Sizes max_sizes() const { return {max_num_tokens, max_batch_size}; }
};

}  // namespace encore::runtime
