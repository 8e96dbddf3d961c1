#include "backend/cuda/kernels.h"

#include "backend/device.h"

namespace encore {

std::optional<KernelTable> cuda_kernels() {
  return KernelTable(cuda::all_kernels());
}

namespace cuda {

std::vector<Kernel> all_kernels() {
  std::vector<Kernel> rows;
  for (const std::span<const Kernel> part :
       {linear_kernels(), fused_linear_kernels(), lora_kernels(), expert_kernels(),
        elementwise_kernels(), norm_kernels(), row_kernels(), rope_kernels(), attention_kernels(),
        collective_kernels(), all_reduce_norm_kernels(), logits_kernels(), sample_kernels(),
        accept_kernels(), own_candidates_kernels(), advance_kernels(), lookup_drafts_kernels(),
        draft_chain_kernels()}) {
    rows.insert(rows.end(), part.begin(), part.end());
  }
  return rows;
}

}  // namespace cuda
}  // namespace encore
