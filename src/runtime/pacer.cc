#include "runtime/pacer.h"

#include <algorithm>
#include <thread>

#include <sys/prctl.h>

namespace encore::runtime {
namespace {

using std::chrono::microseconds;

// Nobody sleeps longer in one go, however long the last step took.
constexpr auto kLongest = std::chrono::milliseconds(50);
constexpr Pacer::Clock::duration kUnknown(0);
// Steps of which the mean counts for more than what was known.
constexpr int64_t kManySteps = 8;

// Linux rounds sleeps up by 50 us unless a thread asks for better.
void sleep_precisely() {
  thread_local const bool done = prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0) == 0;
  (void)done;
}

// By how much a step may differ from the last without a second look. To be late is cheap for a host
// that is a whole step ahead.
Pacer::Clock::duration slack(Pacer::Clock::duration took) {
  return std::max<Pacer::Clock::duration>(took / 128, microseconds(5));
}

}  // namespace

Pacer::Time Pacer::real_time() {
  return {Clock::now, [](Clock::time_point until) {
            sleep_precisely();
            std::this_thread::sleep_until(until);
          }};
}

void Pacer::wait_for_last(Clock::duration& took, const std::function<bool()>& done) {
  const auto start = time_.now();
  set(start);
  ++num_steps_;
  const auto early = std::max<Clock::duration>(took / 64, microseconds(20));
  if (took > early && !done()) {
    time_.sleep_until(start + std::min<Clock::duration>(took - early, kLongest));
    if (done()) {
      took -= took / 64;
      return set(time_.now());
    }
  }
  auto now = time_.now();
  while (!done()) {
    const auto pause = took == kUnknown ? (now - start) / 16 : took / 512;
    time_.sleep_until(now + std::max<Clock::duration>(pause, microseconds(5)));
    now = time_.now();
  }
  const auto seen = std::min<Clock::duration>(mean(now), kLongest);
  if (took == kUnknown) {
    took = seen;
  } else {  // one that stalled says little of the next
    learn(took, std::min(seen, 2 * took));
  }
  set(now);
}

void Pacer::wait(int64_t key, bool is_last, const std::function<bool()>& done) {
  Clock::duration& took = took_[key];
  if (is_last) {
    key_ = key;
    return wait_for_last(took, done);
  }
  const auto start = time_.now();
  if (std::exchange(key_, key) != key) set(due_);
  ++num_steps_;
  if (done()) {  // the host is behind; a single step says nothing, it may have ended long before
    if (num_steps_ > 1) learn(took, std::min(took, mean(start)));
    return set(start);
  }
  due_ += took;
  if (due_ < start || due_ > start + took) {  // it began just now, or before
    set(start);
    ++num_steps_;
    due_ += took;
  }
  if (took != kUnknown) {
    time_.sleep_until(std::min(due_, start + kLongest));
    if (done()) {  // for how long? looks come earlier from now on, until one is too early
      due_ -= slack(took) * num_steps_ / 32;
      return;
    }
  }
  auto before = time_.now();
  auto now = before;
  do {
    before = now;
    time_.sleep_until(now + std::max(slack(took), (now - due_) / 16));
    now = time_.now();
  } while (!done());
  if (took == kUnknown) {
    took = std::min<Clock::duration>(mean(before), kLongest);
  } else {  // one that stalled says little of the next
    learn(took, std::min(mean(now), took + took / num_steps_));
  }
  set(now);
  due_ += slack(took);
}

void Pacer::set(Clock::time_point time) {
  due_ = set_at_ = time;
  num_steps_ = 0;
}

Pacer::Clock::duration Pacer::mean(Clock::time_point end) const {
  return (end - set_at_) / num_steps_;
}

void Pacer::learn(Clock::duration& took, Clock::duration mean) const {
  took += (mean - took) * std::min(num_steps_, kManySteps) / kManySteps;
}

}  // namespace encore::runtime
