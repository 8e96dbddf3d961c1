#include "backend/cpu/tracer.h"

#include <gtest/gtest.h>

#include "backend/cpu/stream.h"
#include "backend/device.h"

namespace encore {
namespace {

class CpuTrace : public testing::Test {
 protected:
  void launch(std::string_view op, std::string_view kernel) {
    stream_->launch(
        {.label = op, .id = -1, .after = {}},
        [kernel](Stream& stream, const StepLengths&) { cpu::enqueue(stream, kernel, [] {}); }, {});
  }

  // Removes the host's calls from a trace.
  static Trace device_work(Trace trace) {
    std::erase_if(trace.spans, [](const TraceSpan& span) { return !span.on_device(); });
    return trace;
  }

  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1, .shuffle_seed = {}});
  std::unique_ptr<Stream> stream_ = device_->create_stream();
  std::unique_ptr<Tracer> tracer_ = device_->create_tracer(TraceDetail::kLaunches);
};

TEST_F(CpuTrace, NamesTheOpTheKernelAndTheStepOfEachSpan) {
  float from = 1;
  float to = 0;
  launch("before", "not_traced");
  tracer_->start();
  launch("warm_up", "add.cpu");
  tracer_->next_step();
  stream_->copy_to_device(&to, &from, sizeof(from));
  launch("add", "add.cpu");
  tracer_->next_step();
  launch("mul", "mul.cpu");
  const Trace trace = device_work(tracer_->stop());
  launch("after", "not_traced");

  ASSERT_EQ(trace.spans.size(), 4U);
  EXPECT_EQ(trace.spans[0].op, "warm_up");
  EXPECT_EQ(trace.spans[0].step, -1);
  EXPECT_EQ(trace.spans[1].kind, TraceKind::kCopy);
  EXPECT_EQ(trace.spans[1].step, 0);
  EXPECT_EQ(trace.spans[2].op, "add");
  EXPECT_EQ(trace.spans[2].name, "add.cpu");
  EXPECT_EQ(trace.spans[2].step, 0);
  EXPECT_EQ(trace.spans[3].op, "mul");
  EXPECT_EQ(trace.spans[3].step, 1);
  ASSERT_EQ(trace.step_starts_ns.size(), 3U);
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    EXPECT_LE(trace.spans[i].start_ns, trace.spans[i].end_ns);
    if (i > 0) {
      EXPECT_LE(trace.spans[i - 1].end_ns, trace.spans[i].start_ns);
    }
  }
  EXPECT_LE(trace.step_starts_ns[0], trace.spans[1].start_ns);
  EXPECT_LE(trace.spans[3].end_ns, trace.step_starts_ns[2]);
}

TEST_F(CpuTrace, ShowsWhatARecordingHoldsOrTheReplayAsOne) {
  stream_->begin_recording();
  launch("add", "add.cpu");
  launch("mul", "mul.cpu");
  const auto recording = stream_->end_recording(nullptr);

  tracer_->start();
  stream_->replay(*recording);
  const Trace launches = device_work(tracer_->stop());
  ASSERT_EQ(launches.spans.size(), 2U);
  EXPECT_EQ(launches.spans[0].op, "add");
  EXPECT_EQ(launches.spans[1].op, "mul");

  EXPECT_NE(launches.spans[0].launch, launches.spans[1].launch);

  const auto tracer = device_->create_tracer(TraceDetail::kReplays);
  tracer->start();
  stream_->replay(*recording);
  launch("alone", "add.cpu");
  const Trace replays = device_work(tracer->stop());
  ASSERT_EQ(replays.spans.size(), 2U);
  EXPECT_EQ(replays.spans[0].kind, TraceKind::kReplay);
  EXPECT_EQ(replays.spans[1].op, "alone");
}

TEST_F(CpuTrace, ShowsTheHostsCallsUpToTheWorkThatTheyDo) {
  stream_->begin_recording();
  launch("add", "add.cpu");
  launch("mul", "mul.cpu");
  const auto recording = stream_->end_recording(nullptr);
  float from = 1;
  float to = 0;
  tracer_->start();
  stream_->copy_to_device(&to, &from, sizeof(from));
  launch("alone", "add.cpu");
  stream_->replay(*recording);
  stream_->synchronize();
  const Trace trace = tracer_->stop();
  std::vector<std::string> names;
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    names.push_back(trace.spans[i].name);
    if (i > 0) {
      EXPECT_LE(trace.spans[i - 1].end_ns, trace.spans[i].start_ns) << names.back();
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"copy", "memcpy", "launch", "add.cpu", "replay",
                                             "add.cpu", "mul.cpu", "synchronize"}));
}

TEST_F(CpuTrace, ShowsAllocations) {
  tracer_->start();
  const Memory memory = device_->allocate(64);
  const Trace trace = tracer_->stop();
  ASSERT_EQ(trace.spans.size(), 1U);
  EXPECT_EQ(trace.spans[0].kind, TraceKind::kAllocateCall);
  EXPECT_FALSE(trace.spans[0].on_device());
}

TEST_F(CpuTrace, OfOneDeviceRunsOneAtATime) {
  const auto second = device_->create_tracer(TraceDetail::kLaunches);
  tracer_->start();
  EXPECT_THROW(second->start(), Error);
  tracer_.reset();  // a tracer that is dropped no longer runs
  EXPECT_NO_THROW(second->start());
}

}  // namespace
}  // namespace encore
