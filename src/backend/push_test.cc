// Tests the exchange between GPUs (push.h) with host threads in the place of GPUs.
#include "backend/push.h"

#include <array>
#include <atomic>
#include <barrier>
#include <bit>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace encore::push {
namespace {

// A small exchange memory of 48 vectors in each half, so that short inputs already have several
// parts.
constexpr Memory kMemory{.half_vectors = 48};
constexpr int kThreadsOfRank = 2;

struct Floats {
  static constexpr int kElementBytes = 4;
  using Sum = std::array<float, 4>;
  static Sum widen(const Vector& vector) { return std::bit_cast<Sum>(vector); }
  static void add(Sum& sum, const Vector& vector) {
    const Sum next = widen(vector);
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += next[i];
  }
  static Vector round(const Sum& sum) { return std::bit_cast<Vector>(sum); }
};

// The Numbers of bf16 elements, rounded to nearest even.
struct Halves {
  static constexpr int kElementBytes = 2;
  using Sum = std::array<float, 8>;
  static Sum widen(const Vector& vector) {
    Sum sum;
    for (size_t i = 0; i < 4; ++i) {
      sum[2 * i] = std::bit_cast<float>(vector.word[i] << 16U);
      sum[2 * i + 1] = std::bit_cast<float>(vector.word[i] & 0xffff0000U);
    }
    return sum;
  }
  static void add(Sum& sum, const Vector& vector) {
    const Sum next = widen(vector);
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] += next[i];
  }
  static Vector round(const Sum& sum) {
    const auto bits = [](float x) {
      const auto word = std::bit_cast<uint32_t>(x);
      return (word + 0x7fffU + (word >> 16U & 1U)) >> 16U;
    };
    Vector vector;
    for (size_t i = 0; i < 4; ++i)
      vector.word[i] = bits(sum[2 * i]) | bits(sum[2 * i + 1]) << 16U;
    return vector;
  }
};

// Returns whether a call wants vector `v` to be sent. Some calls want all vectors, others none or
// some.
bool is_wanted(uint32_t call, int64_t v) {
  std::minstd_rand random(call / 2 + 1);
  random.discard(2);
  const auto period = static_cast<int64_t>(random() % 4);
  return call % 2 == 0 || (period > 0 && v / 3 % period == 0);
}

using ExchangeMemory = std::vector<std::atomic<uint32_t>>;

// The exchange memories of all ranks. A thread that waits too long gives up and notes which rank
// was missing.
struct World {
  explicit World(int num_ranks) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      memories.push_back(std::make_unique<ExchangeMemory>(4 * kMemory.vectors()));
      for (auto& word : *memories.back())
        word = kEmpty;
    }
  }
  std::vector<std::unique_ptr<ExchangeMemory>> memories;
  std::chrono::milliseconds deadline{60000};
  std::atomic<uint32_t> failure = 0;
};

