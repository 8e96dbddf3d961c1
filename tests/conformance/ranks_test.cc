// Tests collectives such as all_reduce and all_gather between the devices of ranks: threads of a
// CPU, and GPUs where there are enough.
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backend/advance.h"
#include "backend/expand.h"
#include "backend/sampling.h"
#include "backend/tuning.h"
#include "base/testing/message_of.h"
#include "harness.h"

namespace encore::conformance {
namespace {

// Holds the shape of one rank's tensor in a collective.
struct Exchanged {
  int64_t rows;
  int64_t columns;
};

class Ranks : public testing::TestWithParam<std::tuple<Target, int>> {
 protected:
  static int num_ranks() { return std::get<1>(GetParam()); }

  void SetUp() override {
    const bool on_cpu = std::get<0>(GetParam()) == Target::kCpu;
    try {
      device_ = on_cpu ? create_cpu_device({.num_threads = 2,
                                            .num_ranks = num_ranks(),
                                            .rank_timeout = std::chrono::minutes(10)})
                       : create_cuda_ranks({.first = std::nullopt,
                                            .num_ranks = num_ranks(),
                                            .wait_timeout = std::chrono::seconds(30)});
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  // Calls `run` for each rank, on a thread of its own.
  void on_all(const std::function<void(Device& device, int rank)>& run) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < num_ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        Device& device = rank == 0 ? *device_ : *device_->peers()[static_cast<size_t>(rank - 1)];
        try {
          run(device, rank);
        } catch (const Error& error) {
          ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
      });
    }
  }

  std::unique_ptr<Device> device_;
};

// Returns random numbers whose sum depends on the order of addition. Some are -0, and at some
// places ranks have -0 and 0.
template <typename T>
std::vector<T> numbers(int rank, int round, int64_t count) {
  std::mt19937 random(static_cast<uint32_t>(100 * round + rank));
  std::vector<T> x(static_cast<size_t>(count));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
    x[i] = T(random() % 8 == 0 ? -0.0F : value * (random() % 2 == 0 ? 1.0F : 1e-3F));
  }
  return x;
}

template <typename T>
std::vector<T> sums(int num_ranks, int round, int64_t count) {
  std::vector<float> sum(static_cast<size_t>(count));
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::vector<T> x = numbers<T>(rank, round, count);
    for (size_t i = 0; i < x.size(); ++i)
      sum[i] += static_cast<float>(x[i]);
  }
  std::vector<T> rounded;
  for (const float value : sum)
    rounded.push_back(T(value));
  return rounded;
}

// Returns the values of all ranks side by side, beginning with rank `first`.
template <typename T>
std::vector<T> gathered(int num_ranks, int round, const Exchanged& shape, int first = 0) {
  std::vector<T> all;
  std::vector<std::vector<T>> x;
  for (int i = 0; i < num_ranks; ++i)
    x.push_back(numbers<T>((first + i) % num_ranks, round, shape.rows * shape.columns));
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (const std::vector<T>& own : x)
      all.insert(all.end(), own.begin() + row * shape.columns,
                 own.begin() + (row + 1) * shape.columns);
  }
  return all;
}

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::kF32;
  return std::is_same_v<T, Float16> ? DType::kF16 : DType::kBF16;
}

// Returns the first position at which `a` and `b` differ, or -1. 0 and -0 count as equal.
template <typename T>
int64_t difference(const std::vector<T>& a, const std::vector<T>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (static_cast<float>(a[i]) != static_cast<float>(b[i])) return static_cast<int64_t>(i);
  }
  return -1;
}

// Returns the step at which a burst ends. The host of each rank gives another step, so that the
// test sees that all ranks take rank 0's.
int32_t burst_end(int rank, int round) {
  return std::array<int32_t, 3>{5, -7, 0x00800080}.at(static_cast<size_t>(round) % 3) + 1000 * rank;
}

