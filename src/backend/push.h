// GPUs exchange data here without a flag, a counter or a barrier. Each rank stores its vectors into
// buffers of its peers. A thread that waits for a vector polls the vector itself until no word of
// it is `kEmpty`, and then makes the place empty again. Host and device share this header: kernels
// run it on GPUs, and a test runs it on host threads.
//
//   rank 0                              rank 1
//   store(1, place, x)                  store(0, place, x)
//   y = x + take(place)                 y = take(place) + x      (sums in the order of the ranks)
//
// **Numbers.** `kEmpty` has the bits of -0 in f32, which are also those of +0 and -0 side by side
// in 16-bit floats. Ranks send -0 as +0, so no word that is sent has these bits. NaN is sent
// unchanged.
//
// **When a place is empty.** A call takes everything that its peers store for it, so its buffer is
// empty when it ends. A rank that has taken a peer's vector of call i + 1 knows that the peer's
// call i has ended, because launches of a stream follow each other. So the peer's places of call i
// are empty, and the rank may store there again in call i + 2. Two buffers that are used in turns
// are therefore enough, and consecutive calls need different buffers. All ranks run all collectives
// of a program in the same order. Lowering numbers the collectives and fixes their buffers
// (buffer_of). The first and the last collective of any program also have different buffers, since
// programs run one after the other.
//
// **Progress.** Thread t of a rank waits only for vectors that thread t of the other ranks stores,
// and it stores all that it can before it waits. Launches have the same shape on all ranks, and the
// blocks of a grid start in order. So the first block that has not ended is running, or about to
// start, on every rank, and its peers serve it. Source: the design of TensorRT-LLM's one-shot
// all-reduce, except that the receiver empties the places.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/host_device.h"

namespace encore::push {

inline constexpr uint32_t kEmpty = 0x80000000U;
inline constexpr int kMostRanks = 8;

// The 16 bytes that one memory access moves.
struct alignas(16) Vector {
  uint32_t word[4];
};
inline constexpr int64_t kVectorBytes = sizeof(Vector);

ENCORE_DEVICE_OR_TWIN Vector empty_vector() {
  return {{kEmpty, kEmpty, kEmpty, kEmpty}};
}

// Returns whether all words of the vector have arrived. They may arrive one by one.
ENCORE_DEVICE_OR_TWIN bool is_full(const Vector& vector) {
  return vector.word[0] != kEmpty && vector.word[1] != kEmpty && vector.word[2] != kEmpty &&
         vector.word[3] != kEmpty;
}

// Returns the word with each -0 replaced by +0, where elements have 2 or 4 bytes.
template <int kElementBytes>
ENCORE_DEVICE_OR_TWIN uint32_t sendable(uint32_t word) {
  static_assert(kElementBytes == 2 || kElementBytes == 4);
  if constexpr (kElementBytes == 4) return word == 0x80000000U ? 0U : word;
  const uint32_t low = word & 0xffffU;
  const uint32_t high = word >> 16U;
  return (low == 0x8000U ? 0U : low) | (high == 0x8000U ? 0U : high << 16U);
}

template <int kElementBytes>
ENCORE_DEVICE_OR_TWIN Vector sendable(const Vector& vector) {
  return {{sendable<kElementBytes>(vector.word[0]), sendable<kElementBytes>(vector.word[1]),
           sendable<kElementBytes>(vector.word[2]), sendable<kElementBytes>(vector.word[3])}};
}

// vector_of() encodes any word as a vector that sendable() leaves unchanged: each byte of the word
// goes to a 16-bit half of its own. word_of() decodes it.
ENCORE_DEVICE_OR_TWIN Vector vector_of(uint32_t word) {
  return {{(word & 0xffU) | (word << 8U & 0xff0000U),
           (word >> 16U & 0xffU) | (word >> 8U & 0xff0000U), 0, 0}};
}
ENCORE_DEVICE_OR_TWIN uint32_t word_of(const Vector& vector) {
  return (vector.word[0] & 0xffU) | (vector.word[0] >> 8U & 0xff00U) |
         (vector.word[1] & 0xffU) << 16U | (vector.word[1] << 8U & 0xff000000U);
}

// The layout of the exchange memory of a rank: kNumBuffers buffers of two halves each. A call whose
// vectors do not fit a half runs in parts, which use the two halves of its buffer in turns.
inline constexpr int kNumBuffers = 3;
struct Memory {
  int64_t half_vectors = 1 << 20;  // 16 MiB

