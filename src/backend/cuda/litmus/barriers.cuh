// Mbarriers, and the bytes that they count, take the place of flags where kernels are fast.
//
// A barrier of one arrival, or of one arrival and some bytes, has a phase for each message; the
// message of round r, from 1, ends phase r - 1. It is waited for by parity, which is enough where
// no side can be two phases ahead.
#pragma once

#include <type_traits>

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/litmus/field.h"
#include "backend/cuda/memory_order.cuh"

namespace encore::cuda::litmus {

// An mbarrier, by its address in shared memory: of the own block to wait at, of any block of the
// cluster to arrive at.
struct Barrier {
  uint32_t address;
};

// Barriers of groups, and slots that bytes are delivered to, in shared memory: two barriers and
// 16 bytes a group.
template <uint32_t kGroups>
struct alignas(128) Mailbox {
  uint64_t barriers[2][kGroups];
  uint4 slots[kGroups];

  // Initializes the barriers. All threads of a block call it; the cluster knows them after its next
  // barrier.
  __device__ __forceinline__ void init() {
    for (uint32_t i = threadIdx.x; i < 2 * kGroups; i += blockDim.x)
      init_barrier(shared_address(&barriers[i / kGroups][i % kGroups]), 1);
    publish_barriers();
  }
};

// The memory in which the barriers of scope S lie.
template <Scope S>
struct SpaceName {
  static constexpr char kText[] = "shared::cta";
};
template <>
struct SpaceName<Scope::kCluster> {
  static constexpr char kText[] = "shared::cluster";
};

// PTX's names for the order of an arrival or a wait.
struct ReleaseName {
  static constexpr char kText[] = "release";
};
struct AcquireName {
  static constexpr char kText[] = "acquire";
};
struct RelaxedName {
  static constexpr char kText[] = "relaxed";
};

// Publishers: arrivals at barriers of scope S, ordered at scope kOrdered.
template <class Order, Scope S, Scope kOrdered>
struct Arrival {
  static constexpr bool kArrives = true;
  static __device__ __forceinline__ void publish(const Barrier (&barriers)[1], uint32_t /*round*/) {
    asm volatile("mbarrier.arrive.%0.%1.%2.b64 _, [%3];" ::"C"(Order::kText),
                 "C"(ScopeName<kOrdered>::kText), "C"(SpaceName<S>::kText), "r"(barriers[0].address)
                 : "memory");
  }
};
template <Scope S, Scope kOrdered = S>
struct ArriveRelease : Arrival<ReleaseName, S, kOrdered> {};
template <Scope S>
struct ArriveRelaxed : Arrival<RelaxedName, S, S> {};
// Broken: writers arrive in front of what they write.
template <class Arrive>
struct Early : Arrive {};

// Observers: has the phase of that parity ended? They sleep a while before they say no.
template <class Order, Scope S>
struct PhaseEnd {
  static __device__ __forceinline__ bool poll(Barrier barrier, uint32_t parity) {
    uint32_t has_ended;
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.%1.%2.shared::cta.b64 done, [%3], %4;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}\n"
        : "=r"(has_ended)
        : "C"(Order::kText), "C"(ScopeName<S>::kText), "r"(barrier.address), "r"(parity)
        : "memory");
    return has_ended != 0;
  }
  static __device__ __forceinline__ void settle() {}
};
template <Scope S>
struct WaitAcquire : PhaseEnd<AcquireName, S> {};
template <Scope S>
struct WaitRelaxed : PhaseEnd<RelaxedName, S> {};
// Broken: readers poll once and read, whatever the answer.
template <class Wait>
struct OneTry : Wait {};

template <class Publish>
inline constexpr bool kIsEarly = false;
template <class Arrive>
inline constexpr bool kIsEarly<Early<Arrive>> = true;
template <class Observe>
inline constexpr bool kHeedsAnswer = true;
template <class Wait>
inline constexpr bool kHeedsAnswer<OneTry<Wait>> = false;

// The kind of flag through which a publisher publishes.
template <class Publish>
inline constexpr bool kHasBarriers = requires {
  Publish::kArrives;
};
template <class Publish>
using Flag = std::conditional_t<kHasBarriers<Publish>, Barrier, uint32_t*>;

// Did this poll find the message that round `round` publishes?
template <class Observe>
__device__ __forceinline__ bool finds(const uint32_t* flag, uint32_t round) {
  return Observe::poll(flag) == round;
}
template <class Observe>
__device__ __forceinline__ bool finds(Barrier barrier, uint32_t round) {
  return Observe::poll(barrier, (round - 1) & 1U);
}

// The copy engine reads and writes memory through another proxy than loads and stores do.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async;" ::: "memory");
}
// Copies to this block's shared memory; a barrier there counts the bytes. All in units of 16 bytes.
__device__ __forceinline__ void copy_bulk(uint32_t target, const void* source, uint32_t bytes,
                                          Barrier barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(target),
      "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(barrier.address)
      : "memory");
}

}  // namespace encore::cuda::litmus
