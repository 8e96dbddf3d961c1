// How the host waits for steps that it can see but is not woken by: it sleeps for as long as such a
// step took last time, then looks, at first without pause.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>

namespace encore::runtime {

// Threads: one.
class Pacer {
 public:
  // Returns once `done` says so; it may throw. Steps with one key take about the same time, and
  // follow each other without a gap when the host keeps up.
  void wait(int64_t key, const std::function<bool()>& done);

 private:
  using Clock = std::chrono::steady_clock;
  std::map<int64_t, Clock::duration> took_;  // from the end of one wait to the end of the next
  Clock::time_point last_;                   // the end of the last wait
};

}  // namespace encore::runtime
