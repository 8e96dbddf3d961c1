// Tests in which mbarriers, and the bytes that they count, take the place of flags, as they do in
// fast kernels.
//
// A barrier of one arrival, or of one arrival and some bytes, has one phase for each message: the
// message of round r, counted from 1, ends phase r - 1. Threads wait for a phase by its parity,
// which is enough where no side can be two phases ahead.
#pragma once

#include <type_traits>

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/litmus/field.h"
#include "backend/cuda/memory_order.cuh"

namespace encore::cuda::litmus {

// An mbarrier's address in shared memory. A thread waits at barriers of its own block, and may
// arrive at barriers of any block of the cluster.
struct Barrier {
  uint32_t address;
};

// Holds in shared memory, for each group of a block, two mbarriers and 16 bytes to which messages
// are delivered.
template <uint32_t kGroups>
struct alignas(128) Mailbox {
  uint64_t barriers[2][kGroups];
  uint4 slots[kGroups];

  // Initializes the barriers. All threads of a block call it. Other blocks of the cluster may use
  // the barriers after the cluster's next barrier.
  __device__ __forceinline__ void init() {
    for (uint32_t i = threadIdx.x; i < 2 * kGroups; i += blockDim.x)
      init_barrier(shared_address(&barriers[i / kGroups][i % kGroups]), 1);
    publish_barriers();
  }
};

// PTX's name for the memory in which the barriers of scope S lie.
template <Scope S>
struct SpaceName {
  static constexpr char kText[] = "shared::cta";
};
template <>
struct SpaceName<Scope::kCluster> {
  static constexpr char kText[] = "shared::cluster";
};

// PTX's names for the memory order of an arrival or a wait.
struct ReleaseName {
  static constexpr char kText[] = "release";
};
struct AcquireName {
  static constexpr char kText[] = "acquire";
};
struct RelaxedName {
  static constexpr char kText[] = "relaxed";
};

// Publishers whose flag is an mbarrier of scope S. They publish a message by arriving at the
// mbarrier, with a memory order at scope kOrdered.
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
// A broken publisher: writers arrive before they write.
template <class Arrive>
struct Early : Arrive {};

// Observers whose poll returns whether the mbarrier's phase of the awaited parity has ended. A poll
// sleeps for a while before it returns false.
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
// A broken observer: readers poll once and read, whatever the poll returns.
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

// True where a publisher publishes through a barrier, not through a flag.
template <class Publish>
inline constexpr bool kHasBarriers = requires {
  Publish::kArrives;
};
template <class Publish>
using Flag = std::conditional_t<kHasBarriers<Publish>, Barrier, uint32_t*>;

// Returns whether this poll finds the message that round `round` publishes.
template <class Observe>
__device__ __forceinline__ bool finds(const uint32_t* flag, uint32_t round) {
  return Observe::poll(flag) == round;
}
template <class Observe>
__device__ __forceinline__ bool finds(Barrier barrier, uint32_t round) {
  return Observe::poll(barrier, (round - 1) & 1U);
}

// Orders ordinary loads and stores with those of the copy engine, which go through another proxy.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async;" ::: "memory");
}
// Copies bytes to this block's shared memory, where a barrier counts them. The target, the source
// and the size are multiples of 16 bytes.
__device__ __forceinline__ void copy_bulk(uint32_t target, const void* source, uint32_t bytes,
                                          Barrier barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(target),
      "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(barrier.address)
      : "memory");
}

}  // namespace encore::cuda::litmus
