#include "harness.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/rounding.h"
#include "ops/ops.h"

namespace encore::conformance {
namespace {

constexpr int64_t kAlignment = 256;

void encode(DType dtype, double value, std::byte* to) {
  const auto put = [&](auto number) { std::memcpy(to, &number, sizeof(number)); };
  switch (dtype) {
    case DType::kF32:
      return put(static_cast<float>(value));
    case DType::kF16:
      return put(Float16(static_cast<float>(value)));
    case DType::kBF16:
      return put(BFloat16(static_cast<float>(value)));
    case DType::kFP8:
      return put(Float8(static_cast<float>(value)));
    case DType::kI32:
      return put(static_cast<int32_t>(value));
    case DType::kI64:
      return put(static_cast<int64_t>(value));
  }
}

double decode(DType dtype, const std::byte* from) {
  const auto get = [&](auto number) {
    std::memcpy(&number, from, sizeof(number));
    return number;
  };
  switch (dtype) {
    case DType::kF32:
      return get(float{});
    case DType::kF16:
      return static_cast<float>(get(Float16{}));
    case DType::kBF16:
      return static_cast<float>(get(BFloat16{}));
    case DType::kFP8:
      return static_cast<float>(get(Float8{}));
    case DType::kI32:
      return get(int32_t{});
    case DType::kI64:
      return static_cast<double>(get(int64_t{}));
  }
  return 0;
}

// Holds all inputs in one buffer on the device, and a copy of the buffer in host memory if some
// inputs lie there. Bytes that belong to no element are NaN in every float dtype.
struct Uploaded {
  Memory memory;
  Memory on_host;
  Views views;
};

Uploaded upload(Device& device, const HostTensors& inputs,
                const std::set<std::string_view>& on_host) {
  std::vector<int64_t> offsets;
  int64_t bytes = kAlignment;
  for (const HostTensor& input : inputs) {
    offsets.push_back(bytes);
    const int64_t row = input.row_elements() + input.row_gap;
    bytes = round_up(bytes + input.num_rows() * row * size_of(input.type.dtype), kAlignment) +
            kAlignment;
  }
  std::vector<std::byte> image(static_cast<size_t>(bytes), std::byte{0xff});
  Uploaded uploaded{device.allocate(bytes), device.allocate_host(on_host.empty() ? 0 : bytes), {}};
  for (size_t i = 0; i < inputs.size(); ++i) {
    const HostTensor& input = inputs.values()[i];
    const DType dtype = input.type.dtype;
    const Memory& memory = on_host.contains(inputs.name(i)) ? uploaded.on_host : uploaded.memory;
    TensorView view(memory.data() + offsets[i], dtype, input.shape);
    if (input.shape.rank() > 1) view.row_stride += input.row_gap;
    for (int64_t row = 0; row < input.num_rows(); ++row) {
      for (int64_t c = 0; c < input.row_elements(); ++c) {
        encode(dtype, input.row(row)[c],
               image.data() + offsets[i] + (row * view.row_stride + c) * size_of(dtype));
      }
    }
    uploaded.views.add(inputs.name(i), view, inputs.is_optional(i));
  }
  const auto stream = device.create_stream();
  stream->copy_to_device(uploaded.memory.data(), image.data(), bytes);
  for (const char* const name : {"weight", "gate_up", "down"}) {
    if (const TensorView* weight = uploaded.views.find(name))
      device.arrange_weight(*stream, *weight);
  }
  stream->synchronize();
  std::copy_n(image.begin(), uploaded.on_host.bytes(), uploaded.on_host.data());
  return uploaded;
}

HostTensor read_output(const CheckedOutput& checked) {
  HostTensor tensor;
  tensor.type.dtype = checked.dtype;
  tensor.shape = checked.shape;
  const int64_t element = size_of(checked.dtype);
  for (int64_t i = 0; i < checked.shape.num_elements(); ++i) {
    tensor.values.push_back(decode(checked.dtype, checked.bytes.data() + i * element));
  }
  return tensor;
}

// Returns one unit in the last place of a number near 1.
double ulp_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return 0x1p-10;
    case DType::kBF16:
      return 0x1p-7;
    case DType::kFP8:
      return 0x1p-3;
    default:
      return 0x1p-23;
  }
}

bool varies(const HostTensor& tensor) {
  return tensor.type.rows() != ir::Symbol::kNone;
}

}  // namespace

StepKey tokens(int64_t count, int64_t sequences) {
  return StepKey::mixed(count, sequences);
}

std::string at(int64_t rows, int64_t columns) {
  return "rows " + std::to_string(rows) + ", columns " + std::to_string(columns);
}

