// The litmus tests (messages, a work queue, an exchange, a lock, accesses to one address, a relay,
// and exchanged places), and the rows that list their forms.
#pragma once

#include <algorithm>
#include <array>

#include "backend/cuda/litmus/play.cuh"

namespace encore::cuda::litmus {

// Tests messages. Role 0 writes four words and publishes kFlags flags. Role 1 has one thread per
// flag; it reads the words when it sees its flag, and reports in the same way that it is ready for
// the next message. Where Publish arrives at barriers, these take the place of the flags.
//
// Lines are reused round after round, and the reader's previous round left them in its L1. So a
// form that does not invalidate them reads old words.
template <Scope S, class Publish, class Observe, int kFlags = 1>
struct Message {
  static constexpr Scope kScope = S;
  static constexpr uint32_t kRoles = 2;
  static constexpr bool kCounts = false;
  static constexpr bool kHasMailbox = kHasBarriers<Publish>;
  static constexpr uint32_t kWriter = 0;
  static constexpr uint32_t kReader = 1;

  static __device__ void play(const Field& field, const Seat& seat, const Cells<S>& cells,
                              Outcomes& outcomes) {
    if (seat.role == kWriter) {
      write(field, seat, cells, outcomes);
    } else {
      read(field, seat, cells, outcomes);
    }
  }

 private:
  using Flag = litmus::Flag<Publish>;

  static __device__ void write(const Field& field, const Seat& seat, const Cells<S>& cells,
                               Outcomes& outcomes) {
    const bool leads = seat.plays && seat.local % kFlags == 0;
    uint32_t random = warp_random(field, seat);
    Flag flags[kFlags];
    for (int i = 0; i < kFlags; ++i)
      flags[i] = cells.template flag<Flag>(kFlagLine, kReader, i);
    Outcomes acks;
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      for (int i = 0; i < kFlags; ++i) {
        wait_for<S, Observe>(cells.template flag<Flag>(kReadyLine, kWriter, i), round, leads, acks,
                             [] {});
      }
      if (field.jitter) pause(random);
      if (!leads || acks.lost != 0) continue;
      if constexpr (kIsEarly<Publish>) Publish::publish(flags, round);
#pragma unroll
      for (uint32_t k = 0; k < kNumWords; ++k)
        st_weak(cells.word(k, round, kReader), message(round, k));
      if constexpr (!kIsEarly<Publish>) Publish::publish(flags, round);
    }
    outcomes.lost += acks.lost;
  }

  static __device__ void read(const Field& field, const Seat& seat, const Cells<S>& cells,
                              Outcomes& outcomes) {
    const Flag ready[] = {cells.template flag<Flag>(kReadyLine, kWriter)};
    const Flag flag = cells.template flag<Flag>(kFlagLine, kReader);
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      const auto look = [&] {
        uint32_t words[kNumWords];
#pragma unroll
        for (uint32_t k = 0; k < kNumWords; ++k)
          words[k] = ld_weak(cells.word(k, round, kReader, seat.local % kFlags));
        bool is_stale = false;
#pragma unroll
        for (uint32_t k = 0; k < kNumWords; ++k)
          is_stale |= words[k] != message(round, k);
        if (is_stale) ++outcomes.stale;
      };
      if (seat.plays) Publish::publish(ready, round);
      if constexpr (kHeedsAnswer<Observe>) {
        wait_for<S, Observe>(flag, round, seat.plays, outcomes, look);
      } else {
        if (seat.plays) {
          finds<Observe>(flag, round);
          look();
        }
        wait_for<S, Observe>(flag, round, seat.plays, outcomes, [] {});
      }
      if (seat.plays) ++outcomes.rounds;
    }
  }
};

// The ways to claim the next number of a work queue. They differ in their memory order.
template <Scope S>
struct ClaimAcqRel {
  static __device__ __forceinline__ uint32_t claim(uint32_t* index) {
    return atom_add_acq_rel<S>(index, 1);
  }
};
template <Scope S>
struct ClaimAcquire {
  static __device__ __forceinline__ uint32_t claim(uint32_t* index) {
    return atom_add_acquire<S>(index, 1);
  }
};
template <Scope S>
struct ClaimRelease {
  static __device__ __forceinline__ uint32_t claim(uint32_t* index) {
    return atom_add_release<S>(index, 1);
  }
};
template <Scope S>
struct ClaimRelaxed {
  static __device__ __forceinline__ uint32_t claim(uint32_t* index) {
    return atom_add_relaxed<S>(index, 1);
  }
};

