// Reads the numbers of drafts that --speculative-tokens names.
#pragma once

#include <cstdint>
#include <vector>

#include "config/options.h"

namespace encore::config {

// The most tokens that are guessed for a sequence in one step.
inline constexpr int64_t kMostDrafts = 16;

// The number of drafts per sequence in a step where drafts are accepted by rejection sampling and
// no option gives the number.
inline constexpr int64_t kRejectionDrafts = 5;

// Returns whether `names` is "auto", which leaves the numbers of drafts to the engine's start.
bool is_auto(const Names& names);

// Returns the numbers of drafts that `names` gives, ascending: 4 for "4", 2 and 4 for "2,4", none
// for "0". For "auto", it returns the numbers among which the engine's start chooses. Errors:
// kUsage where there are more than three numbers, or a number that is not 1 to 16, or 0 beside
// others.
std::vector<int64_t> draft_counts(const Names& names);

}  // namespace encore::config