Device* device_of(Target target, std::string& reason) {
  struct Made {
    std::unique_ptr<Device> device;
    std::string reason;
  };
  const auto make = [](auto create) {
    Made made;
    try {
      made.device = create();
    } catch (const Error& error) {
      made.reason = error.what();
    }
    return made;
  };
  static const Made cpu = make([] { return create_cpu_device(); });
  static const Made shuffled =
      make([] { return create_cpu_device({.num_threads = 0, .shuffle_seed = Random::seed()}); });
  // The GPU is opened on first use, so that tests of the CPU alone do not touch it.
  const auto cuda = [&]() -> const Made& {
    static const Made made = make([] { return create_cuda_device(); });
    return made;
  };
  const Made& made = target == Target::kCpu           ? cpu
                     : target == Target::kShuffledCpu ? shuffled
                                                      : cuda();
  reason = made.reason;
  return made.device.get();
}

Random::Random() : engine_(seed()) {}

uint64_t Random::seed() {
  constexpr int kDefault = 2024;
  const int flag = GTEST_FLAG_GET(random_seed);
  return static_cast<uint64_t>(flag != 0 ? flag : kDefault);
}

int64_t Random::integer(int64_t first, int64_t last) {
  return std::uniform_int_distribution<int64_t>(first, last)(engine_);
}

HostTensor Random::tensor(const ir::Type& type, const ir::Sizes& sizes, double stddev) {
  HostTensor tensor{type, type.resolve(sizes), {}};
  tensor.values.resize(static_cast<size_t>(tensor.shape.num_elements()));
  for (double& value : tensor.values)
    value = round_to(type.dtype, stddev * normal());
  return tensor;
}

HostTensor filled(std::initializer_list<ir::Dim> dims, const ir::Sizes& sizes, double value) {
  const ir::Type type = type_of(DType::kI32, dims);
  const auto count = static_cast<size_t>(type.resolve(sizes).num_elements());
  return tensor_of(type, sizes, std::vector<double>(count, value));
}

HostTensor tensor_of(const ir::Type& type, const ir::Sizes& sizes, std::vector<double> values) {
  HostTensor tensor{type, type.resolve(sizes), std::move(values)};
  ENCORE_CHECK(static_cast<int64_t>(tensor.values.size()) == tensor.shape.num_elements(),
               "values do not fit the shape");
  return tensor;
}

ir::Type type_of(DType dtype, std::initializer_list<ir::Dim> dims) {
  return {dtype, dims};
}

std::vector<std::byte> Output::row_bits(int64_t row) const {
  const int64_t size = tensor.row_elements() * size_of(tensor.type.dtype);
  return {bytes.begin() + row * size, bytes.begin() + (row + 1) * size};
}

std::vector<Output> run(Device& device, const OpCase& c) {
  KernelCheck check;
  check.op = ops::standard().find(c.op);
  ENCORE_CHECK(check.op != nullptr, "no op '{}'", c.op);
  const HostTensors inputs = named(*check.op, c.inputs);
  const Uploaded uploaded = upload(device, inputs, c.on_host);
  check.input_types = inputs.map([](const HostTensor& input) { return input.type; });
  check.inputs = uploaded.views;
  check.attrs = c.attrs;
  check.step = c.step;
  check.lengths = c.lengths;
  check.in_place = c.in_place;
  check.row_gap = c.output_gap;
  check.may_skip = c.may_skip;
  std::vector<Output> outputs;
  for (CheckedOutput& checked : check_kernel(device, check)) {
    HostTensor tensor = read_output(checked);
    outputs.push_back({std::move(tensor), std::move(checked.bytes), std::move(checked.untouched)});
  }
  return outputs;
}

void expect_row_close(DType dtype, const double* actual, const double* expected, int64_t n,
                      const Tolerance& tolerance) {
  double error = 0;
  double norm = 0;
  int64_t worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double difference = actual[i] - expected[i];
    if (!(std::fabs(difference) <= std::fabs(actual[worst] - expected[worst]))) worst = i;
    error += difference * difference;
    norm += expected[i] * expected[i];
  }
  const double size =
      std::max(std::sqrt(norm), tolerance.floor_rms * std::sqrt(static_cast<double>(n)));
  // The bound is larger for f16 results below the smallest normal number, which lose relative
  // precision.
  const double denormal = dtype == DType::kF16 ? 0x1p-24 * std::sqrt(static_cast<double>(n)) : 0;
  const double bound = tolerance.ulps * ulp_of(dtype) * size + denormal;
  EXPECT_TRUE(std::sqrt(error) <= bound)
      << "error " << std::sqrt(error) << " above " << bound << "; worst at column " << worst << ": "
      << actual[worst] << " for " << expected[worst];
}

void expect_close(const HostTensor& actual, const HostTensor& expected,
                  const Tolerance& tolerance) {
  ASSERT_TRUE(actual.shape == expected.shape);
  for (int64_t row = 0; row < actual.num_rows(); ++row) {
    SCOPED_TRACE("row " + std::to_string(row));
    expect_row_close(actual.type.dtype, actual.row(row), expected.row(row), actual.row_elements(),
                     tolerance);
    if (testing::Test::HasFailure()) return;
  }
}