  [[nodiscard]] constexpr int64_t vectors() const { return kNumBuffers * 2 * half_vectors; }
};

// Returns the buffer of the collective number `index` of the `count` collectives of a program.
// Consecutive collectives have different buffers, and so do the last and the first. REQUIRES: count
// > 1.
constexpr int buffer_of(int64_t index, int64_t count) {
  if (index + 1 == count && count % 2 == 1) return 2;
  return static_cast<int>(index % 2);
}

// Says how an all-reduce runs. In one shot, each rank sends its whole input to all others. In two
// shots, the input is cut into one chunk for each rank; each rank adds up its chunk and sends the
// sum to all others. Two shots send less data, but take the latency of a transfer twice.
enum class Shots : uint8_t { kOne, kTwo };

// Returns the size of the longest input that one shot is likely to sum faster than two shots.
// Units: bytes. Source: measured on H200s with NVLink.
constexpr int64_t longest_one_shot(int num_ranks) {
  if (num_ranks <= 2) return 512 * 1024;
  return num_ranks <= 4 ? 256 * 1024 : 64 * 1024;
}

// One part of a collective call, whose vectors fit a half of the buffer. All threads of a rank
// share it. Units: vectors.
struct Part {
  int self = 0;  // this rank
  int num_ranks = 1;
  int64_t places = 0;  // first place, in the exchange memory
  int64_t sums = 0;    // first place for the sums of the second shot
  int64_t stride = 0;  // places from one rank's first place to the next rank's
  int64_t first = 0;   // first vector of the input
  int64_t count = 0;
};

// Says how one call of a collective is divided: it has one shot or two, and consists of parts that
// each fit a half of the buffer.
struct Plan {
  Memory memory;
  int self = 0;
  int num_ranks = 1;
  Shots shots = Shots::kOne;
  int64_t num_vectors = 0;

