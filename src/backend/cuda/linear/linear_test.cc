// Tests the kernels of linear with shapes of models, which are larger than those of the conformance
// suite.
#include <bit>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cuda/testing/cuda_fixture.h"
#include "backend/tuning.h"
#include "base/rounding.h"

namespace encore {
namespace {

using Case = ProductShape;

TEST_F(CudaTest, LinearOfUpToFourRowsAgreesWithThePlainKernelAndGivesTheSameBitsEveryTime) {
  for (const Case& c :
       {Case{1, 1, 8}, Case{1, 5, 1032}, Case{1, 1000, 896}, Case{1, 4096, 14336},
        Case{1, 6144, 4096}, Case{1, 2048, 11008}, Case{1, 300, 40000}, Case{2, 1, 8},
        Case{2, 1003, 1032}, Case{2, 6144, 4096}, Case{2, 512, 14336}, Case{3, 5, 1032},
        Case{3, 4096, 2048}, Case{4, 1000, 896}, Case{4, 1024, 14336}, Case{4, 40000, 512}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      const TensorView x = left_part(random({c.rows, c.columns + 64}, dtype, 1), c.columns);
      const TensorView weight = random({c.outputs, c.columns}, dtype, 2);
      const TensorView bias = random({c.outputs}, dtype, 3);
      const TensorView fast = allocate({c.rows, c.outputs});
      const TensorView plain = allocate({c.rows, c.outputs});
      fill(fast, NAN);
      stream_->synchronize();  // weights are constants: launches read them ahead of their turn
      launch("linear", bind("linear",
                            {.inputs = {{"x", x}, {"weight", weight}, {"bias", bias}},
                             .outputs = {{"y", fast}}},
                            "linear.gemv"));
      const std::vector<float> got = read(fast);
      launch("linear", bind("linear",
                            {.inputs = {{"x", x}, {"weight", weight}, {"bias", bias}},
                             .outputs = {{"y", fast}}},
                            "linear.gemv"));
      EXPECT_EQ(read(fast), got);
      launch("linear", bind("linear",
                            {.inputs = {{"x", x}, {"weight", weight}, {"bias", bias}},
                             .outputs = {{"y", plain}}},
                            "linear.plain"));
      const std::vector<float> want = read(plain);
      const double tolerance = 1e-4 * std::sqrt(static_cast<double>(c.columns));
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(got[i], want[i], tolerance)
            << c.rows << "x" << c.outputs << "x" << c.columns << " at " << i;
      }
    }
    memory_.clear();
  }
}

TEST_F(CudaTest, LinearOfRowsForWhichTwoKernelsCompeteAgreesWithThePlainOne) {
  device_->tuner().configure({.tune = Tune::kFresh, .cache = {}});
  const Tuner::Phase tuning(device_->tuner());
  const TensorView weight = random({1000, 1024}, DType::kBF16, 2);
  const TensorView bias = random({1000}, DType::kBF16, 3);
  for (const int64_t rows : {33, 72, 128}) {
    const TensorView x = random({rows, 1024}, DType::kBF16, 1);
    const TensorView out = allocate({rows, 1000});
    stream_->synchronize();
    const KernelArgs args{.inputs = {{"x", x}, {"weight", weight}, {"bias", bias}},
                          .outputs = {{"y", out}}};
    EXPECT_EQ(device_->kernels().choose("linear", args).name, "linear.fastest");
    launch("linear", bind("linear", args, "linear.plain"));
    const std::vector<float> want = read(out);
    fill(out, NAN);
    launch("linear", bind("linear", args));
    const std::vector<float> got = read(out);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 1e-2) << rows << " rows, at " << i;
    }
  }
}

TEST_F(CudaTest, FusedLinearOfRowsForWhichTwoKernelsCompeteAgreesWithItsParts) {
  device_->tuner().configure({.tune = Tune::kFresh, .cache = {}});
  const Tuner::Phase tuning(device_->tuner());
  const TensorView weight = random({1008, 1024}, DType::kBF16, 2);
  for (const int64_t rows : {33, 72, 128}) {
    const TensorView x = random({rows, 1024}, DType::kBF16, 1);
    const TensorView out = allocate({rows, 504}, DType::kBF16);
    stream_->synchronize();
    const KernelArgs args{.inputs = {{"x", x}, {"weight", weight}},
                          .outputs = {{"y", out}},
                          .attrs = {{"epilogue", std::string("silu_mul")}}};
    EXPECT_EQ(device_->kernels().choose("fused_linear", args).name, "fused_linear.fastest");
    launch("fused_linear", bind_parts("fused_linear", args));
    const std::vector<uint16_t> want = read_bits(out);
    fill(out, NAN);
    launch("fused_linear", bind("fused_linear", args));
    const std::vector<uint16_t> got = read_bits(out);
    for (size_t i = 0; i < want.size(); ++i) {
      const float value = of_bf16(want[i]);
      ASSERT_NEAR(of_bf16(got[i]), value, 2e-2 + 2e-2 * std::abs(value))
          << rows << " rows, at " << i;
    }
  }
}

