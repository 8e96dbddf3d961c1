// linear with a few rows: a kernel of ours that streams the weights once, through the tensor cores.
// Declared for linear.cc's table.
#pragma once

#include "backend/kernel.h"

namespace encore::cuda {

// Up to 64 rows of bf16 or f16, everything read aligned to 16 bytes; output f32 or as the input.
// Accepts shapes for which this is faster than cuBLASLt; binds any of the above.
bool accepts_fewrow(const KernelArgs& args);
BoundLaunch bind_fewrow(Device& device, const KernelArgs& args);

}  // namespace encore::cuda
