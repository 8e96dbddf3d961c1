// Runs work that would block the server's thread on other threads.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace encore::server {

// Schedules a function to run soon on the server's thread. Threads: any.
using Post = std::function<void(std::function<void()>)>;
// The server's clock and timers. Tests replace them with a simulated clock.
struct Time {
  // Returns the present time. Threads: any.
  std::function<std::chrono::steady_clock::time_point()> now;
  // Runs a function on the server's thread after `delay`. Threads: the server's.
  std::function<void(std::chrono::milliseconds delay, std::function<void()>)> after;
};

// A pool of threads that run functions passed to run(). Threads: run() may be called on any.
class Background {
 public:
  explicit Background(int num_threads);
  // Waits for functions that have begun, and drops those that have not.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Calls `work` on one of the pool's threads. `work` must not throw.
  void run(std::function<void()> work);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace encore::server
