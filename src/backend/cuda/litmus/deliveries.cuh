// Messages through mbarriers instead of flags, messages that are delivered to a slot in shared
// memory while an mbarrier counts their bytes, and the rows that name both.
#pragma once

#include "backend/cuda/litmus/tests.cuh"

namespace encore::cuda::litmus {

// Deliveries: 16 bytes to each of a warp's slots, whole warps at once.

// Delivers by the copy engine, from lines of global memory that the warp has just written.
template <bool kFenced>
struct BulkCopy {
  template <Scope S>
  static __device__ __forceinline__ void deliver(const Cells<S>& cells, uint32_t reader,
                                                 uint32_t round) {
    constexpr uint32_t kSourceLine = kFirstWordLine + 2;  // where noise does not store
    constexpr uint32_t kLaneCells = 4;
    constexpr uint32_t kLanesPerLine = kCellsPerLine / kLaneCells;
    const uint32_t lane = cells.seat.local % kWarpSize;
    const auto source = [&](uint32_t i) {
      return line(cells.field, cells.seat.group - lane + i, kSourceLine, round % cells.field.slots);
    };
    uint32_t* own = source(lane / kLanesPerLine) + lane % kLanesPerLine * kLaneCells;
#pragma unroll
    for (uint32_t k = 0; k < kNumWords; ++k)
      st_weak(own + k, message(round, k));
    if constexpr (kFenced) fence_proxy_async();
    __syncwarp();
    if (lane != 0) return;
    for (uint32_t i = 0; i < kWarpSize / kLanesPerLine; ++i) {
      copy_bulk(cells.slot(reader, i * kLanesPerLine), source(i), kCellsPerLine * 4,
                cells.template flag<Barrier>(kFlagLine, reader));
    }
  }
};

// Delivers from registers, every lane for itself.
struct AsyncStore {
  template <Scope S>
  static __device__ __forceinline__ void deliver(const Cells<S>& cells, uint32_t reader,
                                                 uint32_t round) {
    const uint32_t lane = cells.seat.local % kWarpSize;
    const auto value = [&](uint32_t k) { return __uint_as_float(message(round, k)); };
    send(cells.slot(reader), make_float4(value(0), value(1), value(2), value(3)),
         cells.template flag<Barrier>(kFlagLine, reader, 0U - lane).address);
  }
};

// A warp of role 0 delivers four words to each thread of a warp of role 1, which waits for the
// bytes, reads them, and gives the slots back for the next delivery: so do all rings of the copy
// engine, and what blocks of a cluster send each other. Both barriers are the first lane's.
//
// kEarly, which is broken: the slots are given back before they are read.
template <Scope S, class Deliver, class Observe, bool kEarly = false>
struct Delivery {
  static constexpr Scope kScope = S;
  static constexpr uint32_t kRoles = 2;
  static constexpr bool kCounts = false;
  static constexpr bool kHasMailbox = true;
  static constexpr uint32_t kWriter = 0;
  static constexpr uint32_t kReader = 1;

  static __device__ void play(const Field& field, const Seat& seat, const Cells<S>& cells,
                              Outcomes& outcomes) {
    if (!__any_sync(kFullWarp, seat.plays)) return;  // a warp plays as a whole
    if (seat.role == kWriter) {
      write(field, seat, cells, outcomes);
    } else {
      read(field, seat, cells, outcomes);
    }
  }

 private:
  static __device__ void write(const Field& field, const Seat& seat, const Cells<S>& cells,
                               Outcomes& outcomes) {
    const Barrier free = cells.template flag<Barrier>(kReadyLine, kWriter, first_lane(seat));
    uint32_t random = warp_random(field, seat);
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      wait_for<S, Observe>(free, round, true, outcomes, [] {});
      if (__any_sync(kFullWarp, outcomes.lost != 0)) return;
      if (field.jitter) pause(random);
      Deliver::deliver(cells, kReader, round);
    }
  }

