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
// Steps of which the mean counts for more than what was known.
constexpr int64_t kManySteps = 8;

// Linux rounds sleeps up by 50 us unless a thread asks for better.
void sleep_precisely() {
  thread_local const bool done = prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0) == 0;
  (void)done;
}

// By how much a step may differ from the last without a second look. To be late is cheap for a host
// that is a whole step ahead.
Duration slack(Duration took) {
  return std::max<Duration>(took / 128, kShortest);
}

// How much earlier to look when so many ends were slept through: ever more, for each may have been
// sooner than predicted.
Duration early(Duration took, int64_t num_slept_through) {
  constexpr int64_t kEnough = 128;  // at once, and then some
  const int64_t count = std::min(num_slept_through, kEnough);
  return slack(took) * (count * count) / 64;
}

}  // namespace

StepWaiter::Time StepWaiter::real_time() {
  return {Clock::now, [](Clock::time_point until) {
            sleep_precisely();
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
  const bool is_last = awaited.is_last;
  Kind& kind = kinds_[awaited.key];
  const Duration took = awaited.num_steps * kind.took;
  if (done()) return sleep_through(kind, awaited.num_steps, start);
  // Should it have ended, it began late, or takes longer than it did.
  const bool is_predictable = took != kUnknown && (is_last || ended_ + took >= start);
  if (is_last || !is_predictable) see(start);
  // When the first of several began late, too, the last does not end before that.
  const auto expected = ended_ + (is_predictable ? took : took - kind.took);
  Duration pause = std::max(slack(took), kind.differs / 4);
  if (is_predictable) {
    auto look = expected - 2 * kind.differs;
    if (is_last) {
      look -= std::max<Duration>(took / 128, microseconds(20));
      pause = std::max<Duration>(took / 512, kShortest);
    } else if (awaited.num_steps > 1) {
      // A few looks are cheap beside several steps, and tell when they end.
      look -= kind.took / 16 + kind.took * std::min<int64_t>(num_slept_through_, 4) / 4;
      pause = std::max<Duration>(kind.took / 16, kShortest);
    } else {
      look += slack(took) - early(took, num_slept_through_);
    }
    time_.sleep_until(std::min(look, start + kLongest));
    if (done()) return sleep_through(kind, awaited.num_steps, time_.now());
  } else if (expected > start) {
    time_.sleep_until(std::min(expected, start + kLongest));
  }
  auto now = time_.now();
  do {
    time_.sleep_until(now + std::max(pause, (now - expected) / 16));
    now = time_.now();
  } while (!done());
  if (is_predictable || took == kUnknown) learn(kind, awaited.num_steps, now);
  see(now);
}

void StepWaiter::pass(int64_t key, int64_t num_steps) {
  // If an end was seen, the count began anew, with these behind it.
  if (num_slept_through_ > 0) sleep_through(kinds_[key], num_steps, time_.now());
}

void StepWaiter::see(Clock::time_point time) {
  ended_ = seen_at_ = time;
  predicted_ = {};
  num_unseen_ = 0;
  num_slept_through_ = 0;
}

void StepWaiter::sleep_through(Kind& kind, int64_t num_steps, Clock::time_point now) {
  const Duration took = num_steps * kind.took;
  ended_ = std::min(ended_ + took, now);
  predicted_ += took;
  num_unseen_ += num_steps;
  ++num_slept_through_;
  // All that can be learned of its end is that it was not later than now.
  const Duration too_long = predicted_ - (now - seen_at_);
  if (too_long <= Duration(0)) return;
  predicted_ -= too_long;
  adjust(kind, -too_long, num_unseen_);
}

void StepWaiter::learn(Kind& kind, int64_t num_steps, Clock::time_point end) const {
  if (kind.took == kUnknown) {
    kind.took = std::min((end - ended_) / num_steps, kLongest);
    kind.differs = kind.took / 16;
    return;
  }
  const Duration error = end - seen_at_ - predicted_ - num_steps * kind.took;
  num_steps += num_unseen_;
  adjust(kind, error, num_steps);
  const Duration differs = std::min(std::chrono::abs(error / num_steps), kind.took);
  kind.differs += (differs - kind.differs) / 8;
}

void StepWaiter::adjust(Kind& kind, Clock::duration error, int64_t num_steps) {
  // One that stalled says little of the next, nor does one when others were the shorter ones.
  const Duration of_step = std::clamp(error / num_steps, -kind.took / 2, kind.took);
  kind.took += of_step * std::min(num_steps + 1, kManySteps) / kManySteps;
}

}  // namespace encore::runtime
