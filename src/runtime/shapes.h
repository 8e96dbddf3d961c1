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

}  // namespace encore::runtime
