#include "runtime/step_waiter.h"

#include <algorithm>
#include <thread>

#include <sys/prctl.h>

namespace encore::runtime {
namespace {

using std::chrono::microseconds;
using Duration = StepWaiter::Clock::duration;

constexpr Duration kUnknown(0);

// A sleep in one go, where the device has many steps to do. Longer, and steps that became much
// shorter are noticed late; shorter, and looks cost the host more than they tell it.
constexpr Duration kLongestSleep = std::chrono::milliseconds(50);
constexpr Duration kShortestSleep = microseconds(5);

// The pause between two looks for an end that is near, as a part of a step. A host that is a step
// ahead loses nothing when it is late. Where the device waits for it, more looks pay.
constexpr int kLooksAStepAhead = 64;
constexpr int kLooksAStepBehind = 512;
// A host that the device waits for begins to look before the expected end, by so many pauses between looks.
constexpr int kPausesBeforeEnd = 4;
// Where ends scatter, looks are as far apart as this part of the scatter; behind the expected end, as
// this part of the delay: a step that stalls costs few looks.
constexpr int kLooksAScatter = 4;
constexpr int kLooksADelay = 16;

// A look, or a launch, comes so many average deviations before the expected end. With more, hosts
// look more often, or launch before requests come that could have taken part; with less, ends are
// slept through, or the device waits.
constexpr int kDeviationsBeforeLook = 2;
constexpr int kDeviationsBeforeLaunch = 3;

// The inertia of averages. An error moves the time by a part in 4, so that one odd step matters
// little, and the deviation by a part in 8.
constexpr int64_t kTimeInertia = 3;
constexpr int kDeviationInertia = 8;
// An end that was slept through takes that part off the time and the deviation, so that sooner or
// later a look comes early enough to see one.
constexpr int kTimeForgets = 1024;
constexpr int kDeviationForgets = 16;
// The first step of a kind is seen to end within that part of its time.
constexpr int kFirstDeviation = 16;

// Moves the average towards what `num_steps` steps took, which together ended `error` later than
// expected. More steps weigh more; the error counts as half of the expected time at least, and as
// twice of it at most.
void adjust(Duration& took, Duration error, int64_t num_steps) {
  took += std::clamp(error, -num_steps * took / 2, num_steps * took) / (num_steps + kTimeInertia);
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
  return std::max(ended_, launched) + took - kDeviationsBeforeLaunch * differs -
         launch_lead(took, host);
}

void StepWaiter::wait(const Awaited& awaited, const std::function<bool()>& done) {
  const auto start = time_.now();
  const auto [key, num_steps, launched, is_last] = awaited;
  Kind& kind = kinds_[key];
  ended_ = std::max(ended_, launched);
  if (done()) return end_unseen(kind, num_steps);
  // The last one began about now: when it was launched, or when the one before it was seen to end.
  // Others that should have ended began late or take longer, and how long they take is not seen.
  const bool is_overdue = !is_last && ended_ + num_steps * kind.took < start;
  if (is_last) ended_ = start;
  if (is_overdue) ended_ = start - kind.took;
  const auto expected = ended_ + num_steps * kind.took;

  // To be late is cheap for a host that is a whole step ahead. If it is not, or waits for several
  // steps at once, it is worth some looks to be in time.
  const bool is_ahead = !is_last && num_steps == 1;
  Duration pause = std::max<Duration>(kind.took / (is_ahead ? kLooksAStepAhead : kLooksAStepBehind),
                                      kShortestSleep);
  const auto look = expected - kDeviationsBeforeLook * kind.differs +
                    (is_ahead ? pause : -kPausesBeforeEnd * pause);
  auto now = start;
  while (now < look) {
    // If the step ends just now, the one launched behind it keeps the device busy for as long again.
    const Duration busy = is_ahead ? now - ended_ : Duration();
    const Duration nap = num_steps == 1 ? busy + kBetweenLooks : kLongestSleep;
    const auto next = std::min(look, now + std::min(nap, kLongestSleep));
    time_.sleep_until(next);
    now = time_.now();
    if (!done()) continue;
    if (next < look) return end_unseen(kind, num_steps);
    // As predicted or earlier, which is not known until a look is early enough to see an end.
    kind.took -= kind.took / kTimeForgets;
    kind.differs -= kind.differs / kDeviationForgets;
    return pass(key, num_steps);
  }
  pause = std::max(pause, kind.differs / kLooksAScatter);
  do {
    time_.sleep_until(now +
                      std::min(std::max(pause, (now - expected) / kLooksADelay), kBetweenLooks));
    now = time_.now();
  } while (!done());
  if (kind.took == kUnknown) {
    kind.took = std::min((now - ended_) / num_steps, kLongestSleep);
    kind.differs = kind.took / kFirstDeviation;
  } else if (!is_overdue) {
    const Duration error = now - expected;
    const Duration differs = std::min(std::chrono::abs(error) / num_steps, kind.took);
    kind.differs += (differs - kind.differs) / kDeviationInertia;
    adjust(kind.took, error, num_steps);
  }
  ended_ = now;
}

// The host has slept longer than the step took, or was away. A step that ended later than predicted
// would still run, so nothing is learned where it may have ended as predicted. One that ended earlier
// took no longer than until now: that is its time from now on, and the deviation grows, so that the
// steps behind it are launched early enough to see them end.
void StepWaiter::end_unseen(Kind& kind, int64_t num_steps) {
  const auto now = time_.now();
  const Duration at_most = (now - ended_) / num_steps;
  if (kind.took <= at_most) {
    ended_ += num_steps * kind.took;
    return;
  }
  kind.differs += (kind.took - at_most - kind.differs) / kDeviationInertia;
  kind.took = std::max(at_most, kShortestSleep);
  kind.differs = std::min(kind.differs, kind.took / 2);
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
