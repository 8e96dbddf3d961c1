// Tests of messages through mbarriers instead of flags, tests of messages that are delivered to
// shared memory while an mbarrier counts their bytes, and the tables that list the forms of both.
#pragma once

#include "backend/cuda/litmus/tests.cuh"

namespace encore::cuda::litmus {

// Ways to deliver 16 bytes to each thread of a reading warp, in shared memory. Whole warps call
// deliver().

// Delivers with the copy engine, from lines of global memory that the warp has just written.
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

// Delivers from registers; every lane stores its own bytes.
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

// Tests deliveries. A warp of role 0 delivers four words to each thread of a warp of role 1. The
// reading warp waits for the bytes, reads them, and gives their place in shared memory back for the
// next delivery. All rings of the copy engine work in this way, and so does what blocks of a
// cluster send each other. Both barriers are those of the warp's first lane.
//
// With kEarly, which is broken, the reading warp gives the place of the bytes back before it reads
// them.
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
    // A warp plays as a whole: it leaves only where none of its lanes plays.
    if (!__any_sync(kFullWarp, seat.plays)) return;
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
    constexpr uint32_t kLingerCycles = 4095;  // longer than it takes to fill a slot again
    const Barrier full = cells.template flag<Barrier>(kFlagLine, kReader, first_lane(seat));
    uint32_t random = warp_random(field, seat);
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      // An arrival does not wait for loads, and its release does not reach the copy engine. So the
      // place of the bytes is given back only in the next iteration, after the loaded bytes have
      // been compared.
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

  // Makes the barrier wait for a warp's bytes in the next phase, and then tells the writer that the
  // bytes may come.
  static __device__ __forceinline__ void give_back(const Seat& seat, const Cells<S>& cells,
                                                   Barrier full) {
    __syncwarp();
    if (seat.local % kWarpSize != 0) return;
    arrive_expecting(full.address, kWarpSize * sizeof(uint4));
    const Barrier free[] = {cells.template flag<Barrier>(kReadyLine, kWriter)};
    ArriveRelease<S>::publish(free, 0);
  }

  // Returns the distance from this seat to the seat of its warp's first lane, as an unsigned number
  // that wraps around.
  static __device__ __forceinline__ uint32_t first_lane(const Seat& seat) {
    return 0U - seat.local % kWarpSize;
  }
};

// Forms that exist both within a block and within a cluster.
template <Scope S>
inline constexpr Row kBarrierRows[] = {
    row<Message<S, ArriveRelease<S>, WaitAcquire<S>>>("mbarrier", 2),
    row<Message<S, ArriveRelaxed<S>, WaitRelaxed<S>>>("relaxed_mbarrier", 2),
    row<Message<S, Early<ArriveRelease<S>>, WaitAcquire<S>>>("early_arrive", 2),
    row<Message<S, ArriveRelease<S>, OneTry<WaitAcquire<S>>>>("one_try", 2),
};
// Forms with only half of an order, or with an order whose scope does not hold both sides. Within a
// block, these would be the same instructions as the correct form.
template <Scope S, Scope Narrow>
inline constexpr Row kRemoteBarrierRows[] = {
    row<Message<S, ArriveRelaxed<S>, WaitAcquire<S>>>("relaxed_arrive", 2),
    row<Message<S, ArriveRelease<S>, WaitRelaxed<S>>>("relaxed_wait", 2),
    row<Message<S, ArriveRelease<S, Narrow>, WaitAcquire<S>>>("narrow_arrive", 2),
    row<Message<S, ArriveRelease<S>, WaitAcquire<Narrow>>>("narrow_wait", 2),
};
// Forms in which the copy engine delivers to shared memory of its own block.
template <Scope S>
inline constexpr Row kCopyRows[] = {
    row<Delivery<S, BulkCopy<true>, WaitAcquire<S>>>("bulk_copy", 2),
    row<Delivery<S, BulkCopy<false>, WaitAcquire<S>>>("no_proxy_fence", 2),
    row<Delivery<S, BulkCopy<true>, WaitAcquire<S>, true>>("early_return", 2),
};
// Forms in which asynchronous stores deliver to shared memory of another block.
template <Scope S>
inline constexpr Row kSendRows[] = {
    row<Delivery<S, AsyncStore, WaitAcquire<S>>>("st_async", 2),
    row<Delivery<S, AsyncStore, WaitRelaxed<S>>>("relaxed_receipt", 2),
    row<Delivery<S, AsyncStore, WaitAcquire<S>, true>>("early_return", 2),
};

}  // namespace encore::cuda::litmus
