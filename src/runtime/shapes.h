// The steps that ladders name, as they are launched.
#pragma once

#include <vector>

#include "backend/kernel.h"
#include "runtime/ladder.h"
#include "runtime/limits.h"

namespace encore::runtime {

// Uniform steps, one a bucket and q, largest first.
std::vector<StepKey> uniform_shapes(const Ladder& sequences, const Limits& limits);

// Mixed steps, one a bucket of T and each bucket of B that steps of at most so many tokens are
// padded to, largest first.
std::vector<StepKey> mixed_shapes(const Ladder& sequences, const Ladder& tokens);

// Steps above the ladders run unpadded at any size: these stand for them, the largest, halves of
// it, and the smallest. Mixed steps first; none where the ladders reach the limits.
std::vector<StepKey> above_shapes(const Ladder& sequences, const Ladder& tokens,
                                  const Limits& limits);

}  // namespace encore::runtime
