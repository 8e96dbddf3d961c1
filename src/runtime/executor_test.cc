#include "runtime/executor.h"

#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "backend/cpu/device.h"
#include "backend/cpu/stream.h"
#include "base/testing/message_of.h"
#include "listing/listing.h"
#include "ops/ops.h"
#include "passes/pipeline.h"

namespace encore::runtime {
namespace {

// Computes y = 2 x. It is the kernel of the op `double`, which Encore does not have and these tests
// add.
void double_rows(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  for (int64_t row = 0; row < x.num_rows(); ++row) {
    for (int64_t i = 0; i < x.row_elements(); ++i) {
      args.outputs["y"].row<float>(row)[i] = 2 * x.row<float>(row)[i];
    }
  }
}

BoundLaunch bind_double(Device&, const KernelArgs& args) {
  return [args](Stream& stream, const StepLengths&) {
    cpu::enqueue(stream, "double.test", [args] { double_rows(args); });
  };
}
BoundLaunch bind_allocating(Device& device, const KernelArgs& args) {
  return [&device, args](Stream& stream, const StepLengths&) {
    const Memory temporary = device.allocate(64);
    cpu::enqueue(stream, "double.test", [args] { double_rows(args); });
  };
}
BoundLaunch bind_synchronizing(Device&, const KernelArgs& args) {
  return [args](Stream& stream, const StepLengths&) {
    stream.synchronize();
    cpu::enqueue(stream, "double.test", [args] { double_rows(args); });
  };
}
BoundLaunch bind_refusing(Device&, const KernelArgs&) {
  fail(ErrorKind::kCompile, "wants a multiple of 7 columns");
}

// The function `reads_lengths` of a kernel that reads StepLengths in mixed steps only.
bool in_mixed_steps(const KernelArgs& args) {
  return !args.step.is_uniform();
}
bool always(const KernelArgs&) {
  return true;
}

// Binds a kernel that leaves its output as it is.
BoundLaunch bind_idle(Device&, const KernelArgs&) {
  return [](Stream& stream, const StepLengths&) { cpu::enqueue(stream, "double.test", [] {}); };
}

constexpr const char* kGraph = R"(graph g {
  input %x: f32[T,4]
  input %rows: i32[B]
  %a: f32[T,4] = double(%x)
  %b: f32[T,4] = add(%a, %x)
  %y: f32[B,4] = gather_rows(%b, %rows)
  output %y
}
)";

class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest() { ops_.add({.name = "double", .inputs = "x float[R,N]", .outputs = "y = x"}); }

  // Makes a device that has the kernel `bind` for the op `double`, and a program with this op.
  void make(BoundLaunch (*bind)(Device&, const KernelArgs&), Graphs graphs = Graphs::kAuto) {
    device_ = create_cpu_device({.num_threads = 1});
    device_->kernels().add_first({"double", "double.test", nullptr, nullptr, bind});
    program_.emplace(passes::compile(listing::parse(kGraph, ops_), ops_,
                                     {.max_sizes = {8, 4}, .split_ops = split_ops_}));
    options_.limits = {.max_num_tokens = 8, .max_batch_size = 4};
    options_.graphs = graphs;
    stream_ = device_->create_stream();
  }
  // Makes the kernel of the op read StepLengths where `reads_lengths` says so.
  void follow_lengths(std::string_view op, bool (*reads_lengths)(const KernelArgs&)) {
    Kernel kernel = *std::ranges::find(device_->kernels().rows(), op, &Kernel::op);
    kernel.reads_lengths = reads_lengths;
    device_->kernels().add_first(kernel);
  }
  const RecordingStats& record() {
    executor_.emplace(*device_, *stream_, *program_,
                      std::vector<TensorView>(program_->graph.num_values()), options_);
    return executor_->loaded().recordings.stats();
  }
  // Runs a step whose x counts from 1, and returns y.
  std::vector<float> run(const StepKey& step) {
    executor_->begin(step);
    const auto x = executor_->loaded().inputs.host<float>("x");
    std::iota(x.begin(), x.begin() + step.tokens * 4, 1.0F);
    const auto rows = executor_->loaded().inputs.host<int32_t>("rows");
    for (int64_t b = 0; b < step.sequences; ++b)
      rows[b] = static_cast<int32_t>(step.tokens - 1 - b);
    executor_->run({});
    std::vector<float> y(step.sequences * 4);
    const TensorView output =
        executor_->loaded().view(program_->graph.outputs()[0], executor_->choice().key.sizes());
    executor_->loaded().stream.copy_to_host(y.data(), output.data,
                                            static_cast<int64_t>(y.size() * sizeof(float)));
    executor_->loaded().stream.synchronize();
    return y;
  }
  std::string error_while_recording(BoundLaunch (*bind)(Device&, const KernelArgs&)) {
    return message_of(ErrorKind::kCompile, [&] {
      make(bind);
      record();
    });
  }

  ir::OpSet ops_ = ops::standard();
  ExecutorOptions options_{.record_all_modes = true};
  passes::SplitOps split_ops_;
  std::unique_ptr<Device> device_;
  std::optional<passes::Program> program_;
  std::unique_ptr<Stream> stream_;
  std::optional<Executor> executor_;
};

