#include "runtime/pacer.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/error.h"

namespace encore::runtime {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// A host that has one step launched ahead of the one it waits for, and a device that runs them;
// time passes only while somebody sleeps.
class Loop {
 public:
  // Runs so many steps of one key; `stall`: of the first of them. Returns how much longer than its
  // steps the device took.
  Pacer::Clock::duration run(int steps, Pacer::Clock::duration step,
                             Pacer::Clock::duration stall = {}) {
    const auto start = now_;
    auto launched_until = now_;
    const auto launch = [&](int i) {
      launched_until = std::max(launched_until, now_) + step + (i == 0 ? stall : stall.zero());
    };
    launch(0);
    for (int i = 0; i < steps; ++i) {
      const auto end = launched_until;
      if (i + 1 < steps) launch(i + 1);
      pacer_.wait(1, [&] {
        ++looks_;
        return now_ >= end;
      });
    }
    return launched_until - start - steps * step - stall;
  }
  void idle(Pacer::Clock::duration time) { now_ += time; }
  int take_looks() { return std::exchange(looks_, 0); }

 private:
  Pacer::Clock::time_point now_{milliseconds(1000)};
  int looks_ = 0;
  Pacer pacer_{{.now = [this] { return now_; },
                .sleep_until = [this](auto until) { now_ = std::max(now_, until); }}};
};

TEST(Pacer, LooksAFewTimesAStepAndNeverLetsTheDeviceWait) {
  for (const microseconds step : {microseconds(300), microseconds(6000), microseconds(30000)}) {
    Loop loop;
    EXPECT_EQ(loop.run(3, step).count(), 0);
    loop.take_looks();
    EXPECT_EQ(loop.run(100, step).count(), 0);
    EXPECT_LE(loop.take_looks(), 300) << "steps of " << step.count() << " us";
  }
}

TEST(Pacer, DoesNotTakeAnIdleTimeForAStep) {
  Loop loop;
  for (int group = 0; group < 5; ++group) {
    EXPECT_EQ(loop.run(10, microseconds(700)).count(), 0) << "group " << group;
    loop.idle(milliseconds(300));
  }
}

TEST(Pacer, SoonForgetsAStepThatStalled) {
  Loop loop;
  loop.run(20, microseconds(700));
  EXPECT_LE(loop.run(50, microseconds(700), milliseconds(60)), milliseconds(3));
}

TEST(Pacer, LooksUntilItIsDoneAndLetsErrorsThrough) {
  Pacer pacer;
  for (int round = 0; round < 3; ++round) {
    int looks = 0;
    pacer.wait(1, [&] { return ++looks == 4; });
    EXPECT_EQ(looks, 4);
  }
  EXPECT_THROW(pacer.wait(1, []() -> bool { fail(ErrorKind::kDevice, "gone"); }), Error);
}

}  // namespace
}  // namespace encore::runtime
