// Barriers and hand-over of sums for warpgroups that share a tile. hopper.cuh has their other
// barriers.
#pragma once

#include <cstdint>

namespace encore::cuda {

// Arrives at a barrier of kThreads threads and does not wait. The threads that call meet_at() at
// the same barrier wait until all have arrived, and then see what this thread has written.
template <int kThreads>
__device__ __forceinline__ void announce_at(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

__device__ __forceinline__ float load_shared_float(uint32_t address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ void store_shared_pair(uint32_t address, float2 value) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(value.x), "f"(value.y)
               : "memory");
}

}  // namespace encore::cuda
