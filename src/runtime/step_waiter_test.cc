#include "runtime/step_waiter.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.h"

namespace encore::runtime {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Simulates a device that runs steps, and a host that has launched one step ahead of the one that
// it waits for. Time passes only while the host sleeps, and it oversleeps a little.
class Loop {
 public:
  struct Ran {
    StepWaiter::Clock::duration worked;
    StepWaiter::Clock::duration waited;  // time that the device waited for the host
  };
  // Runs `steps` steps of one key. The first of them takes the time `stall` longer. Returns how
  // long the device waited for the host.
  StepWaiter::Clock::duration run(int steps, StepWaiter::Clock::duration step,
                                  StepWaiter::Clock::duration stall = {}) {
    return run_each(steps,
                    [&](int i) {
                      // The times of steps vary by up to half a percent either way.
                      const int off = static_cast<int>(random_() % 101) - 50;
                      return Step{1, step + step * off / 10000 +
                                         (i == 0 ? stall : StepWaiter::Clock::duration())};
                    })
        .waited;
  }
  // Runs decode steps of four sizes, which take different times. Of 100 steps, `long_ones` on
  // average are steps with prompts, which take longer and vary by 30 % either way.
  Ran run_mixed(int steps, int long_ones) {
    return run_each(steps, [&](int /*i*/) {
      const int size = static_cast<int>(random_() % 4);
      const bool is_long = static_cast<int>(random_() % 100) < long_ones;
      const int off = static_cast<int>(random_() % 601) - 300;
      return is_long ? Step{512, microseconds(15000 + 15 * off)}
                     : Step{1 + size, microseconds(5000 + 300 * size + off / 15)};
    });
  }
  // Waits for `steps` steps of one key that have all ended before the host looks.
  void fall_behind(int64_t steps, StepWaiter::Clock::duration step) {
    for (int64_t i = 0; i < steps; ++i) {
      now_ += step;
      waiter_.wait({.key = 1}, [] { return true; });
    }
  }
  // Simulates a device that runs steps without the host. The host waits for groups of `steps`
  // steps, and also counts the steps that have ended since.
  void run_groups(int groups, int64_t steps, StepWaiter::Clock::duration step) {
    const auto start = now_;
    int64_t num_taken = 0;
    for (int i = 0; i < groups; ++i) {
      const auto end = start + (num_taken + steps) * step;
      waiter_.wait({.key = 1, .num_steps = steps}, [&] { return now_ >= end; });
      late_ += now_ - end;
      const int64_t num_more = (now_ - end) / step;
      if (num_more > 0) waiter_.pass(1, num_more);
      num_taken += steps + num_more;
    }
  }
  [[nodiscard]] int64_t steps_in(StepWaiter::Clock::duration time) const {
    return waiter_.steps_in(1, time);
  }
  // Runs decode steps and steps with prompts as run_mixed() does, but launches each step at the
  // time that the waiter says.
  Ran run_just_in_time(int steps, int long_ones) {
    launches_late_ = true;
    const Ran ran = run_mixed(steps, long_ones);
    launches_late_ = false;
    return ran;
  }
  // Runs steps of one key, each launched at the time that the waiter says. The i-th step takes the
  // time `next(i)`. Calls `launched(i, idle)` when it launches step i; `idle` is how long the
  // device has waited for it.
  void run_just_in_time(int steps, const std::function<StepWaiter::Clock::duration(int)>& next,
                        const std::function<void(int, StepWaiter::Clock::duration)>& launched) {
    launches_late_ = true;
    on_launch_ = launched;
    run_each(steps, [&](int i) { return Step{1, next(i)}; });
    on_launch_ = nullptr;
    launches_late_ = false;
  }
  // Returns the sum over all launches of the time from a launch until the step before it ended, and
  // resets it.
  StepWaiter::Clock::duration take_ahead() { return std::exchange(ahead_, {}); }
  void idle(StepWaiter::Clock::duration time) { now_ += time; }
  int take_sleeps() { return std::exchange(sleeps_, 0); }
  // Returns the sum over all steps of the time from the end of a step until the host saw it, and
  // resets it.
  StepWaiter::Clock::duration take_late() { return std::exchange(late_, {}); }

