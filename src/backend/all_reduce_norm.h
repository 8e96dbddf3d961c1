// Splits the fused op all_reduce_add_rms_norm into the ops that it stands for.
#pragma once

#include "backend/parts.h"

namespace encore {

// Returns two parts: all_reduce, which writes the sum over the ranks to the memory of the output
// `sum`, and rms_norm with a residual, which reads it there.
Parts all_reduce_norm_parts(const KernelArgs& args);

}  // namespace encore
