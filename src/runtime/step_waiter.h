// Predicts when a step will end, so that the host can sleep until then: nothing wakes the host when
// a step ends, so it has to look. For each kind of step, the waiter keeps the average time (`took`)
// and the average deviation from it (`differs`). These are the times of one step k, while the host
// is a step ahead and launches step k+1 late:
//
//   began              launch k+1       look end  seen
//     |==================|===============|====|----|
//     |                  |<--- lead and 3 x differs, in launch_time()
//     |                                  |<--- 2 x differs, in wait(); then it looks again and again
//     the end of step k-1, or the launch of step k where that comes later
//
// A host that is a step ahead loses nothing by looking after the end of a step. So it looks a
// little late on purpose, and most steps cost few sleeps. The host does not see the end itself
// then, and the step may have ended earlier than predicted. So each step whose end was not seen
// lowers the expected time a little, until an end is seen again. A step that ends much earlier
// would leave the device idle. So the host also looks often enough that the device is never idle
// for longer than kBetweenLooks, and an end that it finds sets the expected time of that kind of
// step.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace encore::runtime {

// Predicts the ends of steps from the times of earlier steps, and sleeps until then. Threads: one.
class StepWaiter {
 public:
  using Clock = std::chrono::steady_clock;

  // A clock and a way to sleep. Tests replace the ones of the machine.
  struct Time {
    std::function<Clock::time_point()> now;
    std::function<void(Clock::time_point)> sleep_until;
  };
  static Time real_time();

  explicit StepWaiter(Time time = real_time()) : time_(std::move(time)) {}

  // The longest time that the device is idle when a step ends early. A host that waits for
  // launch_time() may sleep this long between two looks at the step in flight.
  static constexpr Clock::duration kBetweenLooks = std::chrono::milliseconds(1);

  // The step that is waited for. It is the last of `num_steps` steps; nobody waits for the earlier
  // ones separately. Steps with the same key take about the same time.
  struct Awaited {
    int64_t key = 0;
    int64_t num_steps = 1;
    Clock::time_point launched = {};  // when the first of them was launched
    // Is true where no step has been launched behind this one, so the device is idle until the host
    // sees its end. Other steps follow each other without a gap when the host keeps up.
    bool is_last = false;
  };
  // Returns once `done` returns true. `done` may throw.
  void wait(const Awaited& awaited, const std::function<bool()>& done);
  // Notes that `num_steps` more steps of the kind `key` have ended, at an unknown time.
  void pass(int64_t key, int64_t num_steps);
  // Returns the number of steps of the kind `key` that run one after the other in `time`. At least
  // 1, and 1 while it is not known how long such steps take.
  [[nodiscard]] int64_t steps_in(int64_t key, Clock::duration time) const;
  // Returns the time at which to plan and launch the next step, where a step of the kind `key`,
  // launched at `launched`, is the only one in flight, and planning and launching takes the host
  // the time `host`. It is so late that requests which come until then take part, and so early that
  // the device need not wait. It lies in the past while it is not known how long such steps take.
  // The step may end earlier, so look at it every kBetweenLooks.
  [[nodiscard]] Clock::time_point launch_time(int64_t key, Clock::time_point launched,
                                              Clock::duration host) const;
  // Returns by how much the launch at launch_time() comes before the expected end of the step in
  // flight, which takes the time `took`. If this lead is too short, the device waits for the host.
  // If it is too long, requests that come meanwhile wait for one step more.
  static Clock::duration launch_lead(Clock::duration took, Clock::duration host) {
    constexpr int kPartOfStep = 16;
    constexpr int kHostTimes = 2;  // a launch may take the host longer than usual
    return took / kPartOfStep + kHostTimes * host;
  }

 private:
  // The times of one kind of steps.
  struct Kind {
    Clock::duration took{};     // average time of one step; zero: not known
    Clock::duration differs{};  // average deviation from `took`
  };

  // Notes that the last `num_steps` steps, which are of that kind, ended at an unknown time between
  // the end of the step before them and now.
  void end_unseen(Kind& kind, int64_t num_steps);

  Time time_;
  std::map<int64_t, Kind> kinds_;
  Clock::time_point ended_;  // when the last step ended, as far as is known; the next begins then
};

}  // namespace encore::runtime
