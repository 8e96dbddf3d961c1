// Tests what every device must provide: memory, address ranges, random numbers, and a kernel for
// each op.
#include <algorithm>
#include <cstring>
#include <set>

#include "base/testing/message_of.h"
#include "device_work.h"
#include "ops/ops.h"

namespace encore::conformance {
namespace {

TEST_P(OnDevice, SaysWhatItIs) {
  const DeviceInfo info = device().info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(device().kind() == DeviceKind::kCuda, GetParam() == Target::kCuda);
  EXPECT_GT(info.total_bytes, 0);
  EXPECT_GT(info.free_bytes, 0);
  EXPECT_LE(info.free_bytes, info.total_bytes);
}

TEST_P(OnDevice, HasAKernelForEveryOpThatNeedsOne) {
  // These ops may always be expanded to other ops, so they need no kernel of their own.
  const std::set<std::string_view> made_of_others = {"fused_linear", "fused_attention",
                                                     "all_reduce_add_rms_norm", "fused_route"};
  for (const auto& [op, row] : ops::standard().rows()) {
    if (row.is_view || made_of_others.contains(op)) continue;
    // Collective ops are not checked on a GPU here; ranks_test.cc runs them between GPUs.
    if (row.is_collective && device().kind() == DeviceKind::kCuda) continue;
    const auto rows = device().kernels().rows();
    EXPECT_GT(std::ranges::count(rows, op, &Kernel::op), 0) << op;
  }
}

TEST_P(OnDevice, NamesAnOpItHasNoKernelFor) {
  const std::string message = message_of(
      ErrorKind::kUnsupported, [&] { (void)device().kernels().choose("no_such_op", {}); });
  EXPECT_NE(message.find("no_such_op"), std::string::npos) << message;
}

TEST_P(OnDevice, CopiesToAndFro) {
  const auto stream = device().create_stream();
  const std::vector<float> values = counting(10007);
  const Memory memory = device().allocate(bytes_of(values));
  EXPECT_EQ(memory.bytes(), bytes_of(values));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 64, 0U);
  stream->copy_to_device(memory.data(), values.data(), bytes_of(values));
  EXPECT_EQ(read(*stream, memory.data(), 10007), values);
  EXPECT_EQ(read(*stream, memory.data() + 4000, 7), counting(7, 1000));
}

TEST_P(OnDevice, CopiesNothing) {
  const auto stream = device().create_stream();
  const Memory empty = device().allocate(0);
  stream->copy_to_device(empty.data(), nullptr, 0);
  stream->copy_to_host(nullptr, empty.data(), 0);
  stream->fill(empty.data(), 7, 0);
  stream->synchronize();
}

TEST_P(OnDevice, CopiesFromHostMemoryOfItsOwn) {
  const auto stream = device().create_stream();
  const std::vector<float> values = counting(1000);
  const Memory host = device().allocate_host(bytes_of(values));
  const Memory memory = device().allocate(bytes_of(values));
  std::memcpy(host.data(), values.data(), static_cast<size_t>(host.bytes()));
  stream->copy_to_device(memory.data(), host.data(), host.bytes());
  EXPECT_EQ(read(*stream, memory.data(), 1000), values);
}

TEST_P(OnDevice, FillsWithAPattern) {
  const auto stream = device().create_stream();
  const Memory memory = device().allocate(4000);
  stream->fill(memory.data(), 0x3f800000U, 4000);
  stream->fill(memory.data() + 400, 0x40000000U, 400);
  std::vector<float> expected(1000, 1.0F);
  std::fill_n(expected.begin() + 100, 100, 2.0F);
  EXPECT_EQ(read(*stream, memory.data(), 1000), expected);
}

TEST_P(OnDevice, RefusesMoreMemoryThanThereIsWithTheFigures) {
  const std::string message =
      message_of(ErrorKind::kMemory, [&] { (void)device().allocate(int64_t{1} << 46); });
  EXPECT_NE(message.find_first_of("0123456789"), std::string::npos) << message;
  EXPECT_EQ(device().allocate(64).bytes(), 64);
}

TEST_P(OnDevice, KeepsTheContentOfARangeThatGrows) {
  const auto stream = device().create_stream();
  const auto range = device().reserve(int64_t{64} << 20);
  ASSERT_GE(range->bytes(), int64_t{64} << 20);
  EXPECT_EQ(range->mapped_bytes(), 0);
  const std::byte* data = range->data();
  const int64_t step = range->granularity();
  const int64_t count = step / int64_t{sizeof(float)};

  range->map(step);
  EXPECT_EQ(range->mapped_bytes(), step);
  const std::vector<float> values = counting(count);
  stream->copy_to_device(range->data(), values.data(), step);
  stream->synchronize();
  range->map(3 * step - 1);
  EXPECT_EQ(range->mapped_bytes(), 3 * step);
  EXPECT_EQ(range->data(), data);
  EXPECT_EQ(read(*stream, range->data(), count), values);
  stream->copy_to_device(range->data() + 2 * step, values.data(), step);
  EXPECT_EQ(read(*stream, range->data() + 2 * step, count), values);

  range->unmap();
  EXPECT_EQ(range->mapped_bytes(), 0);
  EXPECT_EQ(range->data(), data);
  range->map(step);
  stream->copy_to_device(range->data(), values.data(), step);
  EXPECT_EQ(read(*stream, range->data(), count), values);
}

TEST_P(OnDevice, RefusesToMapBeyondItsRange) {
  const auto range = device().reserve(1 << 20);
  EXPECT_NE(message_of(ErrorKind::kMemory, [&] { range->map(range->bytes() + 1); }), "");
  range->map(range->granularity());
}

// Random numbers are a function of (seed, index), so any part of a longer tensor holds the same
// numbers.
TEST_P(OnDevice, FillsWithRandomNumbersByIndexAlone) {
  const auto stream = device().create_stream();
  constexpr int64_t kCount = 100003;
  const Memory memory = device().allocate(kCount * int64_t{sizeof(float)});
  const auto fill = [&](int64_t count, uint64_t seed, float stddev) {
    device().fill_random(*stream, TensorView(memory.data(), DType::kF32, {count}), seed, stddev);
    return read(*stream, memory.data(), count);
  };
  const std::vector<float> all = fill(kCount, 7, 1.0F);
  const std::vector<float> part = fill(4099, 7, 1.0F);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin()));
  EXPECT_NE(fill(4099, 8, 1.0F), part);

  double sum = 0;
  double squares = 0;
  double fourth = 0;
  for (const float value : all) {
    sum += value;
    squares += double{value} * value;
    fourth += double{value} * value * value * value;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.03);
  EXPECT_NEAR(fourth / kCount, 3, 0.2);

  const std::vector<float> scaled = fill(4099, 7, 0.02F);
  for (size_t i = 0; i < scaled.size(); ++i)
    EXPECT_EQ(scaled[i], part[i] * 0.02F);
}

