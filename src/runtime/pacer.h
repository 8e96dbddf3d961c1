// How the host waits for steps that it can see but is not woken by: it sleeps for as long as such a
// step took last time, then looks, at first without pause.
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

  // Returns once `done` says so; it may throw. Steps with one key take about the same time, and
  // follow each other without a gap when the host keeps up.
  void wait(int64_t key, const std::function<bool()>& done);

 private:
  // Of steps with one key. Zero: not known.
  struct Estimate {
    Clock::duration took{};
    Clock::duration earlier{};  // by how much the last look was too late, as far as we know
  };
  Time time_;
  std::map<int64_t, Estimate> steps_;
  Clock::time_point last_;  // the end of the last wait
};

}  // namespace encore::runtime
