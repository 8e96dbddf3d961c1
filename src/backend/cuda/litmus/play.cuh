// The kernel that runs all litmus tests. It gives threads their roles, finds cells in memory, waits
// for flags, makes noise and counts outcomes.
#pragma once

#include <type_traits>

#include "backend/cuda/litmus/barriers.cuh"
#include "backend/cuda/litmus/field.h"
#include "backend/cuda/litmus/orders.cuh"

namespace encore::cuda::litmus {

inline constexpr unsigned kFullWarp = 0xffffffffU;
inline constexpr uint32_t kWarpSize = 32;
inline constexpr int kMaxThreads = (kNumPlayingWarps + kNumNoisyWarps) * 32;

// Cells in shared memory, for the scopes that use shared memory: two flags and four words for each
// group.
inline constexpr uint32_t kHubCells = 6;
inline constexpr uint32_t kHubGroups = kNumPlayingWarps * kWarpSize;
struct Hub {
  uint32_t cells[kHubCells][kHubGroups];
};
using HubMailbox = Mailbox<kHubGroups>;

// The group and the role that a thread plays in a test. Without noise, all warps play.
struct Seat {
  uint32_t role;
  uint32_t group;
  uint32_t local;  // the group's index in the arrays of Hub, in shared memory
  bool plays;
};

__device__ __forceinline__ uint32_t rank_in_cluster() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Returns the address of this variable in the shared memory of the cluster's block with rank
// `rank`. The argument and the result are generic addresses.
__device__ __forceinline__ uint32_t* in_block(uint32_t* address, uint32_t rank) {
  uint32_t* remote;
  asm("mapa.u64 %0, %1, %2;" : "=l"(remote) : "l"(address), "r"(rank));
  return remote;
}
__device__ __forceinline__ void synchronize_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}
__device__ __forceinline__ uint64_t now_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

template <Scope S, uint32_t kRoles>
__device__ Seat take_seat(const Field& field) {
  const uint32_t warp = threadIdx.x / kWarpSize;
  const uint32_t lane = threadIdx.x % kWarpSize;
  Seat seat{};
  seat.local = warp * kWarpSize + lane;
  uint32_t team = blockIdx.x;  // a team is as many groups as one block seats
  uint32_t team_size = field.warps * kWarpSize;
  if constexpr (S == Scope::kBlock) {
    const uint32_t warps_per_role = field.warps / kRoles;
    seat.role = warp / warps_per_role;
    seat.local = warp % warps_per_role * kWarpSize + lane;
    team_size = warps_per_role * kWarpSize;
  } else if constexpr (S == Scope::kCluster) {
    seat.role = rank_in_cluster();
    team = blockIdx.x / kRoles;
  } else if constexpr (S == Scope::kDevice) {
    seat.role = blockIdx.x % kRoles;
    team = (blockIdx.x / kRoles + seat.role * field.shift) % (gridDim.x / kRoles);
  } else {
    seat.role = field.gpu_role;
  }
  seat.group = team * team_size + seat.local;
  seat.plays = warp < field.warps && seat.group < field.players;
  return seat;
}

// Finds a group's cells. In block and cluster scope, flags and every other word lie in the shared
// memory of the block with rank `owner`; all other cells lie in global or host memory. Barriers,
// and places to which bytes are delivered, exist in those two scopes only, in shared memory.
template <Scope S>
struct Cells {
  static constexpr bool kHasHub = S == Scope::kBlock || S == Scope::kCluster;

  const Field& field;
  Hub* hub;
  HubMailbox* mailbox;  // null in tests without barriers
  const Seat& seat;

