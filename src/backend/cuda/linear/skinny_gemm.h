// linear and fused_linear with a few rows: a kernel of ours that streams the weights once, through
// the tensor cores. Declared for linear.cc's table.
#pragma once

#include <string>
#include <vector>

#include "backend/kernel.h"

namespace encore::cuda {

constexpr int64_t kMaxSkinnyRows = 256;

// The operands of a product: numbers of 16 bits; a weight of 8-bit codes, which are widened, with x
// of 16 bits; or codes on both sides, to which x is rounded by a launch of its own.
enum class SkinnyOperands : uint8_t { k16Bit, kWidenedCodes, kCodes };

// Takes up to kMaxSkinnyRows rows of bf16 or f16, everything read aligned to 16 bytes; output f32
// or as the input. With a weight of codes whose rows stay as they are there may be any number of
// rows: each launch takes a part of them. Where the batch must not show in the bits, all columns
// are added in order, and there may be any number of rows: each launch takes so many. All sizes
// that are padded to the same number of rows are cut alike, as the tuner found best. Takes
// fused_linear with silu_mul alone, a multiple of 8 outputs, of the input's type; it has the bits
// of linear and silu_mul where linear is cut the same.
bool accepts_skinny_gemm(const KernelArgs& args);
Workspace skinny_gemm_workspace(const KernelArgs& args);
BoundLaunch bind_skinny_gemm(Device& device, const KernelArgs& args);

// Says how the kernel cuts a product. Any cut gives the same result but for rounding, and all cuts
// that are in order and not split give the same bits.
struct SkinnyGemmTiling {
  int tile_outputs = 0;   // weight rows: a multiple of 8, with silu_mul of 16; at most 256
  bool split = false;     // two blocks of a cluster share each tile, half of the columns each
  int row_tiles = 1;      // of the same outputs, a share of the rows each: one or two
  bool in_order = false;  // a sum takes all of a block's columns in order, with few rows too

  friend bool operator==(const SkinnyGemmTiling&, const SkinnyGemmTiling&) = default;
};
// "64": the height of a tile; "64s": split; "2x64": two row tiles.
std::string to_text(const SkinnyGemmTiling& tiling);

// The tilings worth a try on a chip of so many multiprocessors, by how fast they should be. At most
// kMaxSkinnyRows rows. Shapes: x [rows, columns], weight [outputs, columns].
std::vector<SkinnyGemmTiling> skinny_gemm_tilings(int64_t rows, int64_t outputs, int64_t columns,
                                                  int num_multiprocessors, bool silu_mul = false,
                                                  SkinnyOperands operands = SkinnyOperands::k16Bit);
// The tiling that bind_skinny_gemm() takes.
SkinnyGemmTiling skinny_gemm_tiling(Device& device, const KernelArgs& args);
BoundLaunch bind_skinny_gemm(Device& device, const KernelArgs& args,
                             const SkinnyGemmTiling& tiling);
// Shared memory of a block of such a launch: rings of two stages at least. Units: bytes.
int64_t skinny_gemm_shared_bytes(int64_t rows, int64_t outputs, int64_t columns,
                                 int num_multiprocessors, const SkinnyGemmTiling& tiling,
                                 SkinnyOperands operands = SkinnyOperands::k16Bit);

}  // namespace encore::cuda
