// What every device owes: memory, streams, recordings, events.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "harness.h"
#include "ops/ops.h"

namespace encore::conformance {
namespace {

std::vector<float> counting(int64_t count, float first = 0) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

int64_t bytes_of(const std::vector<float>& values) {
  return static_cast<int64_t>(values.size() * sizeof(float));
}

std::vector<float> read(Stream& stream, const void* device, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  stream.copy_to_host(values.data(), device, bytes_of(values));
  stream.synchronize();
  return values;
}

ErrorKind kind_of(const std::function<void()>& f, std::string* message = nullptr) {
  try {
    f();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::kUsage;
}

// z = x + y, then w = z * y: two launches, the second after the first.
class TwoLaunches {
 public:
  static constexpr int64_t kRows = 3;
  static constexpr int64_t kColumns = 40;
  static constexpr int64_t kCount = kRows * kColumns;

  explicit TwoLaunches(Device& device)
      : memory_(device.allocate(4 * kCount * int64_t{sizeof(float)})) {
    add_ = bind(device, "add", 0, 1, 2);
    mul_ = bind(device, "mul", 2, 1, 3);
  }

  [[nodiscard]] float* tensor(int i) const {
    return reinterpret_cast<float*>(memory_.data()) + i * kCount;
  }

  void set_inputs(Stream& stream, const std::vector<float>& x, const std::vector<float>& y) const {
    stream.copy_to_device(tensor(0), x.data(), bytes_of(x));
    stream.copy_to_device(tensor(1), y.data(), bytes_of(y));
    stream.synchronize();
  }

  void launch(Stream& stream) const {
    const std::vector<int> nothing;
    const std::vector<int> first{0};
    stream.launch({.label = "add", .id = 0, .after = nothing}, add_, step_);
    stream.launch({.label = "mul", .id = 1, .after = first}, mul_, step_);
  }

  static std::vector<float> expected(const std::vector<float>& x, const std::vector<float>& y) {
    std::vector<float> w(x.size());
    for (size_t i = 0; i < x.size(); ++i) w[i] = (x[i] + y[i]) * y[i];
    return w;
  }

 private:
  BoundLaunch bind(Device& device, std::string_view op, int a, int b, int y) const {
    KernelArgs args;
    const Shape shape{kRows, kColumns};
    args.inputs = {TensorView(tensor(a), DType::kF32, shape), TensorView(tensor(b), DType::kF32, shape)};
    args.outputs = {TensorView(tensor(y), DType::kF32, shape)};
    args.step = step_;
    return device.kernels().choose(op, args).bind(device, args);
  }

  StepShape step_{.padded = {kRows, 0}, .q = 0, .max_query_len = kRows, .max_kv_len = kRows};
  Memory memory_;
  BoundLaunch add_;
  BoundLaunch mul_;
};

TEST_P(OnDevice, SaysWhatItIs) {
  const DeviceInfo info = device().info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(device().kind() == DeviceKind::kCuda, GetParam() == Target::kCuda);
  EXPECT_GT(info.total_bytes, 0);
  EXPECT_GT(info.free_bytes, 0);
  EXPECT_LE(info.free_bytes, info.total_bytes);
}

TEST_P(OnDevice, HasAKernelForEveryOpThatNeedsOne) {
  for (const std::string& op : ops::standard().names()) {
    if (ops::standard().find(op)->is_view) continue;
    const auto rows = device().kernels().rows();
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(),
                            [&](const Kernel& kernel) { return kernel.op == op; }))
        << op;
  }
}

TEST_P(OnDevice, NamesAnOpItHasNoKernelFor) {
  std::string message;
  EXPECT_EQ(kind_of([&] { (void)device().kernels().choose("no_such_op", {}); }, &message),
            ErrorKind::kUnsupported);
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
  std::string message;
  EXPECT_EQ(kind_of([&] { (void)device().allocate(int64_t{1} << 46); }, &message),
            ErrorKind::kMemory);
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
  EXPECT_EQ(kind_of([&] { range->map(range->bytes() + 1); }), ErrorKind::kMemory);
  range->map(range->granularity());
}

// What makes "graphs first, KV last" work: a recording may point at memory that comes later.
TEST_P(OnDevice, RecordsIntoARangeThatIsMappedLater) {
  const auto stream = device().create_stream();
  const auto range = device().reserve(4 << 20);
  KernelArgs args;
  const Shape shape{2, 64};
  args.inputs = {TensorView(range->data(), DType::kF32, shape)};
  args.outputs = {TensorView(range->data() + 4096, DType::kF32, shape)};
  args.inputs.push_back(args.inputs[0]);
  const StepShape step{.padded = {2, 0}, .q = 0, .max_query_len = 2, .max_kv_len = 2};
  args.step = step;
  const BoundLaunch bound = device().kernels().choose("add", args).bind(device(), args);
  RecordingScope scope(*stream);
  stream->launch({.label = "add", .id = 0, .after = {}}, bound, step);
  const auto recording = scope.finish();

  range->map(range->bytes());
  const std::vector<float> values = counting(128);
  stream->copy_to_device(range->data(), values.data(), bytes_of(values));
  stream->replay(*recording);
  const std::vector<float> doubled = read(*stream, range->data() + 4096, 128);
  for (size_t i = 0; i < 128; ++i) EXPECT_EQ(doubled[i], 2 * values[i]);
}

TEST_P(OnDevice, ReplaysWhatItRecorded) {
  const TwoLaunches work(device());
  const auto stream = device().create_stream();
  const std::vector<float> zero(TwoLaunches::kCount, 0.0F);
  work.set_inputs(*stream, zero, zero);
  stream->fill(work.tensor(3), 0, bytes_of(zero));
  RecordingScope scope(*stream);
  work.launch(*stream);
  const auto recording = scope.finish();
  EXPECT_EQ(read(*stream, work.tensor(3), TwoLaunches::kCount), zero) << "recording must not run";

  for (const float first : {1.0F, -50.0F}) {
    const std::vector<float> x = counting(TwoLaunches::kCount, first);
    const std::vector<float> y = counting(TwoLaunches::kCount, 2 * first);
    work.set_inputs(*stream, x, y);
    stream->replay(*recording);
    const std::vector<float> replayed = read(*stream, work.tensor(3), TwoLaunches::kCount);
    EXPECT_EQ(replayed, TwoLaunches::expected(x, y));
    stream->fill(work.tensor(3), 0, bytes_of(zero));
    work.launch(*stream);
    EXPECT_EQ(read(*stream, work.tensor(3), TwoLaunches::kCount), replayed);
  }
}

TEST_P(OnDevice, RecordsCopiesAndFills) {
  const auto stream = device().create_stream();
  const Memory memory = device().allocate(4000);
  const Memory host = device().allocate_host(400);
  RecordingScope scope(*stream);
  stream->fill(memory.data(), 0x3f800000U, 4000);
  stream->copy_to_device(memory.data(), host.data(), 400);
  const auto recording = scope.finish();
  EXPECT_EQ(recording->num_nodes(), 2);

  const std::vector<float> values = counting(100);
  std::memcpy(host.data(), values.data(), 400);
  stream->replay(*recording);
  std::vector<float> expected(1000, 1.0F);
  std::copy(values.begin(), values.end(), expected.begin());
  EXPECT_EQ(read(*stream, memory.data(), 1000), expected);
}

TEST_P(OnDevice, ListsTheNodesOfARecordingByOp) {
  const TwoLaunches work(device());
  const auto stream = device().create_stream();
  RecordingScope scope(*stream);
  work.launch(*stream);
  const auto recording = scope.finish();
  const std::vector<RecordedNode> nodes = recording->nodes();
  ASSERT_EQ(recording->num_nodes(), 2);
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].kind, "kernel");
  EXPECT_EQ(nodes[0].op, "add");
  EXPECT_FALSE(nodes[0].kernel.empty());
  EXPECT_EQ(nodes[1].op, "mul");
}

