// linear and fused_linear of a weight of 8-bit codes with many rows, which are rounded to codes as
// well: a GEMM of ours. Declared for linear.cc's table.
#pragma once

#include <string>
#include <vector>

#include "backend/kernel.h"

namespace encore::cuda {

// Takes rows of bf16 or f16, kFewestGemmFp8Rows at least, that are rounded to FP8; a multiple of 16
// outputs and of 16 columns, everything aligned to 16 bytes; output as the input. Rows are rounded by a
// launch of its own, together with a norm in front, if there is one. Adds all columns in order: bits
// are those of the skinny GEMM in order.
bool accepts_gemm_fp8(const KernelArgs& args);
Workspace gemm_fp8_workspace(const KernelArgs& args);
BoundLaunch bind_gemm_fp8(Device& device, const KernelArgs& args);

// The skinny GEMM multiplies fewer rows faster.
inline constexpr int64_t kFewestGemmFp8Rows = 65;

// Says how the GEMM cuts a product: into tiles of 128 rows, two of which a cluster computes, of
// neighbouring rows or of neighbouring outputs. No choice shows in the bits.
struct GemmFp8Tiling {
  int tile_outputs = 0;        // a multiple of 32, with silu_mul of 64
  bool shares_weight = false;  // a cluster's tiles are of the same outputs; else of the same rows

  friend bool operator==(const GemmFp8Tiling&, const GemmFp8Tiling&) = default;
};
// "192": tiles of the same outputs; "2x192": of the same rows.
std::string to_text(const GemmFp8Tiling& tiling);
// The tilings worth a try on a chip of so many multiprocessors, by how fast they should be. Shapes: x
// [rows, columns], weight [outputs, columns].
std::vector<GemmFp8Tiling> gemm_fp8_tilings(int64_t rows, int64_t outputs, int64_t columns,
                                            int num_multiprocessors, bool silu_mul = false);
BoundLaunch bind_gemm_fp8(Device& device, const KernelArgs& args, const GemmFp8Tiling& tiling);
// The tiling that bind_gemm_fp8() chooses.
GemmFp8Tiling gemm_fp8_tiling(Device& device, const KernelArgs& args);

}  // namespace encore::cuda
