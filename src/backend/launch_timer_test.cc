#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/device.h"

namespace encore {
namespace {

// Simulates the times of a host and a device. The host takes the time `enqueue` for each launch,
// fill or event that it hands to the device, and the device runs these one after the other. Units:
// microseconds.
struct Clock {
  double enqueue = 0;
  double fill = 15;
  double kernel = 2;
  double load = 0;  // time that the next launch takes on the host, once
  double host = 0;
  double device = 0;
  int num_fills = 0;
  int num_launches = 0;

  void hand_over(double takes) {
    host += enqueue;
    device = std::max(device, host) + takes;
  }
};

class ClockEvent final : public Event {
 public:
  explicit ClockEvent(const Clock& clock) : clock_(clock) {}
  void synchronize() override {}
  [[nodiscard]] bool done() const override { return time <= clock_.host; }
  [[nodiscard]] double milliseconds_since(const Event& start) const override {
    return (time - static_cast<const ClockEvent&>(start).time) / 1000;
  }

  double time = 0;

 private:
  const Clock& clock_;
};

class ClockStream final : public Stream {
 public:
  explicit ClockStream(Clock& clock) : clock_(clock) {}
  void launch(const LaunchAttributes&, const BoundLaunch& bound,
              const StepLengths& lengths) override {
    bound(*this, lengths);
    clock_.host += std::exchange(clock_.load, 0);
    clock_.hand_over(clock_.kernel);
    ++clock_.num_launches;
  }
  void fill(void*, uint32_t, int64_t) override {
    clock_.hand_over(clock_.fill);
    ++clock_.num_fills;
  }
  void record(Event& event) override {
    clock_.hand_over(0);
    static_cast<ClockEvent&>(event).time = clock_.device;
  }
  void synchronize() override { clock_.host = std::max(clock_.host, clock_.device); }
  void copy_to_device(void*, const void*, int64_t) override {}
  void copy_to_host(void*, const void*, int64_t) override {}
  void begin_recording() override {}
  void begin_loop_recording(const int32_t*) override {}
  std::unique_ptr<Recording> end_recording(const Recording*) override { return nullptr; }
  void abandon_recording() noexcept override {}
  void replay(const Recording&) override {}
  void wait(const Event&) override {}
  void check() override {}

 private:
  Clock& clock_;
};

class ClockDevice final : public cpu::CpuDevice {
 public:
  explicit ClockDevice(Clock& clock) : CpuDevice({.num_threads = 1}), clock_(clock) {}
  std::unique_ptr<Stream> create_stream() override { return std::make_unique<ClockStream>(clock_); }
  std::unique_ptr<Event> create_event() override { return std::make_unique<ClockEvent>(clock_); }

 private:
  Clock& clock_;
};

class LaunchTimerTest : public testing::Test {
 protected:
  // Returns the mean time of `num_launches` launches, measured with new counters.
  double time(int num_launches) {
    const std::vector<BoundLaunch> launches(num_launches, [](Stream&, const StepLengths&) {});
    clock_.num_fills = 0;
    clock_.num_launches = 0;
    (void)timer_->operands({}, {});
    return timer_->time(launches);
  }

  Clock clock_;
  ClockDevice device_{clock_};
  std::unique_ptr<LaunchTimer> timer_ = create_launch_timer(device_, 4096);
};

TEST_F(LaunchTimerTest, LaunchesThatAreShorterThanTheHostTakesForThemAreTimedByTheDevice) {
  clock_.enqueue = 3;
  for (const int num_launches : {1, 2, 4, 32}) {
    EXPECT_NEAR(time(num_launches), clock_.kernel, 1e-9) << num_launches;
    EXPECT_EQ(clock_.num_launches, num_launches);
    EXPECT_GE(clock_.num_fills, 1);
  }
}

TEST_F(LaunchTimerTest, ASlowerHostHasTheDeviceBusyForLongerFromThenOn) {
  clock_.enqueue = 5;
  EXPECT_NEAR(time(32), clock_.kernel, 1e-9);
  EXPECT_GT(clock_.num_launches, 32);
  EXPECT_NEAR(time(32), clock_.kernel, 1e-9);
  EXPECT_EQ(clock_.num_launches, 32);
}

TEST_F(LaunchTimerTest, ALaunchThatTheHostLoadsFirstIsTimedAgainAndNothingIsConcludedFromIt) {
  clock_.enqueue = 3;
  (void)time(32);
  const int num_fills = clock_.num_fills;
  clock_.load = 5000;
  EXPECT_NEAR(time(32), clock_.kernel, 1e-9);
  EXPECT_EQ(clock_.num_launches, 2 * 32);
  EXPECT_NEAR(time(32), clock_.kernel, 1e-9);
  EXPECT_EQ(clock_.num_launches, 32);
  EXPECT_EQ(clock_.num_fills, num_fills);
}

TEST_F(LaunchTimerTest, AHostThatIsTooSlowForAnyOfThatIsWhatIsTimed) {
  clock_.enqueue = 1000;
  EXPECT_NEAR(time(32), clock_.enqueue, 0.1 * clock_.enqueue);
}

TEST_F(LaunchTimerTest, WithoutACacheToClearLaunchesRunOnceAndNothingElse) {
  clock_.enqueue = 3;
  timer_ = create_launch_timer(device_, 0);
  EXPECT_GT(time(32), clock_.kernel);
  EXPECT_EQ(clock_.num_launches, 32);
  EXPECT_EQ(clock_.num_fills, 0);
}

}  // namespace
}  // namespace encore
