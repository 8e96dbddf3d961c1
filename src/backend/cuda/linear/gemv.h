// linear and fused_linear with one row, or up to four: a kernel of ours that streams the weights
// once. Declared for linear.cc's table.
#pragma once

#include "backend/kernel.h"

namespace encore::cuda {

// Takes one to four rows of bf16 or f16, weights of the same type or of 8-bit codes with their
// scales, dense, everything aligned to 16 bytes; output f32 or as the input. Rows with a norm in
// front have 8192 columns at most, together; x fits shared memory. Adapters beside weights of codes are left
// to lora_expand.
bool accepts_gemv(const KernelArgs& args);
BoundLaunch bind_gemv(Device& device, const KernelArgs& args);
// Binds the kernel for a weight of 8-bit codes.
BoundLaunch bind_gemv_fp8(Device& device, const KernelArgs& args);
// Binds the kernel that adds what adapters add.
BoundLaunch bind_gemv_lora(Device& device, const KernelArgs& args);

// Takes any shape, stride and dtype: tiles in shared memory, float arithmetic.
BoundLaunch bind_plain_linear(Device& device, const KernelArgs& args);

}  // namespace encore::cuda
