// Threads for work that would hold up the server's own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace encore::server {

// Runs a function soon on the server's thread. Threads: any.
using Post = std::function<void(std::function<void()>)>;
// The clock of the server, and its timers: the machine's, or those of a test.
struct Time {
  // Threads: any.
  std::function<std::chrono::steady_clock::time_point()> now;
  // Runs a function on the server's thread after a while. Threads: the server's.
  std::function<void(std::chrono::milliseconds delay, std::function<void()>)> after;
};

// Threads that run work handed over by others. Threads: run() on any.
class Background {
 public:
  explicit Background(int num_threads);
  // Finishes work that has begun, and drops work that has not.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Calls `work`, which must not throw, on one of the threads.
  void run(std::function<void()> work);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace encore::server