// Tests a work queue. In each batch, four workers each write two words and add one to a common
// index. The addition publishes the worker's words. For the worker that comes last, it also
// acquires the words of the three others: this worker reads all words of the batch, and then opens
// the next batch. Attention's combine works in this way, and so does any last block that folds
// partial sums.
template <Scope S, class Claim, class Publish, class Observe>
struct WorkQueue {
  static constexpr Scope kScope = S;
  static constexpr uint32_t kRoles = 4;
  static constexpr bool kCounts = false;
  static constexpr bool kHasMailbox = false;

  static __device__ void play(const Field& field, const Seat& seat, const Cells<S>& cells,
                              Outcomes& outcomes) {
    constexpr uint32_t kHome = 0;
    uint32_t* index = cells.flag(kFlagLine, kHome);
    uint32_t* const open[] = {cells.flag(kReadyLine, kHome)};
    Outcomes waits;
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      if (seat.plays && waits.lost == 0) {
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k)
          st_weak(cells.word(2 * seat.role + k, round, kHome), message(round, k));
        if (Claim::claim(index) == kRoles * round - 1) {
          bool is_stale = false;
          for (uint32_t k = 0; k < 2 * kRoles; ++k)
            is_stale |= ld_weak(cells.word(k, round, kHome)) != message(round, k % 2);
          if (is_stale) ++outcomes.stale;
          ++outcomes.rounds;
          Publish::publish(open, round);
        }
      }
      wait_for<S, Observe>(open[0], round, seat.plays, waits, [] {});
    }
    outcomes.lost += waits.lost;
  }
};

// The ways to exchange a thread's value for the value in a place. They differ in their memory
// order.
template <Scope S>
struct SwapAcqRel {
  static __device__ __forceinline__ uint32_t swap(uint32_t* place, uint32_t mine) {
    return atom_exch_acq_rel<S>(place, mine);
  }
};
template <Scope S>
struct SwapRelease {
  static __device__ __forceinline__ uint32_t swap(uint32_t* place, uint32_t mine) {
    return atom_exch_release<S>(place, mine);
  }
};
template <Scope S>
struct SwapRelaxed {
  static __device__ __forceinline__ uint32_t swap(uint32_t* place, uint32_t mine) {
    return atom_exch_relaxed<S>(place, mine);
  }
};

// Tests an exchange. Two threads and one place share three buffers of two words. Each thread fills
// the buffer it has and swaps it for the buffer in the place. The swap publishes its own buffer and
// acquires the other, which the thread may then read and fill. The place holds the number of its
// buffer and the stamp that the buffer's words carry; the first buffer in it is empty.
template <Scope S, class Swap>
struct Exchange {
  static constexpr Scope kScope = S;
  static constexpr uint32_t kRoles = 2;
  static constexpr bool kCounts = false;
  static constexpr bool kHasMailbox = false;

  static __device__ void play(const Field& field, const Seat& seat, const Cells<S>& cells,
                              Outcomes& outcomes) {
    constexpr uint32_t kHome = 0;
    if (!seat.plays) return;
    uint32_t* place = cells.flag(kFlagLine, kHome);
    uint32_t random = warp_random(field, seat);
    uint32_t buffer = seat.role + 1;  // at first, buffer 0 is in the place
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      if (field.jitter) pause(random);
      const uint32_t stamp = round * kRoles + seat.role;
#pragma unroll
      for (uint32_t k = 0; k < 2; ++k)
        st_weak(cells.word(2 * buffer + k, 0, kHome), message(stamp, k));
      const uint32_t taken = Swap::swap(place, stamp * 4 + buffer);
      buffer = taken % 4;
      const uint32_t stamped = taken / 4;
      bool is_stale = false;
#pragma unroll
      for (uint32_t k = 0; k < 2; ++k) {
        const uint32_t word = ld_weak(cells.word(2 * buffer + k, 0, kHome));
        is_stale |= word != (stamped == 0 ? 0 : message(stamped, k));
      }
      if (is_stale) ++outcomes.stale;
      ++outcomes.rounds;
    }
  }
};

