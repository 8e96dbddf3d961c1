// Lists the litmus tests between the GPU and the host, through the host's memory. They use no
// atomics, because atomics of the GPU on host memory need a bus that carries them.
#include "backend/cuda/litmus/tests.cuh"

namespace encore::cuda::litmus {

std::span<const Row> system_rows() {
  static constexpr auto kRows =
      join(kMessageRows<Scope::kSystem>, kNarrowRows<Scope::kSystem, Scope::kDevice>);
  return kRows;
}

}  // namespace encore::cuda::litmus
