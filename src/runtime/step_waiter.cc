#include "runtime/step_waiter.h"

#include <algorithm>
#include <thread>

#include <sys/prctl.h>

namespace encore::runtime {
namespace {

using std::chrono::microseconds;
using Duration = StepWaiter::Clock::duration;

constexpr Duration kUnknown(0);

// The longest single sleep, which matters where the device has many steps to run. With a longer
// one, the host would notice late that steps have become much shorter. With a shorter one, looks
// would cost the host more than they tell it.
constexpr Duration kLongestSleep = std::chrono::milliseconds(50);
constexpr Duration kShortestSleep = microseconds(5);

// Near the expected end of a step, the host pauses between two looks for the step's time divided by
// one of these numbers. A host that is a step ahead loses nothing by being late. Where the device
// waits for the host, more looks pay.
constexpr int kLooksAStepAhead = 64;
constexpr int kLooksAStepBehind = 512;
// The number of pauses before the expected end at which a host begins to look, where the device
// waits for it.
constexpr int kPausesBeforeEnd = 4;
// Where the times of steps vary, the pause between looks is at least the average deviation divided
// by this number. After the expected end, it is at least the delay so far divided by this number,
// so a step that stalls costs few looks.
constexpr int kLooksAScatter = 4;
constexpr int kLooksADelay = 16;

// The number of average deviations by which a look, or a launch, comes before the expected end.
// With more of them, the host looks more often, or launches before requests come that could have
// taken part. With fewer, the host sleeps through ends, or the device waits.
constexpr int kDeviationsBeforeLook = 2;
constexpr int kDeviationsBeforeLaunch = 3;

// The inertia of the averages. An error moves the average time by a quarter of the error, so that
// one odd step matters little, and the average deviation by an eighth.
constexpr int64_t kTimeInertia = 3;
constexpr int kDeviationInertia = 8;
// An end that the host slept through reduces the average time by one part in kTimeForgets, and the
// deviation by one part in kDeviationForgets, so that sooner or later a look comes early enough to
// see an end.
constexpr int kTimeForgets = 1024;
constexpr int kDeviationForgets = 16;
// After the first step of a kind, its deviation is taken to be its time divided by this number.
constexpr int kFirstDeviation = 16;

// Moves the average `took` towards the time of `num_steps` steps, which together ended `error`
// later than expected. More steps weigh more. The change is limited: the steps count as having
// taken at least half and at most twice the expected time.
void adjust(Duration& took, Duration error, int64_t num_steps) {
  took += std::clamp(error, -num_steps * took / 2, num_steps * took) / (num_steps + kTimeInertia);
}

}  // namespace

StepWaiter::Time StepWaiter::real_time() {
  return {Clock::now, [](Clock::time_point until) {
            // Linux lengthens sleeps by up to 50 us unless a thread asks for less.
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
  // The last step began about now: when it was launched, or when the step before it was seen to
  // end. An earlier step that should have ended by now began late or takes longer, and its time
  // cannot be seen.
  const bool is_overdue = !is_last && ended_ + num_steps * kind.took < start;
  if (is_last) ended_ = start;
  if (is_overdue) ended_ = start - kind.took;
  const auto expected = ended_ + num_steps * kind.took;

  // A host that is a whole step ahead loses little by being late. A host that is not, or that waits
  // for several steps at once, looks more often to be in time.
  const bool is_ahead = !is_last && num_steps == 1;
  Duration pause = std::max<Duration>(kind.took / (is_ahead ? kLooksAStepAhead : kLooksAStepBehind),
                                      kShortestSleep);
  const auto look = expected - kDeviationsBeforeLook * kind.differs +
                    (is_ahead ? pause : -kPausesBeforeEnd * pause);
  auto now = start;
  while (now < look) {
    // If the step ends just now, the step launched behind it is expected to keep the device busy
    // for as long as this one took.
    const Duration busy = is_ahead ? now - ended_ : Duration();
    const Duration nap = num_steps == 1 ? busy + kBetweenLooks : kLongestSleep;
    const auto next = std::min(look, now + std::min(nap, kLongestSleep));
    time_.sleep_until(next);
    now = time_.now();
    if (!done()) continue;
    if (next < look) return end_unseen(kind, num_steps);
    // The step ended as predicted or earlier. Which of the two is not known until a look comes
    // early enough to see an end.
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

// Handles a step whose end the host did not see, because it slept too long or was away. Where the
// step may have ended as predicted, nothing is learned. Where it must have ended earlier than
// predicted, it took no longer than until now. That time becomes the expected time, and the
// deviation grows, so that the following steps are launched early enough to see them end.
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
  // All that is known of the end of these steps is that it was not later than now.
  adjust(took, now - ended_, num_steps);
  ended_ = now;
}

}  // namespace encore::runtime