TEST_F(ExecutorTest, RunsAnOpFromOutsideInEveryMode) {
  make(bind_double);
  record();
  for (const Graphs graphs : {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull}) {
    executor_->set_graphs(graphs);
    EXPECT_EQ(run(StepKey::uniform(2)), (std::vector<float>{15, 18, 21, 24, 3, 6, 9, 12}));
    EXPECT_EQ(run(StepKey::mixed(5, 1)), (std::vector<float>{51, 54, 57, 60}));
  }
}

TEST_F(ExecutorTest, RecordsEveryStepForEveryModeWhereThatIsAskedFor) {
  make(bind_double, Graphs::kFull);
  const RecordingStats& stats = record();
  for (const auto& [graphs, mode] : {std::pair(Graphs::kNone, Mode::kEager),
                                     {Graphs::kPiecewise, Mode::kPiecewise},
                                     {Graphs::kFull, Mode::kFull}}) {
    executor_->set_graphs(graphs);
    EXPECT_EQ(executor_->begin(StepKey::uniform(2)).mode, mode);
    EXPECT_EQ(executor_->begin(StepKey::mixed(5, 1)).mode, mode);
    const int64_t before = stats.replays;
    (void)run(StepKey::uniform(2));
    const int64_t num_replays = stats.replays - before;
    EXPECT_EQ(num_replays > 0, mode != Mode::kEager);
    EXPECT_EQ(num_replays == 1, mode == Mode::kFull);
  }
}

TEST_F(ExecutorTest, SaysWhenTheStartHasComeToEachPoint) {
  std::vector<StartPoint> points;
  options_.reached = [&](StartPoint point, const LoadedProgram&) { points.push_back(point); };
  make(bind_double);
  record();
  EXPECT_EQ(points, (std::vector{StartPoint::kLowered, StartPoint::kWarm, StartPoint::kRecorded}));
}

TEST_F(ExecutorTest, LetsItsHooksInBeforeAndBehindEveryStepInEveryMode) {
  make(bind_idle);
  record();
  const Memory& arena = executor_->loaded().arena;
  int num_after = 0;
  executor_->hooks().before = [&](Executor& executor) {
    executor.loaded().stream.fill(arena.data(), 0xffffffffU, arena.bytes() / 4 * 4);  // NaN
  };
  executor_->hooks().after = [&](Executor&) { ++num_after; };
  for (const Graphs graphs : {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull}) {
    executor_->set_graphs(graphs);
    executor_->loaded().stream.fill(arena.data(), 0, arena.bytes() / 4 * 4);
    for (const float value : run(StepKey::uniform(2)))
      EXPECT_TRUE(std::isnan(value));
  }
  EXPECT_EQ(num_after, 3);
}

TEST_F(ExecutorTest, TakesStepsWithoutTokensOrSequences) {
  make(bind_double);
  record();
  EXPECT_TRUE(run(StepKey::mixed(0, 0)).empty());
  EXPECT_EQ(run(StepKey::uniform(1)), (std::vector<float>{3, 6, 9, 12}));
}

TEST_F(ExecutorTest, NamesTheOpThatAllocatesInARecording) {
  const std::string error = error_while_recording(bind_allocating);
  EXPECT_NE(error.find("double"), std::string::npos) << error;
  EXPECT_NE(error.find("recording"), std::string::npos) << error;
}

TEST_F(ExecutorTest, NamesTheOpThatSynchronizesInARecording) {
  const std::string error = error_while_recording(bind_synchronizing);
  EXPECT_NE(error.find("double"), std::string::npos) << error;
}

TEST_F(ExecutorTest, NamesTheOpAndKernelThatCannotBeBound) {
  const std::string error = error_while_recording(bind_refusing);
  EXPECT_EQ(error, "op 'double', kernel double.test: wants a multiple of 7 columns");
}

TEST_F(ExecutorTest, LeavesDeviceAndStreamUsableEagerAfterAFailedRecording) {
  EXPECT_NE(error_while_recording(bind_synchronizing), "");
  options_.record_all_modes = false;
  options_.graphs = Graphs::kNone;
  record();
  EXPECT_EQ(run(StepKey::uniform(1)), (std::vector<float>{3, 6, 9, 12}));
}

