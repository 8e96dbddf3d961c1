#include "base/event_count.h"

#include <algorithm>
#include <climits>
#include <ctime>
#include <unistd.h>

#include <linux/futex.h>
#include <sys/syscall.h>

namespace encore {
namespace {

long futex(const std::atomic<uint32_t>& word, int operation, uint32_t value,
           const timespec* timeout) noexcept {
  static_assert(sizeof(word) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  return syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
}

}  // namespace

void EventCount::wait(uint32_t seen, std::chrono::nanoseconds timeout) const noexcept {
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  const int64_t ns = std::max<int64_t>(timeout.count(), 0);
  const timespec relative{.tv_sec = ns / kNsPerSecond, .tv_nsec = ns % kNsPerSecond};
  futex(count_, FUTEX_WAIT, seen, &relative);
}

void EventCount::notify() noexcept {
  count_.fetch_add(1, std::memory_order_acq_rel);
  futex(count_, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace encore
