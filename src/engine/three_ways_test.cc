// One program walked three ways gives the same bits, whatever the padding holds and whoever runs
// beside.
#include <algorithm>
#include <bit>
#include <random>

#include <gtest/gtest.h>

#include "engine/tiny_model.h"
#include "runtime/cost_model.h"

namespace encore::engine {
namespace {

using runtime::Graphs;
using runtime::Poison;
using testing::Tiny;

// Logits of every step: by step, a row of bits for each run.
using Bits = std::vector<std::vector<uint32_t>>;

struct Trial {
  Tiny kind = Tiny::kLlama;
  std::optional<int64_t> num_layers;  // the model's
  Graphs graphs = Graphs::kAuto;
  Poison poison = Poison::kNone;
  std::vector<int64_t> sequences = {1, 2, 4, 8};
  std::vector<int64_t> tokens = {8, 32, 96};
  std::optional<DType> dtype;  // the model's
  std::optional<DType> kv_dtype;
  runtime::Persistent persistent = runtime::Persistent::kOff;
};

std::vector<int32_t> random_prompt(std::mt19937& random, int64_t length) {
  std::vector<int32_t> prompt(length);
  for (int32_t& token : prompt)
    token = static_cast<int32_t>(random() % 1000);
  return prompt;
}

class ThreeWays {
 public:
  ThreeWays(Device& device, const Trial& trial)
      : model_(device, source(trial), options(trial)), engine_(model_, {.overlap = false}) {
    if (trial.poison == Poison::kNone) return;
    // Slots that nothing wrote yet must not matter either.
    const ir::Graph& graph = model_.compiled().program.graph;
    for (const ir::ValueId id : graph.values_of_kind(ir::ValueKind::kState)) {
      const TensorView state = model_.executor().states().view(id);
      model_.executor().stream().fill(state.data, 0xffffffffU, state.num_bytes());
    }
  }

  SequenceId add(std::vector<int32_t> prompt, int64_t max_tokens) {
    auto added = engine_.add({.prompt = std::move(prompt), .max_tokens = max_tokens});
    return std::get<SequenceId>(added);
  }
  // One step; its logits, a row a run. Empty when there was nothing to do.
  std::vector<std::vector<uint32_t>> step() {
    if (!engine_.step([](const Generated&) {})) return {};
    const size_t rows = engine_.last_plan().runs.size();
    const int64_t vocab = model_.config().vocab_size;
    std::vector<uint32_t> bits(rows * vocab);
    model_.executor().read_output(1, bits.data(), static_cast<int64_t>(bits.size() * 4));
    std::vector<std::vector<uint32_t>> split(rows);
    for (size_t i = 0; i < rows; ++i)
      split[i].assign(&bits[i * vocab], &bits[i * vocab] + vocab);
    return split;
  }
  Engine& engine() { return engine_; }
  LoadedModel& model() { return model_; }