void expect_same_bits(const std::vector<Output>& a, const std::vector<Output>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(a[i].bytes == b[i].bytes) << "output " << i;
}

void Conformance::SetUp() {
  const bool is_cpu = std::get<0>(GetParam()) == Target::kCpu;
  if (is_cpu && dtype() == DType::kF16 && !is_thorough()) GTEST_SKIP() << "bf16 runs the same code";
  std::string reason;
  device_ = device_of(std::get<0>(GetParam()), reason);
  if (device_ == nullptr) GTEST_SKIP() << reason;
}

void Conformance::expect_agrees(OpCase c, const std::vector<HostTensor>& expected,
                                const Tolerance& tolerance) {
  const std::vector<Output> plain = run(device(), c);
  for (size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(c.op + ": output " + std::to_string(i));
    expect_close(plain[i].tensor, expected[i], tolerance);
  }
  if (HasFailure()) return;

  const ir::Op& op = *ops::standard().find(c.op);
  const HostTensors inputs = named(op, c.inputs);
  const ir::Types outputs =
      infer(op, inputs.map([](const HostTensor& input) { return input.type; }), c.attrs);
  for (const ir::InPlace& reuse : op.may_reuse) {
    if (inputs.find(reuse.input) == nullptr || outputs.find(reuse.output) == nullptr) continue;
    SCOPED_TRACE(c.op + ": output over input " + std::string(reuse.input));
    OpCase over = c;
    over.in_place = {reuse};
    expect_same_bits(run(device(), over), plain);
  }
  // A gap of 8 elements keeps rows aligned for vector loads, so the results have the bits of dense
  // rows. With a gap of 7, another kernel may run, which adds in another order.
  for (const int64_t gap : {8, 7}) {
    SCOPED_TRACE(c.op + ": rows apart by " + std::to_string(gap));
    OpCase apart = c;
    for (HostTensor& input : apart.inputs) {
      if (is_float(input.type.dtype) && input.shape.rank() == 2 && varies(input)) {
        input.row_gap = gap;
      }
    }
    apart.output_gap = gap;
    const std::vector<Output> outputs = run(device(), apart);
    if (gap == 8) expect_same_bits(outputs, plain);
    for (size_t i = 0; i < expected.size(); ++i)
      expect_close(outputs[i].tensor, expected[i], tolerance);
  }
}

void Conformance::expect_row_independent(OpCase c, int64_t row) {
  const std::vector<Output> before = run(device(), c);
  for (HostTensor& input : c.inputs) {
    if (!varies(input) || !is_float(input.type.dtype)) continue;
    for (int64_t other = 0; other < input.num_rows(); ++other) {
      if (other == row) continue;
      const bool poison = other % 2 == 0;
      for (int64_t i = 0; i < input.row_elements(); ++i) {
        input.row(other)[i] = poison ? kNaN : round_to(input.type.dtype, 100 * random_.normal());
      }
    }
  }
  const std::vector<Output> after = run(device(), c);
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].tensor.num_rows() <= row) continue;
    EXPECT_TRUE(before[i].row_bits(row) == after[i].row_bits(row))
        << c.op << ": row " << row << " of output " << i << " depends on other rows";
  }
}

void OnDevice::SetUp() {
  std::string reason;
  device_ = device_of(GetParam(), reason);
  if (device_ == nullptr) GTEST_SKIP() << reason;
}

namespace {

const auto kFloats = testing::Values(DType::kF32, DType::kF16, DType::kBF16);

std::string dtype_name(const testing::TestParamInfo<std::tuple<Target, DType>>& info) {
  return std::string(name(std::get<1>(info.param)));
}

std::string target_name(const testing::TestParamInfo<Target>& info) {
  switch (info.param) {
    case Target::kCpu:
      return "InOrder";
    case Target::kShuffledCpu:
      return "Shuffled";
    case Target::kCuda:
      return "Gpu";
  }
  return "";
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Cpu, Conformance, testing::Combine(testing::Values(Target::kCpu), kFloats),
                         dtype_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Conformance,
                         testing::Combine(testing::Values(Target::kCuda), kFloats), dtype_name);
INSTANTIATE_TEST_SUITE_P(Cpu, OnDevice, testing::Values(Target::kCpu, Target::kShuffledCpu),
                         target_name);
INSTANTIATE_TEST_SUITE_P(Cuda, OnDevice, testing::Values(Target::kCuda), target_name);
INSTANTIATE_TEST_SUITE_P(Cpu, Sampling, testing::Values(Target::kCpu), target_name);
INSTANTIATE_TEST_SUITE_P(Cuda, Sampling, testing::Values(Target::kCuda), target_name);

}  // namespace encore::conformance
