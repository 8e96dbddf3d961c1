// What tells one full recording from another.
#pragma once

#include <compare>
#include <cstdint>

#include "backend/kernel.h"

namespace encore::runtime {

struct StepKey {
  int64_t tokens = 0;     // T as launched
  int64_t sequences = 0;  // B as launched
  int q = 0;              // tokens per sequence of a uniform step; 0: a mixed step

  friend auto operator<=>(const StepKey&, const StepKey&) = default;
};

inline StepKey key_of(const StepShape& step) {
  return {step.padded.tokens, step.padded.sequences, step.q};
}

}  // namespace encore::runtime