// Runs one rank's part of five collectives on tensors of one shape: a sum, a gathering, a sum in
// place, a gathering in which the rank's own columns come first, and a gathering that also tells
// all ranks where a burst ends.
template <typename T>
class Calls {
 public:
  Calls(Device& device, int num_ranks, const Exchanged& shape)
      : device_(device),
        count_(shape.rows * shape.columns),
        num_ranks_(num_ranks),
        marks_(device.allocate(2 * kMarkBytes)),
        memory_(device.allocate((3 + 3 * num_ranks) * bytes())) {
    const auto view = [&](int64_t at, int64_t columns) {
      return TensorView(memory_.data() + at * bytes(), dtype_of<T>(), {shape.rows, columns});
    };
    add("all_reduce", view(0, shape.columns), view(1, shape.columns));
    add("all_gather", view(0, shape.columns), view(3, shape.columns * num_ranks));
    add("all_reduce", view(2, shape.columns), view(2, shape.columns));
    add("all_gather", view(0, shape.columns), view(3 + num_ranks, shape.columns * num_ranks), true);
    add("all_gather", view(0, shape.columns), view(3 + 2 * num_ranks, shape.columns * num_ranks),
        false, true);
  }

  void set_input(Stream& stream, const std::vector<T>& x, int round = 0) {
    std::array<int32_t, kMarkBytes / 4> marks{};
    marks.at(advance_op::kRunUntil) = burst_end(device_.rank().index, round);
    stream.copy_to_device(marks_.data(), marks.data(), kMarkBytes);
    stream.fill(memory_.data(), 0xffffffffU, memory_.bytes() / 4 * 4);
    const auto size = count_ * static_cast<int64_t>(sizeof(T));
    stream.copy_to_device(memory_.data(), x.data(), size);
    stream.copy_to_device(memory_.data() + 2 * bytes(), x.data(), size);
  }
  void launch(Stream& stream) {
    for (int i = 0; i < std::ssize(bound_); ++i)
      stream.launch({.label = "exchange", .id = i, .after = {}}, bound_[static_cast<size_t>(i)],
                    {});
  }
  std::vector<T> read(Stream& stream, int64_t at, int64_t times) {
    std::vector<T> y(static_cast<size_t>(times * count_));
    stream.copy_to_host(y.data(), memory_.data() + at * bytes(),
                        times * count_ * static_cast<int64_t>(sizeof(T)));
    stream.synchronize();
    return y;
  }
  void expect(Stream& stream, int round, const Exchanged& shape) {
    const std::vector<T> sum = sums<T>(num_ranks_, round, count_);
    EXPECT_EQ(difference(read(stream, 1, 1), sum), -1);
    EXPECT_EQ(difference(read(stream, 2, 1), sum), -1);
    EXPECT_EQ(difference(read(stream, 3, num_ranks_), gathered<T>(num_ranks_, round, shape)), -1);
    const int own = device_.rank().index;
    EXPECT_EQ(difference(read(stream, 3 + num_ranks_, num_ranks_),
                         gathered<T>(num_ranks_, round, shape, own)),
              -1);
    EXPECT_EQ(difference(read(stream, 3 + 2 * num_ranks_, num_ranks_),
                         gathered<T>(num_ranks_, round, shape)),
              -1);
    int32_t run_until = -1;
    stream.copy_to_host(&run_until, marks_.data() + kMarkBytes, sizeof(run_until));
    stream.synchronize();
    EXPECT_EQ(run_until, burst_end(0, round));
  }

