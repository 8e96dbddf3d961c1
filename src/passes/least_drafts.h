// Computes which launches of a draft model a step may leave out. A step leaves some out when it
// makes fewer drafts than the graph has passes of the draft model.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace encore::passes {

// Returns, for each node, the smallest number of drafts with which a step needs the node. 0 means
// that every step needs it. Passes of the draft model are counted from 0, and pass d reads the
// token behind d drafts. A step of d drafts needs the K and V that pass d writes, and all nodes
// that lead to them. The other nodes of pass d make one more draft, so only steps of more than d
// drafts need them.
std::vector<int64_t> least_drafts(const ir::Graph& graph);

}  // namespace encore::passes