// The ways to take a lock. They differ in their memory order. Publishers release the lock.
template <Scope S>
struct TakeAcquire {
  static __device__ __forceinline__ bool take(uint32_t* lock) {
    return atom_cas_acquire<S>(lock, 0, 1) == 0;
  }
};
template <Scope S>
struct TakeRelaxed {
  static __device__ __forceinline__ bool take(uint32_t* lock) {
    return atom_cas_relaxed<S>(lock, 0, 1) == 0;
  }
};

// Tests a lock. Four contenders add one to two counters inside the lock, with plain loads and
// stores. The counters are equal whenever the lock is free, and never decrease. At the end, the
// host finds how many additions got lost.
template <Scope S, class Take, class Leave>
struct Lock {
  static constexpr Scope kScope = S;
  static constexpr uint32_t kRoles = 4;
  static constexpr bool kCounts = true;
  static constexpr bool kHasMailbox = false;
  static constexpr uint32_t kFirst = 0;
  // The second counter, in another line; in shared memory where the scope uses it.
  static constexpr uint32_t kSecond = 3;

  static __device__ void play(const Field& field, const Seat& seat, const Cells<S>& cells,
                              Outcomes& outcomes) {
    constexpr uint32_t kHome = 0;
    uint32_t* const lock[] = {cells.flag(kFlagLine, kHome)};
    uint32_t* first = cells.word(kFirst, 0, kHome);
    uint32_t* second = cells.word(kSecond, 0, kHome);
    uint32_t last = 0;
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      bool waiting = seat.plays;
      while (__any_sync(kFullWarp, waiting)) {
        if (!waiting || !Take::take(lock[0])) continue;
        const uint32_t a = ld_weak(first);
        const uint32_t b = ld_weak(second);
        if (a != b || a < last) ++outcomes.stale;
        last = a + 1;
        st_weak(first, a + 1);
        st_weak(second, b + 1);
        Leave::publish(lock, 0);
        ++outcomes.rounds;
        waiting = false;
      }
    }
  }
};

// Tests coherence with relaxed accesses. Role 0 counts up, in one word or in the first and then the
// second of two, and reads its own store back. Role 1 reads the last word written and then the
// first. At one address, role 1 never sees an earlier value after a later one.
template <Scope S, uint32_t kWords>
struct Order {
  static constexpr Scope kScope = S;
  static constexpr uint32_t kRoles = 2;
  static constexpr bool kCounts = false;
  static constexpr bool kHasMailbox = false;
  static constexpr uint32_t kWriter = 0;

  static __device__ void play(const Field& field, const Seat& seat, const Cells<S>& cells,
                              Outcomes& outcomes) {
    constexpr uint32_t kHome = 0;
    if (!seat.plays) return;
    uint32_t* first = cells.word(0, 0, kHome);
    uint32_t* last = cells.word(2 * (kWords - 1), 0, kHome);  // in another line than the first word
    uint32_t random = warp_random(field, seat);
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      if (seat.role == kWriter) {
        if (field.jitter) pause(random);
        st_relaxed<S>(first, round);
        if (last != first) st_relaxed<S>(last, round);
        if (ld_relaxed<S>(last) != round) ++outcomes.stale;
      } else {
        const uint32_t before = ld_relaxed<S>(last);
        const uint32_t after = ld_relaxed<S>(first);
        if (after < before) ++outcomes.stale;
        ++outcomes.rounds;
      }
    }
  }
};

// The fences of a relay. A relay calls fence() between the flag that it sees and the flag that it
// stores.
template <Scope S>
struct RelayAcqRel {
  static __device__ __forceinline__ void fence() { fence_acq_rel<S>(); }
};
template <Scope S>
struct RelayRelease {
  static __device__ __forceinline__ void fence() { fence_release<S>(); }
};
template <Scope S>
struct RelayAcquire {
  static __device__ __forceinline__ void fence() { fence_acquire<S>(); }
};
struct RelayNothing {
  static __device__ __forceinline__ void fence() {}
};