  static __device__ void read(const Field& field, const Seat& seat, const Cells<S>& cells,
                              Outcomes& outcomes) {
    constexpr uint32_t kLingerCycles = 4095;  // more than a slot takes to be filled again
    const Barrier full = cells.template flag<Barrier>(kFlagLine, kReader, first_lane(seat));
    uint32_t random = warp_random(field, seat);
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      // An arrival does not wait for loads, nor does its release reach the copy engine. So it
      // stands behind the loop's end, and that behind the use of what was loaded.
      if (!kEarly || round == 1) give_back(seat, cells, full);
      wait_for<S, Observe>(full, round, true, outcomes, [] {});
      if (__any_sync(kFullWarp, outcomes.lost != 0)) return;
      if (kEarly && round < field.rounds) give_back(seat, cells, full);
      if (field.lingers && round % 2 == 0) pause(random, kLingerCycles);
      const uint4 words = load_shared(cells.slot(kReader));
      const bool is_stale = words.x != message(round, 0) || words.y != message(round, 1) ||
                            words.z != message(round, 2) || words.w != message(round, 3);
      if (!seat.plays) continue;
      if (is_stale) ++outcomes.stale;
      ++outcomes.rounds;
    }
  }

  // Lets the next phase wait for a warp's bytes, then says that they may come.
  static __device__ __forceinline__ void give_back(const Seat& seat, const Cells<S>& cells,
                                                   Barrier full) {
    __syncwarp();
    if (seat.local % kWarpSize != 0) return;
    arrive_expecting(full.address, kWarpSize * sizeof(uint4));
    const Barrier free[] = {cells.template flag<Barrier>(kReadyLine, kWriter)};
    ArriveRelease<S>::publish(free, 0);
  }

  // The distance from the seat back to that of its warp's first lane.
  static __device__ __forceinline__ uint32_t first_lane(const Seat& seat) {
    return 0U - seat.local % kWarpSize;
  }
};

// Forms within a block and within a cluster.
template <Scope S>
inline constexpr Row kBarrierRows[] = {
    row<Message<S, ArriveRelease<S>, WaitAcquire<S>>>("mbarrier", 2),
    row<Message<S, ArriveRelaxed<S>, WaitRelaxed<S>>>("relaxed_mbarrier", 2),
    row<Message<S, Early<ArriveRelease<S>>, WaitAcquire<S>>>("early_arrive", 2),
    row<Message<S, ArriveRelease<S>, OneTry<WaitAcquire<S>>>>("one_try", 2),
};
// Forms with half an order, or with an order that does not hold both sides. Within a block these
// would be the instructions of the correct form.
template <Scope S, Scope Narrow>
inline constexpr Row kRemoteBarrierRows[] = {
    row<Message<S, ArriveRelaxed<S>, WaitAcquire<S>>>("relaxed_arrive", 2),
    row<Message<S, ArriveRelease<S>, WaitRelaxed<S>>>("relaxed_wait", 2),
    row<Message<S, ArriveRelease<S, Narrow>, WaitAcquire<S>>>("narrow_arrive", 2),
    row<Message<S, ArriveRelease<S>, WaitAcquire<Narrow>>>("narrow_wait", 2),
};
// The copy engine fills slots of its own block.
template <Scope S>
inline constexpr Row kCopyRows[] = {
    row<Delivery<S, BulkCopy<true>, WaitAcquire<S>>>("bulk_copy", 2),
    row<Delivery<S, BulkCopy<false>, WaitAcquire<S>>>("no_proxy_fence", 2),
    row<Delivery<S, BulkCopy<true>, WaitAcquire<S>, true>>("early_return", 2),
};
// Asynchronous stores fill slots of another block.
template <Scope S>
inline constexpr Row kSendRows[] = {
    row<Delivery<S, AsyncStore, WaitAcquire<S>>>("st_async", 2),
    row<Delivery<S, AsyncStore, WaitRelaxed<S>>>("relaxed_receipt", 2),
    row<Delivery<S, AsyncStore, WaitAcquire<S>, true>>("early_return", 2),
};

}  // namespace encore::cuda::litmus
