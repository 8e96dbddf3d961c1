// Lists the litmus tests between warps of a block, through shared and global memory.
#include "backend/cuda/litmus/deliveries.cuh"

namespace encore::cuda::litmus {

std::span<const Row> block_rows() {
  static constexpr auto kRows = join(kMessageRows<Scope::kBlock>, kAtomicRows<Scope::kBlock>,
                                     kBarrierRows<Scope::kBlock>, kCopyRows<Scope::kBlock>);
  return kRows;
}

}  // namespace encore::cuda::litmus