struct TwinPort {
  Vector load(int64_t place) const {
    Vector vector;
    for (size_t i = 0; i < 4; ++i)
      vector.word[i] = (*world.memories[self])[4 * place + i].load(std::memory_order_acquire);
    return vector;
  }
  // Stores the words of the vector one by one, from a random one on, with pauses in between.
  void store(int rank, int64_t place, const Vector& vector) {
    EXPECT_TRUE(rank == self || !sends_no_more);
    const size_t first = random() % 4;
    for (size_t i = first; i < first + 4; ++i) {
      if (random() % 64 == 0) std::this_thread::yield();
      (*world.memories[rank])[4 * place + i % 4].store(vector.word[i % 4],
                                                       std::memory_order_release);
    }
  }
  void clear(int64_t place) { store(self, place, empty_vector()); }
  void has_sent() { sends_no_more = true; }
  // Sometimes sleeps before it waits, so that the peers store first and may already be one call
  // ahead.
  void starts_waiting() {
    if (random() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
    since = std::chrono::steady_clock::now();
  }
  bool gives_up(uint32_t missing) {
    std::this_thread::yield();
    if (world.failure != 0) return true;
    if (std::chrono::steady_clock::now() - since < world.deadline) return false;
    world.failure = failure_word(call, missing);
    return true;
  }
  Vector input(int64_t v) const { return x[v]; }
  [[nodiscard]] bool wants(int64_t v) const { return is_wanted(call, v); }
  void output(int rank, int64_t v, const Vector& vector) { y[rank * num_vectors + v] = vector; }

  World& world;
  int self;
  uint32_t call;
  std::vector<Vector>& x;
  std::vector<Vector>& y;
  int64_t num_vectors;
  std::minstd_rand random;
  std::chrono::steady_clock::time_point since = {};
  bool sends_no_more = false;
};

enum class Form { kOneShot, kTwoShots, kGather };

// Describes one collective call of a test. All ranks know all inputs, to check the sums.
struct Call {
  Form form = Form::kOneShot;
  bool halves = false;
  int64_t num_vectors = 0;
};

Call call_of(uint32_t number) {
  std::minstd_rand random(number + 1);
  random.discard(3);
  return {.form = static_cast<Form>(random() % 3),
          .halves = random() % 2 == 0,
          .num_vectors = 1 + static_cast<int64_t>(random() % 100)};
}

// Returns the input of a rank to call `number`: numbers of all kinds, among them -0 and NaN, and
// words that are kEmpty.
std::vector<Vector> input_of(uint32_t number, int rank) {
  const Call call = call_of(number);
  std::minstd_rand random(1000 * number + static_cast<uint32_t>(rank) + 7);
  std::vector<Vector> x(static_cast<size_t>(call.num_vectors));
  for (Vector& vector : x) {
    for (uint32_t& word : vector.word) {
      const auto small = [&] { return static_cast<float>(random() % 4096) / 64 - 32; };
      word = std::bit_cast<uint32_t>(small());
      if (call.halves) word = word >> 16U | (std::bit_cast<uint32_t>(small()) & 0xffff0000U);
      const auto kind = random() % 16;
      if (kind == 0) word = kEmpty;
      if (kind == 1) word = 0x80008000U;
      if (kind == 2) word = 0x7fc07fc0U;  // NaN
    }
  }
  return x;
}

template <typename Numbers>
std::vector<Vector> expected_sums(uint32_t number, int num_ranks) {
  std::vector<Vector> sums;
  std::vector<std::vector<Vector>> inputs;
  for (int rank = 0; rank < num_ranks; ++rank)
    inputs.push_back(input_of(number, rank));
  for (size_t v = 0; v < inputs[0].size(); ++v) {
    auto sum = Numbers::widen(sendable<Numbers::kElementBytes>(inputs[0][v]));
    for (int rank = 1; rank < num_ranks; ++rank)
      Numbers::add(sum, sendable<Numbers::kElementBytes>(inputs[static_cast<size_t>(rank)][v]));
    sums.push_back(sendable<Numbers::kElementBytes>(Numbers::round(sum)));
  }
  return sums;
}

// Returns the output that rank `self` must have after the call.
std::vector<Vector> expected(uint32_t number, int num_ranks, int self) {
  const Call call = call_of(number);
  if (call.form != Form::kGather) {
    return call.halves ? expected_sums<Halves>(number, num_ranks)
                       : expected_sums<Floats>(number, num_ranks);
  }
  // Vectors that are not wanted stay unchanged in the output, except for the rank's own vectors and
  // the first of each part.
  const int64_t part = Plan{.memory = kMemory, .num_ranks = num_ranks}.longest_part();
  std::vector<Vector> all;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::vector<Vector> x = input_of(number, rank);
    for (int64_t v = 0; v < std::ssize(x); ++v) {
      const bool is_there = rank == self || v % part == 0 || is_wanted(number, v);
      const Vector& sent = x[static_cast<size_t>(v)];
      all.push_back(!is_there ? Vector{} : call.halves ? sendable<2>(sent) : sendable<4>(sent));
    }
  }
  return all;
}

bool are_equal(const std::vector<Vector>& a, const std::vector<Vector>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Vector& x, const Vector& y) {
    return std::equal(std::begin(x.word), std::end(x.word), std::begin(y.word));
  });
}

template <typename Numbers>
void run_part(TwinPort& port, const Part& part, Form form, int thread) {
  port.sends_no_more = false;
  switch (form) {
    case Form::kOneShot:
      return all_reduce_in_one_shot<Numbers, kMostRanks>(port, part, thread, kThreadsOfRank);
    case Form::kTwoShots:
      return all_reduce_in_two_shots<Numbers, kMostRanks>(port, part, thread, kThreadsOfRank);
    case Form::kGather:
      return all_gather<Numbers::kElementBytes, kMostRanks>(port, part, thread, kThreadsOfRank);
  }
}

