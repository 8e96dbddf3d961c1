// lora_shrink and lora_expand: kernels that lora.cc's table names, the faster ones first.
#pragma once

#include "backend/kernel.h"

namespace encore::cuda {

// From so many rows on, tensor cores are faster than blocks that take few rows.
inline constexpr int64_t kManyRowsWithAdapters = 257;

// Takes fewer rows, of columns aligned to 16 bytes.
bool accepts_shrink_row(const KernelArgs& args);
BoundLaunch bind_shrink_row(Device& device, const KernelArgs& args);
// Takes as many rows or more of bf16 or f16, aligned to 16 bytes, of a multiple of 32 columns, without a norm.
bool accepts_shrink_tile(const KernelArgs& args);
BoundLaunch bind_shrink_tile(Device& device, const KernelArgs& args);
// Takes any launch.
BoundLaunch bind_shrink(Device& device, const KernelArgs& args);

// Takes fewer rows, of ranks that are multiples of 16 bytes, 256 sums of a row at most.
bool accepts_expand_rows(const KernelArgs& args);
BoundLaunch bind_expand_rows(Device& device, const KernelArgs& args);
// Takes as many rows or more of bf16 or f16, aligned to 16 bytes, blocks of a multiple of 32 columns and ranks
// that are multiples of 16.
bool accepts_expand_tile(const KernelArgs& args);
BoundLaunch bind_expand_tile(Device& device, const KernelArgs& args);
// Takes any launch.
BoundLaunch bind_expand(Device& device, const KernelArgs& args);

}  // namespace encore::cuda