// Weights are codes with scales by row or by block. x has 16 bits, or is rounded to codes as well.
// The plain kernel adds in float, but with x in codes the tensor cores keep only some 14 bits of
// each sum over 128 columns, which the bound of 4e-3 allows for.
TEST_F(CudaTest, LinearOfCodesAgreesWithThePlainKernelAndGivesTheSameBitsEveryTime) {
  struct CodeCase {
    ProductShape shape;
    int64_t fp8_rows;  // 0: x is not rounded
    const char* kernel;
  };
  for (const CodeCase& c : {CodeCase{{1, 6144, 4096}, 0, "linear.gemv"},
                            CodeCase{{1, 1000, 11008}, 0, "linear.gemv"},
                            CodeCase{{2, 4096, 14336}, 0, "linear.gemv"},
                            CodeCase{{3, 8, 1040}, 0, "linear.gemv"},
                            CodeCase{{4, 6144, 4096}, 0, "linear.gemv"},
                            CodeCase{{5, 6144, 4096}, 0, "linear.skinny_gemm"},
                            CodeCase{{8, 4096, 14336}, 0, "linear.skinny_gemm"},
                            CodeCase{{32, 1000, 11008}, 0, "linear.skinny_gemm"},
                            CodeCase{{40, 1024, 1040}, 0, "linear.skinny_gemm"},
                            CodeCase{{100, 1024, 2048}, 0, "linear.skinny_gemm"},
                            CodeCase{{300, 1024, 2048}, 0, "linear.skinny_gemm"},
                            CodeCase{{5, 6144, 4096}, 1, "linear.skinny_gemm"},
                            CodeCase{{33, 6144, 4096}, 33, "linear.skinny_gemm"},
                            CodeCase{{64, 4096, 14336}, 33, "linear.skinny_gemm"},
                            CodeCase{{100, 1008, 11008}, 33, "linear.faster_fp8"},
                            CodeCase{{100, 1000, 11008}, 33, "linear.skinny_gemm"},
                            CodeCase{{200, 1024, 1040}, 33, "linear.faster_fp8"},
                            CodeCase{{256, 1024, 4096}, 33, "linear.faster_fp8"},
                            CodeCase{{257, 1024, 4096}, 33, "linear.gemm_fp8"},
                            CodeCase{{512, 6144, 4096}, 33, "linear.gemm_fp8"},
                            CodeCase{{1000, 1040, 1040}, 33, "linear.gemm_fp8"}}) {
    const auto [rows, outputs, columns] = c.shape;
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const bool by_block : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {}x{}x{} {} {}", c.kernel, rows, outputs, columns, name(dtype),
                                 by_block ? "by block" : "by row"));
        const TensorView x = left_part(random({rows, columns + 64}, dtype, 1), columns);
        const TensorView weight = random({outputs, columns}, DType::kFP8, 2);
        const TensorView bias = random({outputs}, dtype, 3);
        const Shape scales =
            by_block ? Shape{div_up(outputs, int64_t{128}), div_up(columns, int64_t{128})}
                     : Shape{outputs};
        const TensorView scale = random(scales, DType::kF32, 4);
        const TensorView out = allocate({rows, outputs}, dtype);
        KernelArgs args{.inputs = {{"x", x}, {"weight", weight}, {"scale", scale}, {"bias", bias}},
                        .outputs = {{"y", out}}};
        if (c.fp8_rows > 0) args.attrs.set("fp8_rows", c.fp8_rows);
        stream_->synchronize();
        EXPECT_EQ(device_->kernels().choose("linear", args).name, c.kernel);
        const auto numbers = [&](std::string_view kernel) {
          fill(out, NAN);
          launch("linear", bind("linear", args, kernel));
          const std::vector<uint16_t> bits = read_bits(out);
          return bits;
        };
        const std::vector<uint16_t> got = numbers(c.kernel);
        EXPECT_EQ(numbers(c.kernel), got);
        const std::vector<uint16_t> want = numbers("linear.plain");
        const auto value = [&](uint16_t bits) {
          return dtype == DType::kBF16 ? of_bf16(bits)
                                       : static_cast<float>(std::bit_cast<Float16>(bits));
        };
        double squares = 0;
        double errors = 0;
        for (size_t i = 0; i < want.size(); ++i) {
          squares += value(want[i]) * value(want[i]);
          errors += std::pow(value(got[i]) - value(want[i]), 2);
        }
        EXPECT_LT(std::sqrt(errors / squares), 4e-3);
        memory_.clear();
      }
    }
  }
}

