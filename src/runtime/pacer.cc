#include "runtime/pacer.h"

#include <algorithm>
#include <thread>

#include <sys/prctl.h>

namespace encore::runtime {
namespace {

using std::chrono::microseconds;

// Nobody sleeps longer in one go, however long the last step took.
constexpr auto kLongest = std::chrono::milliseconds(50);
// More than the host works between two steps that follow each other.
constexpr auto kIdle = std::chrono::milliseconds(1);
constexpr std::chrono::steady_clock::duration kUnknown(0);

// Linux rounds sleeps up by 50 us unless a thread asks for better.
void sleep_precisely() {
  thread_local const bool done = prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0) == 0;
  (void)done;
}

}  // namespace

Pacer::Time Pacer::real_time() {
  return {Clock::now, [](Clock::time_point until) {
            sleep_precisely();
            std::this_thread::sleep_until(until);
          }};
}

void Pacer::wait(int64_t key, const std::function<bool()>& done) {
  Estimate& step = steps_[key];
  const auto start = time_.now();
  // It began when the one before it ended or, where the host had nothing to do since, just now.
  const bool was_idle = start - last_ > std::max<Clock::duration>(step.took, kIdle);
  const auto began = was_idle ? start : last_;
  // Between two looks: a fiftieth of the step is late enough to be cheap, and early enough for a
  // host that is a whole step ahead.
  const Clock::duration pause =
      std::clamp<Clock::duration>(step.took / 50, microseconds(20), microseconds(200));
  const bool is_behind = done();
  bool is_late = is_behind;
  if (!is_behind) {
    time_.sleep_until(std::min(began + step.took, start + kLongest));
    is_late = done();
    for (bool ended = is_late; !ended; ended = done()) {
      const auto now = time_.now();
      time_.sleep_until(now + std::max(pause, (now - start) / 32));
    }
  }
  last_ = time_.now();
  if (is_behind) return;
  if (!is_late || step.took == kUnknown) {
    // One that stalled says little of the next.
    const Clock::duration most = step.took == kUnknown ? kLongest : 2 * step.took;
    step = {std::min<Clock::duration>(last_ - began, most), kUnknown};
  } else {
    // It may have been over for a while. The next look is earlier, and each one after it more so,
    // until a step is seen to end: most steps cost one sleep.
    step.earlier = std::max(2 * step.earlier, pause / 8);
    step.took = std::max<Clock::duration>(step.took - step.earlier, microseconds(1));
  }
}

}  // namespace encore::runtime