 private:
  struct Step {
    int64_t key;
    StepWaiter::Clock::duration takes;
  };
  // Runs `steps` steps, of which `next(i)` returns the i-th.
  template <typename Next>
  Ran run_each(int steps, Next next) {
    const auto start = now_;
    auto launched_until = now_;
    StepWaiter::Clock::duration work{};
    Step launched{};
    auto launched_at = now_;
    const auto launch = [&](int i) {
      if (launches_late_ && i > 0) {
        wait_for_launch_time(launched.key, launched_at, launched_until);
        ahead_ += std::max(launched_until - now_, StepWaiter::Clock::duration());
        now_ += kHost;
        if (on_launch_) on_launch_(i, std::max(now_ - launched_until, {}));
      }
      launched_at = now_;
      launched = next(i);
      work += launched.takes;
      launched_until = std::max(launched_until, now_) + launched.takes;
    };
    launch(0);
    for (int i = 0; i < steps; ++i) {
      const auto end = launched_until;
      const int64_t key = launched.key;
      const auto began_after = launched_at;
      const bool is_last = i + 1 == steps;
      if (!is_last) launch(i + 1);
      waiter_.wait({.key = key, .launched = began_after, .is_last = is_last},
                   [&] { return now_ >= end; });
      late_ += now_ - end;
    }
    return {work, launched_until - start - work};
  }

  // Waits as the serving loop does, while the only step that was launched ends at `end`.
  void wait_for_launch_time(int64_t key, StepWaiter::Clock::time_point launched_at,
                            StepWaiter::Clock::time_point end) {
    const auto launch_time = waiter_.launch_time(key, launched_at, kHost);
    while (now_ < end && now_ < launch_time)
      sleep_until(std::min(launch_time, now_ + StepWaiter::kBetweenLooks));
  }

  void sleep_until(StepWaiter::Clock::time_point until) {
    ++sleeps_;
    now_ = std::max(now_, until) + microseconds(4 + random_() % 8);
  }

