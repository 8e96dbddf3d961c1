// Tests how the clusters of decode attention bring their results together where their blocks drift
// apart.
#pragma once

#include <vector>

#include "backend/device.h"

namespace encore::cuda::decode {

// Launches a cluster of `ranks` blocks that gather `active.size()` times. In gathering i, each of
// the first active[i] blocks has a part, and the block of rank `late` comes later than the others.
// Adds to sums[i], in device memory, all columns that the first block then has. Block r's part is
// (i + 1) * 10^r in each of 64 columns of each of its four warps, so that the sum tells which parts
// have come.
void gather_from_drifting_blocks(Stream& stream, int ranks, const std::vector<int>& active,
                                 int late, float* sums);

}  // namespace encore::cuda::decode
