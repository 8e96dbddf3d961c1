// Wraps instructions that Hopper has beyond ordinary loads and stores, one function each: barriers
// in shared memory that count bytes, copies of boxes of a tensor, and stores to the blocks of a
// cluster. Also wraps instructions that take addresses in shared memory.
//
// A box is 64 columns of 16 bits by some rows. It lies in shared memory row by row, 128 bytes each,
// with the 16-byte pieces of a row permuted by the row's number modulo 8, as the tensor cores read
// it without bank conflicts. Its address is a multiple of 1024.
#pragma once

#include <cstdint>

#include <cuda.h>

namespace encore::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ uint4 load_shared(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}
__device__ __forceinline__ float2 load_shared_pair(uint32_t address) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "r"(address)
               : "memory");
  return value;
}
__device__ __forceinline__ void store_shared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, const uint4& value) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

// Returns true in one lane of a whole warp. The compiler knows that only one lane passes, so it
// leaves out the loops over lanes that it otherwise needs for instructions with operands of the
// whole warp (copies, barriers).
__device__ __forceinline__ bool elect_lane() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred is;\n"
      "elect.sync _|is, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, is;\n"
      "}\n"
      : "=r"(elected));
  return elected != 0;
}

// The functions that follow take barriers by their addresses in shared memory.

__device__ __forceinline__ void init_barrier(uint32_t barrier, int num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals)
               : "memory");
}
// Makes this thread's init_barrier() known to the copy engine and to the cluster.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives at the barrier, and makes its current phase wait for `bytes` more bytes from the copy
// engine.
__device__ __forceinline__ void arrive_expecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(bytes)
               : "memory");
}
// Waits for the end of the barrier's phase with that parity. The thread then sees what its block
// and the copy engine wrote.
__device__ __forceinline__ void wait_for_phase(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Waits for the end of the barrier's phase with that parity. The thread then sees what the blocks
// of the cluster wrote, besides what its own block and the copy engine wrote.
__device__ __forceinline__ void wait_for_phase_of_cluster(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Waits at a barrier of whole warps until kThreads threads have arrived. Barriers have numbers, and
// number 0 is __syncthreads().
template <int kThreads>
__device__ __forceinline__ void meet_at(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
// Waits at a barrier of whole warps until kThreads threads have arrived, and returns whether `mine`
// is true in any of these threads.
template <int kThreads>
__device__ __forceinline__ bool meet_any_at(int barrier, bool mine) {
  uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred mine, any;\n"
      "setp.ne.u32 mine, %2, 0;\n"
      "bar.red.or.pred any, %1, %3, mine;\n"
      "selp.u32 %0, 1, 0, any;\n"
      "}\n"
      : "=r"(any)
      : "r"(barrier), "r"(static_cast<uint32_t>(mine)), "n"(kThreads)
      : "memory");
  return any != 0;
}

// Set the number of registers that each thread of a warpgroup has from here on: the first function
// lowers it, the second raises it. All warps of the warpgroup must call the function.
template <int kRegisters>
__device__ __forceinline__ void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Orders this thread's reads and writes of shared memory before the accesses that the copy engine
// and the tensor cores make there after a barrier.
__device__ __forceinline__ void publish_to_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A stage of a ring in shared memory. `parity` is how often the ring has gone round before this use
// of the stage, modulo 2, which is the parity of the phases of the stage's barriers.
struct Slot {
  uint32_t number = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance(uint32_t num_slots) {
    if (++number < num_slots) return;
    number = 0;
    parity ^= 1U;
  }
};

// Fetches a tensor map ahead of the first copy that uses it.
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies the box at `at` of a tensor with three dimensions to shared memory at `target`;
// coordinates are given innermost first. Elements outside of the tensor arrive as zeros, and their
// bytes count at the barrier, too.
__device__ __forceinline__ void copy_box(uint32_t target, const CUtensorMap& map, int3 at,
                                         uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(target),
      "l"(&map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(barrier)
      : "memory");
}
// Copies a box, as copy_box() does, that is read only once. The L2 cache drops it before other
// data.
__device__ __forceinline__ void copy_box_once(uint32_t target, const CUtensorMap& map, int3 at,
                                              uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3, %4}], [%5], policy;\n"
      "}\n" ::"r"(target),
      "l"(&map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(barrier)
      : "memory");
}

// Copies bytes that lie together in memory to shared memory. The addresses and the number of bytes
// must be multiples of 16.
__device__ __forceinline__ void copy_bytes(uint32_t target, const void* source, uint32_t bytes,
                                           uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(target),
      "l"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

// Make the cluster's threads meet: all of them arrive, then wait. Whole warps must call these
// functions together. The barrier orders nothing but what publish_barriers() published, because a
// release would wait for all writes to memory.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Turns an address in this block's shared memory into the address of the same place in the block
// with that rank.
__device__ __forceinline__ uint32_t address_at(uint32_t address, uint32_t rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}
// Arrives at another block's barrier, whose address comes from address_at(). Publishes this
// thread's writes to the cluster.
__device__ __forceinline__ void arrive_remote(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}
// Arrives at another block's barrier and publishes nothing. It is for threads that have only read,
// because a release at the cluster's scope waits for all writes to memory.
__device__ __forceinline__ void arrive_remote_relaxed(uint32_t barrier) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
               : "memory");
}
// Stores a value in another block's shared memory, and that block's barrier counts its bytes. Both
// addresses come from address_at().
__device__ __forceinline__ void send(uint32_t target, float2 value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
          target),
      "f"(value.x), "f"(value.y), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void send(uint32_t target, float4 value, uint32_t barrier) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(target),
      "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier)
      : "memory");
}

}  // namespace encore::cuda
