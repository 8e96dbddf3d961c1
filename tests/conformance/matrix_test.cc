// Tests linear, the norms, the elementwise ops and rope.
#include <algorithm>
#include <cmath>

#include "harness.h"

namespace encore::conformance {
namespace {

using ir::Dim;

const int64_t kRows[] = {0, 1, 2, 3, 7, 33, 130};
const int64_t kColumns[] = {1, 5, 64, 72, 320, 1000, 4097};

TEST_P(Conformance, AddAndMulAgree) {
  for (const int64_t rows : cases(kRows, 3)) {
    for (const int64_t n : cases(kColumns, 3)) {
      SCOPED_TRACE(at(rows, n));
      const StepKey step = tokens(rows);
      const HostTensor a = random_.tensor(tokens_by(n), step.sizes());
      const HostTensor b = random_.tensor(tokens_by(n), step.sizes());
      const Tolerance tolerance{.ulps = 1, .floor_rms = 1};
      expect_agrees({.op = "add", .inputs = {a, b}, .step = step}, {reference::add(a, b)},
                    tolerance);
      expect_agrees({.op = "mul", .inputs = {a, b}, .step = step}, {reference::mul(a, b)},
                    tolerance);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, SiluAndItsProductAgree) {
  for (const int64_t rows : cases(kRows, 3)) {
    for (const int64_t n : cases(kColumns, 3)) {
      SCOPED_TRACE(at(rows, n));
      const StepKey step = tokens(rows);
      const HostTensor gate = random_.tensor(tokens_by(n), step.sizes(), 4);
      const HostTensor up = random_.tensor(tokens_by(n), step.sizes());
      const HostTensor silu = reference::silu(gate);
      expect_agrees({.op = "silu", .inputs = {gate}, .step = step}, {silu}, {.ulps = 2});
      expect_agrees({.op = "silu_mul", .inputs = {gate, up}, .step = step},
                    {reference::mul(silu, up)}, {.ulps = 2});
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, SiluHasItsLimits) {
  const StepKey step = tokens(1);
  const std::vector<double> values = {-60000, -200, -100, -20, 0, 20, 100, 60000};
  HostTensor x = tensor_of(tokens_by(8), step.sizes(), values);
  for (double& value : x.values)
    value = round_to(dtype(), value);
  const std::vector<Output> y = run(device(), {.op = "silu", .inputs = {x}, .step = step});
  for (int64_t i = 0; i < 8; ++i) {
    const double expected = x.values[i] / (1 + std::exp(-x.values[i]));
    EXPECT_NEAR(y[0].tensor.values[i], expected, std::fabs(expected) * 0x1p-7 + 1e-6);
  }
}

TEST_P(Conformance, RmsNormAgrees) {
  for (const int64_t rows : cases(kRows, 3)) {
    for (const int64_t n : cases(kColumns, 3)) {
      SCOPED_TRACE(at(rows, n));
      const StepKey step = tokens(rows);
      const HostTensor x = random_.tensor(tokens_by(n), step.sizes(), 3);
      const HostTensor weight = random_.tensor(type_of(dtype(), {n}), {});
      expect_agrees(
          {.op = "rms_norm", .inputs = {x, weight}, .attrs = {{"eps", 1e-5}}, .step = step},
          {reference::rms_norm(x, weight, 1e-5)});
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, RmsNormWithAnOffsetAgrees) {
  for (const int64_t n : {64, 320, 4096}) {
    const StepKey step = tokens(5);
    const HostTensor x = random_.tensor(tokens_by(n), step.sizes(), 3);
    const HostTensor residual = random_.tensor(tokens_by(n), step.sizes(), 2);
    const HostTensor weight = random_.tensor(type_of(dtype(), {n}), {}, 0.1);
    const ir::Attrs attrs{{"eps", 1e-5}, {"offset", 1.0}};
    expect_agrees({.op = "rms_norm", .inputs = {x, weight}, .attrs = attrs, .step = step},
                  {reference::rms_norm(x, weight, 1e-5, 1)});
    HostTensor sum = reference::add(x, residual);
    const HostTensor exact = sum;
    for (double& value : sum.values)
      value = round_to(dtype(), value);
    expect_agrees({.op = "rms_norm",
                   .inputs = {x, weight, {"residual", residual}},
                   .attrs = attrs,
                   .step = step},
                  {exact, reference::rms_norm(sum, weight, 1e-5, 1)}, {.ulps = 2, .floor_rms = 1});
  }
}

TEST_P(Conformance, AllReduceWithANormBehindItAgrees) {
  for (const int64_t rows : {0, 1, 7, 200}) {
    for (const int64_t n : {8, 72, 1000, 4096}) {
      SCOPED_TRACE(at(rows, n));
      const StepKey step = tokens(rows);
      const HostTensor x = random_.tensor(tokens_by(n), step.sizes(), 3);
      const HostTensor residual = random_.tensor(tokens_by(n), step.sizes(), 2);
      const HostTensor weight = random_.tensor(type_of(dtype(), {n}), {}, 0.1);
      HostTensor sum = reference::add(x, residual);
      const HostTensor exact = sum;
      for (double& value : sum.values)
        value = round_to(dtype(), value);
      expect_agrees({.op = "all_reduce_add_rms_norm",
                     .inputs = {x, residual, weight},
                     .attrs = {{"of", std::string("layer 5")}, {"eps", 1e-5}, {"offset", 1.0}},
                     .step = step},
                    {exact, reference::rms_norm(sum, weight, 1e-5, 1)},
                    {.ulps = 2, .floor_rms = 1});
    }
  }
}

TEST_P(Conformance, GeluTanhAndSoftcapAgree) {
  for (const int64_t n : {5, 64, 1000}) {
    const StepKey step = tokens(7);
    const HostTensor x = random_.tensor(tokens_by(n), step.sizes(), 4);
    expect_agrees({.op = "gelu_tanh", .inputs = {x}, .step = step}, {reference::gelu_tanh(x)},
                  {.ulps = 8, .floor_rms = 1});
    expect_agrees({.op = "softcap", .inputs = {x}, .attrs = {{"cap", 3.0}}, .step = step},
                  {reference::softcap(x, 3)}, {.ulps = 4, .floor_rms = 1});
  }
}

TEST_P(Conformance, RmsNormPerHeadAgrees) {
  struct Heads {
    int64_t count;
    int64_t size;
  };
  for (const Heads heads : {Heads{1, 64}, {3, 128}, {14, 64}, {5, 80}, {32, 128}}) {
    for (const int64_t rows : cases(kRows, 3)) {
      SCOPED_TRACE(at(rows, heads.count * heads.size));
      const StepKey step = tokens(rows);
      const HostTensor x = random_.tensor(tokens_by(heads.count * heads.size), step.sizes());
      const HostTensor weight = random_.tensor(type_of(dtype(), {heads.size}), {});
      expect_agrees(
          {.op = "rms_norm", .inputs = {x, weight}, .attrs = {{"eps", 1e-6}}, .step = step},
          {reference::rms_norm(x, weight, 1e-6)});
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, RmsNormOfSmallNumbersFeelsEpsilon) {
  const StepKey step = tokens(3);
  const HostTensor x = random_.tensor(tokens_by(96), step.sizes(), 1e-3);
  const HostTensor weight = random_.tensor(type_of(dtype(), {96}), {});
  expect_agrees({.op = "rms_norm", .inputs = {x, weight}, .attrs = {{"eps", 1e-2}}, .step = step},
                {reference::rms_norm(x, weight, 1e-2)});
}

TEST_P(Conformance, RmsNormOfASumAgrees) {
  for (const int64_t rows : cases(kRows, 3)) {
    for (const int64_t n : cases(kColumns, 3)) {
      SCOPED_TRACE(at(rows, n));
      const StepKey step = tokens(rows);
      const HostTensor x = random_.tensor(tokens_by(n), step.sizes());
      const HostTensor residual = random_.tensor(tokens_by(n), step.sizes(), 2);
      const HostTensor weight = random_.tensor(type_of(dtype(), {n}), {});
      HostTensor sum = reference::add(x, residual);
      const HostTensor exact = sum;
      for (double& value : sum.values)
        value = round_to(dtype(), value);
      OpCase c{.op = "rms_norm",
               .inputs = {x, weight, {"residual", residual}},
               .attrs = {{"eps", 1e-5}},
               .step = step};
      expect_agrees(c, {exact, reference::rms_norm(sum, weight, 1e-5)},
                    {.ulps = 2, .floor_rms = 1});
      c.in_place = {{"sum", "x"}, {"y", "residual"}};
      OpCase apart = c;
      apart.in_place = {};
      expect_same_bits(run(device(), c), run(device(), apart));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, RmsNormOfASumAgreesByGroup) {
  const StepKey step = tokens(5);
  const HostTensor x = random_.tensor(tokens_by(3 * 64), step.sizes());
  const HostTensor residual = random_.tensor(tokens_by(3 * 64), step.sizes(), 2);
  const HostTensor weight = random_.tensor(type_of(dtype(), {64}), {});
  HostTensor sum = reference::add(x, residual);
  const HostTensor exact = sum;
  for (double& value : sum.values)
    value = round_to(dtype(), value);
  expect_agrees({.op = "rms_norm",
                 .inputs = {x, weight, {"residual", residual}},
                 .attrs = {{"eps", 1e-5}},
                 .step = step},
                {exact, reference::rms_norm(sum, weight, 1e-5)}, {.ulps = 2, .floor_rms = 1});
}

// In a long row, rounding errors average out: as a share of the row's norm, one rounding leaves an
// error of 0.2 units in the last place, and two roundings leave sqrt(2) times as much, 0.28. So the
// tolerance of 0.235 tells whether the norm was taken of the rounded sum, as the op requires.
TEST_P(Conformance, RmsNormOfASumIsOfTheRoundedSum) {
  if (dtype() == DType::kF32) GTEST_SKIP() << "f32 sums are rounded as finely as they are added";
  const StepKey step = tokens(4);
  const HostTensor x = random_.tensor(tokens_by(8192), step.sizes());
  const HostTensor residual = random_.tensor(tokens_by(8192), step.sizes());
  HostTensor weight = random_.tensor(type_of(dtype(), {8192}), {});
  std::fill(weight.values.begin(), weight.values.end(), 1.0);
  const std::vector<Output> y = run(device(), {.op = "rms_norm",
                                               .inputs = {x, weight, {"residual", residual}},
                                               .attrs = {{"eps", 1e-5}},
                                               .step = step});
  expect_close(y[1].tensor, reference::rms_norm(y[0].tensor, weight, 1e-5), {.ulps = 0.235});
}

TEST_P(Conformance, LinearAgrees) {
  struct Sizes {
    int64_t in;
    int64_t out;
  };
  constexpr Sizes kSizes[] = {{64, 72},   {1, 1},    {5, 3},      {72, 5},   {320, 130},
                              {1000, 33}, {4097, 7}, {256, 1000}, {1024, 64}};
  // A quick run takes one size, whose last tiles are half full in every direction.
  for (const Sizes sizes : cases(kSizes, 9)) {
    const HostTensor weight = random_.tensor(type_of(dtype(), {sizes.out, sizes.in}), {}, 0.5);
    const HostTensor bias = random_.tensor(type_of(dtype(), {sizes.out}), {});
    for (const int64_t rows : cases(kRows, 3)) {
      SCOPED_TRACE(at(rows, sizes.in) + ", outputs " + std::to_string(sizes.out));
      const StepKey step = tokens(rows);
      const HostTensor x = random_.tensor(tokens_by(sizes.in), step.sizes());
      // The I products of a sum cancel, so the rounding error grows with the size of the products
      // and not with that of the sum.
      const double size = 0.5 * std::sqrt(static_cast<double>(sizes.in));
      const Tolerance tolerance{.ulps = dtype() == DType::kF32 ? 8.0 : 1.0, .floor_rms = size};
      expect_agrees({.op = "linear", .inputs = {x, weight}, .step = step},
                    {reference::linear(x, weight, nullptr)}, tolerance);
      expect_agrees({.op = "linear", .inputs = {x, weight, {"bias", bias}}, .step = step},
                    {reference::linear(x, weight, &bias)}, tolerance);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, LinearOfManyRowsAgrees) {
  struct Sizes {
    int64_t in;
    int64_t out;
  };
  constexpr Sizes kSizes[] = {{136, 72}, {1088, 77}, {64, 1000}};
  constexpr int64_t kManyRows[] = {65, 96, 128, 200, 256, 530};
  for (const Sizes sizes : cases(kSizes, 3)) {
    const HostTensor weight = random_.tensor(type_of(dtype(), {sizes.out, sizes.in}), {}, 0.5);
    const double size = 0.5 * std::sqrt(static_cast<double>(sizes.in));
    for (const int64_t rows : cases(kManyRows, 6)) {
      SCOPED_TRACE(at(rows, sizes.in) + ", outputs " + std::to_string(sizes.out));
      const StepKey step = tokens(rows);
      const HostTensor x = random_.tensor(tokens_by(sizes.in), step.sizes());
      expect_agrees({.op = "linear", .inputs = {x, weight}, .step = step},
                    {reference::linear(x, weight, nullptr)},
                    {.ulps = dtype() == DType::kF32 ? 8.0 : 1.0, .floor_rms = size});
    }
  }
}

TEST_P(Conformance, LinearGivesLogitsInFloat) {
  for (const int64_t rows : {1, 3, 33}) {
    const StepKey step = StepKey::uniform(rows);
    const HostTensor x = random_.tensor(type_of(dtype(), {Dim::sequences(), 320}), step.sizes());
    const int64_t out = is_thorough() ? 1003 : 67;
    const HostTensor weight = random_.tensor(type_of(dtype(), {out, 320}), {}, 0.5);
    const std::vector<Output> y = run(
        device(), {.op = "linear", .inputs = {x, weight}, .attrs = {{"out", "f32"}}, .step = step});
    ASSERT_EQ(y[0].tensor.type.dtype, DType::kF32);
    expect_close(y[0].tensor, reference::linear(x, weight, nullptr), {.ulps = 8, .floor_rms = 9});
  }
}

TEST_P(Conformance, RopeAgrees) {
  struct Heads {
    int64_t count;
    int64_t size;
  };
  for (const Heads heads : {Heads{1, 64}, {7, 96}, {16, 128}, {3, 80}, {4, 2}}) {
    for (const int64_t rows : cases(kRows, 3)) {
      SCOPED_TRACE(at(rows, heads.count * heads.size));
      const StepKey step = tokens(rows);
      const HostTensor x = random_.tensor(tokens_by(heads.count * heads.size), step.sizes());
      HostTensor positions = random_.tensor(type_of(DType::kI32, {Dim::tokens()}), step.sizes());
      for (double& position : positions.values) {
        position = static_cast<double>(random_.integer(0, 4000));
      }
      HostTensor inv_freq = random_.tensor(type_of(DType::kF32, {heads.size / 2}), {});
      for (int64_t i = 0; i < heads.size / 2; ++i) {
        const double power = -2.0 * static_cast<double>(i) / static_cast<double>(heads.size);
        inv_freq.values[i] = round_to(DType::kF32, std::pow(10000.0, power));
      }
      // In f32 the angle itself is rounded, with an error of position * 2^-24 radians.
      const Tolerance tolerance{.ulps = dtype() == DType::kF32 ? 4000.0 : 2.0};
      expect_agrees({.op = "rope", .inputs = {x, positions, inv_freq}, .step = step},
                    {reference::rope(x, positions, inv_freq)}, tolerance);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, RowsOfMatricesAreIndependent) {
  const StepKey step = tokens(33);
  const HostTensor x = random_.tensor(tokens_by(320), step.sizes());
  const HostTensor other = random_.tensor(tokens_by(320), step.sizes());
  const HostTensor weight = random_.tensor(type_of(dtype(), {80, 320}), {});
  const HostTensor norm = random_.tensor(type_of(dtype(), {320}), {});
  const HostTensor head_norm = random_.tensor(type_of(dtype(), {64}), {});
  HostTensor positions = random_.tensor(type_of(DType::kI32, {Dim::tokens()}), step.sizes());
  for (double& position : positions.values)
    position = static_cast<double>(random_.integer(0, 99));
  const HostTensor inv_freq = random_.tensor(type_of(DType::kF32, {32}), {});
  const ir::Attrs eps{{"eps", 1e-5}};
  for (const int64_t row : {0, 7, 32}) {
    expect_row_independent({.op = "linear", .inputs = {x, weight}, .step = step}, row);
    expect_row_independent({.op = "fused_linear",
                            .inputs = {x, weight, {"residual", other}, {"norm", norm}},
                            .attrs = {{"eps", 1e-5}, {"epilogue", std::string("silu_mul")}},
                            .step = step},
                           row);
    expect_row_independent({.op = "rms_norm", .inputs = {x, norm}, .attrs = eps, .step = step},
                           row);
    expect_row_independent({.op = "rms_norm", .inputs = {x, head_norm}, .attrs = eps, .step = step},
                           row);
    expect_row_independent(
        {.op = "rms_norm", .inputs = {x, norm, {"residual", other}}, .attrs = eps, .step = step},
        row);
    expect_row_independent({.op = "add", .inputs = {x, other}, .step = step}, row);
    expect_row_independent({.op = "silu_mul", .inputs = {x, other}, .step = step}, row);
    expect_row_independent({.op = "rope", .inputs = {x, positions, inv_freq}, .step = step}, row);
  }
}

}  // namespace
}  // namespace encore::conformance
