// Declares the kernels of linear and fused_linear for one to four rows, for the kernel table in
// linear.cc. They read the weights once.
#pragma once

#include "backend/kernel.h"

namespace encore::cuda {

// Accepts one to four rows of bf16 or f16. Weights have the same type, or are 8-bit codes with
// scales. The weight must be dense, inputs must be aligned to 16 bytes, and the output is f32 or
// has the type of the input. Rows with a norm in front have at most 8192 columns together, and x
// must fit shared memory. Adapters beside weights of codes are left to lora_expand.
bool accepts_gemv(const KernelArgs& args);
BoundLaunch bind_gemv(Device& device, const KernelArgs& args);
// Binds the kernel for a weight of 8-bit codes.
BoundLaunch bind_gemv_fp8(Device& device, const KernelArgs& args);
// Binds the kernel that also adds the adapters' part.
BoundLaunch bind_gemv_lora(Device& device, const KernelArgs& args);

// Binds a kernel that takes any shape, stride and dtype. It multiplies tiles in shared memory, in
// float.
BoundLaunch bind_plain_linear(Device& device, const KernelArgs& args);

}  // namespace encore::cuda
