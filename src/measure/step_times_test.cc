#include "measure/step_times.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "measure/profile.h"

namespace encore::measure {
namespace {

TraceSpan work(TraceKind kind, int step, const char* op, int64_t start_us, int64_t end_us) {
  return {kind, step, -1, op, "", start_us * 1000, end_us * 1000};
}
TraceSpan kernel(int step, const char* op, int64_t start_us, int64_t end_us) {
  return work(TraceKind::kKernel, step, op, start_us, end_us);
}

// Makes a trace of two steps, which start at 100 us and 200 us. Each has a copy, a norm, a linear
// that starts early and overlaps the norm, a gap, and another linear.
Trace two_steps() {
  Trace trace;
  for (int step = 0; step < 2; ++step) {
    const int64_t at = 100 * (step + 1);
    trace.step_starts_ns.push_back((at - 10) * 1000);
    trace.spans.push_back(work(TraceKind::kLaunchCall, step, "", at - 5, at - 2));
    trace.spans.push_back(work(TraceKind::kCopy, step, "copy_to_device", at, at + 4));
    trace.spans.push_back(kernel(step, "norm", at + 5, at + 15));
    trace.spans.push_back(kernel(step, "linear", at + 7, at + 40));
    trace.spans.push_back(kernel(step, "linear", at + 50, at + 70));
    trace.spans.push_back(work(TraceKind::kWaitCall, step, "", at + 10, at + 80));
    for (int i = 0; i < 6; ++i)
      trace.spans[trace.spans.size() - 6 + i].launch = 10 * step + i;
  }
  trace.step_starts_ns.push_back(290 * 1000);
  return trace;
}

TEST(StepTimes, AddUpToTheStepWhateverOverlaps) {
  const StepTimes times = step_times(two_steps(), {});
  EXPECT_EQ(times.num_steps, 1);  // no step follows the second
  EXPECT_DOUBLE_EQ(times.step_us, 100);
  EXPECT_DOUBLE_EQ(times.copies_us, 4);
  EXPECT_DOUBLE_EQ(times.kernels_us, 35 + 20);
  EXPECT_DOUBLE_EQ(times.gaps_us, 1 + 10);
  EXPECT_DOUBLE_EQ(times.idle_us, 30);
  EXPECT_DOUBLE_EQ(times.copies_us + times.kernels_us + times.gaps_us + times.idle_us,
                   times.step_us);
}

TEST(Overhead, IsTheShareOfAnUntracedStepWithoutKernels) {
  ModeProfile mode;
  mode.step_us = 80;
  EXPECT_FALSE(overhead(mode).has_value());
  mode.times = step_times(two_steps(), {});  // kernels run for 35 + 20 us
  EXPECT_DOUBLE_EQ(*overhead(mode), 25.0 / 80);
  mode.step_us = 50;
  EXPECT_DOUBLE_EQ(*overhead(mode), 0);
}

TEST(StepTimes, GiveOverlapToTheKernelThatWasFirst) {
  const StepTimes times = step_times(two_steps(), {});
  EXPECT_DOUBLE_EQ(times.kernels.at("norm").own_us, 10);
  EXPECT_DOUBLE_EQ(times.kernels.at("linear").own_us, 25 + 20);
  EXPECT_DOUBLE_EQ(times.kernels.at("linear").total_us, 33 + 20);
  EXPECT_DOUBLE_EQ(times.kernels.at("linear").count, 2);
}

TEST(StepTimes, NameKernelsByTheNodesTheyAre) {
  const std::vector<NodeGroup> groups = {
      {"linear", "linear [2,1]"}, {"norm", "norm"}, {"linear", "linear [3,1]"}};
  const StepTimes times = step_times(two_steps(), groups);
  EXPECT_DOUBLE_EQ(times.kernels.at("linear [2,1]").own_us, 25);
  EXPECT_DOUBLE_EQ(times.kernels.at("linear [3,1]").own_us, 20);
  // Two kernels with the same launch number belong to one node.
  Trace trace = two_steps();
  for (TraceSpan& span : trace.spans) {
    if (span.op == "linear") span.launch = 3;
  }
  EXPECT_DOUBLE_EQ(step_times(trace, {{"linear", "linear [2,1]"}}).kernels.at("linear [2,1]").count,
                   2);
  // Two launches cannot be matched with three nodes, so their op names the group.
  const StepTimes other =
      step_times(two_steps(), {{"linear", "a"}, {"linear", "b"}, {"linear", "c"}});
  EXPECT_DOUBLE_EQ(other.kernels.at("linear").count, 2);
}

TEST(StepTimes, CountTheHostsCalls) {
  const StepTimes times = step_times(two_steps(), {});
  EXPECT_DOUBLE_EQ(times.calls.at(TraceKind::kLaunchCall).total_us, 3);
  EXPECT_DOUBLE_EQ(times.calls.at(TraceKind::kWaitCall).total_us, 70);
  EXPECT_DOUBLE_EQ(times.host_step_us, 100);
  EXPECT_EQ(times.calls.count(TraceKind::kAllocateCall), 0U);
}

TEST(StepTimes, MeasureIdleTimeFromTheLastKernelToTheFirst) {
  const StepTimes times = step_times(two_steps(), {});
  ASSERT_EQ(times.between_us.size(), 1U);
  EXPECT_DOUBLE_EQ(times.between_us[0], 205 - 170);
}

TEST(StepTimes, LeaveOutWhatCameBeforeTheFirstStep) {
  Trace trace = two_steps();
  trace.spans.insert(trace.spans.begin(), kernel(-1, "warm_up", 20, 90));
  const StepTimes times = step_times(trace, {});
  EXPECT_EQ(times.kernels.count("warm_up"), 0U);
  EXPECT_DOUBLE_EQ(times.step_us, 100);
}

TEST(StepTimes, AreOfTheMiddleHalf) {
  Trace trace;
  int64_t at = 1000;
  for (int step = 0; step < 9; ++step) {
    trace.step_starts_ns.push_back(at * 1000);
    trace.spans.push_back(kernel(step, "norm", at, at + 10));
    at += step == 3 ? 5000 : 20;  // step 3 is far longer than the others
  }
  trace.step_starts_ns.push_back(at * 1000);
  const StepTimes times = step_times(trace, {});
  EXPECT_EQ(times.num_steps, 4);
  EXPECT_DOUBLE_EQ(times.step_us, 20);
  EXPECT_EQ(times.sample.size(), 1U);
}

TEST(StepTimes, NeedTwoSteps) {
  Trace trace = two_steps();
  trace.spans.resize(5);
  EXPECT_THROW((void)step_times(trace, {}), Error);
}

}  // namespace
}  // namespace encore::measure