// Tests a relay. Role 0 writes two words and publishes a flag. Role 1 sees the flag and writes two
// words of its own; then one fence acquires role 0's words and publishes all four. Role 1 then
// reads role 0's words and stores a flag. Role 2 sees that flag and reads all four words. Roles 1
// and 2 both report that they are ready for the next message.
//
// The relay's own words lie in two places by turns. When the relay acquires a round, readers have
// left the place that it used two rounds before. No other acquire of the relay invalidates what its
// last round left in L1.
template <Scope S, class Between>
struct Relay {
  static constexpr Scope kScope = S;
  static constexpr uint32_t kRoles = 3;
  static constexpr bool kCounts = false;
  static constexpr bool kHasMailbox = false;
  static constexpr bool kIsQuietWhereRead = true;
  static_assert(S == Scope::kDevice, "its flags lie in lines that other scopes have none of");

  static __device__ void play(const Field& field, const Seat& seat, const Cells<S>& cells,
                              Outcomes& outcomes) {
    if (seat.role == 0) {
      write(field, seat, cells, outcomes);
    } else if (seat.role == 1) {
      relay(field, seat, cells, outcomes);
    } else {
      read(field, seat, cells, outcomes);
    }
  }

 private:
  using Handoff = Fenced<S, OneWay<S>>;
  static constexpr uint32_t kHome = 0;
  // The relay's lines lie behind the lines of the four words.
  static constexpr uint32_t kRelayedLine = kFirstWordLine + 2;
  static constexpr uint32_t kRelayReadyLine = kFirstWordLine + 3;

  static __device__ uint32_t* own_word(const Cells<S>& cells, uint32_t k, uint32_t round) {
    return cells.word(2 + k, round, kHome) + round % 2;
  }

  static __device__ void write(const Field& field, const Seat& seat, const Cells<S>& cells,
                               Outcomes& outcomes) {
    uint32_t random = warp_random(field, seat);
    uint32_t* const flag[] = {cells.flag(kFlagLine, kHome)};
    Outcomes acks;
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      wait_for<S, Handoff>(cells.flag(kReadyLine, kHome), round, seat.plays, acks, [] {});
      wait_for<S, Handoff>(cells.flag(kRelayReadyLine, kHome), round, seat.plays, acks, [] {});
      if (field.jitter) pause(random);
      if (!seat.plays || acks.lost != 0) continue;
#pragma unroll
      for (uint32_t k = 0; k < 2; ++k)
        st_weak(cells.word(k, round, kHome), message(round, k));
      Handoff::publish(flag, round);
    }
    outcomes.lost += acks.lost;
  }

  static __device__ void relay(const Field& field, const Seat& seat, const Cells<S>& cells,
                               Outcomes& outcomes) {
    uint32_t* const ready[] = {cells.flag(kRelayReadyLine, kHome)};
    uint32_t* const relayed[] = {cells.flag(kRelayedLine, kHome)};
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      if (seat.plays) Handoff::publish(ready, round);
      wait_for<S, Relaxed<S>>(cells.flag(kFlagLine, kHome), round, seat.plays, outcomes, [&] {
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k)
          st_weak(own_word(cells, k, round), message(round, 2 + k));
        Between::fence();
        Relaxed<S>::publish(relayed, round);
        bool is_stale = false;
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k)
          is_stale |= ld_weak(cells.word(k, round, kHome)) != message(round, k);
        if (is_stale) ++outcomes.stale;
        ++outcomes.rounds;
      });
    }
  }

  static __device__ void read(const Field& field, const Seat& seat, const Cells<S>& cells,
                              Outcomes& outcomes) {
    uint32_t* const ready[] = {cells.flag(kReadyLine, kHome)};
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      if (seat.plays) Handoff::publish(ready, round);
      wait_for<S, Handoff>(cells.flag(kRelayedLine, kHome), round, seat.plays, outcomes, [&] {
        bool is_stale = false;
#pragma unroll
        for (uint32_t k = 0; k < 2; ++k) {
          is_stale |= ld_weak(cells.word(k, round, kHome)) != message(round, k);
          is_stale |= ld_weak(own_word(cells, k, round)) != message(round, 2 + k);
        }
        if (is_stale) ++outcomes.stale;
        ++outcomes.rounds;
      });
    }
  }
};

