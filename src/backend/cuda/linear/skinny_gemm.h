// Declares the kernel of linear and fused_linear for few rows, for the kernel table in linear.cc.
// It reads the weights once, and multiplies on the tensor cores.
#pragma once

#include <string>
#include <vector>

#include "backend/kernel.h"

namespace encore::cuda {

constexpr int64_t kMaxSkinnyRows = 256;

// The kinds of operands of a product. k16Bit: both have 16 bits. kWidenedCodes: the weight is 8-bit
// codes, which are widened, and x has 16 bits. kCodes: both are codes, and a launch of its own
// rounds x.
enum class SkinnyOperands : uint8_t { k16Bit, kWidenedCodes, kCodes };

// Accepts up to kMaxSkinnyRows rows of bf16 or f16. All inputs must be aligned to 16 bytes, and the
// output is f32 or has the type of the input. A weight of codes with rows that are not rounded may
// have any number of rows, because each launch takes a part of them. With `batch_invariant`, all
// columns are added in order, and the number of rows may also be any. All numbers of rows that are
// padded to the same number are cut into the same tiles, which the tuner found to be fastest. Of
// what fused_linear can add to a product, silu_mul is accepted, with a multiple of 8 outputs of the
// input's type, and a norm in front of rows that are rounded to codes. The result has the bits of
// linear and silu_mul where linear is cut in the same way.
bool accepts_skinny_gemm(const KernelArgs& args);
Workspace skinny_gemm_workspace(const KernelArgs& args);
BoundLaunch bind_skinny_gemm(Device& device, const KernelArgs& args);

// Says how the kernel cuts a product. All cuts give the same result but for rounding. All cuts that
// are in order and not split give the same bits.
struct SkinnyGemmTiling {
  int tile_outputs = 0;  // rows of the weight: a multiple of 8, or of 16 with silu_mul; at most 256
  bool split = false;    // two blocks of a cluster share each tile, with half of the columns each
  int row_tiles = 1;     // tiles that share outputs, with a share of the rows each: one or two
  bool in_order = false;  // a sum takes all of a block's columns in order, even with few rows

  friend bool operator==(const SkinnyGemmTiling&, const SkinnyGemmTiling&) = default;
};
// Writes a tiling as text: "64" is the number of a tile's outputs, "64s" is a split tiling, and
// "2x64" has two row tiles.
std::string to_text(const SkinnyGemmTiling& tiling);

// Returns the tilings that are worth a try on a chip with this number of multiprocessors; the
// tilings that should be fastest come first. `rows` is at most kMaxSkinnyRows. Shapes: x [rows,
// columns], weight [outputs, columns].
std::vector<SkinnyGemmTiling> skinny_gemm_tilings(int64_t rows, int64_t outputs, int64_t columns,
                                                  int num_multiprocessors, bool silu_mul = false,
                                                  SkinnyOperands operands = SkinnyOperands::k16Bit);
// Returns the tiling that bind_skinny_gemm() chooses.
SkinnyGemmTiling skinny_gemm_tiling(Device& device, const KernelArgs& args);
BoundLaunch bind_skinny_gemm(Device& device, const KernelArgs& args,
                             const SkinnyGemmTiling& tiling);
// Returns the shared memory of a block of a launch with this tiling, whose rings have at least two
// stages. Units: bytes.
int64_t skinny_gemm_shared_bytes(int64_t rows, int64_t outputs, int64_t columns,
                                 int num_multiprocessors, const SkinnyGemmTiling& tiling,
                                 SkinnyOperands operands = SkinnyOperands::k16Bit);

}  // namespace encore::cuda
