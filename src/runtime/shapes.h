// The step shapes that ladders name.
#pragma once

#include <vector>

#include "backend/kernel.h"
#include "runtime/ladder.h"
#include "runtime/limits.h"

namespace encore::runtime {

// Uniform steps, a shape a bucket and q, largest first.
std::vector<StepShape> uniform_shapes(const Ladder& sequences, const Limits& limits);

// Every bucket of T with the largest B, then every bucket of B with the largest T, each largest
// first: between them they name every table of a mixed step's recordable segments.
std::vector<StepShape> mixed_shapes(const Ladder& sequences, const Ladder& tokens);

// Steps above the ladders run unpadded at any size: these stand for them, the largest, halves of
// it, and the smallest. Mixed steps first; none where the ladders reach the limits.
std::vector<StepShape> above_shapes(const Ladder& sequences, const Ladder& tokens,
                                    const Limits& limits);

}  // namespace encore::runtime
