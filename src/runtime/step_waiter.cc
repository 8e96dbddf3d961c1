#include "runtime/step_waiter.h"

#include <algorithm>
#include <thread>

#include <sys/prctl.h>

namespace encore::runtime {
namespace {

using std::chrono::microseconds;
using Duration = StepWaiter::Clock::duration;

// Nobody sleeps longer in one go, however long the last step took.
constexpr Duration kLongest = std::chrono::milliseconds(50);
constexpr Duration kShortest = microseconds(5);
constexpr Duration kUnknown(0);

// Together, so many steps took so much longer than expected. Many say more of the next than one, and
// one that stalled says little.
void adjust(Duration& took, Duration error, int64_t num_steps) {
  took += std::clamp(error, -num_steps * took / 2, num_steps * took) / (num_steps + 3);
}

}  // namespace

StepWaiter::Time StepWaiter::real_time() {
  return {Clock::now, [](Clock::time_point until) {
            // Linux rounds sleeps up by 50 us unless a thread asks for better.
            [[maybe_unused]] thread_local const int kOnce = prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
            std::this_thread::sleep_until(until);
          }};
}

int64_t StepWaiter::steps_in(int64_t key, Duration time) const {
  const auto kind = kinds_.find(key);
  if (kind == kinds_.end() || kind->second.took == kUnknown) return 1;
  return std::max<int64_t>(1, time / kind->second.took);
}

StepWaiter::Clock::time_point StepWaiter::launch_time(int64_t key, Clock::time_point launched,
                                                      Clock::duration host) const {
  const auto kind = kinds_.find(key);
  if (kind == kinds_.end() || kind->second.took == kUnknown) return launched;
  const auto [took, differs] = kind->second;
  return std::max(ended_, launched) + took - 3 * differs - launch_lead(took, host);
}

void StepWaiter::wait(const Awaited& awaited, const std::function<bool()>& done) {
  const auto start = time_.now();
  const auto [key, num_steps, is_last] = awaited;
  Kind& kind = kinds_[key];
  if (done()) return pass(key, num_steps);
  // The last one began about now: when it was launched, or when the one before it was seen to end.
  // Others that should have ended began late or take longer, and how long they take is not seen.
  const bool is_overdue = !is_last && ended_ + num_steps * kind.took < start;
  if (is_last) ended_ = start;
  if (is_overdue) ended_ = start - kind.took;
  const auto expected = ended_ + num_steps * kind.took;

  // To be late is cheap for a host that is a whole step ahead. If it is not, or waits for several
  // steps at once, it is worth some looks to be in time.
  const bool is_ahead = !is_last && num_steps == 1;
  Duration pause = std::max<Duration>(kind.took / (is_ahead ? 64 : 512), kShortest);
  const auto look = expected - 2 * kind.differs + (is_ahead ? pause : -4 * pause);
  time_.sleep_until(std::min(look, start + kLongest));
  if (done()) {
    // As predicted or earlier, which is not known until a look is early enough to see an end.
    kind.took -= kind.took / 1024;
    kind.differs -= kind.differs / 16;
    return pass(key, num_steps);
  }
  pause = std::max(pause, kind.differs / 4);
  auto now = time_.now();
  do {
    time_.sleep_until(now + std::max(pause, (now - expected) / 16));
    now = time_.now();
  } while (!done());
  if (kind.took == kUnknown) {
    kind.took = std::min((now - ended_) / num_steps, kLongest);
    kind.differs = kind.took / 16;  // the looks were that far apart
  } else if (!is_overdue) {
    const Duration error = now - expected;
    const Duration differs = std::min(std::chrono::abs(error) / num_steps, kind.took);
    kind.differs += (differs - kind.differs) / 8;
    adjust(kind.took, error, num_steps);
  }
  ended_ = now;
}

void StepWaiter::pass(int64_t key, int64_t num_steps) {
  const auto now = time_.now();
  Duration& took = kinds_[key].took;
  ended_ += num_steps * took;
  if (ended_ <= now) return;
  // All that can be learned of their end is that it was not later than now.
  adjust(took, now - ended_, num_steps);
  ended_ = now;
}

}  // namespace encore::runtime