 private:
  [[nodiscard]] int64_t bytes() const {
    return (count_ * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
  }
  void add(const char* op, const TensorView& x, const TensorView& y, bool own_first = false,
           bool tells = false) {
    constexpr std::array kBuffers{0, 1, 0, 1, 2};
    KernelArgs args;
    args.inputs = {{"x", x}};
    args.outputs = {{"y", y}};
    args.attrs = {{"of", std::string("layer 5")}, {"ranks", int64_t{num_ranks_}}};
    if (own_first) args.attrs.set("own_first", int64_t{1});
    if (tells) {
      args.inputs.add("ring_marks", TensorView(marks_.data(), DType::kI32, {kMarkBytes / 4}), true);
      args.outputs.add("run_until", TensorView(marks_.data() + kMarkBytes, DType::kI32, {1}), true);
    }
    args.step = StepKey::mixed(x.num_rows(), 1);
    args.exchange_buffer = kBuffers.at(bound_.size());
    bound_.push_back(device_.kernels().choose(op, args).bind(device_, args));
  }

  static constexpr int64_t kMarkBytes = 128;

  Device& device_;
  int64_t count_;
  int num_ranks_;
  Memory marks_;  // holds ring_marks, followed by run_until
  Memory memory_;
  std::vector<BoundLaunch> bound_;
};

template <typename T>
void run_shape(Device& device, int rank, int num_ranks, const Exchanged& shape) {
  SCOPED_TRACE(
      fmt::format("rank {}, {} {}x{}", rank, name(dtype_of<T>()), shape.rows, shape.columns));
  const auto stream = device.create_stream();
  Calls<T> calls(device, num_ranks, shape);
  const int64_t count = shape.rows * shape.columns;
  calls.set_input(*stream, numbers<T>(rank, 0, count));
  calls.launch(*stream);
  calls.expect(*stream, 0, shape);

  RecordingScope scope(*stream);
  calls.launch(*stream);
  const auto recording = scope.finish();
  for (const int round : {1, 2, 3}) {
    calls.set_input(*stream, numbers<T>(rank, round, count), round);
    stream->replay(*recording);
    calls.expect(*stream, round, shape);
  }
}

// Some shapes have at most one vector of 16-bit numbers, and some have rows that end within a
// vector. A collective sends the data of a shape in one shot, in two parts, or in several, by its
// size.
constexpr std::array kShapes = {Exchanged{1, 8},    Exchanged{1, 1},    Exchanged{3, 5},
                                Exchanged{2, 4096}, Exchanged{7, 72},   Exchanged{33, 1000},
                                Exchanged{5, 1001}, Exchanged{96, 4096}};

TEST_P(Ranks, SumAndGatherInTheOrderOfTheRanks) {
  on_all([&](Device& device, int rank) {
    for (const Exchanged& shape : kShapes) {
      run_shape<float>(device, rank, num_ranks(), shape);
      run_shape<Float16>(device, rank, num_ranks(), shape);
      run_shape<BFloat16>(device, rank, num_ranks(), shape);
    }
  });
}

// Runs the sum with the norm behind it, in one launch and as separate ops, and expects equal bits.
template <typename T>
void run_normed(Device& device, int rank, const Exchanged& shape) {
  SCOPED_TRACE(
      fmt::format("rank {}, {} {}x{}", rank, name(dtype_of<T>()), shape.rows, shape.columns));
  const int64_t count = shape.rows * shape.columns;
  const int64_t bytes = (count * static_cast<int64_t>(sizeof(T)) + 255) / 256 * 256;
  const Memory memory = device.allocate(7 * bytes);
  const auto view = [&](int64_t at, Shape of) {
    return TensorView(memory.data() + at * bytes, dtype_of<T>(), std::move(of));
  };
  const Shape rows{shape.rows, shape.columns};
  const auto stream = device.create_stream();
  const auto put = [&](int64_t at, const std::vector<T>& values) {
    stream->copy_to_device(memory.data() + at * bytes, values.data(),
                           std::ssize(values) * static_cast<int64_t>(sizeof(T)));
  };
  const std::vector<T> x = numbers<T>(rank, 1, count);
  const std::vector<T> residual = numbers<T>(100, 2, count);
  const std::vector<T> weight = numbers<T>(101, 3, shape.columns);
  put(0, x);
  put(1, residual);
  put(2, weight);
  std::vector<Kernel> others;
  for (const Kernel& kernel : device.kernels().rows()) {
    if (kernel.op != "all_reduce_add_rms_norm") others.push_back(kernel);
  }
  const auto launch = [&](const KernelTable& table, int64_t sum, int64_t y, int buffer) {
    KernelArgs args;
    args.inputs = {
        {"x", view(0, rows)}, {"residual", view(1, rows)}, {"weight", view(2, {shape.columns})}};
    args.outputs = {{"sum", view(sum, rows)}, {"y", view(y, rows)}};
    args.attrs = {
        {"of", std::string("layer 5")}, {"ranks", int64_t{device.rank().size}}, {"eps", 1e-5}};
    args.step = StepKey::mixed(shape.rows, 1);
    args.exchange_buffer = buffer;
    const auto launches = expand(table, "all_reduce_add_rms_norm", args);
    stream->launch({.label = "exchange", .id = 0, .after = {}}, bind_all(device, launches), {});
    return launches.size();
  };
  EXPECT_EQ(launch(KernelTable(others), 3, 4, 0), 2U);
  (void)launch(device.kernels(), 5, 6, 1);
  const auto read = [&](int64_t at) {
    std::vector<T> values(static_cast<size_t>(count));
    stream->copy_to_host(values.data(), memory.data() + at * bytes,
                         count * static_cast<int64_t>(sizeof(T)));
    stream->synchronize();
    return values;
  };
  EXPECT_EQ(difference(read(5), read(3)), -1);
  EXPECT_EQ(difference(read(6), read(4)), -1);
  EXPECT_NE(difference(read(6), residual), -1);
}

TEST_P(Ranks, SumAndNormalizeAsTheOpsApart) {
  std::vector<Exchanged> shapes{{1, 64}, {5, 72}, {3, 1001}, {2, 4096}, {31, 8192}, {300, 1024}};
  if (std::get<0>(GetParam()) == Target::kCuda) shapes.push_back({128, 4096});
  on_all([&](Device& device, int rank) {
    for (const Exchanged& shape : shapes) {
      run_normed<float>(device, rank, shape);
      run_normed<Float16>(device, rank, shape);
      run_normed<BFloat16>(device, rank, shape);
    }
  });
}

// The tuner measures the forms of all_reduce before the first launch, as at the start of an engine:
// rank 0 runs them on all GPUs, while the other ranks wait for its choice.
TEST_P(Ranks, SumInTheFormsThatTheTunerFound) {
  if (std::get<0>(GetParam()) == Target::kCpu) GTEST_SKIP() << "for GPUs";
  const std::vector<Exchanged> shapes{{1, 8192}, {2, 4096}, {64, 4096}, {128, 4096}, {300, 4096}};
  device_->tuner().configure({.tune = Tune::kFresh, .cache = std::nullopt});
  {
    const Tuner::Phase tuning(device_->tuner());
    on_all([&](Device& device, int) {
      for (const Exchanged& shape : shapes) {
        const Memory memory = device.allocate(5 * shape.rows * shape.columns * 2);
        const auto view = [&](int64_t at, Shape of) {
          return TensorView(memory.data() + at * shape.rows * shape.columns * 2, DType::kBF16,
                            std::move(of));
        };
        const Shape rows{shape.rows, shape.columns};
        KernelArgs args;
        args.inputs = {{"x", view(0, rows)},
                       {"residual", view(1, rows)},
                       {"weight", view(2, {shape.columns})}};
        args.outputs = {{"sum", view(3, rows)}, {"y", view(4, rows)}};
        args.attrs = {
            {"of", std::string("layer 5")}, {"ranks", int64_t{device.rank().size}}, {"eps", 1e-5}};
        args.step = StepKey::mixed(shape.rows, 1);
        (void)bind_all(device, expand(device.kernels(), "all_reduce_add_rms_norm", args));
      }
    });
  }
  EXPECT_GT(device_->tuner().stats().measured, 0);
  on_all([&](Device& device, int rank) {
    for (const Exchanged& shape : shapes)
      run_normed<BFloat16>(device, rank, shape);
  });
}

// Holds logits of four sequences with two rows each. Some sequences ask for log probabilities or
// for a top_p, which need the logits of all ranks.
struct Logits {
  static constexpr int64_t kSequences = 4;
  static constexpr int64_t kRows = 2 * kSequences;

