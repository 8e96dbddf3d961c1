// all_reduce_add_rms_norm as the ops it stands for.
#pragma once

#include "backend/parts.h"

namespace encore {

// all_reduce, to the memory of the sum, and rms_norm with a residual.
Parts all_reduce_norm_parts(const KernelArgs& args);

}  // namespace encore
