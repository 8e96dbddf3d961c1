// Declares the kernels of lora_shrink and lora_expand for the kernel table in lora.cc, which lists
// the faster ones first.
#pragma once

#include "backend/kernel.h"

namespace encore::cuda {

// The smallest number of rows for which tensor cores are faster than blocks that take few rows
// each.
inline constexpr int64_t kManyRowsWithAdapters = 257;

// Accepts fewer rows than kManyRowsWithAdapters, with columns aligned to 16 bytes.
bool accepts_shrink_row(const KernelArgs& args);
BoundLaunch bind_shrink_row(Device& device, const KernelArgs& args);
// Accepts kManyRowsWithAdapters rows or more of bf16 or f16, without a norm. Rows must be aligned
// to 16 bytes and have a multiple of 32 columns.
bool accepts_shrink_tile(const KernelArgs& args);
BoundLaunch bind_shrink_tile(Device& device, const KernelArgs& args);
// Binds a kernel that takes any launch of lora_shrink.
BoundLaunch bind_shrink(Device& device, const KernelArgs& args);

// Accepts fewer rows than kManyRowsWithAdapters, ranks that are multiples of 16 bytes, and at most
// 256 sums in a row of h.
bool accepts_expand_rows(const KernelArgs& args);
BoundLaunch bind_expand_rows(Device& device, const KernelArgs& args);
// Accepts kManyRowsWithAdapters rows or more of bf16 or f16, aligned to 16 bytes. Each of the
// merged products must have a multiple of 32 outputs, and ranks must be multiples of 16.
bool accepts_expand_tile(const KernelArgs& args);
BoundLaunch bind_expand_tile(Device& device, const KernelArgs& args);
// Binds a kernel that takes any launch of lora_expand.
BoundLaunch bind_expand(Device& device, const KernelArgs& args);

}  // namespace encore::cuda
