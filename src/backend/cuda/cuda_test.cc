// What only a CUDA device does; everything all devices do is in the conformance suite.
#include <cmath>
#include <cstring>
#include <thread>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "backend/cuda/context.h"
#include "backend/cuda/launch.h"
#include "backend/device.h"

namespace encore {
namespace {

class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      device_ = create_cuda_device();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    stream_ = device_->create_stream();
  }

  TensorView allocate(const Shape& shape, DType dtype = DType::kF32) {
    TensorView view(nullptr, dtype, shape);
    memory_.push_back(device_->allocate(view.num_bytes()));
    view.data = memory_.back().data();
    return view;
  }
  TensorView random(const Shape& shape, DType dtype, uint64_t seed) {
    const TensorView view = allocate(shape, dtype);
    device_->fill_random(*stream_, view, seed, 1.0F);
    return view;
  }
  void fill(const TensorView& view, float value) {
    stream_->fill(view.data, std::bit_cast<uint32_t>(value), view.num_bytes());
  }
  std::vector<float> read(const TensorView& view) {
    std::vector<float> host(static_cast<size_t>(view.shape.num_elements()));
    stream_->copy_to_host(host.data(), view.data, view.num_bytes());
    stream_->synchronize();
    return host;
  }
  // Binds the kernel of that name, or the one the table chooses when it is empty.
  BoundLaunch bind(std::string_view op, KernelArgs args, std::string_view name = "") {
    const Kernel* kernel = nullptr;
    if (name.empty()) kernel = &device_->kernels().choose(op, args);
    for (const Kernel& row : device_->kernels().rows()) {
      if (row.name == name) kernel = &row;
    }
    if (kernel->workspace != nullptr) {
      const Workspace workspace = kernel->workspace(args);
      const int64_t counter_bytes = workspace.num_counters * 4;
      memory_.push_back(device_->allocate(workspace.scratch_bytes));
      args.scratch = memory_.back().data();
      memory_.push_back(device_->allocate(counter_bytes));
      args.counters = reinterpret_cast<uint32_t*>(memory_.back().data());
      if (counter_bytes > 0) stream_->fill(args.counters, 0, counter_bytes);
    }
    return kernel->bind(*device_, args);
  }
  void launch(std::string_view label, const BoundLaunch& bound) {
    stream_->launch({.label = label, .id = -1, .after = {}}, bound, {});
  }
  // The error that recording `bound` under `label` gives; the stream must be usable afterwards.
  Error error_of_recording(std::string_view label, const BoundLaunch& bound) {
    try {
      RecordingScope scope(*stream_);
      launch(label, bound);
      scope.finish();
    } catch (const Error& error) {
      const TensorView probe = allocate({4});
      fill(probe, 3.0F);
      EXPECT_EQ(read(probe), (std::vector<float>{3, 3, 3, 3}));
      return error;
    }
    return {ErrorKind::kUsage, "recorded without an error"};
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<Memory> memory_;
};

TEST_F(CudaTest, NodesOfARecordingCarryTheLabelsOfTheirLaunches) {
  const TensorView x = allocate({3, 64});
  std::vector<float> host(4, 7.0F);
  const BoundLaunch add = bind("add", {.inputs = {x, x}, .outputs = {x}});
  const BoundLaunch silu = bind("silu", {.inputs = {x}, .outputs = {x}});
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
}

TEST_F(CudaTest, ALaunchThatAllocatesFromTheDeviceIsAnErrorThatNamesTheOp) {
  const Error error =
      error_of_recording("greedy_op", [&](Stream&, const StepShape&) { device_->allocate(1024); });
  EXPECT_EQ(error.kind(), ErrorKind::kCompile);
  EXPECT_NE(std::string(error.what()).find("greedy_op"), std::string::npos) << error.what();
}

TEST_F(CudaTest, ALaunchThatAllocatesBehindOurBackIsAnErrorThatNamesTheOp) {
  void* stolen = nullptr;
  const Error error = error_of_recording(
      "raw_op", [&](Stream&, const StepShape&) { (void)cudaMalloc(&stolen, 1024); });
  if (stolen != nullptr) cudaFree(stolen);
  EXPECT_EQ(error.kind(), ErrorKind::kCompile);
  EXPECT_NE(std::string(error.what()).find("raw_op"), std::string::npos) << error.what();
}

TEST_F(CudaTest, ALaunchThatSynchronisesIsAnErrorThatNamesTheOp) {
  const Error ours =
      error_of_recording("waiting_op", [](Stream& s, const StepShape&) { s.synchronize(); });
  EXPECT_EQ(ours.kind(), ErrorKind::kCompile);
  EXPECT_NE(std::string(ours.what()).find("waiting_op"), std::string::npos) << ours.what();
  const Error raw = error_of_recording("raw_wait", [](Stream& s, const StepShape&) {
    (void)cudaStreamSynchronize(cuda::handle(s));
  });
  EXPECT_EQ(raw.kind(), ErrorKind::kCompile);
  EXPECT_NE(std::string(raw.what()).find("raw_wait"), std::string::npos) << raw.what();
}

TEST_F(CudaTest, AKernelThatCannotBeLaunchedIsAnErrorThatNamesTheOp) {
  const BoundLaunch bad = [](Stream& s, const StepShape&) {
    cuda::check(cudaMemsetAsync(nullptr, 0, 64, cuda::handle(s)), "cudaMemsetAsync");
  };
  try {
    launch("bad_op", bad);
    FAIL() << "launched";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kDevice);
    EXPECT_NE(std::string(error.what()).find("bad_op"), std::string::npos) << error.what();
  }
}

