// Declares the GEMM of linear and fused_linear for many rows and a weight of 8-bit codes, for the
// kernel table in linear.cc. The rows of x are rounded to codes as well.
#pragma once

#include <string>
#include <vector>

#include "backend/kernel.h"

namespace encore::cuda {

// Accepts at least kFewestGemmFp8Rows rows of bf16 or f16 that are rounded to FP8. The numbers of
// outputs and of columns must be multiples of 16, everything must be aligned to 16 bytes, and the
// output has the type of the input. A separate launch rounds the rows, after the norm in front if
// there is one. The products of all columns are added in order, so the bits are those of the skinny
// GEMM with its option in_order.
bool accepts_gemm_fp8(const KernelArgs& args);
Workspace gemm_fp8_workspace(const KernelArgs& args);
BoundLaunch bind_gemm_fp8(Device& device, const KernelArgs& args);

// The smallest number of rows for this GEMM. With fewer rows the skinny GEMM is faster.
inline constexpr int64_t kFewestGemmFp8Rows = 65;

// Says how the GEMM cuts a product into tiles of 128 rows. A cluster computes two tiles at a time,
// of neighbouring rows or of neighbouring outputs. The choice does not change the bits.
struct GemmFp8Tiling {
  int tile_outputs = 0;  // a multiple of 32, with silu_mul of 64
  // Is true where a cluster's two tiles have the same outputs. Otherwise they have the same rows.
  bool shares_weight = false;

  friend bool operator==(const GemmFp8Tiling&, const GemmFp8Tiling&) = default;
};
// Writes a tiling as text, for tiles of 192 outputs: "192" where a cluster's two tiles have the
// same outputs, "2x192" where they have the same rows.
std::string to_text(const GemmFp8Tiling& tiling);
// Returns the tilings that are worth a try on a chip with this number of multiprocessors; the
// tilings that should be fastest come first. Shapes: x [rows, columns], weight [outputs, columns].
std::vector<GemmFp8Tiling> gemm_fp8_tilings(int64_t rows, int64_t outputs, int64_t columns,
                                            int num_multiprocessors, bool silu_mul = false);
BoundLaunch bind_gemm_fp8(Device& device, const KernelArgs& args, const GemmFp8Tiling& tiling);
// Returns the tiling that bind_gemm_fp8() chooses.
GemmFp8Tiling gemm_fp8_tiling(Device& device, const KernelArgs& args);

}  // namespace encore::cuda
