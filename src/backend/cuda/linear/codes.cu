// Kernels that bring 8-bit codes into the order in which products read them.
#include "backend/cuda/linear/codes.h"

#include <algorithm>

#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) arrange_codes_kernel(uint4* groups, int64_t count) {
  begin_kernel();
  // Byte selectors of __byte_perm that interleave two words: kLow takes the two low bytes of each
  // word by turns, and kHigh the two high bytes.
  constexpr uint32_t kLow = 0x5140;
  constexpr uint32_t kHigh = 0x7362;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    const uint4 of = groups[i];
    groups[i] = {__byte_perm(of.x, of.z, kLow), __byte_perm(of.x, of.z, kHigh),
                 __byte_perm(of.y, of.w, kLow), __byte_perm(of.y, of.w, kHigh)};
  }
}

}  // namespace

void arrange_codes(Stream& stream, const TensorView& weight) {
  constexpr int64_t kMostBlocks = 132 * 8;
  if (weight.shape[weight.shape.rank() - 1] % kCodeGroup != 0) return;
  const int64_t count = weight.num_bytes() / kCodeGroup;
  const int64_t blocks = std::min(div_up(count, kThreads), kMostBlocks);
  launch(stream, {.blocks = static_cast<unsigned>(blocks), .threads = kThreads},
         arrange_codes_kernel, weight.as<uint4>(), count);
}

}  // namespace encore::cuda
