// The two halves that every form combines: a publisher, which publishes a message, and an observer,
// which observes it.
//
// A publisher stores `value` to all flags of a message. An observer polls one flag; its settle()
// runs once, after the poll that found the flag.
#pragma once

#include "backend/cuda/memory_order.cuh"

namespace encore::cuda::litmus {

// Weak accesses, as C++ compiles accesses of plain variables. They are written as PTX instructions
// so that the compiler leaves them alone; the GPU's assembler may still reorder them.
__device__ __forceinline__ uint32_t ld_weak(const uint32_t* address) {
  uint32_t value;
  asm volatile("ld.weak.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}
__device__ __forceinline__ void st_weak(uint32_t* address, uint32_t value) {
  asm volatile("st.weak.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// The fences of publishers and observers. A publisher calls before_flag() before it stores a flag,
// and an observer calls after_flag() after it has seen one.
template <Scope S>
struct AcqRel {
  static __device__ __forceinline__ void before_flag() { fence_acq_rel<S>(); }
  static __device__ __forceinline__ void after_flag() { fence_acq_rel<S>(); }
};
template <Scope S>
struct OneWay {
  static __device__ __forceinline__ void before_flag() { fence_release<S>(); }
  static __device__ __forceinline__ void after_flag() { fence_acquire<S>(); }
};
// CUDA's own fences, which are sequentially consistent.
template <Scope S>
struct ThreadFence {
  static __device__ __forceinline__ void before_flag() {
    if constexpr (S == Scope::kBlock) {
      __threadfence_block();
    } else if constexpr (S == Scope::kSystem) {
      __threadfence_system();
    } else {
      __threadfence();
    }
  }
  static __device__ __forceinline__ void after_flag() { before_flag(); }
};

// The publishers: ways to order the words of a message before its flags.
template <Scope S>
struct Release {
  template <int kFlags>
  static __device__ __forceinline__ void publish(uint32_t* const (&flags)[kFlags], uint32_t value) {
    for (uint32_t* flag : flags)
      st_release<S>(flag, value);
  }
};
template <Scope S>
struct Relaxed {
  template <int kFlags>
  static __device__ __forceinline__ void publish(uint32_t* const (&flags)[kFlags], uint32_t value) {
    for (uint32_t* flag : flags)
      st_relaxed<S>(flag, value);
  }
  static __device__ __forceinline__ uint32_t poll(const uint32_t* flag) {
    return ld_relaxed<S>(flag);
  }
  static __device__ __forceinline__ void settle() {}
};
// Publishes with one fence for all flags.
template <Scope S, class Fence>
struct Fenced {
  template <int kFlags>
  static __device__ __forceinline__ void publish(uint32_t* const (&flags)[kFlags], uint32_t value) {
    Fence::before_flag();
    Relaxed<S>::publish(flags, value);
  }
  static __device__ __forceinline__ uint32_t poll(const uint32_t* flag) {
    return ld_relaxed<S>(flag);
  }
  static __device__ __forceinline__ void settle() { Fence::after_flag(); }
};
// A broken publisher: the fence comes after half of the flags.
template <Scope S, class Fence>
struct LateFence {
  template <int kFlags>
  static __device__ __forceinline__ void publish(uint32_t* const (&flags)[kFlags], uint32_t value) {
#pragma unroll
    for (int i = 0; i < kFlags; ++i) {
      if (i == kFlags / 2) Fence::before_flag();
      st_relaxed<S>(flags[i], value);
    }
  }
};
struct Volatile {
  template <int kFlags>
  static __device__ __forceinline__ void publish(uint32_t* const (&flags)[kFlags], uint32_t value) {
    for (uint32_t* flag : flags)
      asm volatile("st.volatile.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
  }
  static __device__ __forceinline__ uint32_t poll(const uint32_t* flag) {
    uint32_t value;
    asm volatile("ld.volatile.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
  }
  static __device__ __forceinline__ void settle() {}
};
// The classic idiom: volatile flags between CUDA's own fences.
template <Scope S>
struct FencedVolatile : Volatile {
  template <int kFlags>
  static __device__ __forceinline__ void publish(uint32_t* const (&flags)[kFlags], uint32_t value) {
    ThreadFence<S>::before_flag();
    Volatile::publish(flags, value);
  }
  static __device__ __forceinline__ void settle() { ThreadFence<S>::after_flag(); }
};
struct Plain {
  template <int kFlags>
  static __device__ __forceinline__ void publish(uint32_t* const (&flags)[kFlags], uint32_t value) {
    for (uint32_t* flag : flags)
      st_weak(flag, value);
  }
  static __device__ __forceinline__ uint32_t poll(const uint32_t* flag) { return ld_weak(flag); }
  static __device__ __forceinline__ void settle() {}
};

// The observers: ways to read a message after its flag. Some of the publishers are observers, too.
template <Scope S>
struct Acquire {
  static __device__ __forceinline__ uint32_t poll(const uint32_t* flag) {
    return ld_acquire<S>(flag);
  }
  static __device__ __forceinline__ void settle() {}
};

// True where loads of this observer may find an old flag in L1 for ever: plain loads, and strong
// loads of a scope that does not hold the threads of scope S.
template <class Observe, Scope S>
inline constexpr bool kMayMiss = false;
template <Scope S>
inline constexpr bool kMayMiss<Plain, S> = true;
template <Scope Narrow, Scope S>
inline constexpr bool kMayMiss<Acquire<Narrow>, S> = Narrow < S;

}  // namespace encore::cuda::litmus