TEST_F(ExecutorTest, SaysWhichOpHasNoKernel) {
  device_ = create_cpu_device({.num_threads = 1});
  program_.emplace(passes::compile(listing::parse(kGraph, ops_), ops_, {.max_sizes = {8, 4}}));
  stream_ = device_->create_stream();
  const std::string message = message_of(ErrorKind::kUnsupported, [&] { record(); });
  EXPECT_NE(message.find("double"), std::string::npos) << message;
}

TEST_F(ExecutorTest, RecordsEachPieceOnceThoughSeveralStepsShareIt) {
  make(bind_double, Graphs::kPiecewise);
  const RecordingStats stats = record();
  // The ladders have the buckets 1, 2 and 4 for sequences, and 4 and 8 for tokens. So there are 3
  // full recordings of uniform steps, 3 pieces that gather the rows of sequences, and pieces over
  // 1, 2, 4 and 8 tokens. Uniform and mixed steps share the piece over 4 tokens.
  EXPECT_EQ(stats.full.recordings, 3);
  EXPECT_EQ(stats.pieces.recordings, 3 + 3 + 1);
}

TEST_F(ExecutorTest, RecordsMixedStepsWhole) {
  make(bind_double);
  const RecordingStats& stats = record();
  EXPECT_EQ(stats.mixed.recordings, std::ssize(executor_->coverage().tokens.sizes()));
  EXPECT_EQ(executor_->begin(StepKey::mixed(6, 3)).mode, Mode::kFull);
}

TEST_F(ExecutorTest, KeepsPiecesOfMixedStepsWhereAKernelFollowsLengthsOfTheHost) {
  split_ops_ = {"double"};
  make(bind_double);
  follow_lengths("double", in_mixed_steps);
  const RecordingStats& stats = record();
  EXPECT_EQ(stats.mixed.recordings, 0);
  EXPECT_GT(stats.pieces.recordings, 0);
  EXPECT_EQ(executor_->begin(StepKey::mixed(6, 3)).mode, Mode::kPiecewise);
  EXPECT_EQ(executor_->begin(StepKey::mixed(6, 3)).reason, Reason::kNone);
  executor_->set_graphs(Graphs::kFull);
  EXPECT_EQ(executor_->begin(StepKey::mixed(6, 3)).reason, Reason::kMixedStep);
}

TEST_F(ExecutorTest, KeepsPiecesOfDecodeStepsWhereAKernelFollowsLengthsOfTheHost) {
  options_.record_all_modes = false;
  split_ops_ = {"double"};
  make(bind_double);
  follow_lengths("double", always);
  EXPECT_EQ(record().full.recordings, 0);
  EXPECT_EQ(executor_->begin(StepKey::uniform(3)).mode, Mode::kPiecewise);
  EXPECT_EQ(executor_->begin(StepKey::uniform(3)).reason, Reason::kUnsupportedOp);
}

TEST_F(ExecutorTest, RecordsNoPieceWithAKernelThatFollowsLengthsOfTheHost) {
  make(bind_double);
  follow_lengths("double", always);
  const std::string message = message_of(ErrorKind::kUnsupported, [&] { record(); });
  EXPECT_NE(message.find("--split-at its op"), std::string::npos) << message;
}

TEST_F(ExecutorTest, RecordsNoPiecesWhenOnlyDecodeIsWanted) {
  options_.record_all_modes = false;
  make(bind_double, Graphs::kFullDecodeOnly);
  const RecordingStats stats = record();
  EXPECT_EQ(stats.full.recordings, 3);
  EXPECT_EQ(stats.pieces.recordings, 0);
  EXPECT_EQ(run(StepKey::uniform(2)), (std::vector<float>{15, 18, 21, 24, 3, 6, 9, 12}));
  EXPECT_EQ(executor_->begin(StepKey::uniform(2)).mode, Mode::kFull);
  EXPECT_EQ(run(StepKey::mixed(5, 1)), (std::vector<float>{51, 54, 57, 60}));
  EXPECT_EQ(executor_->begin(StepKey::mixed(5, 1)).reason, Reason::kPolicy);
}

TEST_F(ExecutorTest, RunsSizesBetweenBucketsEagerWithPaddingOff) {
  options_.pad_uniform = false;
  make(bind_double);
  record();
  const std::vector<float> expected{27, 30, 33, 36, 15, 18, 21, 24, 3, 6, 9, 12};
  EXPECT_EQ(run(StepKey::uniform(3)), expected);
  EXPECT_EQ(executor_->begin(StepKey::uniform(3)).reason, Reason::kNoExactSize);
  EXPECT_EQ(executor_->begin(StepKey::uniform(4)).mode, Mode::kFull);
}

}  // namespace
}  // namespace encore::runtime
