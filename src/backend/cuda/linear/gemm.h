// linear and fused_linear with many rows: a GEMM of ours that applies silu_mul on its way out, and
// adds all columns in order. Declared for linear.cc's table.
#pragma once

#include <vector>

#include "backend/kernel.h"

namespace encore::cuda {

// Products with silu_mul behind and no norm in front, a multiple of 8 outputs; more rows than the
// skinny GEMM takes, of bf16 or f16, everything aligned to 16 bytes; output as the input. Others are
// left to cuBLASLt, which is as fast on a card at its power limit, unless the batch must not show in
// the bits: these are those of the skinny GEMM in order.
bool accepts_gemm(const KernelArgs& args);
BoundLaunch bind_gemm(Device& device, const KernelArgs& args);

// Lists the rows of a tile that are worth a try on a chip of so many multiprocessors, by how fast
// they should be. A row's bits do not depend on the choice. Shapes: x [rows, columns], weight
// [outputs, columns].
std::vector<int> gemm_tile_rows(int64_t rows, int64_t outputs, int num_multiprocessors);
// Returns the rows of a tile that bind_gemm() chooses.
int gemm_tile_rows(Device& device, const KernelArgs& args);
// Takes products without silu_mul, too, and a bias; they have the bits that silu_mul begins with.
BoundLaunch bind_gemm(Device& device, const KernelArgs& args, int tile_rows);

}  // namespace encore::cuda
