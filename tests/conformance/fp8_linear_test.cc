// Tests linear and fused_linear with weights in fp8, with activations unchanged or rounded to fp8.
#include <cmath>

#include "base/rounding.h"
#include "harness.h"

namespace encore::conformance {
namespace {

using ir::Dim;

enum class Scales : uint8_t { kByRow, kByBlock };

struct Fp8Case {
  int64_t in;
  int64_t out;
  Scales scales;
  int64_t fp8_rows = 0;  // 0: the attribute is absent
  bool bias = false;
  double x_scale = 0;  // 0: the attribute is absent

  [[nodiscard]] ir::Attrs attrs() const {
    ir::Attrs attrs;
    if (fp8_rows > 0) attrs.set("fp8_rows", fp8_rows);
    if (x_scale > 0) attrs.set("x_scale", x_scale);
    return attrs;
  }
  [[nodiscard]] HostTensor taken(const HostTensor& x, int64_t rows) const {
    return fp8_activations(rows) ? reference::in_fp8(x, static_cast<float>(x_scale)) : x;
  }
  [[nodiscard]] bool fp8_activations(int64_t rows) const {
    return fp8_rows > 0 && rows >= fp8_rows;
  }
};

struct Fp8Weight {
  HostTensor codes;
  HostTensor scale;  // scales around 0.02, all different