// The bits of a row of the result depend neither on the rows beside it nor, within one padded
// number of rows, on how many they are. With `batch_invariant` they do not depend on the number of
// rows at all.
TEST_F(CudaTest, LinearOfCodesGivesARowItsBitsWhateverIsBesideIt) {
  constexpr int64_t kOutputs = 1024;
  constexpr int64_t kColumns = 2048;
  for (const bool by_block : {false, true}) {
    for (const int64_t fp8_rows : {0, 1}) {
      const TensorView x = random({600, kColumns}, DType::kBF16, 1);
      const TensorView weight = random({kOutputs, kColumns}, DType::kFP8, 2);
      const TensorView scale = random(
          by_block ? Shape{kOutputs / 128, kColumns / 128} : Shape{kOutputs}, DType::kF32, 4);
      std::vector<uint16_t> first;
      for (const int64_t rows : {1, 4, 9, 64, 130, 256, 300, 600}) {
        const TensorView out = allocate({rows, kOutputs}, DType::kBF16);
        KernelArgs args{
            .inputs = {{"x", upper_part(x, rows)}, {"weight", weight}, {"scale", scale}},
            .outputs = {{"y", out}}};
        args.batch_invariant = true;
        if (fp8_rows > 0) args.attrs.set("fp8_rows", fp8_rows);
        stream_->synchronize();
        launch("linear", bind("linear", args));
        std::vector<uint16_t> bits = read_bits(out);
        bits.resize(kOutputs);
        if (first.empty()) first = bits;
        EXPECT_EQ(bits, first) << rows << " rows, fp8_rows " << fp8_rows;
      }
      memory_.clear();
    }
  }
}

TEST_F(CudaTest, FusedLinearOfCodesAgreesWithItsParts) {
  for (const ProductShape& shape :
       {ProductShape{1, 2048, 4096}, ProductShape{3, 2048, 1040}, ProductShape{8, 2048, 4096},
        ProductShape{64, 2048, 4096}, ProductShape{300, 2048, 4096}}) {
    const auto [rows, outputs, columns] = shape;
    for (const bool by_block : {false, true}) {
      const TensorView x = random({rows, columns}, DType::kBF16, 1);
      const TensorView weight = random({outputs, columns}, DType::kFP8, 2);
      const TensorView scale =
          allocate(by_block ? Shape{outputs / 128, div_up(columns, int64_t{128})} : Shape{outputs});
      fill(scale, 0.001F);
      const TensorView out = allocate({rows, outputs / 2}, DType::kBF16);
      KernelArgs args{.inputs = {{"x", x}, {"weight", weight}, {"scale", scale}},
                      .outputs = {{"y", out}},
                      .attrs = {{"epilogue", std::string("silu_mul")}, {"fp8_rows", int64_t{33}}}};
      stream_->synchronize();
      launch("fused_linear", bind_parts("fused_linear", args));
      const std::vector<uint16_t> want = read_bits(out);
      fill(out, NAN);
      launch("fused_linear", bind("fused_linear", args));
      const std::vector<uint16_t> got = read_bits(out);
      for (size_t i = 0; i < want.size(); ++i) {
        const float value = of_bf16(want[i]);
        ASSERT_NEAR(of_bf16(got[i]), value, 2e-2 + 2e-2 * std::abs(value))
            << rows << " rows, at " << i;
      }
      memory_.clear();
    }
  }
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
        launch("linear", bind("linear",
                              {.inputs = {{"x", x}, {"weight", weight}, {"bias", bias}},
                               .outputs = {{"y", out}}},
                              name));
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

}  // namespace
}  // namespace encore
