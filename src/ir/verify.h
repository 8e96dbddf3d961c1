// Is a graph well formed? Run after every pass.
#pragma once

#include "ir/graph.h"

namespace encore::ir {

// Checks: values defined before use and once; operands and types as each op's row says; no
// data-dependent dim; a step input varies in one symbol at most; mutated inputs are states (or new
// versions of states) that nothing reads afterwards; in-place choices allowed by the op's row, with
// no reader of the overwritten value after the node. Errors: kCompile naming the op and the value.
void verify(const Graph& graph);

}  // namespace encore::ir
