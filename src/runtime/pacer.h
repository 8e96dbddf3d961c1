// How the host waits for steps that it can see but is not woken by. It keeps a clock of when they
// are due, which each step that it sees end sets, and which runs ever faster until it does: then
// most steps cost one sleep, a little longer than the step. Where the device has nothing to do
// until the host has seen a step end, it looks early and often instead.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace encore::runtime {

// Threads: one.
class Pacer {
 public:
  using Clock = std::chrono::steady_clock;

  // What time it is and how to let it pass: the machine's, or a test's.
  struct Time {
    std::function<Clock::time_point()> now;
    std::function<void(Clock::time_point)> sleep_until;
  };
  static Time real_time();

  explicit Pacer(Time time = real_time()) : time_(std::move(time)) {}

  // Returns once `done` says so; it may throw. Steps with one key take about the same time.
  // `is_last`: no other is launched behind it. Others follow each other without a gap when the host
  // keeps up.
  void wait(int64_t key, bool is_last, const std::function<bool()>& done);

 private:
  // The last step begins about now.
  void wait_for_last(Clock::duration& took, const std::function<bool()>& done);
  // A step ended, or began, at that time.
  void set(Clock::time_point time);
  // Of the steps since the clock was set.
  [[nodiscard]] Clock::duration mean(Clock::time_point end) const;
  // More so the more steps it is the mean of.
  void learn(Clock::duration& took, Clock::duration mean) const;

  Time time_;
  std::map<int64_t, Clock::duration> took_;  // steps with that key; zero: not known
  int64_t key_ = 0;                          // of the last step
  Clock::time_point due_;                    // when it ended, as far as we know
  Clock::time_point set_at_;
  int64_t num_steps_ = 0;  // since then
};

}  // namespace encore::runtime
