// Wraps the instructions of PTX's memory model, one function for each: strong loads, stores and
// atomics of a word that several threads use, and fences. Each takes a scope, which must contain
// all of these threads.
//
//   writer:  *data = 42;                    reader:  while (ld_relaxed<kDevice>(flag) == 0) {}
//            st_release<kDevice>(flag, 1);           fence_acquire<kDevice>();
//                                                    x = *data;  // 42
//
// A release publishes what its thread wrote or saw before, and through a barrier also what other
// threads of its block did; an acquire that reads the released value sees all of it. Both sides are
// needed, with a scope that contains both threads. docs/memory-model.md gives the cost of each
// instruction; `encore litmus` tests them and deliberately broken variants of them.
//
// On sm_90, with a scope wider than the block, a release is MEMBAR.ALL, which waits until earlier
// writes have arrived, and then the store. An acquire is the load, and then CCTL.IVALL, which drops
// the multiprocessor's whole L1. So fence_release() costs a wait, fence_acquire() costs cached
// lines, fence_acq_rel() both, and a loop should read relaxed and acquire once, after it.
//
// Addresses are generic: global, shared, or another block's shared memory.
// Source: PTX ISA, "Memory Consistency Model".
#pragma once

#include <cstdint>

namespace encore::cuda {

// The threads between which an instruction must hold: those of the block, of its cluster, of the
// GPU, or of the GPU, the host and other GPUs.
enum class Scope : uint8_t { kBlock, kCluster, kDevice, kSystem };

// The name of the scope in PTX.
template <Scope S>
struct ScopeName;
template <>
struct ScopeName<Scope::kBlock> {
  static constexpr char kText[] = "cta";
};
template <>
struct ScopeName<Scope::kCluster> {
  static constexpr char kText[] = "cluster";
};
template <>
struct ScopeName<Scope::kDevice> {
  static constexpr char kText[] = "gpu";
};
template <>
struct ScopeName<Scope::kSystem> {
  static constexpr char kText[] = "sys";
};

template <Scope S>
__device__ __forceinline__ uint32_t ld_relaxed(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.relaxed.%1.u32 %0, [%2];"
               : "=r"(value)
               : "C"(ScopeName<S>::kText), "l"(address)
               : "memory");
  return value;
}
template <Scope S>
__device__ __forceinline__ uint32_t ld_acquire(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.acquire.%1.u32 %0, [%2];"
               : "=r"(value)
               : "C"(ScopeName<S>::kText), "l"(address)
               : "memory");
  return value;
}

template <Scope S>
__device__ __forceinline__ void st_relaxed(uint32_t* address, uint32_t value) {
  asm volatile("st.relaxed.%0.u32 [%1], %2;" ::"C"(ScopeName<S>::kText), "l"(address), "r"(value)
               : "memory");
}
template <Scope S>
__device__ __forceinline__ void st_release(uint32_t* address, uint32_t value) {
  asm volatile("st.release.%0.u32 [%1], %2;" ::"C"(ScopeName<S>::kText), "l"(address), "r"(value)
               : "memory");
}

// Adds without returning the value that was there before.
template <Scope S>
__device__ __forceinline__ void red_add_relaxed(uint32_t* address, uint32_t value) {
  asm volatile("red.relaxed.%0.add.u32 [%1], %2;" ::"C"(ScopeName<S>::kText), "l"(address),
               "r"(value)
               : "memory");
}
template <Scope S>
__device__ __forceinline__ void red_release(uint32_t* address, uint32_t value) {
  asm volatile("red.release.%0.add.u32 [%1], %2;" ::"C"(ScopeName<S>::kText), "l"(address),
               "r"(value)
               : "memory");
}

// Adds, and returns the value that was there before.
template <Scope S>
__device__ __forceinline__ uint32_t atom_add_relaxed(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.relaxed.%1.add.u32 %0, [%2], %3;"
               : "=r"(before)
               : "C"(ScopeName<S>::kText), "l"(address), "r"(value)
               : "memory");
  return before;
}
template <Scope S>
__device__ __forceinline__ uint32_t atom_add_acquire(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acquire.%1.add.u32 %0, [%2], %3;"
               : "=r"(before)
               : "C"(ScopeName<S>::kText), "l"(address), "r"(value)
               : "memory");
  return before;
}
template <Scope S>
__device__ __forceinline__ uint32_t atom_add_release(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.release.%1.add.u32 %0, [%2], %3;"
               : "=r"(before)
               : "C"(ScopeName<S>::kText), "l"(address), "r"(value)
               : "memory");
  return before;
}
template <Scope S>
__device__ __forceinline__ uint32_t atom_add_acq_rel(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.%1.add.u32 %0, [%2], %3;"
               : "=r"(before)
               : "C"(ScopeName<S>::kText), "l"(address), "r"(value)
               : "memory");
  return before;
}

// Writes, and returns the value that was there before.
template <Scope S>
__device__ __forceinline__ uint32_t atom_exch_relaxed(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.relaxed.%1.exch.b32 %0, [%2], %3;"
               : "=r"(before)
               : "C"(ScopeName<S>::kText), "l"(address), "r"(value)
               : "memory");
  return before;
}
template <Scope S>
__device__ __forceinline__ uint32_t atom_exch_release(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.release.%1.exch.b32 %0, [%2], %3;"
               : "=r"(before)
               : "C"(ScopeName<S>::kText), "l"(address), "r"(value)
               : "memory");
  return before;
}
template <Scope S>
__device__ __forceinline__ uint32_t atom_exch_acq_rel(uint32_t* address, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.%1.exch.b32 %0, [%2], %3;"
               : "=r"(before)
               : "C"(ScopeName<S>::kText), "l"(address), "r"(value)
               : "memory");
  return before;
}

// Writes `desired` if the word holds `expected`. Returns the value that was there before.
template <Scope S>
__device__ __forceinline__ uint32_t atom_cas_relaxed(uint32_t* address, uint32_t expected,
                                                     uint32_t desired) {
  uint32_t before;
  asm volatile("atom.relaxed.%1.cas.b32 %0, [%2], %3, %4;"
               : "=r"(before)
               : "C"(ScopeName<S>::kText), "l"(address), "r"(expected), "r"(desired)
               : "memory");
  return before;
}
template <Scope S>
__device__ __forceinline__ uint32_t atom_cas_acquire(uint32_t* address, uint32_t expected,
                                                     uint32_t desired) {
  uint32_t before;
  asm volatile("atom.acquire.%1.cas.b32 %0, [%2], %3, %4;"
               : "=r"(before)
               : "C"(ScopeName<S>::kText), "l"(address), "r"(expected), "r"(desired)
               : "memory");
  return before;
}

// A fence that makes a release of the relaxed store that follows it.
template <Scope S>
__device__ __forceinline__ void fence_release() {
  asm volatile("fence.release.%0;" ::"C"(ScopeName<S>::kText) : "memory");
}
// A fence that makes an acquire of the relaxed load before it.
template <Scope S>
__device__ __forceinline__ void fence_acquire() {
  asm volatile("fence.acquire.%0;" ::"C"(ScopeName<S>::kText) : "memory");
}
template <Scope S>
__device__ __forceinline__ void fence_acq_rel() {
  asm volatile("fence.acq_rel.%0;" ::"C"(ScopeName<S>::kText) : "memory");
}

}  // namespace encore::cuda
