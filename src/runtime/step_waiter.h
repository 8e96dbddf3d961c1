// How the host waits for steps that it can see but is not woken by. It keeps how long a step of each
// kind takes and when the last one ended, sleeps until a little behind the end that follows from that,
// and looks: then most steps cost one sleep. Ends that it slept through are as predicted for all it
// knows, so with each it takes the steps for a little shorter, until it sees one end again.
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

  // What time it is and how to let it pass: the machine's, or a test's.
  struct Time {
    std::function<Clock::time_point()> now;
    std::function<void(Clock::time_point)> sleep_until;
  };
  static Time real_time();

  explicit StepWaiter(Time time = real_time()) : time_(std::move(time)) {}

  // What is waited for: the last of so many steps, of which nobody looks at the others. Steps with
  // one key take about the same time.
  struct Awaited {
    int64_t key = 0;
    int64_t num_steps = 1;
    // No other is launched behind it, so the device waits for the host to see its end. Others
    // follow each other without a gap when the host keeps up.
    bool is_last = false;
  };
  // Returns once `done` says so; it may throw.
  void wait(const Awaited& awaited, const std::function<bool()>& done);
  // So many more steps of that key have ended, too, nobody saw when.
  void pass(int64_t key, int64_t num_steps);
  // How many steps of that key follow each other in `time`; 1 while that is not known, and at
  // least.
  [[nodiscard]] int64_t steps_in(int64_t key, Clock::duration time) const;
  // When to plan and launch the next step, which takes the host so long, where a step of that key,
  // launched at `launched`, is the only one that the device has: so late that what comes until then
  // can take part, and so early that the device need not wait. In the past while it is not known how
  // long such steps take.
  [[nodiscard]] Clock::time_point launch_time(int64_t key, Clock::time_point launched,
                                              Clock::duration host) const;
  // How long before the end of a step that is, where its end is known.
  static Clock::duration launch_lead(Clock::duration took, Clock::duration host) {
    return took / 16 + 2 * host;
  }

 private:
  // Steps of one kind.
  struct Kind {
    Clock::duration took{};     // zero: not known
    Clock::duration differs{};  // from that, on average
  };

  Time time_;
  std::map<int64_t, Kind> kinds_;
  Clock::time_point ended_;  // the last step, as far as is known
};

}  // namespace encore::runtime
