// Reads the numbers of drafts that --speculative-tokens names.
#pragma once

#include <cstdint>
#include <vector>

#include "config/options.h"

namespace encore::config {

// The most tokens that are guessed for a sequence in one step.
inline constexpr int64_t kMostDrafts = 16;

// The number of drafts in a step where drafts are accepted by rejection sampling and no option says
// how many.
inline constexpr int64_t kRejectionDrafts = 5;

// Returns whether `names` is "auto", which leaves the choice of the numbers to the engine's start.
bool is_auto(const Names& names);

// Returns the numbers that `names` gives, ascending: of "4", of "2,4", or of "auto", from whose
// numbers the start chooses. Returns none for "0". Errors: kUsage where there are more than three
// numbers, or a number that is not 1 to 16, or 0 beside others.
std::vector<int64_t> draft_counts(const Names& names);

}  // namespace encore::config