  StepWaiter::Clock::time_point now_{milliseconds(1000)};
  std::mt19937 random_{7};
  int sleeps_ = 0;
  StepWaiter::Clock::duration late_{};
  static constexpr microseconds kHost{150};  // time that the host takes to launch a step
  bool launches_late_ = false;
  std::function<void(int, StepWaiter::Clock::duration)> on_launch_;
  StepWaiter::Clock::duration ahead_{};
  StepWaiter waiter_{
      {.now = [this] { return now_; }, .sleep_until = [this](auto until) { sleep_until(until); }}};
};

// Expects few sleeps for steps whose time the waiter knows by now. One sleep lasts until the end of
// a step. Before it there are some that each last twice as long as the one before.
void expect_few_sleeps_a_step(Loop& loop, int steps, microseconds step, double surplus) {
  loop.take_sleeps();
  loop.take_late();
  EXPECT_EQ(loop.run(steps, step).count(), 0);
  const double doubled = std::log2(1 + static_cast<double>(step / StepWaiter::kBetweenLooks));
  EXPECT_LE(loop.take_sleeps(), surplus * steps * (1 + doubled))
      << "steps of " << step.count() << " us";
  EXPECT_LE(loop.take_late() / steps, microseconds(20) + step / 50);
}

TEST(StepWaiter, SleepsFewTimesAStepAndNeverLetsTheDeviceWait) {
  for (const microseconds step : {microseconds(300), microseconds(6000), microseconds(30000)}) {
    Loop loop;
    EXPECT_EQ(loop.run(20, step).count(), 0);
    expect_few_sleeps_a_step(loop, 200, step, 1.25);
  }
}

TEST(StepWaiter, FollowsStepsThatBecomeLongerOrShorter) {
  Loop loop;
  for (const microseconds step : {microseconds(6000), microseconds(9000), microseconds(1000)}) {
    EXPECT_LE(loop.run(100, step), milliseconds(40)) << "steps of " << step.count() << " us";
    expect_few_sleeps_a_step(loop, 100, step, 1.5);
  }
}

TEST(StepWaiter, KnowsHowManyStepsFitATime) {
  Loop loop;
  EXPECT_EQ(loop.steps_in(milliseconds(25)), 1) << "nothing is known yet";
  loop.run(20, microseconds(1500));
  EXPECT_NEAR(loop.steps_in(milliseconds(25)), 16, 1);
  EXPECT_EQ(loop.steps_in(microseconds(100)), 1);
}

TEST(StepWaiter, WaitsForAGroupOfStepsInFewSleeps) {
  for (const int64_t steps : {16, 3}) {
    // In the first steps, the waiter learns to expect steps that are shorter than the later ones,
    // as long, or longer.
    for (const microseconds before : {microseconds(1200), microseconds(1500), microseconds(2000)}) {
      Loop loop;
      loop.run(20, before);
      loop.run_groups(4, steps, microseconds(1500));
      loop.take_sleeps();
      loop.take_late();
      constexpr int kGroups = 50;
      loop.run_groups(kGroups, steps, microseconds(1500));
      EXPECT_LE(loop.take_sleeps(), 5 * kGroups) << steps << " after " << before.count();
      EXPECT_LE(loop.take_late() / kGroups, microseconds(60))
          << steps << " after " << before.count();
    }
  }
}

TEST(StepWaiter, DoesNotTakeAnIdleTimeForAStep) {
  Loop loop;
  for (int group = 0; group < 5; ++group) {
    EXPECT_EQ(loop.run(10, microseconds(700)).count(), 0) << "group " << group;
    loop.idle(milliseconds(300));
  }
}

TEST(StepWaiter, SoonForgetsAStepThatStalled) {
  Loop loop;
  loop.run(20, microseconds(700));
  EXPECT_LE(loop.run(50, microseconds(700), milliseconds(60)), milliseconds(3));
}

TEST(StepWaiter, KeepsUpWithStepsOfSeveralKinds) {
  for (const int long_ones : {5, 30, 60}) {  // number of long steps in 100
    Loop loop;
    const Loop::Ran ran = loop.run_mixed(2000, long_ones);
    EXPECT_LE(ran.waited, ran.worked / 500) << long_ones;
    EXPECT_LE(loop.take_late() / 2000, milliseconds(1)) << long_ones;
    EXPECT_LE(loop.take_sleeps(), 2000 * 12) << long_ones;
  }
}

// The number of steps is so large that its square times the deviation of a step would overflow a
// duration.
TEST(StepWaiter, SeesAStepEndAfterAnyNumberThatItWasTooLateFor) {
  constexpr milliseconds kStep(20);
  Loop loop;
  loop.run(20, kStep);
  loop.fall_behind(9'000'000, kStep);
  loop.take_late();
  EXPECT_EQ(loop.run(20, kStep).count(), 0);
  EXPECT_LE(loop.take_late() / 20, StepWaiter::Clock::duration(kStep) / 50);
}

TEST(StepWaiter, SaysWhenToLaunchSoThatTheDeviceNeedNotWait) {
  Loop loop;
  (void)loop.run_just_in_time(50, 0);  // lets the waiter learn the times
  loop.take_ahead();
  const Loop::Ran decode = loop.run_just_in_time(1000, 0);
  EXPECT_LT(decode.waited, decode.worked / 1000);
  EXPECT_LT(loop.take_ahead(), decode.worked / 4);
  (void)loop.run_just_in_time(200, 20);
  loop.take_ahead();
  const Loop::Ran mixed = loop.run_just_in_time(1000, 20);
  EXPECT_LT(mixed.waited, mixed.worked / 200);
  EXPECT_LT(loop.take_ahead(), mixed.worked / 2);
}

// Consecutive steps of one kind that take the same time, except for half a percent.
struct Stretch {
  int steps = 0;
  microseconds takes{};
};

// Runs the stretches, with each step launched at the time that the waiter says. Expects that after
// each change of the time of steps the device waits for at most 2 ms, or 2 % of the time.
void expect_little_idle_after_each_change(const std::vector<Stretch>& stretches) {
  std::mt19937 random(5);
  std::vector<std::pair<size_t, StepWaiter::Clock::duration>> steps;  // stretch and time of each
  for (size_t stretch = 0; stretch < stretches.size(); ++stretch) {
    for (int i = 0; i < stretches[stretch].steps; ++i) {
      const StepWaiter::Clock::duration takes = stretches[stretch].takes;
      steps.emplace_back(stretch, takes + takes * (static_cast<int>(random() % 101) - 50) / 10000);
    }
  }
  Loop loop;
  StepWaiter::Clock::duration worked{};
  StepWaiter::Clock::duration waited{};
  loop.run_just_in_time(
      static_cast<int>(steps.size()), [&](int i) { return steps[i].second; },
      [&](int i, StepWaiter::Clock::duration idle) {
        // Count a stretch from the launch of its second step, because the waiter cannot know the
        // time of its first step before.
        const bool changed = i < 2 || steps[i - 1].first != steps[i - 2].first;
        worked = (changed ? StepWaiter::Clock::duration() : worked) + steps[i - 1].second;
        waited = (changed ? StepWaiter::Clock::duration() : waited) + idle;
        EXPECT_LE(waited, std::max<StepWaiter::Clock::duration>(milliseconds(2), worked / 50))
            << "step " << i << ", in stretch " << steps[i].first << " of "
            << stretches[steps[i].first].takes.count() << " us";
      });
}

TEST(StepWaiter, HasTheDeviceWaitLittleWhenStepsBecomeShorter) {
  for (const auto& [before, after] : {std::pair(18500, 3700),
                                      {20000, 4000},
                                      {60000, 25000},
                                      {150000, 30000},
                                      {225000, 45000},
                                      {9000, 1000},
                                      {7200, 3500},
                                      {50000, 300},
                                      {3700, 18500}}) {
    SCOPED_TRACE(fmt::format("{} us, then {} us", before, after));
    expect_little_idle_after_each_change({{100, microseconds(before)}, {100, microseconds(after)}});
  }
}

TEST(StepWaiter, HasTheDeviceWaitLittleHoweverOftenStepsChange) {
  std::mt19937 random(11);
  const auto some = [&](int first, int last) {
    return first + static_cast<int>(random() % static_cast<unsigned>(last - first + 1));
  };
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    std::vector<Stretch> stretches(30);
    for (Stretch& stretch : stretches) {
      // The times of steps are 0.4 to 100 ms, evenly spread on a logarithmic scale.
      const double ms = 0.4 * std::pow(250.0, some(0, 1000) / 1000.0);
      stretch = {some(1, round % 2 == 0 ? 100 : 10), microseconds(static_cast<int>(ms * 1000))};
    }
    expect_little_idle_after_each_change(stretches);
  }
}

