// Waiting without a lock for what other threads change.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace encore {

// State that lies in atomics, and threads that wait until it is as they want it. Nobody holds a lock, so a thread that
// stops, wherever it is, keeps no other from going on. Whoever changes the state calls notify() behind the change.
//
//   const uint32_t seen = changes.look();
//   if (!is_done.load(std::memory_order_acquire)) changes.wait(seen, timeout);
//
// Threads: any. Source: D. P. Reed and R. K. Kanodia, "Synchronization with Eventcounts and Sequencers", 1979; on a futex.
class EventCount {
 public:
  // How often the state has changed. The state is looked at behind this call.
  [[nodiscard]] uint32_t look() const { return count_.load(std::memory_order_acquire); }
  // Waits while look() gives `seen`, at most `timeout`. May return earlier.
  void wait(uint32_t seen, std::chrono::nanoseconds timeout) const noexcept;
  void notify() noexcept;

  // Waits until `holds` does, at most `timeout`. Returns whether it does.
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
  // Waits until `holds` does.
  template <typename Holds>
  void wait_until(const Holds& holds) const {
    while (!wait_for(std::chrono::hours(1), holds)) {
    }
  }

 private:
  std::atomic<uint32_t> count_{0};
};

}  // namespace encore
