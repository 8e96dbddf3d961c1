// Lists the litmus tests between blocks anywhere on the GPU, through global memory.
#include "backend/cuda/litmus/tests.cuh"

namespace encore::cuda::litmus {

std::span<const Row> device_rows() {
  static constexpr auto kRows =
      join(kMessageRows<Scope::kDevice>, kAtomicRows<Scope::kDevice>, kRelayRows<Scope::kDevice>,
           kPlaceRows<Scope::kDevice>, kNarrowRows<Scope::kDevice, Scope::kBlock>);
  return kRows;
}

}  // namespace encore::cuda::litmus
