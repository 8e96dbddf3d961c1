// Tests cuBLASLt's algorithms, and the choice between them by measurement.
#include <bit>
#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "backend/cuda/device/device.h"
#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"

namespace encore {
namespace {

namespace fs = std::filesystem;
using cuda::CublasLt;
using cuda::MatmulShape;

constexpr int64_t kRows = 136;
constexpr int64_t kColumns = 512;
constexpr int64_t kOutputs = 768;

MatmulShape shape_of(int64_t rows) {
  MatmulShape shape;
  shape.rows = rows;
  shape.columns = shape.x_stride = shape.weight_stride = kColumns;
  shape.outputs = shape.out_stride = kOutputs;
  shape.in_dtype = shape.out_dtype = DType::kBF16;
  return shape;
}

class CudaTuning : public testing::Test {
 protected:
  void SetUp() override {
    try {
      start();
      stream_ = device_->create_stream();
      const auto allocate = [&](const Shape& shape, DType dtype) {
        TensorView view(nullptr, dtype, shape);
        memory_.push_back(device_->allocate(view.num_bytes()));
        view.data = memory_.back().data();
        return view;
      };
      args_.inputs = {{"x", allocate({kRows, kColumns}, DType::kBF16)},
                      {"weight", allocate({kOutputs, kColumns}, DType::kBF16)}};
      args_.outputs = {{"y", allocate({kRows, kOutputs}, DType::kF32)}};
      memory_.push_back(device_->allocate(CublasLt::workspace_bytes(kRows, kOutputs)));
      args_.scratch = memory_.back().data();
      for (const TensorView& input : args_.inputs)
        device_->fill_random(*stream_, input, 7, 1.0F);
      stream_->synchronize();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  // Makes a new device that has neither opened cuBLASLt nor tuned anything, as in a new process.
  void start() {
    device_ = create_cuda_device();
    device_->tuner().configure({Tune::kOn, dir_.path()});
  }
  CublasLt& library() { return static_cast<cuda::CudaDevice&>(*device_).cublaslt(); }
  BoundLaunch bind() {
    for (const Kernel& kernel : device_->kernels().rows()) {
      if (kernel.name == "linear.cublaslt") return kernel.bind(*device_, args_);
    }
    return nullptr;
  }
  // Launches the product and returns the bits of its output.
  std::vector<uint32_t> run(const BoundLaunch& launch) {
    const TensorView& out = args_.outputs["y"];
    stream_->fill(out.data, 0xffffffffU, out.num_bytes());
    stream_->launch({.label = "linear", .id = 0, .after = {}}, launch, {});
    std::vector<uint32_t> bits(out.shape.num_elements());
    stream_->copy_to_host(bits.data(), out.data, out.num_bytes());
    stream_->synchronize();
    return bits;
  }

  TempDir dir_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::vector<Memory> memory_;
  KernelArgs args_;
};

// Returns the relative distance of two outputs.
double distance(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = std::bit_cast<float>(a[i]);
    const double y = std::bit_cast<float>(b[i]);
    difference += (x - y) * (x - y);
    size += y * y;
  }
  return std::sqrt(difference / size);
}

TEST_F(CudaTuning, AlgorithmsAreReadBackAndOthersRefused) {
  const std::vector<std::string> algorithms = library().algorithms(shape_of(kRows), 8);
  ASSERT_GT(algorithms.size(), 1U);
  for (const std::string& algorithm : algorithms)
    EXPECT_NE(library().plan(shape_of(kRows), algorithm), nullptr) << algorithm;
  MatmulShape other = shape_of(kRows);
  other.out_dtype = DType::kF32;
  const std::string code = library().code(shape_of(kRows), algorithms[0]);
  EXPECT_EQ(library().code(shape_of(2 * kRows), algorithms[0]), code);
  EXPECT_NE(library().code(other, algorithms[0]), code);
  for (const std::string& wrong :
       {std::string(), std::string("0"), std::string("0 0 0 0 0 0 0 0"), algorithms[0] + " 0",
        "x" + algorithms[0], std::string("ffffffff ffffffff ffff ffff ffff ffff ffff ffff")})
    EXPECT_EQ(library().plan(shape_of(kRows), wrong), nullptr) << wrong;
}

TEST_F(CudaTuning, EveryAlgorithmComputesTheProductAndTheSameBitsEachTime) {
  const BoundLaunch untuned = bind();
  const std::vector<uint32_t> expected = run(untuned);
  MatmulShape shape = shape_of(kRows);
  shape.out_dtype = DType::kF32;
  for (const std::string& algorithm : library().algorithms(shape, 16)) {
    const auto plan = library().plan(shape, algorithm);
    ASSERT_NE(plan, nullptr);
    const CublasLt::Matmul matmul(library(), plan,
                                  {args_.inputs["x"].data, args_.inputs["weight"].data, nullptr,
                                   args_.outputs["y"].data, args_.scratch});
    const BoundLaunch launch = [&](Stream& stream, const StepLengths&) {
      matmul.launch(cuda::handle(stream));
    };
    const std::vector<uint32_t> bits = run(launch);
    EXPECT_LT(distance(bits, expected), 1e-5) << algorithm;
    EXPECT_EQ(run(launch), bits) << algorithm;
  }
}

TEST_F(CudaTuning, ATunedLinearIsMeasuredOnceAndRememberedByTheNextProcess) {
  std::vector<uint32_t> bits;
  {
    const Tuner::Phase phase(device_->tuner());
    bits = run(bind());
    EXPECT_EQ(run(bind()), bits);
  }
  EXPECT_EQ(device_->tuner().stats().measured, 1);
  start();
  EXPECT_EQ(run(bind()), bits);
  EXPECT_EQ(device_->tuner().stats().cached, 1);
  EXPECT_EQ(device_->tuner().stats().measured, 0);
}

TEST_F(CudaTuning, MeasuringWhileRecordingIsAnErrorThatNamesTheOp) {
  (void)library();
  const Tuner::Phase phase(device_->tuner());
  const std::string message = message_of(ErrorKind::kCompile, [&] {
    RecordingScope scope(*stream_);
    stream_->launch({.label = "late_op", .id = 0, .after = {}},
                    [&](Stream&, const StepLengths&) { (void)bind(); }, {});
  });
  EXPECT_NE(message.find("late_op"), std::string::npos) << message;
  (void)bind();
  EXPECT_EQ(device_->tuner().stats().measured, 1);
}

}  // namespace
}  // namespace encore