// Runs programs of `num_collectives` calls one after the other. The threads of the rank meet after
// each part, as a stream runs launches in order. The rank `dead` ends after `num_alive` calls.
// Returns how many calls went wrong.
int64_t run_rank(World& world, int self, int num_ranks, uint32_t num_calls,
                 uint32_t num_collectives, int dead = -1, uint32_t num_alive = 0) {
  std::atomic<int64_t> num_wrong = 0;
  std::barrier meeting(kThreadsOfRank);
  std::vector<Vector> x;
  std::vector<Vector> y;
  const auto run = [&](int thread) {
    for (uint32_t number = 0; number < num_calls; ++number) {
      if (self == dead && number == num_alive) return;
      const Call call = call_of(number);
      if (thread == 0) {
        x = input_of(number, self);
        y.assign((call.form == Form::kGather ? num_ranks : 1) * x.size(), {});
      }
      meeting.arrive_and_wait();
      const Plan plan{.memory = kMemory,
                      .self = self,
                      .num_ranks = num_ranks,
                      .shots = call.form == Form::kTwoShots ? Shots::kTwo : Shots::kOne,
                      .num_vectors = call.num_vectors};
      const int buffer = buffer_of(number % num_collectives, num_collectives);
      TwinPort port{world,
                    self,
                    number,
                    x,
                    y,
                    call.num_vectors,
                    std::minstd_rand(8 * number + 2 * static_cast<uint32_t>(self) +
                                     static_cast<uint32_t>(thread) + 1)};
      for (int64_t part = 0; part < plan.num_parts(); ++part) {
        if (port.random() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
        if (call.halves) {
          run_part<Halves>(port, plan.part(buffer, part), call.form, thread);
        } else {
          run_part<Floats>(port, plan.part(buffer, part), call.form, thread);
        }
        meeting.arrive_and_wait();  // the end of a launch
      }
      if (thread == 0 && world.failure == 0 && !are_equal(y, expected(number, num_ranks, self)))
        ++num_wrong;
      meeting.arrive_and_wait();
      if (world.failure != 0) return;
    }
  };
  std::thread second(run, 1);
  run(0);
  second.join();
  return num_wrong;
}

TEST(Push, HasBuffersThatDifferFromTheirNeighbours) {
  // The programs of a model follow each other in any order, so the last collective of one program
  // and the first collective of another are neighbours.
  for (int64_t count = 2; count < 200; ++count) {
    for (int64_t i = 1; i < count; ++i)
      EXPECT_NE(buffer_of(i - 1, count), buffer_of(i, count)) << i << " of " << count;
    for (int64_t next = 2; next < 200; ++next)
      EXPECT_NE(buffer_of(count - 1, count), buffer_of(0, next)) << count << ", " << next;
    for (int64_t i = 0; i < count; ++i)
      EXPECT_LT(buffer_of(i, count), kNumBuffers);
  }
}

TEST(Push, CutsCallsIntoPartsThatFitAHalf) {
  for (const Shots shots : {Shots::kOne, Shots::kTwo}) {
    for (int num_ranks = 1; num_ranks <= kMostRanks; ++num_ranks) {
      for (const int64_t num_vectors : {1, 5, 47, 48, 49, 1000}) {
        const Plan plan{kMemory, num_ranks - 1, num_ranks, shots, num_vectors};
        int64_t next = 0;
        for (int64_t i = 0; i < plan.num_parts(); ++i) {
          const Part part = plan.part(2, i);
          EXPECT_EQ(part.first, next);
          EXPECT_GT(part.count, 0);
          next += part.count;
          const int64_t half = (4 + i % 2) * kMemory.half_vectors;
          EXPECT_EQ(part.places, half);
          const int64_t of_place =
              shots == Shots::kOne ? part.count : (part.count + num_ranks - 1) / num_ranks;
          EXPECT_LE(of_place, part.stride);
          const int64_t places_end = part.places + num_ranks * part.stride;
          EXPECT_LE(places_end, shots == Shots::kOne ? half + kMemory.half_vectors : part.sums);
          EXPECT_LE(part.sums + num_ranks * part.stride,
                    half + kMemory.half_vectors * (shots == Shots::kOne ? 2 : 1));
        }
        EXPECT_EQ(next, num_vectors);
      }
    }
  }
}

TEST(Push, SendsNoWordThatStandsForNothing) {
  EXPECT_EQ(sendable<4>(kEmpty), 0U);
  EXPECT_EQ(sendable<2>(kEmpty), 0U);
  EXPECT_EQ(sendable<2>(0x80008000U), 0U);
  EXPECT_EQ(sendable<2>(0x3f808000U), 0x3f800000U);
  EXPECT_EQ(sendable<2>(0x80003f80U), 0x00003f80U);
  EXPECT_EQ(sendable<2>(0x80018001U), 0x80018001U);
  EXPECT_EQ(sendable<4>(0x80000001U), 0x80000001U);
  EXPECT_EQ(sendable<4>(0x80008000U), 0x80008000U);
  for (uint32_t high = 0; high < 0x10000U; ++high)
    ASSERT_NE(sendable<2>(high << 16U), kEmpty);
}

TEST(Push, SendsAnyWordInAVector) {
  for (const uint32_t word : {0U, 1U, kEmpty, 0x8000U, 0x80008000U, ~0U, 0x12345678U}) {
    const Vector vector = vector_of(word);
    EXPECT_EQ(word_of(vector), word);
    EXPECT_TRUE(is_full(vector));
    EXPECT_EQ(word_of(sendable<2>(vector)), word);
    EXPECT_EQ(word_of(sendable<4>(vector)), word);
  }
}

TEST(Push, NamesACallAndARankInOneWord) {
  for (const uint32_t call : {0U, 1U, 77U, 1U << 20U}) {
    for (int rank = 0; rank < kMostRanks; ++rank) {
      const uint32_t word = failure_word(call, 0xffU & ~((1U << rank) - 1U));
      EXPECT_NE(word, 0U);
      EXPECT_NE(word, kStopped);
      EXPECT_EQ(failed_call(word), call);
      EXPECT_EQ(missing_rank(word), rank);
    }
  }
}

class PushRounds : public ::testing::TestWithParam<int> {};

TEST_P(PushRounds, GivesEqualBitsOverThousandsOfCalls) {
  const int num_ranks = GetParam();
  const uint32_t num_calls = num_ranks == 2 ? 3000 : 600;
  World world(num_ranks);
  std::vector<std::thread> ranks;
  std::atomic<int64_t> num_wrong = 0;
  // The programs have an odd number of collectives, so that all three buffers are used.
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks.emplace_back([&, rank] {
      num_wrong += run_rank(world, rank, num_ranks, num_calls, 2 + 3 * (num_ranks % 2));
    });
  }
  for (std::thread& rank : ranks)
    rank.join();
  EXPECT_EQ(world.failure, 0U);
  EXPECT_EQ(num_wrong, 0);
  // All exchange memories are empty again.
  for (const auto& memory : world.memories) {
    EXPECT_TRUE(std::ranges::all_of(*memory, [](const auto& word) { return word == kEmpty; }));
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, PushRounds, ::testing::Values(2, 3, 4));

TEST(Push, NamesTheRankThatDoesNotCome) {
  for (const uint32_t num_alive : {0U, 1U, 2U, 37U, 38U, 39U}) {
    constexpr int kRanks = 3;
    World world(kRanks);
    world.deadline = std::chrono::milliseconds(300);
    std::vector<std::thread> ranks;
    std::atomic<int64_t> num_wrong = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        num_wrong += run_rank(world, rank, kRanks, 1000, 4, /*dead=*/1, num_alive);
      });
    }
    for (std::thread& rank : ranks)
      rank.join();
    EXPECT_NE(world.failure, 0U);
    EXPECT_EQ(failed_call(world.failure), num_alive);
    EXPECT_EQ(num_wrong, 0);
    // In two shots, other ranks wait for a rank that waits for the dead one, and may report that
    // rank first.
    if (call_of(num_alive).form != Form::kTwoShots) {
      EXPECT_EQ(missing_rank(world.failure), 1);
    }
  }
}

}  // namespace
}  // namespace encore::push
