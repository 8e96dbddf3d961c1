// Tests the behaviour that only CUDA devices have. The conformance suite tests the behaviour of all
// devices.
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

#include "backend/cuda/device/context.h"
#include "backend/cuda/device/device.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/testing/cuda_fixture.h"
#include "backend/device.h"
#include "base/testing/message_of.h"

namespace encore {
namespace {

TEST_F(CudaTest, NodesOfARecordingCarryTheLabelsOfTheirLaunches) {
  const TensorView x = allocate({3, 64});
  std::vector<float> host(4, 7.0F);
  const BoundLaunch add = bind("add", {.inputs = {{"a", x}, {"b", x}}, .outputs = {{"y", x}}});
  const BoundLaunch silu = bind("silu", {.inputs = {{"x", x}}, .outputs = {{"y", x}}});
  RecordingScope scope(*stream_);
  stream_->copy_to_device(x.data, host.data(), 16);
  launch("add", add);
  stream_->fill(x.data, 0, 16);
  launch("silu.7", silu);
  const auto recording = scope.finish();
  const std::vector<RecordedNode> nodes = recording->nodes();
  ASSERT_EQ(nodes.size(), 4U);
  EXPECT_EQ(recording->num_nodes(), 4);
  EXPECT_EQ(nodes[0].kind, "copy");
  EXPECT_EQ(nodes[1].kind, "kernel");
  EXPECT_EQ(nodes[1].op, "add");
  EXPECT_NE(nodes[1].kernel.find("pack_kernel"), std::string::npos) << nodes[1].kernel;
  EXPECT_EQ(nodes[2].op, "fill");
  EXPECT_EQ(nodes[3].op, "silu.7");
  EXPECT_EQ(nodes[0].edge, Edge::kNone);
  EXPECT_EQ(nodes[1].edge, Edge::kFull);  // behind a copy
  EXPECT_EQ(nodes[3].edge, Edge::kProgrammatic);
}

TEST_F(CudaTest, ALaunchThatAllocatesFromTheDeviceIsAnErrorThatNamesTheOp) {
  const Error error = error_of_recording(
      "greedy_op", [&](Stream&, const StepLengths&) { device_->allocate(1024); });
  EXPECT_EQ(error.kind(), ErrorKind::kCompile);
  EXPECT_NE(std::string(error.what()).find("greedy_op"), std::string::npos) << error.what();
}

TEST_F(CudaTest, ALaunchThatAllocatesBehindOurBackIsAnErrorThatNamesTheOp) {
  void* stolen = nullptr;
  const Error error = error_of_recording(
      "raw_op", [&](Stream&, const StepLengths&) { (void)cudaMalloc(&stolen, 1024); });
  if (stolen != nullptr) cudaFree(stolen);
  EXPECT_EQ(error.kind(), ErrorKind::kCompile);
  EXPECT_NE(std::string(error.what()).find("raw_op"), std::string::npos) << error.what();
}

TEST_F(CudaTest, ALaunchThatSynchronisesIsAnErrorThatNamesTheOp) {
  const Error ours =
      error_of_recording("waiting_op", [](Stream& s, const StepLengths&) { s.synchronize(); });
  EXPECT_EQ(ours.kind(), ErrorKind::kCompile);
  EXPECT_NE(std::string(ours.what()).find("waiting_op"), std::string::npos) << ours.what();
  const Error raw = error_of_recording("raw_wait", [](Stream& s, const StepLengths&) {
    (void)cudaStreamSynchronize(cuda::handle(s));
  });
  EXPECT_EQ(raw.kind(), ErrorKind::kCompile);
  EXPECT_NE(std::string(raw.what()).find("raw_wait"), std::string::npos) << raw.what();
}

TEST_F(CudaTest, ALaunchThatRecordsNothingIsAnErrorThatNamesTheOp) {
  const BoundLaunch nothing = [](Stream&, const StepLengths&) {};
  const Error error = error_of_recording("idle", nothing);
  EXPECT_EQ(error.kind(), ErrorKind::kCompile);
  EXPECT_NE(std::string(error.what()).find("op 'idle' adds nothing"), std::string::npos)
      << error.what();
  const TensorView x = allocate({4, 64});
  const BoundLaunch silu = bind("silu", {.inputs = {{"x", x}}, .outputs = {{"y", x}}});
  RecordingScope scope(*stream_);
  launch("silu", silu);
  EXPECT_THROW(launch("idle", nothing), Error) << "behind a launch that records something";
}

TEST_F(CudaTest, AKernelThatCannotBeLaunchedIsAnErrorThatNamesTheOp) {
  const BoundLaunch bad = [](Stream& s, const StepLengths&) {
    cuda::check(cudaMemsetAsync(nullptr, 0, 64, cuda::handle(s)), "cudaMemsetAsync");
  };
  const std::string message = message_of(ErrorKind::kDevice, [&] { launch("bad_op", bad); });
  EXPECT_NE(message.find("bad_op"), std::string::npos) << message;
}

// The driver keeps the memory of destroyed recordings, so the memory that recordings take is seen
// only when they are made for the first time.
TEST_F(CudaTest, RecordingsOfTheSameKernelsTakeTurnsInOneExecutable) {
  const TensorView x = allocate({400, 64});
  const auto part = [&](int64_t first, int64_t rows) {
    return TensorView(x.as<float>() + first * 64, DType::kF32, {rows, 64});
  };
  const auto record = [&](const TensorView& view, std::string_view op, const Recording* like) {
    const BoundLaunch bound = bind(op, {.inputs = {{"x", view}}, .outputs = {{"y", view}}});
    RecordingScope scope(*stream_);
    launch("first", bound);
    launch("second", bound);
    return scope.finish(like);
  };
  std::vector<std::unique_ptr<Recording>> recordings;
  recordings.push_back(record(part(0, 1), "silu", nullptr));
  const int64_t used = *device_->used_bytes();
  for (int i = 1; i < 400; ++i) {
    recordings.push_back(record(part(i, 1), "silu", recordings.back().get()));
    EXPECT_TRUE(recordings.back()->shares_executable());
  }
  EXPECT_LE(*device_->used_bytes(), used + (8 << 20)) << "399 executables would take 45 MB";

  EXPECT_FALSE(record(part(0, 400), "silu", recordings.back().get())->shares_executable())
      << "another grid";
  const TensorView y = part(0, 1);
  const BoundLaunch silu = bind("silu", {.inputs = {{"x", y}}, .outputs = {{"y", y}}});
  RecordingScope filled(*stream_);
  launch("first", silu);
  stream_->fill(y.data, 0, y.num_bytes());
  EXPECT_FALSE(filled.finish(recordings.back().get())->shares_executable()) << "another kernel";
}

TEST_F(CudaTest, MemoryFreedWhileRecordingIsFreedAfterwards) {
  const TensorView x = allocate({1024});
  const BoundLaunch silu =
      bind("silu", {.inputs = {{"x", TensorView(x.data, x.dtype, {4, 256})}},
                    .outputs = {{"y", TensorView(x.data, x.dtype, {4, 256})}}});
  fill(x, 0.0F);
  std::optional<Memory> freed = device_->allocate(1LL << 30);
  const int64_t free_before = device_->info().free_bytes;
  RecordingScope scope(*stream_);
  freed.reset();
  launch("silu", silu);
  const auto recording = scope.finish();
  EXPECT_GE(device_->info().free_bytes, free_before + (1LL << 29));
  stream_->replay(*recording);
  stream_->synchronize();
}

TEST_F(CudaTest, OtherThreadsMayAllocateAndFreeWhileOneRecords) {
  const TensorView x = allocate({4, 256});
  const BoundLaunch silu = bind("silu", {.inputs = {{"x", x}}, .outputs = {{"y", x}}});
  RecordingScope scope(*stream_);
  launch("silu", silu);
  std::thread([&] {
    const Memory memory = device_->allocate(1 << 20);
    const Memory host = device_->allocate_host(1 << 12);
  }).join();
  launch("silu", silu);
  EXPECT_EQ(scope.finish()->num_nodes(), 2);
}

TEST_F(CudaTest, ARecordingMayPointToAddressesThatGetTheirMemoryLater) {
  const auto range = device_->reserve(64 << 20);
  EXPECT_EQ(range->mapped_bytes(), 0);
  const TensorView first(range->data(), DType::kF32, {4, 8});
  const TensorView later(range->data() + range->bytes() / 2, DType::kF32, {4, 8});
  const BoundLaunch add =
      bind("add", {.inputs = {{"a", first}, {"b", first}}, .outputs = {{"y", first}}});
  RecordingScope scope(*stream_);
  stream_->fill(first.data, std::bit_cast<uint32_t>(1.5F), first.num_bytes());
  launch("add", add);
  const auto recording = scope.finish();

  range->map(range->granularity());
  stream_->replay(*recording);
  EXPECT_EQ(read(first), std::vector<float>(32, 3.0F));
  range->map(range->bytes());
  EXPECT_EQ(range->mapped_bytes(), range->bytes());
  EXPECT_EQ(read(first), std::vector<float>(32, 3.0F));
  fill(later, 2.0F);
  EXPECT_EQ(read(later), std::vector<float>(32, 2.0F));
  range->unmap();
  EXPECT_EQ(range->mapped_bytes(), 0);
  range->map(1);
  stream_->replay(*recording);
  EXPECT_EQ(read(first), std::vector<float>(32, 3.0F));
}

// Each launch reads what the launch before it wrote from other blocks. So a launch that starts too
// early finds wrong values.
TEST_F(CudaTest, OverlappingLaunchesSeeTheWritesOfTheOneBefore) {
  constexpr int64_t kRows = 512;
  constexpr int64_t kColumns = 1024;
  const TensorView a = allocate({kRows, kColumns});
  const TensorView b = allocate({kRows, kColumns});
  const TensorView one = allocate({kRows, kColumns});
  const TensorView rows = allocate({kRows}, DType::kI32);
  std::vector<int32_t> reversed(kRows);
  for (size_t i = 0; i < reversed.size(); ++i)
    reversed[i] = static_cast<int32_t>(kRows - 1 - i);
  stream_->copy_to_device(rows.data, reversed.data(), rows.num_bytes());
  stream_->synchronize();
  const BoundLaunch reverse =
      bind("gather_rows", {.inputs = {{"x", a}, {"rows", rows}}, .outputs = {{"y", b}}});
  const BoundLaunch add = bind("add", {.inputs = {{"a", b}, {"b", one}}, .outputs = {{"y", a}}});
  RecordingScope scope(*stream_);
  fill(a, 0.0F);
  fill(one, 1.0F);
  for (int i = 0; i < 100; ++i) {
    launch("gather_rows", reverse);
    launch("add", add);
  }
  const auto recording = scope.finish();
  for (int i = 0; i < 10; ++i) {
    stream_->replay(*recording);
    EXPECT_EQ(read(a), std::vector<float>(kRows * kColumns, 100.0F)) << "replay " << i;
  }
}

TEST_F(CudaTest, LaunchesOverNoRowsDoNothing) {
  const TensorView x(nullptr, DType::kBF16, {0, 64});
  const TensorView weight = allocate({64, 64}, DType::kBF16);
  const TensorView scale = allocate({64}, DType::kBF16);
  launch("add", bind("add", {.inputs = {{"a", x}, {"b", x}}, .outputs = {{"y", x}}}));
  launch("linear",
         bind("linear", {.inputs = {{"x", x}, {"weight", weight}}, .outputs = {{"y", x}}}));
  launch("rms_norm", bind("rms_norm", {.inputs = {{"x", x}, {"weight", scale}},
                                       .outputs = {{"y", x}},
                                       .attrs = {{"eps", 1e-5}}}));
  stream_->synchronize();
}

TEST(ChooseDevice, TakesTheFirstThatCanRunUnlessOneIsNamed) {
  const cuda::Candidate a100{"A100", 8, 0};
  const cuda::Candidate h100{"H100", 9, 0};
  const auto choose = [](std::vector<cuda::Candidate> candidates, std::optional<int> ordinal) {
    return cuda::choose_device(candidates, ordinal);
  };
  EXPECT_EQ(choose({a100, h100, h100}, std::nullopt), 1);
  EXPECT_EQ(choose({a100, h100, h100}, 2), 2);
  const auto error = [&](std::vector<cuda::Candidate> candidates, std::optional<int> ordinal) {
    try {
      return fmt::format("none, but {}", choose(std::move(candidates), ordinal));
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_NE(error({a100, h100}, 0).find("use --device cuda:1"), std::string::npos);
  EXPECT_NE(error({a100, h100}, 2).find("CUDA_VISIBLE_DEVICES"), std::string::npos);
  EXPECT_NE(error({a100, a100}, std::nullopt).find("use such a GPU"), std::string::npos);
}

TEST(ChooseDevice, TakesEqualGpusForRanksOrSaysWhatIsMissing) {
  const cuda::Candidate a100{"A100", 8, 0};
  const cuda::Candidate h100{"H100", 9, 0};
  const cuda::Candidate h200{"H200", 9, 0};
  const auto choose = [](std::vector<cuda::Candidate> candidates, std::optional<int> ordinal,
                         int num_ranks) {
    return cuda::choose_devices(candidates, ordinal, num_ranks);
  };
  EXPECT_EQ(choose({a100, h100, h100}, std::nullopt, 2), (std::vector{1, 2}));
  EXPECT_EQ(choose({h100, h100, h100, h100}, 2, 2), (std::vector{2, 3}));
  std::string error = message_of(ErrorKind::kUnsupported, [&] {
    choose({h100, h100}, std::nullopt, 4);
  });
  EXPECT_NE(error.find("--tensor-parallel 4 needs as many GPUs from GPU 0 on, and CUDA shows 2"),
            std::string::npos)
      << error;
  error = message_of(ErrorKind::kUnsupported, [&] { choose({h100, h200}, std::nullopt, 2); });
  EXPECT_NE(error.find("GPU 0 is H100, and GPU 1 is H200"), std::string::npos) << error;
  error = message_of(ErrorKind::kUnsupported, [&] { choose({h100, h100}, std::nullopt, 16); });
  EXPECT_NE(error.find("at most 8 GPUs"), std::string::npos) << error;
}

TEST(ChooseDevice, SaysWhichOfSeveralItIs) {
  const std::vector<cuda::Candidate> both{{"A100", 8, 0}, {"H100", 9, 0}};
  EXPECT_EQ(cuda::choice_text(both, 1), "cuda:1 of 2, H100");
  EXPECT_EQ(cuda::choice_text(std::span(both).last(1), 0), "");
}

}  // namespace
}  // namespace encore