// Tests places that are their own flags (backend/push.h). Two threads send each other one word per
// round. Each thread has two places, which the other uses by turns, and a thread that takes a word
// empties its place. When a thread has taken the word of round r, it sends the word of round r + 2
// to the place where its own word of round r lay. So the other thread must have emptied that place
// before it sent the word that was taken. With kIsLate, which is broken, a thread empties a place
// only after its next word was sent and some time has passed; a word that was stored there
// meanwhile is lost.
//
// The sender counts what it has sent, which shows that a word was lost.
template <Scope S, class Between, bool kIsLate = false>
struct Places {
  static constexpr Scope kScope = S;
  static constexpr uint32_t kRoles = 2;
  static constexpr bool kCounts = false;
  static constexpr bool kHasMailbox = false;

  static __device__ void play(const Field& field, const Seat& seat, const Cells<S>& cells,
                              Outcomes& outcomes) {
    uint32_t random = warp_random(field, seat);
    uint32_t* const own_count = cells.flag(kFlagLine + seat.role, kHome);
    const uint32_t* const count = cells.flag(kFlagLine + 1 - seat.role, kHome);
    uint32_t* taken = nullptr;  // a place that still has to be emptied
    for (uint32_t round = 1; round <= field.rounds; ++round) {
      if (field.jitter) pause(random);
      if (seat.plays) {
        st_relaxed<S>(place(cells, 1 - seat.role, round), message(round, seat.role));
        st_release<S>(own_count, round);
      }
      if (kIsLate && taken != nullptr) {
        pause(random, 8191);
        st_relaxed<S>(taken, 0);
      }
      taken = place(cells, seat.role, round);
      take(taken, count, round, message(round, 1 - seat.role), seat.plays, outcomes);
      if (!seat.plays || kIsLate) continue;
      st_relaxed<S>(taken, 0);
      Between::fence();
    }
    if (seat.plays) outcomes.rounds += field.rounds;
  }

 private:
  static constexpr uint32_t kHome = 0;

  static __device__ uint32_t* place(const Cells<S>& cells, uint32_t role, uint32_t round) {
    return cells.word(2 * role + round % 2, 0, kHome);
  }
  // Waits until the place has a word. Whole warps call it.
  static __device__ void take(const uint32_t* place, const uint32_t* count, uint32_t round,
                              uint32_t expected, bool waiting, Outcomes& outcomes) {
    constexpr uint32_t kPatience = 4096;
    constexpr uint64_t kLimitNs = 5'000'000'000;
    uint32_t polls = 0;
    uint64_t start_ns = 0;
    waiting = waiting && outcomes.lost == 0;
    while (__any_sync(kFullWarp, waiting)) {
      if (!waiting) continue;
      const uint32_t word = ld_relaxed<S>(place);
      if (word != 0) {
        if (word != expected) ++outcomes.stale;
        waiting = false;
      } else if (++polls % kPatience == 0) {
        if (start_ns == 0) start_ns = now_ns();
        if (ld_acquire<S>(count) >= round && ld_relaxed<S>(place) == 0) {
          ++outcomes.stale;
          waiting = false;
        } else if (now_ns() - start_ns > kLimitNs) {
          ++outcomes.lost;
          waiting = false;
        }
      }
    }
  }
};

template <class Test>
constexpr Row row(std::string_view name, int per_round, int flags = 1) {
  return {name,  litmus_kernel<Test>, static_cast<int>(Test::kRoles),
          flags, per_round,           Test::kCounts};
}

