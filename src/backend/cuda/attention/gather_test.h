// Tests how the clusters of decode attention bring their results together where their blocks drift
// apart.
#pragma once

#include <vector>

#include "backend/device.h"

namespace encore::cuda::decode {

// Launches a cluster of `ranks` blocks that gather `active.size()` times, of whose first active[i]
// blocks each has a part of gathering i. The block of rank `late` comes to each later than the
// others. Adds to sums[i], in the device's memory, all columns of what the first block has then:
// block r's part is (i + 1) * 10^r in each of 64 columns of each of its four warps.
void gather_from_drifting_blocks(Stream& stream, int ranks, const std::vector<int>& active,
                                 int late, float* sums);

}  // namespace encore::cuda::decode