  Logits(Device& device, int num_ranks, int64_t columns)
      : device(device),
        columns(columns),
        vocabulary(columns * num_ranks),
        memory(device.allocate(256 * 1024)) {}

  [[nodiscard]] TensorView x() const { return view(0, DType::kF32, {kRows, columns}); }
  [[nodiscard]] TensorView all() const { return view(64 * 1024, DType::kF32, {kRows, vocabulary}); }
  [[nodiscard]] TensorView sampling() const {
    return view(192 * 1024, DType::kI32, {kSequences, kSamplingWords});
  }
  [[nodiscard]] TensorView kv_lens() const { return view(224 * 1024, DType::kI32, {kRows}); }
  [[nodiscard]] TensorView view(int64_t at, DType dtype, Shape shape) const {
    return {memory.data() + at, dtype, std::move(shape)};
  }

  Device& device;
  int64_t columns;
  int64_t vocabulary;
  Memory memory;
};

// Runs one gathering of logits for each entry of `needed`. Bit b of an entry says whether sequence
// b needs the logits of all ranks.
void run_logits(Device& device, int rank, int num_ranks, int64_t columns,
                const std::vector<uint32_t>& needed) {
  constexpr uint32_t kUntouched = 0x7fabcdefU;
  const Logits logits(device, num_ranks, columns);
  const auto stream = device.create_stream();
  KernelArgs args;
  args.inputs = {{"x", logits.x()}, {"sampling", logits.sampling()}, {"kv_lens", logits.kv_lens()}};
  args.outputs = {{"logits", logits.all()}};
  args.attrs = {{"of", std::string("lm_head")}, {"ranks", int64_t{num_ranks}}};
  args.step = StepKey::uniform(Logits::kSequences, 2);
  std::vector<BoundLaunch> bound;
  for (const int buffer : {0, 1}) {
    args.exchange_buffer = buffer;
    bound.push_back(device.kernels().choose("gather_logits", args).bind(device, args));
  }
  for (size_t round = 0; round < needed.size(); ++round) {
    std::vector<std::vector<float>> own;  // by rank: the logits of its columns
    for (int of = 0; of < num_ranks; ++of)
      own.push_back(numbers<float>(of, static_cast<int>(round), Logits::kRows * columns));
    std::array<SamplingRow, Logits::kSequences> sampling;
    for (size_t b = 0; b < sampling.size(); ++b) {
      if ((needed[round] >> b & 1U) == 0) continue;
      if (b % 2 == 0) sampling[b].params.num_logprobs = 0;
      if (b % 2 == 1) sampling[b].params = {.temperature = 1, .top_p = 0.5F};
    }
    std::array<int32_t, Logits::kRows> kv_lens;
    kv_lens.fill(9);
    kv_lens[1] = 0;  // no token is chosen from row 1, so no rank needs it
    const std::vector<float>& x = own[static_cast<size_t>(rank)];
    stream->fill(logits.all().data, kUntouched, logits.all().num_bytes());
    stream->copy_to_device(logits.x().data, x.data(), logits.x().num_bytes());
    stream->copy_to_device(logits.sampling().data, sampling.data(), sizeof(sampling));
    stream->copy_to_device(logits.kv_lens().data, kv_lens.data(), sizeof(kv_lens));
    stream->launch({.label = "exchange", .id = 0, .after = {}}, bound[round % 2], {});
    std::vector<float> got(static_cast<size_t>(Logits::kRows * logits.vocabulary));
    stream->copy_to_host(got.data(), logits.all().data, logits.all().num_bytes());
    stream->synchronize();
    for (int64_t row = 0; row < Logits::kRows; ++row) {
      const bool is_needed = (needed[round] >> (row / 2) & 1U) != 0 && row != 1;
      for (int64_t column = 0; column < logits.vocabulary; ++column) {
        const int64_t of = column / columns;
        // On a GPU, gather_logits sends the first vector (4 numbers) of each rank's logits to all
        // ranks, even where no sequence needs the logits of all ranks.
        if (!is_needed && of != rank && row == 0 && column % columns < 4) continue;
        const float expected = is_needed || of == rank
                                   ? own[static_cast<size_t>(of)]
                                        [static_cast<size_t>(row * columns + column % columns)]
                                   : std::bit_cast<float>(kUntouched);
        const float value = got[static_cast<size_t>(row * logits.vocabulary + column)];
        const bool is_equal = std::isnan(expected) ? std::isnan(value) : value == expected;
        ASSERT_TRUE(is_equal) << "rank " << rank << ", round " << round << ", row " << row
                              << ", column " << column << ": " << value << ", not " << expected;
      }
    }
  }
}

TEST_P(Ranks, GatherTheLogitsThatAChoiceNeeds) {
  on_all([&](Device& device, int rank) {
    for (const int64_t columns : {4, 36, 500})
      run_logits(device, rank, num_ranks(), columns, {0b1111, 0, 0b0110, 0b0001, 0, 0, 0b1000});
  });
}

TEST_P(Ranks, SumAndGatherWhatDoesNotFitTheirBuffersAtOnce) {
  if (!is_thorough() || std::get<0>(GetParam()) == Target::kCpu) GTEST_SKIP() << "for GPUs";
  on_all([&](Device& device, int rank) {
    run_shape<float>(device, rank, num_ranks(), {1100, 4096});
    run_shape<BFloat16>(device, rank, num_ranks(), {2500, 4096});
  });
}

TEST_P(Ranks, AgreeOverManyReplaysWhoeverIsLate) {
  const int num_rounds = std::get<0>(GetParam()) == Target::kCpu ? 20 : 2000;
  const Exchanged shape{4, 64};
  on_all([&](Device& device, int rank) {
    const auto stream = device.create_stream();
    Calls<BFloat16> calls(device, num_ranks(), shape);
    RecordingScope scope(*stream);
    for (int i = 0; i < 4; ++i)
      calls.launch(*stream);
    const auto recording = scope.finish();
    std::minstd_rand random(static_cast<uint32_t>(rank) + 1);
    for (int round = 0; round < num_rounds; ++round) {
      calls.set_input(*stream, numbers<BFloat16>(rank, round, shape.rows * shape.columns));
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      stream->replay(*recording);
      // The fourth sum in place is a sum of sums, so only the results that are not in place are
      // compared.
      const std::vector<BFloat16> sum =
          sums<BFloat16>(num_ranks(), round, shape.rows * shape.columns);
      ASSERT_EQ(difference(calls.read(*stream, 1, 1), sum), -1) << "round " << round;
    }
  });
}

TEST_P(Ranks, EndAWaitForAGpuThatDoesNotCome) {
  if (std::get<0>(GetParam()) == Target::kCpu)
    GTEST_SKIP() << "the CPU's are tested in its backend";
  const auto device = create_cuda_ranks({.first = std::nullopt,
                                         .num_ranks = num_ranks(),
                                         .wait_timeout = std::chrono::milliseconds(300)});
  const auto stream = device->create_stream();
  Calls<float> calls(*device, num_ranks(), {2, 64});
  calls.set_input(*stream, numbers<float>(0, 0, 128));
  calls.launch(*stream);
  const std::string message = message_of(ErrorKind::kDevice, [&] { stream->synchronize(); });
  EXPECT_NE(message.find(fmt::format(
                "rank 1 of {} failed: it has not come to op 'all_reduce' of layer 5", num_ranks())),
            std::string::npos)
      << message;
  // The next launch fails at once, because after a failure no rank waits for the others any more.
  calls.launch(*stream);
  EXPECT_NE(message_of(ErrorKind::kDevice, [&] { stream->synchronize(); }), "");
}

INSTANTIATE_TEST_SUITE_P(Cpu, Ranks,
                         testing::Combine(testing::Values(Target::kCpu), testing::Values(2, 3)));
INSTANTIATE_TEST_SUITE_P(Cuda, Ranks,
                         testing::Combine(testing::Values(Target::kCuda),
                                          testing::Values(2, 4, 8)));

}  // namespace
}  // namespace encore::conformance
