// Declares the GEMM of linear and fused_linear for many rows, for the kernel table in linear.cc. It
// applies silu_mul before it stores, and adds the products of all columns in their order.
#pragma once

#include <vector>

#include "backend/kernel.h"

namespace encore::cuda {

// Accepts products of many rows with silu_mul behind them and no norm in front. They have more rows
// than the skinny GEMM takes, a multiple of 16 weight rows, operands in bf16 or f16 that are
// aligned to 16 bytes, and an output of the same type. Other products are left to cuBLASLt, which
// is as fast on a card at its power limit. With `batch_invariant`, products without silu_mul are
// accepted as well, because this kernel gives the bits of the skinny GEMM with columns in order.
bool accepts_gemm(const KernelArgs& args);
BoundLaunch bind_gemm(Device& device, const KernelArgs& args);

// Returns the numbers of rows of a tile that are worth a try on a chip with this number of
// multiprocessors; the numbers that should be fastest come first. The choice does not change the
// bits of a row of the result. Shapes: x [rows, columns], weight [outputs, columns].
std::vector<int> gemm_tile_rows(int64_t rows, int64_t outputs, int num_multiprocessors);
// Returns the number of rows of a tile that bind_gemm() chooses.
int gemm_tile_rows(Device& device, const KernelArgs& args);
// Binds the kernel with tiles of `tile_rows` rows. It also takes products without silu_mul, and a
// bias. These give the same sums as products to which silu_mul is applied.
BoundLaunch bind_gemm(Device& device, const KernelArgs& args, int tile_rows);

}  // namespace encore::cuda