 private:
  static ModelSource source(const Trial& trial) {
    ModelSource source = testing::tiny_model(trial.kind);
    source.config.num_layers = trial.num_layers.value_or(source.config.num_layers);
    return source;
  }
  static LoadOptions options(const Trial& trial) {
    LoadOptions options;
    options.limits = {.max_num_tokens = 96, .max_batch_size = 16, .max_q = 1, .max_seq_len = 256};
    options.graphs = trial.graphs;
    options.poison = trial.poison;
    options.sequences = runtime::Ladder(trial.sequences);
    options.tokens = runtime::Ladder(trial.tokens);
    options.kv_tokens = 4096;
    options.dtype = trial.dtype;
    options.kv_dtype = trial.kv_dtype;
    options.persistent = trial.persistent;
    return options;
  }
  LoadedModel model_;
  Engine engine_;
};

bool finite(uint32_t bits) {
  return (bits & 0x7f800000U) != 0x7f800000U;
}

void append(Bits& trace, const std::vector<std::vector<uint32_t>>& step) {
  for (const auto& row : step) {
    EXPECT_TRUE(std::all_of(row.begin(), row.end(), finite)) << "step " << trace.size();
    trace.push_back(row);
  }
}

// Says where two traces part, instead of printing them.
::testing::AssertionResult same(const Bits& a, const Bits& b) {
  if (a.size() != b.size()) {
    return ::testing::AssertionFailure() << a.size() << " rows against " << b.size();
  }
  for (size_t i = 0; i < a.size(); ++i) {
    const auto [left, right] = std::mismatch(a[i].begin(), a[i].end(), b[i].begin());
    if (left == a[i].end()) continue;
    return ::testing::AssertionFailure()
           << "row " << i << ", token " << left - a[i].begin() << ": "
           << std::bit_cast<float>(*left) << " against " << std::bit_cast<float>(*right);
  }
  return ::testing::AssertionSuccess();
}

// `batch` sequences of different lengths, 64 tokens each.
Bits uniform_trace(Device& device, const Trial& trial, int batch) {
  std::mt19937 random(batch);
  ThreeWays run(device, trial);
  for (int i = 0; i < batch; ++i)
    run.add(random_prompt(random, 1 + random() % 40), 64);
  Bits trace;
  for (auto step = run.step(); !step.empty(); step = run.step())
    append(trace, step);
  return trace;
}

// Sequences come and go, so that most steps have prompts, chunks of prompts and single tokens.
Bits mixed_trace(Device& device, const Trial& trial) {
  std::mt19937 random(99);
  ThreeWays run(device, trial);
  Bits trace;
  for (int i = 0; i < 64; ++i) {
    if (i % 3 == 0) run.add(random_prompt(random, 1 + random() % 150), 1 + random() % 12);
    append(trace, run.step());
  }
  return trace;
}

class ThreeWaysTest : public testing::DeviceTest {};

TEST_P(ThreeWaysTest, PersistentKernelsGiveTheBitsOfTheLaunchesTheyStandFor) {
  for (const Tiny kind : {Tiny::kLlama, Tiny::kQwen3, Tiny::kQwen2}) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      Trial trial{.kind = kind, .graphs = Graphs::kNone, .dtype = dtype};
      const Bits launches = uniform_trace(*device_, trial, 1);
      trial.graphs = Graphs::kFull;
      trial.persistent = runtime::Persistent::kOn;
      EXPECT_TRUE(same(uniform_trace(*device_, trial, 1), launches));
    }
  }
}

TEST_P(ThreeWaysTest, UniformStepsAgreeBitForBitAtAndBetweenBuckets) {
  for (const Tiny kind : {Tiny::kLlama, Tiny::kQwen3, Tiny::kQwen2}) {
    for (const int batch : {1, 3, 4}) {
      const Bits eager = uniform_trace(*device_, {.kind = kind, .graphs = Graphs::kNone}, batch);
      ASSERT_GE(eager.size(), 64U * batch);
      EXPECT_TRUE(
          same(eager, uniform_trace(*device_, {.kind = kind, .graphs = Graphs::kFull}, batch)));
      EXPECT_TRUE(same(
          eager, uniform_trace(*device_, {.kind = kind, .graphs = Graphs::kPiecewise}, batch)));
    }
  }
}

TEST_P(ThreeWaysTest, PaddingNeverLeaks) {
  const Bits clean = uniform_trace(*device_, {.graphs = Graphs::kFull}, 5);
  for (const Poison poison : {Poison::kNaN, Poison::kLarge}) {
    for (const Graphs graphs : {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull}) {
      EXPECT_TRUE(same(clean, uniform_trace(*device_, {.graphs = graphs, .poison = poison}, 5)));
    }
  }
}

TEST_P(ThreeWaysTest, MixedStepsAgreeBitForBit) {
  for (const Tiny kind : {Tiny::kLlama, Tiny::kQwen3}) {
    const Bits eager = mixed_trace(*device_, {.kind = kind, .graphs = Graphs::kNone});
    for (const Poison poison : {Poison::kNone, Poison::kNaN, Poison::kLarge}) {
      EXPECT_TRUE(same(
          eager,
          mixed_trace(*device_, {.kind = kind, .graphs = Graphs::kPiecewise, .poison = poison})));
      EXPECT_TRUE(same(
          eager, mixed_trace(*device_, {.kind = kind, .graphs = Graphs::kAuto, .poison = poison})));
    }
  }
}

