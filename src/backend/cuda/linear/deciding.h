// Finds the launch by which the kernel of a product is chosen. It may differ from the product's own
// launch.
#pragma once

#include "backend/kernel.h"

namespace encore::cuda {

// Returns the launch that decides which kernel computes a product, and into which tiles the kernel
// cuts it. This is `args`, except where the attribute kChosenWithSiluMul (backend/fused_linear.h)
// is set and one of our kernels accepts the product with silu_mul fused to it. Then that fused
// launch decides.
KernelArgs deciding_launch(const KernelArgs& args);

}  // namespace encore::cuda