  // Returns the numbers that the codes stand for.
  [[nodiscard]] HostTensor numbers() const { return reference::scaled(codes, scale); }
};

Fp8Weight fp8_weight(const Fp8Case& c, Random& random) {
  const auto blocks = [](int64_t n) { return div_up(n, int64_t{128}); };
  const ir::Type scale = c.scales == Scales::kByRow
                             ? type_of(DType::kF32, {c.out})
                             : type_of(DType::kF32, {blocks(c.out), blocks(c.in)});
  Fp8Weight weight{random.tensor(type_of(DType::kFP8, {c.out, c.in}), {}, 20),
                   random.tensor(scale, {})};
  for (double& value : weight.scale.values)
    value = round_to(DType::kF32, 0.02 * std::exp2(value));
  return weight;
}

// Returns the tolerance of a sum of I products. The products cancel, so the rounding error grows
// with the size of the products and not with that of the sum.
Tolerance tolerance_of(DType dtype, const Fp8Case& c) {
  return {.ulps = dtype == DType::kF32 ? 8.0 : 1.0,
          .floor_rms = 0.5 * std::sqrt(static_cast<double>(c.in))};
}

const Fp8Case kFp8Cases[] = {
    {64, 72, Scales::kByRow},
    {320, 130, Scales::kByRow, 1, true},
    {640, 200, Scales::kByBlock},
    {1152, 257, Scales::kByBlock, 33, true},
    {1, 1, Scales::kByRow, 1},
    {5, 3, Scales::kByBlock, 1},
    {768, 96, Scales::kByRow, 33},
    {128, 128, Scales::kByBlock, 1},
    {4097, 7, Scales::kByBlock, 1},
    {256, 640, Scales::kByRow, 0, true},
    {1024, 200, Scales::kByRow, 33},
    {512, 384, Scales::kByBlock, 33},
    {768, 96, Scales::kByBlock, 1},
    // The last number of a case is its static scale. All numbers of x fit into fp8 with the scale
    // 0.01; with 0x1.9p-9 the largest numbers saturate.
    {320, 130, Scales::kByRow, 1, true, 0.01},
    {1024, 200, Scales::kByRow, 33, false, 0x1.9p-9},
};

TEST_P(Conformance, LinearOfAnFp8WeightAgrees) {
  for (const Fp8Case& c : cases(kFp8Cases, 4)) {
    const Fp8Weight weight = fp8_weight(c, random_);
    const HostTensor bias = random_.tensor(type_of(dtype(), {c.out}), {});
    for (const int64_t rows : {0, 1, 2, 3, 4, 7, 32, 33, 130}) {
      SCOPED_TRACE(at(rows, c.in) + ", outputs " + std::to_string(c.out));
      const StepKey step = tokens(rows);
      HostTensor x = random_.tensor(tokens_by(c.in), step.sizes());
      const HostTensor taken = c.taken(x, rows);
      OpCase op{.op = "linear",
                .inputs = {x, weight.codes, {"scale", weight.scale}},
                .attrs = c.attrs(),
                .step = step};
      if (c.bias) op.inputs.add("bias", bias);
      expect_agrees(op, {reference::linear(taken, weight.numbers(), c.bias ? &bias : nullptr)},
                    tolerance_of(dtype(), c));
      if (HasFailure()) return;
    }
  }
}

TEST_P(Conformance, LinearOfAnFp8WeightGivesLogitsInFloat) {
  const Fp8Case c{320, 67, Scales::kByRow};
  const Fp8Weight weight = fp8_weight(c, random_);
  for (const int64_t rows : {1, 3, 33}) {
    const StepKey step = StepKey::uniform(rows);
    const HostTensor x = random_.tensor(type_of(dtype(), {Dim::sequences(), c.in}), step.sizes());
    const std::vector<Output> y =
        run(device(), {.op = "linear",
                       .inputs = {x, weight.codes, {"scale", weight.scale}},
                       .attrs = {{"out", "f32"}},
                       .step = step});
    ASSERT_EQ(y[0].tensor.type.dtype, DType::kF32);
    expect_close(y[0].tensor, reference::linear(x, weight.numbers(), nullptr),
                 {.ulps = 8, .floor_rms = 9});
  }
}

// Each group of 128 numbers in a row of activations shares a scale. In this test, some groups are
// zeros, as in padding, one group has numbers too small for a scale, and one has infinity.
TEST_P(Conformance, Fp8ActivationsHaveAScaleWhateverTheGroupHolds) {
  const Fp8Case c{384, 40, Scales::kByBlock, 1};
  const Fp8Weight weight = fp8_weight(c, random_);
  const StepKey step = tokens(3);
  HostTensor x = random_.tensor(tokens_by(c.in), step.sizes());
  std::fill_n(x.row(0), c.in, 0.0);
  for (int64_t i = 0; i < 128; ++i) {
    x.row(1)[i] = round_to(dtype(), 1e-37 * x.row(1)[i]);
    x.row(1)[128 + i] = round_to(dtype(), 3e4 * x.row(1)[128 + i]);
  }
  x.row(2)[200] = std::numeric_limits<double>::infinity();
  expect_agrees({.op = "linear",
                 .inputs = {x, weight.codes, {"scale", weight.scale}},
                 .attrs = c.attrs(),
                 .step = step},
                {reference::linear(reference::in_fp8(x), weight.numbers(), nullptr)},
                tolerance_of(dtype(), c));
}

// A NaN in a neighbouring row, such as a padding row, must not enter any scale (vllm-project/vllm
// issue 57017).
TEST_P(Conformance, RowsOfFp8LinearsAreIndependent) {
  for (const int64_t fp8_rows : {0, 1}) {
    const Fp8Case c{320, 80, fp8_rows == 0 ? Scales::kByRow : Scales::kByBlock, fp8_rows};
    const Fp8Weight weight = fp8_weight(c, random_);
    const StepKey step = tokens(4);
    const HostTensor x = random_.tensor(tokens_by(c.in), step.sizes());
    for (const int64_t row : {0, 2}) {
      expect_row_independent({.op = "linear",
                              .inputs = {x, weight.codes, {"scale", weight.scale}},
                              .attrs = c.attrs(),
                              .step = step},
                             row);
    }
  }
}

HostTensor rounded(DType dtype, HostTensor tensor) {
  for (double& value : tensor.values)
    value = round_to(dtype, value);
  return tensor;
}

TEST_P(Conformance, FusedLinearOfAnFp8WeightAgrees) {
  for (const Fp8Case& c :
       {Fp8Case{320, 256, Scales::kByRow, 33}, Fp8Case{640, 512, Scales::kByBlock},
        Fp8Case{1024, 256, Scales::kByBlock, 1},
        Fp8Case{512, 256, Scales::kByRow, 1, false, 0.02}}) {
    const Fp8Weight weight = fp8_weight(c, random_);
    const HostTensor norm = random_.tensor(type_of(dtype(), {c.in}), {});
    for (const int64_t rows : {1, 3, 7, 40}) {
      SCOPED_TRACE(at(rows, c.in));
      const StepKey step = tokens(rows);
      const HostTensor x = random_.tensor(tokens_by(c.in), step.sizes());
      const HostTensor normed = rounded(dtype(), reference::rms_norm(x, norm, 1e-5));
      const HostTensor taken = c.taken(normed, rows);
      ir::Attrs attrs = c.attrs();
      attrs.set("eps", 1e-5);
      const std::vector<Output> y =
          run(device(), {.op = "fused_linear",
                         .inputs = {x, weight.codes, {"norm", norm}, {"scale", weight.scale}},
                         .attrs = attrs,
                         .step = step});
      // A result of the norm may be rounded in the other direction than the reference rounds it, in
      // the worst case to fp8.
      const double size = tolerance_of(dtype(), c).floor_rms;
      expect_close(y[0].tensor, reference::linear(taken, weight.numbers(), nullptr),
                   {.ulps = dtype() == DType::kF32   ? 1e5
                            : dtype() == DType::kF16 ? 32
                                                     : 4,
                    .floor_rms = size});
      if (HasFailure()) return;
    }
  }
}

// From two rows on, the bits of fused_linear must be those of the ops that it stands for. On a GPU
// this holds from five rows on, because the kernel for fewer rows may compute the norm itself.
TEST_P(Conformance, FusedLinearOfAnFp8WeightIsItsParts) {
  const Fp8Case c{384, 512, Scales::kByBlock, 33};
  const Fp8Weight weight = fp8_weight(c, random_);
  const HostTensor norm = random_.tensor(type_of(dtype(), {c.in}), {});
  const int64_t fewest = device().kind() == DeviceKind::kCuda ? 5 : 2;
  for (const int64_t rows : {fewest, int64_t{33}, int64_t{130}}) {
    SCOPED_TRACE(at(rows, c.in));
    const StepKey step = tokens(rows);
    const HostTensor x = random_.tensor(tokens_by(c.in), step.sizes());
    const auto output = [&](const std::string& op, const HostTensors& inputs, ir::Attrs attrs,
                            int64_t columns) {
      HostTensor y =
          run(device(), {.op = op, .inputs = inputs, .attrs = attrs, .step = step})[0].tensor;
      y.type = tokens_by(columns);
      return y;
    };
    const HostTensor normed = output("rms_norm", {x, norm}, {{"eps", 1e-5}}, c.in);
    const HostTensor product =
        output("linear", {normed, weight.codes, {"scale", weight.scale}}, c.attrs(), c.out);
    const auto half = [&](int64_t first) {
      HostTensor columns = random_.tensor(tokens_by(c.out / 2), step.sizes());
      for (int64_t r = 0; r < rows; ++r)
        std::copy_n(product.row(r) + first, c.out / 2, columns.row(r));
      return columns;
    };
    const HostTensor expected = output("silu_mul", {half(0), half(c.out / 2)}, {}, c.out / 2);
    ir::Attrs attrs = c.attrs();
    attrs.set("eps", 1e-5);
    attrs.set("epilogue", std::string("silu_mul"));
    const HostTensor fused =
        output("fused_linear", {x, weight.codes, {"norm", norm}, {"scale", weight.scale}}, attrs,
               c.out / 2);
    EXPECT_EQ(fused.values, expected.values);
  }
}

}  // namespace
}  // namespace encore::conformance
