// Tests fused_linear: its results against the reference of the ops that it stands for, and its bits
// against those ops.
#include <cmath>

#include "harness.h"

namespace encore::conformance {
namespace {

using ir::Dim;

// Describes the ops that are fused around a product of `out` outputs and `in` inputs.
struct FusedCase {
  std::string prologue;  // empty: no prologue
  bool silu_mul = false;
  bool bias = false;
  int64_t in = 0;
  int64_t out = 0;    // outputs of the product
  std::string dtype;  // empty: the input's dtype

  [[nodiscard]] ir::Attrs attrs() const {
    ir::Attrs attrs;
    if (!prologue.empty()) attrs.set("eps", 1e-5);
    if (silu_mul) attrs.set("epilogue", std::string("silu_mul"));
    if (!dtype.empty()) attrs.set("out", dtype);
    return attrs;
  }
};

HostTensor rounded_to(DType dtype, HostTensor tensor) {
  for (double& value : tensor.values)
    value = round_to(dtype, value);
  tensor.type.dtype = dtype;
  return tensor;
}

HostTensor half_of(const HostTensor& x, int64_t first, int64_t count) {
  HostTensor half{x.type, {x.num_rows(), count}, {}};
  half.type.dims[1] = count;
  for (int64_t row = 0; row < x.num_rows(); ++row) {
    half.values.insert(half.values.end(), x.row(row) + first, x.row(row) + first + count);
  }
  return half;
}

// Holds the inputs and the expected outputs: the sum, if there is one, then y.
struct FusedData {
  HostTensors inputs;
  std::vector<HostTensor> expected;
};

FusedData fused_data(const FusedCase& c, DType dtype, const StepKey& step, Random& random) {
  const auto vector = [&](int64_t n) { return random.tensor(type_of(dtype, {n}), {}); };
  const ir::Type rows = type_of(dtype, {Dim::tokens(), c.in});
  FusedData data;
  HostTensor x = random.tensor(rows, step.sizes());
  data.inputs.add("x", x);
  if (c.prologue == "sum, rms_norm") {
    data.inputs.add("residual", random.tensor(rows, step.sizes(), 2));
    data.expected.push_back(reference::add(x, data.inputs["residual"]));
    x = rounded_to(dtype, data.expected[0]);
  }
  if (!c.prologue.empty()) {
    data.inputs.add("norm", vector(c.in));
    x = rounded_to(dtype, reference::rms_norm(x, data.inputs["norm"], 1e-5));
  }
  const double stddev = 2 / std::sqrt(static_cast<double>(c.in));
  const HostTensor weight = random.tensor(type_of(dtype, {c.out, c.in}), {}, stddev);
  data.inputs.add("weight", weight);
  if (c.bias) data.inputs.add("bias", vector(c.out));
  HostTensor y = reference::linear(x, weight, data.inputs.find("bias"));
  if (c.silu_mul) {
    const HostTensor product = c.dtype.empty() ? rounded_to(dtype, y) : y;
    y = reference::mul(reference::silu(half_of(product, 0, c.out / 2)),
                       half_of(product, c.out / 2, c.out / 2));
  }
  data.expected.push_back(y);
  return data;
}

const FusedCase kFusedCases[] = {
    {"rms_norm", false, false, 320, 130},
    {"rms_norm", false, true, 1000, 33},
    {"sum, rms_norm", false, false, 4096, 70},
    {"sum, rms_norm", true, false, 1024, 64},
    {"sum, rms_norm", true, true, 72, 50},
    {"", true, false, 2056, 600},
    {"", true, true, 65, 12},
    {"rms_norm", true, false, 8192, 18},
    {"rms_norm", false, false, 9216, 11},
    {"sum, rms_norm", false, true, 64, 3},
    {"rms_norm", false, false, 512, 77, "f32"},
    {"sum, rms_norm", true, false, 128, 2500},
    {"", true, true, 1096, 1040},
    {"rms_norm", true, false, 2048, 2064},
};

TEST_P(Conformance, FusedLinearAgrees) {
  for (const FusedCase& c : cases(kFusedCases, 3)) {
    for (const int64_t rows : {0, 1, 2, 4, 7, 33, 100}) {
      SCOPED_TRACE(c.prologue + (c.silu_mul ? " silu_mul " : " ") + at(rows, c.in) + ", outputs " +
                   std::to_string(c.out));
      const StepKey step = tokens(rows);
      const FusedData data = fused_data(c, dtype(), step, random_);
      const std::vector<Output> y =
          run(device(),
              {.op = "fused_linear", .inputs = data.inputs, .attrs = c.attrs(), .step = step});
      ASSERT_EQ(y.size(), data.expected.size());
      // An intermediate value may be rounded in the other direction than the reference rounds it.
      // An f32 output shows that error, so its tolerance is as large as one rounding of the
      // intermediate value.
      const double ulps = c.dtype.empty() ? 2 : dtype() == DType::kBF16 ? 0x1p16 : 0x1p13;
      for (size_t i = 0; i < y.size(); ++i)
        expect_close(y[i].tensor, data.expected[i],
                     {.ulps = dtype() == DType::kF32 ? 64 : ulps, .floor_rms = 1});
      if (HasFailure()) return;
    }
  }
}

// From two rows on, the bits are those of the ops that fused_linear stands for, whatever the device
// fuses. On a GPU this holds from five rows on, because its kernel for fewer rows computes the norm
// itself. The device chooses the order of sums by shape, so the order may differ between the
// product alone and the product with silu_mul. With 128 outputs on a GPU both have the same choice.
TEST_P(Conformance, FusedLinearOfSeveralRowsIsItsParts) {
  const FusedCase c{
      .prologue = "sum, rms_norm", .silu_mul = true, .bias = true, .in = 320, .out = 128};
  const int64_t fewest = device().kind() == DeviceKind::kCuda ? 5 : 2;
  for (const int64_t rows : {fewest, int64_t{33}, int64_t{130}}) {
    SCOPED_TRACE(at(rows, c.in));
    const StepKey step = tokens(rows);
    const HostTensors in = fused_data(c, dtype(), step, random_).inputs;
    const auto run_op = [&](const std::string& op, const HostTensors& inputs,
                            ir::Attrs attrs = {}) {
      return run(device(), {.op = op, .inputs = inputs, .attrs = attrs, .step = step});
    };
    const auto input = [&](const Output& output, int64_t columns) {
      HostTensor tensor = output.tensor;
      tensor.type = tokens_by(columns);
      return tensor;
    };
    const std::vector<Output> normed =
        run_op("rms_norm", {in["x"], in["norm"], {"residual", in["residual"]}}, {{"eps", 1e-5}});
    const Output product =
        run_op("linear",
               {{"x", input(normed[1], c.in)}, {"weight", in["weight"]}, {"bias", in["bias"]}})[0];
    const HostTensor columns = input(product, c.out);
    const Output y = run_op(
        "silu_mul", {half_of(columns, 0, c.out / 2), half_of(columns, c.out / 2, c.out / 2)})[0];
    expect_same_bits(run_op("fused_linear", in, c.attrs()), {normed[0], y});
  }
}

}  // namespace
}  // namespace encore::conformance
