// A step with fewer drafts than the graph has passes for leaves launches of the draft model out: least_drafts() says
// which.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace encore::passes {

// By node, the drafts that a sequence of a step has at least where the node is of use there; 0: always.
// Pass d of a draft model, counted from 0, reads the token behind d drafts. A step of d drafts needs its K
// and V, and so whatever leads to them; what makes one draft more of it is for steps of more than d.
std::vector<int64_t> least_drafts(const ir::Graph& graph);

}  // namespace encore::passes
