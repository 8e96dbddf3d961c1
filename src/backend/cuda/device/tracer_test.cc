#include "backend/cuda/device/tracer.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda/device/cupti_tracer.h"
#include "backend/cuda/device/stream.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/testing/cuda_fixture.h"
#include "backend/fault.h"

namespace encore::cuda {
namespace {

TraceSpan kernel_span(const char* function) {
  return {TraceKind::kKernel, 0, -1, "", function, 0, 1};
}

// Returns the labels of `spans` when each node is a launch of its own.
std::vector<std::string> labels(const std::vector<RecordedNode>& nodes,
                                std::vector<TraceSpan> spans) {
  std::vector<int> launches(nodes.size());
  std::iota(launches.begin(), launches.end(), 0);
  label_replay(nodes, launches, spans);
  std::vector<std::string> result;
  for (const TraceSpan& span : spans)
    result.push_back(span.op);
  return result;
}

using Labels = std::vector<std::string>;

TEST(TraceOfAReplay, TakesItsLabelsFromTheNodesInOrder) {
  const std::vector<RecordedNode> nodes = {{"kernel", "norm", "f()"},
                                           {"empty", "join", ""},
                                           {"kernel", "add", "f()"},
                                           {"copy", "copy_to_host", ""}};
  const TraceSpan copy{TraceKind::kCopy, 0, -1, "", "memcpy", 2, 3};
  EXPECT_EQ(labels(nodes, {kernel_span("f()"), kernel_span("f()"), copy}),
            (Labels{"norm", "add", "copy_to_host"}));
}

TEST(TraceOfAReplay, TakesTheNumbersOfItsLaunchesFromThem) {
  const std::vector<RecordedNode> nodes = {
      {"kernel", "linear", "f()"}, {"kernel", "linear", "g()"}, {"kernel", "add", "f()"}};
  const std::vector<int> launches = {0, 0, 1};
  std::vector<TraceSpan> spans = {kernel_span("f()"), kernel_span("g()"), kernel_span("f()")};
  label_replay(nodes, launches, spans);
  EXPECT_EQ(spans[0].launch, 0);
  EXPECT_EQ(spans[1].launch, 0);
  EXPECT_EQ(spans[2].launch, 1);
}

TEST(TraceOfAReplay, WithALoopTakesThemFromTheFunctions) {
  const std::vector<RecordedNode> nodes = {
      {"kernel", "norm", "f()"}, {"kernel", "add", "f()"}, {"kernel", "linear", "g()"}};
  EXPECT_EQ(labels(nodes, {kernel_span("g()"), kernel_span("g()"), kernel_span("g()")}),
            (Labels{"linear", "linear", "linear"}));
  // Two ops share f(), and no node of the recording has h().
  EXPECT_EQ(labels(nodes, {kernel_span("f()"), kernel_span("h()"), kernel_span("g()")}),
            (Labels{"", "", "linear"}));
}

TEST(TraceOfACall, SaysWhatItIsFor) {
  EXPECT_EQ(call_kind("cudaGraphLaunch"), TraceKind::kLaunchCall);
  EXPECT_EQ(call_kind("cudaLaunchKernelExC"), TraceKind::kLaunchCall);
  EXPECT_EQ(call_kind("cudaMemcpyAsync"), TraceKind::kCopyCall);
  EXPECT_EQ(call_kind("cudaMalloc"), TraceKind::kAllocateCall);
  EXPECT_EQ(call_kind("cudaFreeHost"), TraceKind::kAllocateCall);
  EXPECT_EQ(call_kind("cuMemCreate"), TraceKind::kAllocateCall);
  EXPECT_EQ(call_kind("cudaStreamSynchronize"), TraceKind::kWaitCall);
  EXPECT_EQ(call_kind("cudaEventRecord"), TraceKind::kOtherCall);
}

class CountingListener final : public TraceListener {
 public:
  using TraceListener::TraceListener;
  void enter(const TracedCall& /*call*/) override { ++num_calls; }
  void leave(const TracedCall& /*call*/) noexcept override {}

