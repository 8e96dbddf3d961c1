#include "runtime/pacer.h"

#include <algorithm>
#include <thread>

#include <sys/prctl.h>

namespace encore::runtime {
namespace {

using std::chrono::microseconds;

// Nobody sleeps longer in one go, however long the last step took.
constexpr auto kLongest = std::chrono::milliseconds(50);

// Linux rounds sleeps up by 50 us unless a thread asks for better.
void sleep_precisely() {
  thread_local const bool done = prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0) == 0;
  (void)done;
}

}  // namespace

void Pacer::wait(int64_t key, const std::function<bool()>& done) {
  sleep_precisely();
  const auto start = Clock::now();
  Clock::duration& took = took_[key];
  // Between two looks: a fiftieth of the step is late enough to be cheap, and early enough for a
  // host that is a whole step ahead.
  const Clock::duration pause =
      std::clamp<Clock::duration>(took / 50, microseconds(20), microseconds(200));
  bool is_late = done();
  if (!is_late) {
    // A little early, so that the step is seen to end and the next estimate is no longer.
    std::this_thread::sleep_until(std::min(last_ + took - pause, start + kLongest));
    is_late = done();
    for (bool ended = is_late; !ended; ended = done())
      std::this_thread::sleep_for(pause);
  }
  const auto end = Clock::now();
  took = end - std::max(last_, start - kLongest) - (is_late ? pause : Clock::duration(0));
  last_ = end;
}

}  // namespace encore::runtime
