// Declares the op set. It has a row for each op, with the op's operands and effects. Comments in
// ops.cc define what each op computes on every backend; tests/conformance/reference.cc is written
// from them.
//
// Activations have the shape [R,N], where R is T or B. Kernels accumulate in float and round once,
// to the output's dtype. Elementwise and row ops accept views, whose rows may lie further apart
// than they are long.
#pragma once

#include "ir/op.h"

namespace encore::ops {

// Returns Encore's op set. To use ops of your own, copy it and add rows.
const ir::OpSet& standard();

}  // namespace encore::ops
