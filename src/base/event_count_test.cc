#include "base/event_count.h"

#include <thread>

#include <gtest/gtest.h>

namespace encore {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(EventCount, WakesAThreadThatWaitsForAChange) {
  EventCount changes;
  std::atomic<int> turn = 0;
  constexpr int kRounds = 2000;
  const auto run = [&](int own) {
    for (int round = 0; round < kRounds; ++round) {
      EXPECT_TRUE(changes.wait_for(hours(1), [&] { return turn.load() % 2 == own; }));
      ++turn;
      changes.notify();
    }
  };
  std::jthread other([&] { run(1); });
  run(0);
  other.join();
  EXPECT_EQ(turn.load(), 2 * kRounds);
}

TEST(EventCount, WaitsNoLongerThanItsTimeout) {
  const EventCount changes;
  EXPECT_FALSE(changes.wait_for(milliseconds(20), [] { return false; }));
  EXPECT_TRUE(changes.wait_for(milliseconds(0), [] { return true; }));
}

TEST(EventCount, DoesNotWaitWhereSomethingHasChangedSinceTheLook) {
  EventCount changes;
  const uint32_t seen = changes.look();
  changes.notify();
  changes.wait(seen, hours(1000));
  EXPECT_NE(changes.look(), seen);
}

}  // namespace
}  // namespace encore