// With more layers than two, some are launched alike but for their addresses.
TEST_P(ThreeWaysTest, LayersThatTakeTurnsInOneExecutableAgreeBitForBit) {
  const auto trial = [](Graphs graphs) { return Trial{.num_layers = 5, .graphs = graphs}; };
  EXPECT_TRUE(same(mixed_trace(*device_, trial(Graphs::kNone)),
                   mixed_trace(*device_, trial(Graphs::kAuto))));
  EXPECT_TRUE(same(uniform_trace(*device_, trial(Graphs::kNone), 3),
                   uniform_trace(*device_, trial(Graphs::kPiecewise), 3)));

  ThreeWays run(*device_, trial(Graphs::kAuto));
  const runtime::Coverage& coverage = run.model().executor().coverage();
  const runtime::BucketCost predicted =
      runtime::estimate_recordings(run.model().compiled().program, coverage.sequences,
                                   coverage.tokens)
          .total();
  EXPECT_EQ(predicted.recordings - predicted.executables, 3 * std::ssize(coverage.tokens.sizes()))
      << "of six pieces a size the second to fifth";
  const runtime::RecordingStats& stats = run.model().recording_stats();
  EXPECT_EQ(stats.full.executables + stats.pieces.executables,
            device_->kind() == DeviceKind::kCuda ? predicted.executables : predicted.recordings);
}

TEST_P(ThreeWaysTest, StepsAgreeBitForBitWithKvInFp8) {
  const auto trial = [](Graphs graphs, Poison poison) {
    return Trial{.graphs = graphs, .poison = poison, .kv_dtype = DType::kFP8};
  };
  const Bits uniform = uniform_trace(*device_, trial(Graphs::kNone, Poison::kNone), 3);
  EXPECT_FALSE(same(uniform, uniform_trace(*device_, {.graphs = Graphs::kNone}, 3)));
  for (const Graphs graphs : {Graphs::kPiecewise, Graphs::kFull})
    EXPECT_TRUE(same(uniform, uniform_trace(*device_, trial(graphs, Poison::kNaN), 3)));
  const Bits mixed = mixed_trace(*device_, trial(Graphs::kNone, Poison::kNone));
  EXPECT_TRUE(same(mixed, mixed_trace(*device_, trial(Graphs::kAuto, Poison::kNaN))));
}

TEST_P(ThreeWaysTest, ASequenceIsTheSameAloneAndAmongFifteenOthers) {
  const Trial trial{.graphs = Graphs::kFull, .sequences = {16}, .tokens = {96}};
  std::mt19937 random(5);
  const auto prompt = random_prompt(random, 20);
  const auto trace = [&](int others) {
    ThreeWays run(*device_, trial);
    std::mt19937 theirs(6);
    const SequenceId mine = run.add(prompt, 64);
    for (int i = 0; i < others; ++i)
      run.add(random_prompt(theirs, 1 + theirs() % 5), 64);
    Bits bits;
    for (auto step = run.step(); !step.empty(); step = run.step()) {
      const auto& runs = run.engine().last_plan().runs;
      for (size_t i = 0; i < runs.size(); ++i) {
        if (runs[i].sequence == mine) bits.push_back(step[i]);
      }
    }
    return bits;
  };
  const Bits alone = trace(0);
  ASSERT_EQ(alone.size(), 64U);
  EXPECT_TRUE(same(alone, trace(15)));
}

TEST_P(ThreeWaysTest, StepsAboveTheLadderRunEagerAndAreCounted) {
  ThreeWays run(*device_, {.sequences = {1, 2}, .tokens = {8}});
  std::mt19937 random(3);
  for (int i = 0; i < 3; ++i)
    run.add(random_prompt(random, 4), 3);
  while (!run.step().empty()) {
  }
  int64_t above = 0;
  for (const StepCount& count : run.engine().step_counts()) {
    if (count.reason != runtime::Reason::kAboveLadder) continue;
    EXPECT_EQ(count.mode, runtime::Mode::kEager);
    EXPECT_EQ(count.padding, 0);
    above += count.steps;
  }
  EXPECT_EQ(above, 3);
}

INSTANTIATE_TEST_SUITE_P(Devices, ThreeWaysTest, ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::engine