TEST_P(OnDevice, RefusesMemoryWhileRecordingAndNamesTheOp) {
  const TwoLaunches work(device());
  const auto stream = device().create_stream();
  const auto range = device().reserve(1 << 20);
  const auto breaks_rules = [&](const std::function<void()>& rule) {
    const BoundLaunch bound = [&](Stream&, const StepShape&) { rule(); };
    std::string message;
    const ErrorKind kind = kind_of(
        [&] {
          RecordingScope scope(*stream);
          stream->launch({.label = "greedy_op", .id = 0, .after = {}}, bound, {});
          (void)scope.finish();
        },
        &message);
    EXPECT_EQ(kind, ErrorKind::kCompile);
    EXPECT_NE(message.find("greedy_op"), std::string::npos) << message;
  };
  breaks_rules([&] { (void)device().allocate(64); });
  breaks_rules([&] { (void)device().allocate_host(64); });
  breaks_rules([&] { (void)device().reserve(1 << 20); });
  breaks_rules([&] { range->map(range->granularity()); });
  breaks_rules([&] { stream->synchronize(); });

  // The device is as good as before.
  const std::vector<float> x = counting(TwoLaunches::kCount);
  work.set_inputs(*stream, x, x);
  work.launch(*stream);
  EXPECT_EQ(read(*stream, work.tensor(3), TwoLaunches::kCount), TwoLaunches::expected(x, x));
  range->map(range->granularity());
}

