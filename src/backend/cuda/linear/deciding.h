// Finds the launch by which the kernel of a product is chosen, where that is not the product itself.
#pragma once

#include "backend/kernel.h"

namespace encore::cuda {

// `args`; or, with kChosenWithSiluMul (backend/fused_linear.h), the launch with silu_mul fused to it, if one
// of our kernels takes that. Which kernel takes a product, and how it is cut, goes by this launch.
KernelArgs deciding_launch(const KernelArgs& args);

}  // namespace encore::cuda