  // Returns the distance from the places of one rank's vectors to those of the next rank, in this
  // rank's exchange memory. In one shot a rank's places hold a whole part, in two shots a chunk.
  // Units: vectors.
  [[nodiscard]] constexpr int64_t stride() const {
    return memory.half_vectors / (shots == Shots::kOne ? 1 : 2) / num_ranks;
  }
  [[nodiscard]] constexpr int64_t longest_part() const {
    return shots == Shots::kOne ? stride() : stride() * num_ranks;
  }
  [[nodiscard]] constexpr int64_t num_parts() const {
    return (num_vectors + longest_part() - 1) / longest_part();
  }
  [[nodiscard]] constexpr Part part(int buffer, int64_t index) const {
    const int64_t half = (buffer * 2 + index % 2) * memory.half_vectors;
    const int64_t first = index * longest_part();
    return {.self = self,
            .num_ranks = num_ranks,
            .places = half,
            .sums = half + memory.half_vectors / 2,
            .stride = stride(),
            .first = first,
            .count = std::min(longest_part(), num_vectors - first)};
  }
};

// Returns `a` where `first` is true, and otherwise `b`. Choosing between values, and not between
// addresses, keeps arrays of vectors in registers.
ENCORE_DEVICE_OR_TWIN Vector choose(bool first, const Vector& a, const Vector& b) {
  return {{first ? a.word[0] : b.word[0], first ? a.word[1] : b.word[1],
           first ? a.word[2] : b.word[2], first ? a.word[3] : b.word[3]}};
}

// Sets the entry of `vectors` for this rank to `own`, this rank's vector. `vectors` is indexed by
// rank.
template <int kMost>
ENCORE_DEVICE_OR_TWIN void put_own(const Part& part, const Vector& own, Vector (&vectors)[kMost]) {
  ENCORE_UNROLL
  for (int rank = 0; rank < kMost; ++rank)
    vectors[rank] = choose(rank == part.self, own, vectors[rank]);
}

// Takes the vectors that the ranks of the bit mask `from` store: rank r stores at `place` + r *
// stride. Vectors that do not come in time are zero. The Port gives a thread access to the memory
// of the ranks:
//
//   Vector load(int64_t place)                        of its own rank's
//   void store(int rank, int64_t place, Vector)       of another rank's
//   void clear(int64_t place)                         stores empty_vector() to its own rank's
//   bool gives_up(uint32_t missing)                   asked between two looks; starts_waiting() resets it
template <int kMost, typename Port>
ENCORE_DEVICE_OR_TWIN void take(Port& port, const Part& part, int64_t place, uint32_t from,
                                Vector (&vectors)[kMost]) {
  uint32_t missing = from;
  port.starts_waiting();
  while (true) {
    ENCORE_UNROLL
    for (int rank = 0; rank < kMost; ++rank) {
      if ((missing >> rank & 1U) != 0) vectors[rank] = port.load(place + rank * part.stride);
    }
    ENCORE_UNROLL
    for (int rank = 0; rank < kMost; ++rank) {
      if ((missing >> rank & 1U) != 0 && is_full(vectors[rank])) missing &= ~(1U << rank);
    }
    if (missing == 0 || port.gives_up(missing)) break;
  }
  ENCORE_UNROLL
  for (int rank = 0; rank < kMost; ++rank) {
    const bool is_missing = (missing >> rank & 1U) != 0;
    vectors[rank] = choose(is_missing, Vector{}, vectors[rank]);
    if (!is_missing && (from >> rank & 1U) != 0) port.clear(place + rank * part.stride);
  }
}

// Returns the bit mask of all ranks except this one.
ENCORE_DEVICE_OR_TWIN uint32_t others(const Part& part) {
  return ((1U << part.num_ranks) - 1U) & ~(1U << part.self);
}

// Sends a vector of this rank to all other ranks.
template <int kMost, typename Port>
ENCORE_DEVICE_OR_TWIN void send(Port& port, const Part& part, int64_t place, const Vector& vector) {
  ENCORE_UNROLL
  for (int rank = 0; rank < kMost; ++rank) {
    if ((others(part) >> rank & 1U) != 0) port.store(rank, place + part.self * part.stride, vector);
  }
}

// Returns the sum over the ranks, added in rank order and rounded once, with -0 replaced by +0.
// Numbers defines the type of the elements:
//
//   kElementBytes; Sum; Sum widen(Vector); void add(Sum&, Vector); Vector round(Sum)
template <typename Numbers, int kMost>
ENCORE_DEVICE_OR_TWIN Vector sum_of(const Part& part, const Vector (&vectors)[kMost]) {
  typename Numbers::Sum sum = Numbers::widen(vectors[0]);
  ENCORE_UNROLL
  for (int rank = 1; rank < kMost; ++rank) {
    if (rank < part.num_ranks) Numbers::add(sum, vectors[rank]);
  }
  return sendable<Numbers::kElementBytes>(Numbers::round(sum));
}

// In the functions below, thread `thread` of `num_threads` does its share of a part. The Port also
// has these functions:
//
//   Vector input(int64_t vector)                      of the whole call, padded with 0
//   void output(int rank, int64_t vector, Vector)     of that rank's columns; all_reduce writes rank 0's
//   void has_sent()                                   the thread sends nothing any more, but waits
//
// The output may overwrite the input.
template <typename Numbers, int kMost, typename Port>
ENCORE_DEVICE_OR_TWIN void all_reduce_in_one_shot(Port& port, const Part& part, int64_t thread,
                                                  int64_t num_threads) {
  const auto own = [&](int64_t v) {
    return sendable<Numbers::kElementBytes>(port.input(part.first + v));
  };
  for (int64_t v = thread; v < part.count; v += num_threads)
    send<kMost>(port, part, part.places + v, own(v));
  port.has_sent();
  for (int64_t v = thread; v < part.count; v += num_threads) {
    Vector vectors[kMost] = {};
    take<kMost>(port, part, part.places + v, others(part), vectors);
    put_own<kMost>(part, own(v), vectors);
    port.output(0, part.first + v, sum_of<Numbers, kMost>(part, vectors));
  }
}

// Rank c adds up chunk c of the part. The other ranks send it their vectors of the chunk, to
// `places`, and it sends the sum to all of them, to `sums`.
template <typename Numbers, int kMost, typename Port>
ENCORE_DEVICE_OR_TWIN void all_reduce_in_two_shots(Port& port, const Part& part, int64_t thread,
                                                   int64_t num_threads) {
  const int64_t chunk = (part.count + part.num_ranks - 1) / part.num_ranks;
  const auto own = [&](int64_t v) {
    return sendable<Numbers::kElementBytes>(port.input(part.first + v));
  };
  for (int64_t v = thread; v < chunk; v += num_threads) {
    ENCORE_UNROLL
    for (int rank = 0; rank < kMost; ++rank) {
      const int64_t at = rank * chunk + v;
      if ((others(part) >> rank & 1U) != 0 && at < part.count)
        port.store(rank, part.places + part.self * part.stride + v, own(at));
    }
  }
  for (int64_t v = thread; v < chunk; v += num_threads) {
    const int64_t at = part.self * chunk + v;
    if (at >= part.count) break;
    Vector vectors[kMost] = {};
    take<kMost>(port, part, part.places + v, others(part), vectors);
    put_own<kMost>(part, own(at), vectors);
    const Vector sum = sum_of<Numbers, kMost>(part, vectors);
    send<kMost>(port, part, part.sums + v, sum);
    port.output(0, part.first + at, sum);
  }
  port.has_sent();
  for (int64_t v = thread; v < chunk; v += num_threads) {
    uint32_t from = 0;
    ENCORE_UNROLL
    for (int rank = 0; rank < kMost; ++rank) {
      if (rank < part.num_ranks && rank * chunk + v < part.count) from |= 1U << rank;
    }
    from &= others(part);
    Vector vectors[kMost] = {};
    take<kMost>(port, part, part.sums + v, from, vectors);
    ENCORE_UNROLL
    for (int rank = 0; rank < kMost; ++rank) {
      if ((from >> rank & 1U) != 0) port.output(0, part.first + rank * chunk + v, vectors[rank]);
    }
  }
}

// Gathers the vectors of all ranks. A vector that the Port does not want is not sent; only its own
// rank writes it to its output. All ranks must want the same vectors. The first vector of a part is
// always sent, because a rank that takes nothing would not know that its peers have ended the call
// before.
//
//   bool wants(int64_t vector)                        of the whole call; all_gather asks
template <int kElementBytes, int kMost, typename Port>
ENCORE_DEVICE_OR_TWIN void all_gather(Port& port, const Part& part, int64_t thread,
                                      int64_t num_threads) {
  const auto own = [&](int64_t v) { return sendable<kElementBytes>(port.input(part.first + v)); };
  const auto is_sent = [&](int64_t v) { return v == 0 || port.wants(part.first + v); };
  for (int64_t v = thread; v < part.count; v += num_threads) {
    if (is_sent(v)) send<kMost>(port, part, part.places + v, own(v));
  }
  port.has_sent();
  for (int64_t v = thread; v < part.count; v += num_threads) {
    Vector vectors[kMost] = {};
    const bool is_whole = is_sent(v);
    if (is_whole) take<kMost>(port, part, part.places + v, others(part), vectors);
    put_own<kMost>(part, own(v), vectors);
    ENCORE_UNROLL
    for (int rank = 0; rank < kMost; ++rank) {
      if (rank < part.num_ranks && (is_whole || rank == part.self))
        port.output(rank, part.first + v, vectors[rank]);
    }
  }
}

// Encodes a failed wait in one word, which the device leaves for the host: the number of the call,
// and the first rank that had not sent its vector. The word 0 means that no wait has failed.
inline constexpr uint32_t kStopped = ~uint32_t{0};  // the host stops waits for another reason
ENCORE_DEVICE_OR_TWIN uint32_t failure_word(uint32_t call, uint32_t missing) {
  uint32_t rank = 0;
  while ((missing >> rank & 1U) == 0)
    ++rank;
  return (call * kMostRanks + rank) + 1;
}
constexpr uint32_t failed_call(uint32_t word) {
  return (word - 1) / kMostRanks;
}
constexpr int missing_rank(uint32_t word) {
  return static_cast<int>((word - 1) % kMostRanks);
}

}  // namespace encore::push