TEST(StepWaiter, HasTheDeviceWaitLittleWhereEveryStepTakesAnotherTime) {
  std::mt19937 random(3);
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  const std::map<std::string, std::function<double(int)>> rules = {
      {"ever shorter", [](int i) { return std::max(0.5, 60.0 * std::pow(0.99, i)); }},
      {"soon much shorter", [](int i) { return std::max(0.5, 60.0 * std::pow(0.95, i)); }},
      {"up and down", [](int i) { return 10 + 8 * std::sin(i / 10.0); }},
      {"by turns", [](int i) { return i % 2 == 0 ? 20 : 4; }},
      {"now and then", [](int i) { return i % 10 == 9 ? 4 : 20; }},
      {"any time", [&](int) { return 1 + static_cast<double>(random() % 20000) / 1000; }},
      {"some stall", [&](int) { return chance(5) ? 60 : 7; }},
      {"some are short", [&](int) { return chance(5) ? 2 : 30; }},
  };
  for (const auto& [name, takes_ms] : rules) {
    Loop loop;
    StepWaiter::Clock::duration worked{};
    StepWaiter::Clock::duration waited{};
    loop.run_just_in_time(
        500,
        [&](int i) {
          const microseconds takes(static_cast<int64_t>(takes_ms(i) * 1000));
          worked += takes;
          return takes;
        },
        [&](int /*i*/, StepWaiter::Clock::duration idle) {
          waited += idle;
          EXPECT_LE(waited, std::max<StepWaiter::Clock::duration>(milliseconds(2), worked / 50))
              << name;
        });
  }
}

TEST(StepWaiter, TheStepBehindOneThatEndedEarlyAndUnseenBeganNoEarlierThanThat) {
  StepWaiter::Clock::time_point now{};
  StepWaiter waiter(
      {.now = [&] { return now; }, .sleep_until = [&](auto until) { now = std::max(now, until); }});
  for (int i = 0; i < 40; ++i) {
    const auto end = now + milliseconds(10);
    waiter.wait({.key = 1, .launched = now, .is_last = true}, [&] { return now >= end; });
  }
  const auto launched = now;
  now += milliseconds(9);
  waiter.wait({.key = 1, .launched = launched}, [] { return true; });
  EXPECT_GT(waiter.launch_time(1, launched, {}), now);
}

TEST(StepWaiter, HasTheNextStepLaunchedAtOnceWhileItKnowsNothing) {
  const StepWaiter waiter;
  const StepWaiter::Clock::time_point launched{milliseconds(7)};
  EXPECT_EQ(waiter.launch_time(1, launched, microseconds(150)), launched);
}

TEST(StepWaiter, LetsTheDeviceWaitLittleWhereEachStepIsTheLast) {
  for (const microseconds step : {microseconds(300), microseconds(6000), microseconds(30000)}) {
    Loop loop;
    constexpr int kSteps = 200;
    for (int i = 0; i < kSteps; ++i)
      loop.run(1, step);
    EXPECT_LE(loop.take_late() / kSteps, microseconds(20) + step / 200) << step.count() << " us";
    EXPECT_LE(loop.take_sleeps(), (12 + step / StepWaiter::kBetweenLooks) * kSteps);
  }
}

TEST(StepWaiter, LooksUntilItIsDoneAndLetsErrorsThrough) {
  StepWaiter waiter;
  for (int round = 0; round < 3; ++round) {
    int looks = 0;
    waiter.wait({.key = 1}, [&] { return ++looks == 4; });
    EXPECT_EQ(looks, 4);
  }
  EXPECT_THROW(waiter.wait({.key = 1}, []() -> bool { fail(ErrorKind::kDevice, "gone"); }), Error);
}

}  // namespace
}  // namespace encore::runtime
