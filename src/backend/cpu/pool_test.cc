#include "backend/cpu/pool.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace encore::cpu {
namespace {

TEST(Pool, CoversEveryIndexOnce) {
  for (const int num_threads : {1, 2, 5}) {
    Pool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (const int64_t count : {0, 1, 2, 7, 1000}) {
      for (const int64_t grain : {1, 3, 1000}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
        pool.parallel_for(count, grain, [&](int64_t first, int64_t last) {
          EXPECT_LE(num_threads == 1 ? 0 : last - first, grain);
          for (int64_t i = first; i < last; ++i)
            ++seen[static_cast<size_t>(i)];
        });
        for (const auto& times : seen)
          EXPECT_EQ(times, 1);
      }
    }
  }
}

TEST(Pool, WakesSleepingWorkersAndRunsManyLoopsInARow) {
  Pool pool(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  int64_t total = 0;
  for (int i = 0; i < 2000; ++i) {
    std::atomic<int64_t> sum = 0;
    pool.parallel_for(64, 4, [&](int64_t first, int64_t last) { sum += last - first; });
    total += sum;
  }
  EXPECT_EQ(total, 2000 * 64);
}

TEST(Pool, TakesCallersInTurn) {
  Pool pool(2);
  std::atomic<int64_t> sum = 0;
  const auto call = [&] {
    for (int i = 0; i < 200; ++i) {
      pool.parallel_for(10, 1, [&](int64_t first, int64_t last) { sum += last - first; });
    }
  };
  std::thread other(call);
  call();
  other.join();
  EXPECT_EQ(sum, 4000);
}

// A child process runs the test, with room for the stacks of only a few threads.
TEST(Pool, GoesOnWithTheThreadsThatTheSystemGives) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than a limit leaves";
#endif
  const auto run = [] {
    constexpr int kThreads = 1000;
    constexpr rlim_t kGigabyte = 1U << 30U;
    const rlimit limit{kGigabyte, kGigabyte};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(2);
    Pool pool(kThreads);
    std::atomic<int64_t> sum = 0;
    pool.parallel_for(1000, 1, [&](int64_t first, int64_t last) { sum += last - first; });
    std::_Exit(sum == 1000 && pool.num_threads() < kThreads ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "instead of 1000");
}

TEST(Pool, ChoosesAGrainThatIsAMultiple) {
  const Pool pool(2);
  EXPECT_EQ(pool.grain(800), 100);
  EXPECT_EQ(pool.grain(801, 16), 112);
  EXPECT_EQ(pool.grain(0), 1);
}

}  // namespace
}  // namespace encore::cpu
