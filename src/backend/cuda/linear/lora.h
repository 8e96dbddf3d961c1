// lora_shrink and lora_expand of many rows, on tensor cores. Declared for lora.cu's table.
#pragma once

#include "backend/kernel.h"

namespace encore::cuda {

// Takes 257 rows or more of bf16 or f16, aligned to 16 bytes, of a multiple of 32 columns, without a norm.
bool accepts_shrink_tile(const KernelArgs& args);
BoundLaunch bind_shrink_tile(Device& device, const KernelArgs& args);

// Takes 257 rows or more of bf16 or f16, aligned to 16 bytes, blocks of a multiple of 32 columns and ranks
// that are multiples of 16.
bool accepts_expand_tile(const KernelArgs& args);
BoundLaunch bind_expand_tile(Device& device, const KernelArgs& args);

}  // namespace encore::cuda
