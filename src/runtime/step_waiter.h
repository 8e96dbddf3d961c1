// Says when a step is likely to end, so that the host can sleep until then: nothing wakes it when a
// step ends, it has to look. For each kind of step it keeps how long one takes and by how much that
// differs. The times of one step k, while the host is a step ahead and launches step k+1 late:
//
//   began              launch k+1       look end  seen
//     |==================|===============|====|----|
//     |                  |<--- lead and 3 x differs, in launch_time()
//     |                                  |<--- 2 x differs, in wait(); then it looks again and again
//     the end of step k-1, or the launch of step k where that comes later
//
// A look behind the end costs a host that is ahead nothing, so it comes a little late on purpose, and
// most steps cost few sleeps. The end is not seen then, and may have been earlier than predicted: each
// such step is taken for a little shorter than before, until an end is seen again. An end that comes
// much earlier would leave the device idle, so the host also looks before it could have been idle for
// kBetweenLooks, and what it finds sets the time of that kind of step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace encore::runtime {

// Threads: one.
class StepWaiter {
 public:
  using Clock = std::chrono::steady_clock;

  // The clock, and a way to sleep: the machine's, or those of a test.
  struct Time {
    std::function<Clock::time_point()> now;
    std::function<void(Clock::time_point)> sleep_until;
  };
  static Time real_time();

  explicit StepWaiter(Time time = real_time()) : time_(std::move(time)) {}

  // The longest time that the device is idle when a step ends early: a host that waits for
  // launch_time() may sleep so long between two looks at the step in flight.
  static constexpr Clock::duration kBetweenLooks = std::chrono::milliseconds(1);

  // The step that is waited for: the last of `num_steps`, of which the others are not waited for
  // one by one. Steps with one key take about the same time.
  struct Awaited {
    int64_t key = 0;
    int64_t num_steps = 1;
    Clock::time_point launched = {};  // the first of them; no step begins before its launch
    // No other is launched behind it, so the device waits for the host to see its end. Others
    // follow each other without a gap when the host keeps up.
    bool is_last = false;
  };
  // Returns once `done` says so; it may throw.
  void wait(const Awaited& awaited, const std::function<bool()>& done);
  // Notes that so many more steps of that key have ended, at an unknown time.
  void pass(int64_t key, int64_t num_steps);
  // The number of steps of that key that follow each other in `time`; at least 1, and 1 while that
  // is not known.
  [[nodiscard]] int64_t steps_in(int64_t key, Clock::duration time) const;
  // The time to plan and launch the next step, which takes the host so long, where a step of that
  // key, launched at `launched`, is the only one that the device has: so late that requests which
  // come until then can take part, and so early that the device need not wait. In the past while it
  // is not known how long such steps take. The step may end earlier, so look at it every
  // kBetweenLooks.
  [[nodiscard]] Clock::time_point launch_time(int64_t key, Clock::time_point launched,
                                              Clock::duration host) const;
  // The lead of that launch before the end of the step in flight, where its end is known. If it is
  // too short, the device waits for the host; if it is too long, requests that come meanwhile wait
  // for a step more.
  static Clock::duration launch_lead(Clock::duration took, Clock::duration host) {
    constexpr int kPartOfStep = 16;
    constexpr int kHostTimes = 2;  // as one launch may take the host longer than another
    return took / kPartOfStep + kHostTimes * host;
  }

 private:
  // Steps of one kind.
  struct Kind {
    Clock::duration took{};     // zero: not known
    Clock::duration differs{};  // from that, on average
  };

  // Notes that so many steps of that kind ended at some time between the end of the one before them
  // and now.
  void end_unseen(Kind& kind, int64_t num_steps);

  Time time_;
  std::map<int64_t, Kind> kinds_;
  Clock::time_point ended_;  // the last step, as far as is known: where the next one begins
};

}  // namespace encore::runtime