  // Returns the flag (`k` 0) or the ready flag (`k` 1) of the group that lies `distance` behind
  // this one.
  template <class Flag = uint32_t*>
  __device__ __forceinline__ Flag flag(uint32_t k, uint32_t owner, uint32_t distance = 0) const {
    if constexpr (std::is_same_v<Flag, Barrier>) {
      return {seen_from_here(shared_address(&mailbox->barriers[k][seat.local + distance]), owner)};
    } else if constexpr (kHasHub) {
      return shared(k, owner, seat.local + distance);
    } else {
      return line(field, seat.group + distance, k, 0);
    }
  }
  // Returns the shared-memory address of the bytes that are delivered to the group that lies
  // `distance` behind this one.
  __device__ __forceinline__ uint32_t slot(uint32_t owner, uint32_t distance = 0) const {
    return seen_from_here(shared_address(&mailbox->slots[seat.local + distance]), owner);
  }
  // Returns the address of word `k` of the group that lies `distance` before this one.
  __device__ __forceinline__ uint32_t* word(uint32_t k, uint32_t round, uint32_t owner,
                                            uint32_t distance = 0) const {
    if constexpr (kHasHub) {
      if (k % 2 == 1) return shared(kFirstWordLine + k / 2, owner, seat.local - distance);
    }
    return litmus::word(field, seat.group - distance, k, round % field.slots);
  }

 private:
  __device__ __forceinline__ uint32_t* shared(uint32_t k, uint32_t owner, uint32_t local) const {
    uint32_t* cell = &hub->cells[k][local];
    if constexpr (S == Scope::kCluster) return in_block(cell, owner);
    return cell;
  }
  // Returns the address by which this block reaches an address of block `owner`. A block uses plain
  // addresses for its own barriers, because it can only wait at those.
  __device__ __forceinline__ uint32_t seen_from_here(uint32_t address, uint32_t owner) const {
    if (S == Scope::kCluster && owner != seat.role) return address_at(address, owner);
    return address;
  }
};

// The counts of one thread, which are added to the launch's tally.
struct Outcomes {
  uint32_t rounds = 0;
  uint32_t stale = 0;
  uint32_t unseen = 0;
  uint32_t lost = 0;
};

// Polls until the flag has the round `round`, and then settles and calls `seen` at once, whatever
// the warp's other lanes still wait for. Whole warps call it.
//
// Loads that L1 may answer can miss the flag for ever. So after kPatience polls, one load of scope
// S looks, which also refreshes L1. If that load finds the flag, the round counts as unseen.
template <Scope S, class Observe, class Flag, typename Seen>
__device__ __forceinline__ void wait_for(Flag flag, uint32_t round, bool waiting,
                                         Outcomes& outcomes, Seen&& seen) {
  // A poll of a barrier sleeps before it returns false, so fewer polls are enough.
  constexpr uint32_t kPatience = std::is_same_v<Flag, Barrier> ? 64 : 4096;
  constexpr uint64_t kLimitNs = 5'000'000'000;
  uint32_t polls = 0;
  uint64_t start_ns = 0;
  waiting = waiting && outcomes.lost == 0;
  while (__any_sync(kFullWarp, waiting)) {
    if (!waiting) continue;
    if (finds<Observe>(flag, round)) {
      Observe::settle();
      seen();
      waiting = false;
    } else if (++polls % kPatience == 0) {
      if (start_ns == 0) start_ns = now_ns();
      if (now_ns() - start_ns > kLimitNs) {
        ++outcomes.lost;
        waiting = false;
      }
      if constexpr (kMayMiss<Observe, S>) {
        if (ld_relaxed<S>(flag) == round) {
          ++outcomes.unseen;
          waiting = false;
        }
      }
    }
  }
}

__device__ __forceinline__ uint32_t next_random(uint32_t state) {
  state ^= state << 13;
  state ^= state >> 17;
  state ^= state << 5;
  return state;
}

// Returns the initial state of a random generator. All lanes of a warp get the same state.
__device__ __forceinline__ uint32_t warp_random(const Field& field, const Seat& seat) {
  return (field.seed + seat.group / kWarpSize * 0x9e3779b1U) | 1U;
}

// Pauses for a random number of cycles up to `max_cycles`, which is a power of 2 less 1.
__device__ __forceinline__ void pause(uint32_t& random, uint32_t max_cycles = 511) {
  random = next_random(random);
  const long long start = clock64();
  while (clock64() - start < (random & max_cycles)) {
  }
}