TEST_F(CudaTest, MemoryFreedWhileRecordingIsFreedAfterwards) {
  const TensorView x = allocate({1024});
  const BoundLaunch silu = bind("silu", {.inputs = {TensorView(x.data, x.dtype, {4, 256})},
                                         .outputs = {TensorView(x.data, x.dtype, {4, 256})}});
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
  const BoundLaunch silu = bind("silu", {.inputs = {x}, .outputs = {x}});
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
  const BoundLaunch add = bind("add", {.inputs = {first, first}, .outputs = {first}});
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

// Each launch reads what the one before wrote, from other blocks than its own: one that starts too
// early shows.
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
  const BoundLaunch reverse = bind("gather_rows", {.inputs = {a, rows}, .outputs = {b}});
  const BoundLaunch add = bind("add", {.inputs = {b, one}, .outputs = {a}});
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

// Shapes of models, larger than the conformance suite's.
TEST_F(CudaTest, OneRowLinearAgreesWithThePlainKernelAndGivesTheSameBitsEveryTime) {
  struct Case {
    int64_t outputs;
    int64_t columns;
  };
  for (const Case& c : {Case{1, 8}, Case{5, 1032}, Case{1000, 896}, Case{4096, 14336},
                        Case{6144, 4096}, Case{2048, 11008}, Case{300, 40000}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const TensorView x = random({1, c.columns}, dtype, 1);
      const TensorView weight = random({c.outputs, c.columns}, dtype, 2);
      const TensorView bias = random({c.outputs}, dtype, 3);
      const TensorView fast = allocate({1, c.outputs});
      const TensorView plain = allocate({1, c.outputs});
      fill(fast, NAN);
      stream_->synchronize();  // weights are constants: launches read them ahead of their turn
      launch("linear",
             bind("linear", {.inputs = {x, weight, bias}, .outputs = {fast}}, "linear.gemv"));
      const std::vector<float> got = read(fast);
      launch("linear",
             bind("linear", {.inputs = {x, weight, bias}, .outputs = {fast}}, "linear.gemv"));
      EXPECT_EQ(read(fast), got);
      launch("linear",
             bind("linear", {.inputs = {x, weight, bias}, .outputs = {plain}}, "linear.plain"));
      const std::vector<float> want = read(plain);
      const double scale = std::sqrt(static_cast<double>(c.columns));
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], 1e-4 * scale) << c.outputs << "x" << c.columns << " at " << i;
      }
    }
    memory_.clear();
  }
}

