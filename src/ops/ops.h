// The op set, a row an op: operands, effects, and what the op computes. ops.cc says it once, for every
// backend; tests/conformance/reference.cc is written from it.
//
// Rows of activations are [R,N] with R = T or B. Kernels accumulate in float and round once, to the
// output's dtype. Elementwise and row ops accept views (rows further apart than they are long).
#pragma once

#include "ir/op.h"

namespace encore::ops {

// The library's. Copy it and add rows to use ops of your own.
const ir::OpSet& standard();

}  // namespace encore::ops
