// The numbers of drafts that --speculative-tokens names.
#pragma once

#include <cstdint>
#include <vector>

#include "config/options.h"

namespace encore::config {

// More tokens than these are never guessed in a step.
inline constexpr int64_t kMostDrafts = 16;

// The drafts of a step where nothing says how many, and they are accepted by rejection sampling.
inline constexpr int64_t kRejectionDrafts = 5;

// Does it leave the numbers to the start?
bool is_auto(const Names& names);

// "4", "2,4", "auto" (those of which a start chooses) as numbers, ascending; empty for "0". Errors: kUsage where there are more than three, or
// others than 1 to 16, or 0 beside others.
std::vector<int64_t> draft_counts(const Names& names);

}  // namespace encore::config
