#include "backend/cuda/linear/lora.h"

#include <array>

#include "backend/cuda/kernels.h"

namespace encore::cuda {

std::span<const Kernel> lora_kernels() {
  static constexpr std::array<Kernel, 6> kRows = {{
      {"lora_shrink",
       "lora_shrink.block_per_row",
       accepts_shrink_row,
       nullptr,
       bind_shrink_row,
       {"residual", "norm"}},
      {"lora_shrink", "lora_shrink.mma", accepts_shrink_tile, nullptr, bind_shrink_tile},
      {"lora_shrink",
       "lora_shrink.warp_per_sum",
       nullptr,
       nullptr,
       bind_shrink,
       {"residual", "norm"}},
      {"lora_expand", "lora_expand.few_rows", accepts_expand_rows, nullptr, bind_expand_rows},
      {"lora_expand", "lora_expand.mma", accepts_expand_tile, nullptr, bind_expand_tile},
      {"lora_expand", "lora_expand.thread_per_column", nullptr, nullptr, bind_expand},
  }};
  return kRows;
}

}  // namespace encore::cuda