// Forms, and broken twins of forms, that exist in every scope.
template <Scope S>
inline constexpr Row kMessageRows[] = {
    row<Message<S, Release<S>, Acquire<S>>>("release_acquire", 2),
    row<Message<S, Release<S>, Relaxed<S>>>("no_acquire", 2),
    row<Message<S, Relaxed<S>, Acquire<S>>>("no_release", 2),
    row<Message<S, Relaxed<S>, Relaxed<S>>>("relaxed_flag", 2),
    row<Message<S, Plain, Plain>>("plain_flag", 2),
    row<Message<S, Fenced<S, AcqRel<S>>, Fenced<S, AcqRel<S>>>>("fences", 2),
    row<Message<S, Fenced<S, OneWay<S>>, Fenced<S, OneWay<S>>>>("relaxed_spin", 2),
    row<Message<S, Fenced<S, OneWay<S>>, Relaxed<S>>>("writer_fence_only", 2),
    row<Message<S, Relaxed<S>, Fenced<S, OneWay<S>>>>("reader_fence_only", 2),
    row<Message<S, FencedVolatile<S>, FencedVolatile<S>>>("threadfence", 2),
    row<Message<S, Volatile, Volatile>>("volatile_flag", 2),
    row<Message<S, Fenced<S, AcqRel<S>>, Fenced<S, AcqRel<S>>, 4>>("several_flags", 2, 4),
    row<Message<S, LateFence<S, AcqRel<S>>, Fenced<S, AcqRel<S>>, 4>>("late_fence", 2, 4),
    row<Message<S, Fenced<S, OneWay<S>>, Fenced<S, OneWay<S>>, 4>>("one_way_flags", 2, 4),
    row<Message<S, LateFence<S, OneWay<S>>, Fenced<S, OneWay<S>>, 4>>("late_release", 2, 4),
    row<Message<S, Relaxed<S>, Relaxed<S>, 4>>("relaxed_flags", 2, 4),
};
// Lists the forms whose threads are all on one GPU: the tests of atomics and of coherence.
template <Scope S>
inline constexpr Row kAtomicRows[] = {
    row<WorkQueue<S, ClaimAcqRel<S>, Release<S>, Acquire<S>>>("work_queue", 1),
    row<WorkQueue<S, ClaimRelease<S>, Release<S>, Relaxed<S>>>("release_only_queue", 1),
    row<WorkQueue<S, ClaimAcquire<S>, Release<S>, Acquire<S>>>("acquire_only_queue", 1),
    row<WorkQueue<S, ClaimRelaxed<S>, Relaxed<S>, Relaxed<S>>>("relaxed_queue", 1),
    row<Exchange<S, SwapAcqRel<S>>>("exchange", 2),
    row<Exchange<S, SwapRelease<S>>>("release_only_exchange", 2),
    row<Exchange<S, SwapRelaxed<S>>>("relaxed_exchange", 2),
    row<Order<S, 1>>("same_address", 1),
    row<Order<S, 2>>("two_addresses", 1),
    row<Lock<S, TakeAcquire<S>, Release<S>>>("lock", 4),
    row<Lock<S, TakeRelaxed<S>, Release<S>>>("no_acquire_lock", 4),
    row<Lock<S, TakeAcquire<S>, Plain>>("plain_unlock", 4),
    row<Lock<S, TakeRelaxed<S>, Relaxed<S>>>("relaxed_lock", 4),
};
// Forms of the relay test, in which the second of three threads relays a message.
template <Scope S>
inline constexpr Row kRelayRows[] = {
    row<Relay<S, RelayAcqRel<S>>>("relay", 3),
    row<Relay<S, RelayRelease<S>>>("relay_release_only", 3),
    row<Relay<S, RelayAcquire<S>>>("relay_acquire_only", 3),
    row<Relay<S, RelayNothing>>("relaxed_relay", 3),
};
// Forms in which words are their own flags.
template <Scope S>
inline constexpr Row kPlaceRows[] = {
    row<Places<S, RelayAcqRel<S>>>("places", 1),
    row<Places<S, RelayNothing, true>>("late_empty", 1),
    row<Places<S, RelayNothing>>("relaxed_places", 1),
};
// Forms that are broken because scope `Narrow` does not contain both sides.
template <Scope S, Scope Narrow>
inline constexpr Row kNarrowRows[] = {
    row<Message<S, Release<Narrow>, Acquire<Narrow>>>("narrow_scope", 2),
};

// Joins several tables of test forms into one.
template <size_t... kSizes>
constexpr auto join(const Row (&... tables)[kSizes]) {
  std::array<Row, (kSizes + ...)> rows{};
  Row* end = rows.data();
  ((end = std::copy(std::begin(tables), std::end(tables), end)), ...);
  return rows;
}

}  // namespace encore::cuda::litmus
