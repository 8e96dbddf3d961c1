// Lets threads wait without a lock for changes that other threads make.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace encore {

// Counts the changes of a state that lies in atomics, so that threads can wait until the state is
// as they want it. No thread holds a lock, so a thread that stops at any point does not block
// another. A thread that changes the state calls notify() after the change.
//
//   const uint32_t seen = changes.look();
//   if (!is_done.load(std::memory_order_acquire)) changes.wait(seen, timeout);
//
// Threads: any.
// Source: D. P. Reed and R. K. Kanodia, "Synchronization with Eventcounts and
// Sequencers", 1979. It waits on a futex.
class EventCount {
 public:
  // Returns how often the state has changed. The caller reads the state after this call.
  [[nodiscard]] uint32_t look() const { return count_.load(std::memory_order_acquire); }
  // Waits while look() returns `seen`, at most for `timeout`. It may return earlier.
  void wait(uint32_t seen, std::chrono::nanoseconds timeout) const noexcept;
  void notify() noexcept;

  // Waits until `holds()` is true, at most for `timeout`. Returns whether it is true.
  template <typename Holds>
  bool wait_for(std::chrono::nanoseconds timeout, const Holds& holds) const {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (true) {
      const uint32_t seen = look();
      if (holds()) return true;
      const auto left = end - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds(0)) return false;
      wait(seen, left);
    }
  }
  // Waits until `holds()` is true.
  template <typename Holds>
  void wait_until(const Holds& holds) const {
    while (!wait_for(std::chrono::hours(1), holds)) {
    }
  }

 private:
  std::atomic<uint32_t> count_{0};
};

}  // namespace encore
