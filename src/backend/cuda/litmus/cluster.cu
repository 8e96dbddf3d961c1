// Lists the litmus tests between blocks of a cluster, through their shared memory and global
// memory.
#include "backend/cuda/litmus/deliveries.cuh"

namespace encore::cuda::litmus {

std::span<const Row> cluster_rows() {
  static constexpr auto kRows =
      join(kMessageRows<Scope::kCluster>, kAtomicRows<Scope::kCluster>,
           kNarrowRows<Scope::kCluster, Scope::kBlock>, kBarrierRows<Scope::kCluster>,
           kRemoteBarrierRows<Scope::kCluster, Scope::kBlock>, kSendRows<Scope::kCluster>);
  return kRows;
}

}  // namespace encore::cuda::litmus