// Rows of `wide` without the columns from `columns` on.
TensorView left_part(TensorView wide, int64_t columns) {
  wide.shape = {wide.num_rows(), columns};
  return wide;
}

TEST_F(CudaTest, FewRowLinearAgreesWithThePlainKernelAndGivesTheSameBitsEveryTime) {
  struct Case {
    int64_t rows;
    int64_t outputs;
    int64_t columns;
  };
  for (const Case& c :
       {Case{1, 1, 8}, Case{2, 5, 1032}, Case{3, 1000, 896}, Case{7, 6144, 4096},
        Case{8, 4096, 14336}, Case{9, 2048, 2048}, Case{16, 28672, 512}, Case{16, 333, 4104},
        Case{17, 3072, 2048}, Case{33, 1000, 4096}, Case{64, 4096, 4096}, Case{64, 70000, 320}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const TensorView x = left_part(random({c.rows, c.columns + 64}, dtype, 1), c.columns);
      const TensorView weight = random({c.outputs, c.columns}, dtype, 2);
      const TensorView bias = random({c.outputs}, dtype, 3);
      const TensorView plain = allocate({c.rows, c.outputs + 3});
      const TensorView wide = allocate({c.rows, c.outputs + 3});
      stream_->synchronize();  // weights are constants: launches read them ahead of their turn
      fill(plain, 7.0F);
      launch("linear",
             bind("linear", {.inputs = {x, weight, bias}, .outputs = {left_part(plain, c.outputs)}},
                  "linear.plain"));
      const std::vector<float> want = read(plain);
      const double tolerance = 3e-4 * std::sqrt(static_cast<double>(c.columns));
      const BoundLaunch bound =
          bind("linear", {.inputs = {x, weight, bias}, .outputs = {left_part(wide, c.outputs)}},
               "linear.fewrow");
      std::vector<float> first;
      for (int repeat = 0; repeat < 3; ++repeat) {
        fill(wide, 7.0F);
        launch("linear", bound);
        launch("linear", bound);
        const std::vector<float> got = read(wide);
        if (repeat == 0) first = got;
        ASSERT_EQ(got, first);
      }
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(first[i], want[i], tolerance)
            << c.rows << "x" << c.outputs << "x" << c.columns << " at " << i;
      }
    }
    memory_.clear();
  }
}

TEST_F(CudaTest, FewRowLinearWritesEveryOutputDtypeAndStride) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t beside : {0, 1, 2}) {
      constexpr int64_t kRows = 13;
      constexpr int64_t kOutputs = 1001;
      const TensorView x = random({kRows, 1024}, dtype, 1);
      const TensorView weight = random({kOutputs, 1024}, dtype, 2);
      const TensorView wide = allocate({kRows, kOutputs + beside}, dtype);
      std::vector<std::vector<std::byte>> results;
      stream_->synchronize();
      for (const char* name : {"linear.fewrow", "linear.plain"}) {
        auto& bytes = results.emplace_back(static_cast<size_t>(wide.num_bytes()));
        stream_->fill(wide.data, 0x7fc07fc0, wide.num_bytes() / 4 * 4);
        launch(
            "linear",
            bind("linear", {.inputs = {x, weight}, .outputs = {left_part(wide, kOutputs)}}, name));
        stream_->copy_to_host(bytes.data(), wide.data, wide.num_bytes());
        stream_->synchronize();
      }
      visit_float(dtype, [&](auto zero) {
        using T = decltype(zero);
        const auto* got = reinterpret_cast<const T*>(results[0].data());
        const auto* want = reinterpret_cast<const T*>(results[1].data());
        for (int64_t i = 0; i < kRows * (kOutputs + beside) - 1; ++i) {
          if (i % (kOutputs + beside) >= kOutputs) {
            ASSERT_EQ(0, std::memcmp(got + i, want + i, 2)) << "written beside, at " << i;
          } else {
            const float value = static_cast<float>(want[i]);
            ASSERT_NEAR(static_cast<float>(got[i]), value, 1e-2 + 1e-2 * std::abs(value)) << i;
          }
        }
      });
      memory_.clear();
    }
  }
}

