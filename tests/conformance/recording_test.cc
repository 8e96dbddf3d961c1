// Tests streams: recording, the rules of recording, replay and events.
#include <algorithm>
#include <cstring>

#include "base/testing/message_of.h"
#include "device_work.h"

namespace encore::conformance {
namespace {

// A recording may refer to memory that is mapped later, so the KV pool can be mapped after all
// recordings are made.
TEST_P(OnDevice, RecordsIntoARangeThatIsMappedLater) {
  const auto stream = device().create_stream();
  const auto range = device().reserve(4 << 20);
  KernelArgs args;
  const Shape shape{2, 64};
  const TensorView x(range->data(), DType::kF32, shape);
  args.inputs = {{"a", x}, {"b", x}};
  args.outputs = {{"y", TensorView(range->data() + 4096, DType::kF32, shape)}};
  args.step = StepKey::mixed(2, 0);
  const BoundLaunch bound = device().kernels().choose("add", args).bind(device(), args);
  RecordingScope scope(*stream);
  stream->launch({.label = "add", .id = 0, .after = {}}, bound, {});
  const auto recording = scope.finish();

  range->map(range->bytes());
  const std::vector<float> values = counting(128);
  stream->copy_to_device(range->data(), values.data(), bytes_of(values));
  stream->replay(*recording);
  const std::vector<float> doubled = read(*stream, range->data() + 4096, 128);
  for (size_t i = 0; i < 128; ++i)
    EXPECT_EQ(doubled[i], 2 * values[i]);
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

// Each of three recordings adds 1 to memory of its own, which so counts how often the recording was
// replayed.
TEST_P(OnDevice, TellsRecordingsOfTheSameLaunchesApart) {
  constexpr int64_t kCount = 64;
  const auto stream = device().create_stream();
  const Memory memory = device().allocate(4 * kCount * int64_t{sizeof(float)});
  auto* const ones = reinterpret_cast<float*>(memory.data());
  stream->fill(ones, 0x3f800000U, kCount * int64_t{sizeof(float)});
  stream->fill(ones + kCount, 0, 3 * kCount * int64_t{sizeof(float)});
  std::vector<std::unique_ptr<Recording>> recordings;
  for (int i = 0; i < 3; ++i) {
    const TensorView one(ones, DType::kF32, {2, kCount / 2});
    const TensorView sum(ones + (i + 1) * kCount, DType::kF32, {2, kCount / 2});
    const KernelArgs args{.inputs = {{"a", sum}, {"b", one}}, .outputs = {{"y", sum}}};
    const BoundLaunch bound = device().kernels().choose("add", args).bind(device(), args);
    RecordingScope scope(*stream);
    stream->launch({.label = "add", .id = 0, .after = {}}, bound, {});
    recordings.push_back(scope.finish(i == 0 ? nullptr : recordings.back().get()));
  }
  EXPECT_FALSE(recordings[0]->shares_executable());

  // The host does not wait between the replays, so a recording may be replayed while replays of
  // another one still run.
  std::vector<float> expected(4 * kCount, 1.0F);
  std::fill(expected.begin() + kCount, expected.end(), 0.0F);
  for (int replay = 0; replay < 500; ++replay) {
    const int i = replay * replay % 7 % 3;
    stream->replay(*recordings[i]);
    for (int64_t k = 0; k < kCount; ++k)
      ++expected[(i + 1) * kCount + k];
  }
  EXPECT_EQ(read(*stream, memory.data(), 4 * kCount), expected);

  // Destroying one recording leaves the others usable.
  recordings.erase(recordings.begin());
  stream->replay(*recordings[0]);
  for (int64_t k = 0; k < kCount; ++k)
    ++expected[2 * kCount + k];
  EXPECT_EQ(read(*stream, memory.data(), 4 * kCount), expected);
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
  EXPECT_EQ(nodes[0].edge, Edge::kNone);
  EXPECT_NE(nodes[1].edge, Edge::kNone);
}

TEST_P(OnDevice, RefusesMemoryWhileRecordingAndNamesTheOp) {
  const TwoLaunches work(device());
  const auto stream = device().create_stream();
  const auto range = device().reserve(1 << 20);
  const auto breaks_rules = [&](const std::function<void()>& rule) {
    const BoundLaunch bound = [&](Stream&, const StepLengths&) { rule(); };
    const std::string message = message_of(ErrorKind::kCompile, [&] {
      RecordingScope scope(*stream);
      stream->launch({.label = "greedy_op", .id = 0, .after = {}}, bound, {});
      (void)scope.finish();
    });
    EXPECT_NE(message.find("greedy_op"), std::string::npos) << message;
  };
  breaks_rules([&] { (void)device().allocate(64); });
  breaks_rules([&] { (void)device().allocate_host(64); });
  breaks_rules([&] { (void)device().reserve(1 << 20); });
  breaks_rules([&] { range->map(range->granularity()); });
  breaks_rules([&] { stream->synchronize(); });

  // The device works as before after code has broken the rules of recording.
  const std::vector<float> x = counting(TwoLaunches::kCount);
  work.set_inputs(*stream, x, x);
  work.launch(*stream);
  EXPECT_EQ(read(*stream, work.tensor(3), TwoLaunches::kCount), TwoLaunches::expected(x, x));
  range->map(range->granularity());
}

TEST_P(OnDevice, RefusesToWaitWhileRecordingBeforeTheFirstLaunch) {
  const auto stream = device().create_stream();
  const auto allocate = [&] {
    const RecordingScope scope(*stream);
    (void)device().allocate(64);
  };
  EXPECT_NE(message_of(ErrorKind::kCompile, allocate), "");
  const auto synchronize = [&] {
    const RecordingScope scope(*stream);
    stream->synchronize();
  };
  EXPECT_NE(message_of(ErrorKind::kCompile, synchronize), "");
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
  stream->abandon_recording();  // abandoning a second time does nothing
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

}  // namespace
}  // namespace encore::conformance