  int num_calls = 0;
};

TEST(TraceOfACall, IsOfOneGpu) {
  CountingListener listener(1);
  start_listening(listener);
  for (const int ordinal : {0, 1, 2})
    const TraceScope scope(ordinal, {TraceKind::kWaitCall});
  stop_listening(listener);
  EXPECT_EQ(listener.num_calls, 1);
}

class CudaTrace : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (device_ != nullptr) filled_ = allocate({1 << 18});
  }
  // Launches two ops with different labels, one kernel each.
  void work() {
    for (const char* op : {"first", "second"}) {
      stream_->launch({.label = op, .id = -1, .after = {}},
                      [&](Stream& stream, const StepLengths&) {
                        launch_fill(stream, filled_.data, 1, filled_.num_bytes());
                      },
                      {});
    }
  }
  std::unique_ptr<Recording> record_work() {
    stream_->begin_recording();
    work();
    return stream_->end_recording(nullptr);
  }
  static std::vector<TraceSpan> on_device(const Trace& trace) {
    std::vector<TraceSpan> spans;
    for (const TraceSpan& span : trace.spans) {
      if (span.on_device()) spans.push_back(span);
    }
    return spans;
  }

  TensorView filled_{nullptr, DType::kF32, {}};
};

TEST_F(CudaTrace, ShowsTheKernelsOfALaunchAndOfAReplay) {
  std::unique_ptr<Tracer> tracer;
  try {
    tracer = device_->create_tracer(TraceDetail::kLaunches);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const auto recording = record_work();
  tracer->start();
  tracer->next_step();
  stream_->replay(*recording);
  tracer->next_step();
  work();
  const Trace trace = tracer->stop();

  const auto spans = on_device(trace);
  ASSERT_EQ(spans.size(), 4U);
  for (size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].kind, TraceKind::kKernel);
    EXPECT_EQ(spans[i].step, static_cast<int>(i / 2));
    EXPECT_EQ(spans[i].op, i % 2 == 0 ? "first" : "second");
    EXPECT_LT(spans[i].start_ns, spans[i].end_ns);
    if (i > 0) {
      EXPECT_LT(spans[i - 1].launch, spans[i].launch);
    }
  }
  const auto is_replay = [](const TraceSpan& span) {
    return span.kind == TraceKind::kLaunchCall && span.name == "cudaGraphLaunch" && span.step == 0;
  };
  EXPECT_EQ(std::count_if(trace.spans.begin(), trace.spans.end(), is_replay), 1);
}

// CUPTI calls back from C, where an exception would end the process.
TEST_F(CudaTrace, SaysThatBuffersAreLostForWantOfMemory) {
  std::unique_ptr<Tracer> tracer;
  try {
    tracer = device_->create_tracer(TraceDetail::kLaunches);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  tracer->start();
  tracer->next_step();
  work();
  const fault::Injection injection([](std::string_view call) {
    if (call == "trace_buffer") throw std::bad_alloc();
  });
  try {
    tracer->stop();
    FAIL() << "a trace without its buffers";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kMemory) << error.what();
  }
}

TEST_F(CudaTrace, ShowsReplaysAsOneEach) {
  const auto tracer = device_->create_tracer(TraceDetail::kReplays);
  const auto recording = record_work();
  tracer->start();
  for (int step = 0; step < 3; ++step) {
    tracer->next_step();
    stream_->replay(*recording);
    stream_->synchronize();
  }
  const Trace trace = tracer->stop();
  const auto spans = on_device(trace);
  ASSERT_EQ(spans.size(), 3U);
  for (int step = 0; step < 3; ++step) {
    EXPECT_EQ(spans[step].kind, TraceKind::kReplay);
    EXPECT_EQ(spans[step].step, step);
    EXPECT_LT(spans[step].start_ns, spans[step].end_ns);
    // The GPU's clock and the host's agree to some microseconds.
    EXPECT_GT(spans[step].end_ns, trace.step_starts_ns[step] - 1'000'000);
    EXPECT_LT(spans[step].end_ns, trace.step_starts_ns[step + 1] + 1'000'000);
    if (step > 0) {
      EXPECT_LE(spans[step - 1].end_ns, spans[step].start_ns);
    }
  }
  stream_->replay(*recording);  // a replay still works after the trace
  stream_->synchronize();
}

}  // namespace
}  // namespace encore::cuda