TEST_F(CudaTest, ARowOfFewRowLinearHasTheSameBitsWhateverTheOtherRowsAre) {
  const TensorView weight = random({4096, 2048}, DType::kBF16, 2);
  const TensorView x = random({16, 2048}, DType::kBF16, 1);
  const TensorView out = allocate({16, 4096});
  stream_->synchronize();
  const auto bits = [&](int64_t rows) {
    TensorView some_x = x;
    some_x.shape = {rows, 2048};
    TensorView some_out = out;
    some_out.shape = {rows, 4096};
    fill(out, NAN);
    launch("linear",
           bind("linear", {.inputs = {some_x, weight}, .outputs = {some_out}}, "linear.fewrow"));
    std::vector<float> all = read(out);
    all.resize(9 * 4096);
    return all;
  };
  const std::vector<float> all = bits(16);
  EXPECT_EQ(bits(9), all);
  stream_->fill(x.row<uint16_t>(9), 0x7fc07fc0, 7 * 2048 * 2);
  EXPECT_EQ(bits(16), all);
}

TEST_F(CudaTest, CublasLtHonoursRowStridesBiasAndOutputDtype) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const DType out_dtype : {dtype, DType::kF32}) {
      TensorView x = random({37, 256}, dtype, 1);
      x.shape = {37, 192};  // a column slice
      const TensorView weight = random({72, 192}, dtype, 2);
      const TensorView bias = random({72}, dtype, 3);
      const TensorView wide = allocate({37, 128}, out_dtype);
      TensorView out = wide;
      out.shape = {37, 72};
      std::vector<std::vector<std::byte>> results;
      for (const char* name : {"linear.cublaslt", "linear.plain"}) {
        stream_->fill(wide.data, 0, wide.num_bytes());
        launch("linear", bind("linear", {.inputs = {x, weight, bias}, .outputs = {out}}, name));
        auto& bytes = results.emplace_back(static_cast<size_t>(wide.num_bytes()));
        stream_->copy_to_host(bytes.data(), wide.data, wide.num_bytes());
        stream_->synchronize();
      }
      for (int64_t i = 0; i < 37 * 128; ++i) {
        const auto value = [&](const std::vector<std::byte>& bytes) {
          return visit_float(out_dtype, [&](auto zero) {
            using T = decltype(zero);
            return static_cast<float>(reinterpret_cast<const T*>(bytes.data())[i]);
          });
        };
        const float want = value(results[1]);
        ASSERT_NEAR(value(results[0]), want, 1e-2 + 1e-2 * std::abs(want))
            << name(dtype) << " to " << name(out_dtype) << " at " << i;
      }
      memory_.clear();
    }
  }
}

TEST_F(CudaTest, LaunchesOverNoRowsDoNothing) {
  const TensorView x(nullptr, DType::kBF16, {0, 64});
  const TensorView weight = allocate({64, 64}, DType::kBF16);
  const TensorView scale = allocate({64}, DType::kBF16);
  launch("add", bind("add", {.inputs = {x, x}, .outputs = {x}}));
  launch("linear", bind("linear", {.inputs = {x, weight}, .outputs = {x}}));
  launch("rms_norm",
         bind("rms_norm", {.inputs = {x, scale}, .outputs = {x}, .attrs = {{"eps", 1e-5}}}));
  stream_->synchronize();
}

}  // namespace
}  // namespace encore