// Makes noise until the players of the block have finished.
template <Scope S, uint32_t kRoles>
__device__ void make_noise(const Field& field, const Seat& seat, const uint32_t* playing) {
  uint32_t random = (field.seed ^ (blockIdx.x * blockDim.x + threadIdx.x) * 0x85ebca6bU) | 1U;
  const uint32_t first = seat.group - seat.local;  // first of this block's groups
  const uint32_t count = field.warps * kWarpSize / (S == Scope::kBlock ? kRoles : 1);
  uint32_t sum = 0;
  while (ld_relaxed<Scope::kBlock>(playing) != 0) {
    for (int i = 0; i < 16; ++i) {
      random = next_random(random);
      const uint32_t draw = random >> 4;
      if (field.noise == Noise::kNeighbours) {
        uint32_t* target = line(field, first + draw % count, kFirstWordLine + (random & 1U), 0);
        st_weak(target + kCellsPerLine * 3 / 4 + (random >> 1 & 7U), random);
      } else if (field.noise == Noise::kHot) {
        atomicAdd(line(field, draw & 7U, kFirstWordLine, 0) + kCellsPerLine * 3 / 4, 1U);
      } else {
        uint32_t* target =
            field.cells +
            static_cast<size_t>(field.num_lines + (draw & (field.num_lines - 1))) * kCellsPerLine;
        if (random & 1U) {
          st_weak(target, random);
        } else {
          sum += ld_weak(target);
        }
      }
    }
  }
  if (sum == field.seed)
    st_weak(field.cells + static_cast<size_t>(field.num_lines) * kCellsPerLine, sum);
}

__device__ __forceinline__ void report(const Outcomes& outcomes, Tally* tally) {
  const uint32_t counts[] = {outcomes.rounds, outcomes.stale, outcomes.unseen, outcomes.lost};
  unsigned long long* const sums[] = {&tally->rounds, &tally->stale, &tally->unseen, &tally->lost};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t sum = __reduce_add_sync(kFullWarp, counts[i]);
    if (sum != 0 && threadIdx.x % kWarpSize == 0) atomicAdd(sums[i], sum);
  }
}

// True for a test of more than two roles that has no noise in blocks that read messages.
template <class Test>
inline constexpr bool kIsQuiet = requires {
  requires Test::kIsQuietWhereRead;
};

// Runs a test. `Test` has kScope, kRoles, kHasMailbox and play(), which a whole warp calls.
template <class Test>
__global__ void __launch_bounds__(kMaxThreads) litmus_kernel(const Field field, Tally* tally) {
  constexpr Scope kScope = Test::kScope;
  __shared__ uint32_t playing;
  Hub* hub = nullptr;
  if constexpr (Cells<kScope>::kHasHub) {
    __shared__ Hub shared_hub;
    hub = &shared_hub;
    for (uint32_t i = threadIdx.x; i < kHubCells * kHubGroups; i += blockDim.x)
      (&hub->cells[0][0])[i] = 0;
  }
  HubMailbox* mailbox = nullptr;
  if constexpr (Test::kHasMailbox) {
    __shared__ HubMailbox shared_mailbox;
    mailbox = &shared_mailbox;
    mailbox->init();
  }
  if (threadIdx.x == 0) playing = field.warps;
  __syncthreads();
  if constexpr (kScope == Scope::kCluster) synchronize_cluster();

  const Seat seat = take_seat<kScope, Test::kRoles>(field);
  // Outside block scope, blocks that only read make no noise in tests of two roles and in quiet
  // tests, because noise would drive the messages out of L1.
  const bool is_noisy =
      kScope == Scope::kBlock || (Test::kRoles > 2 && !kIsQuiet<Test>) || seat.role == 0;
  if (threadIdx.x / kWarpSize < field.warps) {
    Outcomes outcomes;
    const uint64_t start_ns = now_ns();
    const long long start = clock64();
    Test::play(field, seat, Cells<kScope>{field, hub, mailbox, seat}, outcomes);
    if (seat.plays && seat.group == 0) {
      atomicMax(&tally->cycles, static_cast<unsigned long long>(clock64() - start));
      atomicMax(&tally->ns, static_cast<unsigned long long>(now_ns() - start_ns));
    }
    report(outcomes, tally);
    if (threadIdx.x % kWarpSize == 0) atomicSub(&playing, 1U);
  } else if (is_noisy && field.noise != Noise::kNone) {
    make_noise<kScope, Test::kRoles>(field, seat, &playing);
  }
  if constexpr (kScope == Scope::kCluster) synchronize_cluster();
}

}  // namespace encore::cuda::litmus