TEST_P(OnDevice, RefusesToWaitWhileRecordingBeforeTheFirstLaunch) {
  const auto stream = device().create_stream();
  EXPECT_EQ(kind_of([&] {
              const RecordingScope scope(*stream);
              (void)device().allocate(64);
            }),
            ErrorKind::kCompile);
  EXPECT_EQ(kind_of([&] {
              const RecordingScope scope(*stream);
              stream->synchronize();
            }),
            ErrorKind::kCompile);
  (void)device().allocate(64);
  stream->synchronize();
}

TEST_P(OnDevice, LeavesAnAbandonedRecordingBehind) {
  const TwoLaunches work(device());
  const auto stream = device().create_stream();
  const std::vector<float> x = counting(TwoLaunches::kCount);
  const std::vector<float> zero(TwoLaunches::kCount, 0.0F);
  work.set_inputs(*stream, x, x);
  stream->fill(work.tensor(3), 0, bytes_of(zero));
  {
    const RecordingScope scope(*stream);
    work.launch(*stream);
  }
  stream->abandon_recording();  // a second time does nothing
  EXPECT_EQ(read(*stream, work.tensor(3), TwoLaunches::kCount), zero);
  RecordingScope again(*stream);
  work.launch(*stream);
  const auto recording = again.finish();
  stream->replay(*recording);
  EXPECT_EQ(read(*stream, work.tensor(3), TwoLaunches::kCount), TwoLaunches::expected(x, x));
}

TEST_P(OnDevice, TellsWhenWorkIsDoneByEvents) {
  const TwoLaunches work(device());
  const auto stream = device().create_stream();
  const auto other = device().create_stream();
  const std::vector<float> x = counting(TwoLaunches::kCount);
  work.set_inputs(*stream, x, x);
  const auto begin = device().create_event();
  const auto end = device().create_event();
  stream->record(*begin);
  work.launch(*stream);
  stream->record(*end);
  other->wait(*end);
  EXPECT_EQ(read(*other, work.tensor(3), TwoLaunches::kCount), TwoLaunches::expected(x, x));
  end->synchronize();
  EXPECT_TRUE(begin->done());
  EXPECT_TRUE(end->done());
  EXPECT_GE(end->milliseconds_since(*begin), 0.0);
}

// Random numbers are a function of (seed, index): any part of a longer tensor is the same.
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
  for (size_t i = 0; i < scaled.size(); ++i) EXPECT_EQ(scaled[i], part[i] * 0.02F);
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
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(halves[i].bits, BFloat16(wide[i]).bits);
}

// The same bits on every device: what random.h promises.
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