TEST_P(OnDevice, FillsAPartOfAMatrixWithItsNumbers) {
  const Shape whole{9, 4101};
  const auto stream = device().create_stream();
  const Memory memory = device().allocate(256 * 1024);
  const auto fill = [&](const Shape& shape, const MatrixPlace& at) {
    device().fill_random(*stream, TensorView(memory.data(), DType::kF32, shape), 5, 1.0F, at);
    std::vector<float> numbers(static_cast<size_t>(shape.num_elements()));
    stream->copy_to_host(numbers.data(), memory.data(), shape.num_elements() * 4);
    stream->synchronize();
    return numbers;
  };
  const std::vector<float> all = fill(whole, {});
  for (const MatrixPlace& at : {MatrixPlace{0, 0}, {2, 0}, {3, 8}, {1, 1}, {8, 1027}}) {
    const Shape part{9 - at.row, std::min<int64_t>(3000, 4101 - at.column)};
    const std::vector<float> numbers = fill(part, at);
    for (int64_t i = 0; i < part.num_elements(); ++i) {
      const int64_t row = at.row + i / part[1];
      const int64_t column = at.column + i % part[1];
      ASSERT_EQ(numbers[static_cast<size_t>(i)], all[static_cast<size_t>(row * whole[1] + column)])
          << row << " " << column;
    }
  }
  EXPECT_NE(all[0], all[4101]);
}

TEST_P(OnDevice, RoundsRandomNumbersToHalves) {
  const auto stream = device().create_stream();
  constexpr int64_t kCount = 4099;
  const Memory memory = device().allocate(kCount * 4);
  device().fill_random(*stream, TensorView(memory.data(), DType::kF32, {kCount}), 3, 0.5F);
  const std::vector<float> wide = read(*stream, memory.data(), kCount);
  device().fill_random(*stream, TensorView(memory.data(), DType::kBF16, {kCount}), 3, 0.5F);
  std::vector<BFloat16> halves(kCount);
  stream->copy_to_host(halves.data(), memory.data(), kCount * 2);
  stream->synchronize();
  for (size_t i = 0; i < kCount; ++i)
    EXPECT_EQ(halves[i].bits, BFloat16(wide[i]).bits);
}

// random.h promises the same bits of random numbers on every device.
TEST_P(OnDevice, FillsWithTheSameRandomNumbersAsTheCpu) {
  constexpr int64_t kCount = 100003;
  std::vector<float> filled[2];
  std::string reason;
  Device* devices[2] = {device_of(Target::kCpu, reason), &device()};
  for (int i = 0; i < 2; ++i) {
    const auto stream = devices[i]->create_stream();
    const Memory memory = devices[i]->allocate(kCount * int64_t{sizeof(float)});
    devices[i]->fill_random(*stream, TensorView(memory.data(), DType::kF32, {kCount}), 11, 1.0F);
    filled[i] = read(*stream, memory.data(), kCount);
  }
  EXPECT_EQ(filled[0], filled[1]);
}

}  // namespace
}  // namespace encore::conformance
