// Tests that a program gives the same bits in each of the three ways to run it, whatever the
// padding holds and whichever sequences run beside.
#include "diagnose/testing/three_ways.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "base/rounding.h"
#include "base/testing/thorough.h"
#include "diagnose/compare.h"
#include "engine/input_writer.h"
#include "planning/cost_model.h"

namespace encore::diagnose {
namespace {

using engine::testing::Tiny;
using runtime::Graphs;
using testing::append;
using testing::Bits;
using testing::random_prompt;
using testing::same;
using testing::ThreeWays;
using testing::Trial;

// Runs `batch` sequences of different lengths for 64 tokens each, and returns the bits of their
// logits.
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

// Returns the bits of the logits of a run in which sequences come and go, so that most steps have
// prompts, chunks of prompts and single tokens.
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

class ThreeWaysTest : public engine::testing::DeviceTest {};

TEST_P(ThreeWaysTest, UniformStepsAgreeBitForBitAtAndBetweenBuckets) {
  for (const Tiny kind : {Tiny::kLlama, Tiny::kQwen3, Tiny::kQwen2, Tiny::kQwen3Moe}) {
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
  for (const Tiny kind : {Tiny::kLlama, Tiny::kQwen3Moe}) {
    const Bits clean = uniform_trace(*device_, {.kind = kind, .graphs = Graphs::kFull}, 5);
    for (const Poison poison : {Poison::kNaN, Poison::kLarge}) {
      for (const Graphs graphs : {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull}) {
        EXPECT_TRUE(same(
            clean, uniform_trace(*device_, {.kind = kind, .graphs = graphs, .poison = poison}, 5)));
      }
    }
  }
}

TEST_P(ThreeWaysTest, MixedStepsAgreeBitForBit) {
  for (const Tiny kind : {Tiny::kLlama, Tiny::kQwen3, Tiny::kQwen3Moe}) {
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

// Returns a tiny model whose projections are in FP8. Its activations are in FP8 in steps of 33
// tokens or more.
model::ModelConfig in_fp8(Tiny kind, model::ScaleLayout scales) {
  model::ModelConfig config = engine::testing::tiny_model(kind).config;
  config.quantization = model::quantized_at_load();
  config.quantization->groups[0].scheme.scales = scales;
  return config;
}

// In vllm-project/vllm issues 13425 and 16337, only recordings got weights in FP8 wrong.
TEST_P(ThreeWaysTest, WeightsAndActivationsInFp8AgreeBitForBit) {
  for (const auto& [kind, scales] : {std::pair{Tiny::kLlama, model::ScaleLayout::kRow},
                                     std::pair{Tiny::kQwen3, model::ScaleLayout::kBlock},
                                     std::pair{Tiny::kQwen3Moe, model::ScaleLayout::kRow},
                                     std::pair{Tiny::kQwen3Moe, model::ScaleLayout::kBlock}}) {
    const model::ModelConfig config = in_fp8(kind, scales);
    const Bits eager = mixed_trace(*device_, {.config = config, .graphs = Graphs::kNone});
    for (const Poison poison : {Poison::kNone, Poison::kNaN}) {
      for (const Graphs graphs : {Graphs::kPiecewise, Graphs::kAuto}) {
        EXPECT_TRUE(same(
            eager, mixed_trace(*device_, {.config = config, .graphs = graphs, .poison = poison})));
      }
    }
  }
}

TEST_P(ThreeWaysTest, SequencesWithAdaptersAgreeBitForBit) {
  const auto trace = [&](Graphs graphs, Poison poison, bool is_mixed) {
    const Trial trial{.graphs = graphs,
                      .poison = poison,
                      .adapters = {.num_slots = 3, .max_rank = 8, .fills_slots = true}};
    return is_mixed ? mixed_trace(*device_, trial) : uniform_trace(*device_, trial, 5);
  };
  for (const bool is_mixed : {false, true}) {
    const Bits eager = trace(Graphs::kNone, Poison::kNone, is_mixed);
    EXPECT_TRUE(same(eager, trace(Graphs::kPiecewise, Poison::kLarge, is_mixed)));
    EXPECT_TRUE(same(eager, trace(Graphs::kAuto, Poison::kNaN, is_mixed)));
  }
}

// Makes a step of random sequences. Some take one token and some a chunk, and each has a past.
TrialStep random_step(std::mt19937& random, const loader::LoadedModel& model) {
  const auto below = [&](int64_t end) { return static_cast<int64_t>(random() % end); };
  const runtime::Limits& limits = model.limits();
  std::vector<int32_t> pages(model.num_pages());
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random);
  TrialStep step;
  int64_t room = 2 + below(limits.max_num_tokens - 1);
  while (room > 0 && std::ssize(step.sequences) < limits.max_batch_size) {
    TrialStep::Sequence sequence;
    sequence.count = below(2) == 0 ? 1 : 1 + below(room);
    sequence.past = below(limits.max_seq_len - sequence.count);
    const int64_t length = sequence.past + sequence.count;
    const int64_t num_pages = div_up(length, model.page_size());
    if (num_pages > std::ssize(pages)) break;
    sequence.pages.assign(pages.end() - num_pages, pages.end());
    pages.resize(pages.size() - num_pages);
    room -= sequence.count;
    step.sequences.push_back(std::move(sequence));
  }
  return step;
}

void expect_any_composition_is_one_replay(Device& device, Tiny kind, std::optional<DType> kv_dtype,
                                          int num_steps) {
  // Mixed steps of up to 8 sequences have full recordings.
  ThreeWays run(
      device,
      {.kind = kind,
       .graphs = Graphs::kFull,
       .limits = {.max_num_tokens = 96, .max_batch_size = 32, .max_q = 1, .max_seq_len = 256},
       .sequences = {1, 2, 4, 32},
       .record_all_modes = true,
       .kv_dtype = kv_dtype});
  loader::LoadedModel& model = run.model();
  runtime::Executor& executor = model.executor();
  fill_kv(model, 3);
  std::mt19937 random(17);
  int num_mixed = 0;
  for (int i = 0; i < num_steps; ++i) {
    const TrialStep step = random_step(random, model);
    const StepKey key = step.key(model.limits());
    num_mixed += key.is_uniform() ? 0 : 1;
    for (const Graphs graphs : {Graphs::kPiecewise, Graphs::kFull}) {
      executor.set_graphs(graphs);
      EXPECT_FALSE(compare_outputs(model, step, i).has_value()) << runtime::describe(key);
    }
    EXPECT_EQ(begin(model, step, i).mode, runtime::Mode::kFull) << runtime::describe(key);
    const int64_t before = executor.loaded().recordings.stats().replays;
    executor.run(step.lengths());
    EXPECT_EQ(executor.loaded().recordings.stats().replays, before + 1);
    executor.loaded().stream.synchronize();
  }
  EXPECT_GT(num_mixed, num_steps * 4 / 5);
}

TEST_P(ThreeWaysTest, AnyCompositionOfAStepIsOneReplayAndAgreesBitForBit) {
  int num_steps = 50;
  if (device_->kind() == DeviceKind::kCuda) num_steps = 200;
  if (!is_thorough()) num_steps = 10;
  expect_any_composition_is_one_replay(*device_, Tiny::kLlama, std::nullopt, 3 * num_steps);
  SCOPED_TRACE("experts, KV in fp8");
  expect_any_composition_is_one_replay(*device_, Tiny::kQwen3Moe, DType::kFP8, num_steps);
}

// With more than two layers, some layers have the same launches except for their addresses.
TEST_P(ThreeWaysTest, LayersThatTakeTurnsInOneExecutableAgreeBitForBit) {
  const auto trial = [](Graphs graphs) { return Trial{.num_layers = 5, .graphs = graphs}; };
  EXPECT_TRUE(same(mixed_trace(*device_, trial(Graphs::kNone)),
                   mixed_trace(*device_, trial(Graphs::kFullAndPiecewise))));
  EXPECT_TRUE(same(uniform_trace(*device_, trial(Graphs::kNone), 3),
                   uniform_trace(*device_, trial(Graphs::kPiecewise), 3)));

  ThreeWays run(*device_, trial(Graphs::kFullAndPiecewise));
  const runtime::Coverage& coverage = run.model().executor().coverage();
  const planning::BucketCost predicted =
      planning::estimate_recordings(run.model().program(), coverage,
                                    run.model().executor().loaded().device.kernels())
          .total();
  EXPECT_EQ(predicted.recordings - predicted.executables, 3 * std::ssize(coverage.tokens.sizes()))
      << "of six pieces a size the second to fifth";
  const runtime::RecordingStats& stats = run.model().recording_stats();
  EXPECT_EQ(stats.full.executables + stats.pieces.executables,
            device_->kind() == DeviceKind::kCuda ? predicted.executables : predicted.recordings);
}

// Returns a model whose layers differ: some have windows, two have different rotations, and one has
// none. It has soft caps, and norms in front of and behind each part.
model::ModelConfig layers_of_kinds() {
  model::ModelConfig config = engine::testing::tiny_model(Tiny::kQwen3).config;
  config.architecture = "Gemma3ForCausalLM";
  config.layers.resize(6);
  config.ropes.push_back({.theta = 100});
  for (const size_t i : {0, 1, 3}) {
    config.layers[i].window = 20 + 13 * static_cast<int64_t>(i);
    config.layers[i].rope = 1;
  }
  config.layers[4].rope.reset();
  config.norm_offset = 1;
  config.activation = model::Activation::kGeluTanh;
  config.embedding_scale = 11.3;
  config.attention_softcap = 5;
  config.logits_softcap = 3;
  return config;
}

TEST_P(ThreeWaysTest, LayersOfDifferentKindsAgreeBitForBit) {
  const auto trial = [](Graphs graphs, Poison poison) {
    return Trial{.config = layers_of_kinds(), .graphs = graphs, .poison = poison};
  };
  const Bits uniform = uniform_trace(*device_, trial(Graphs::kNone, Poison::kNone), 3);
  const Bits mixed = mixed_trace(*device_, trial(Graphs::kNone, Poison::kNone));
  for (const Graphs graphs : {Graphs::kPiecewise, Graphs::kFull}) {
    EXPECT_TRUE(same(uniform, uniform_trace(*device_, trial(graphs, Poison::kNaN), 3)));
    EXPECT_TRUE(same(mixed, mixed_trace(*device_, trial(graphs, Poison::kLarge))));
  }
}

TEST_P(ThreeWaysTest, DecodesInFullRecordingsAcrossTheLengthAtWhichDynamicRopeSwitches) {
  const model::ModelConfig plain = engine::testing::tiny_model(Tiny::kLlama).config;
  model::ModelConfig dynamic = plain;
  dynamic.ropes.at(0).scaling = model::RopeScaling::kDynamic;
  dynamic.ropes.at(0).factor = 4;
  dynamic.ropes.at(0).original_max_position_embeddings = 48;
  // The sequences of a trace begin below 41 tokens and end above 64, so they cross the length at
  // which dynamic RoPE changes.
  const Bits eager = uniform_trace(*device_, {.config = dynamic, .graphs = Graphs::kNone}, 3);
  EXPECT_FALSE(same(eager, uniform_trace(*device_, {.config = plain, .graphs = Graphs::kNone}, 3)));
  const Trial full{.config = dynamic, .graphs = Graphs::kFull, .poison = Poison::kNaN};
  EXPECT_TRUE(same(eager, uniform_trace(*device_, full, 3)));

  ThreeWays run(*device_, full);
  std::mt19937 random(48);
  run.add(random_prompt(random, 40), 20);
  int64_t num_steps = 0;
  for (; !run.step().empty(); ++num_steps)
    EXPECT_EQ(run.model().executor().choice().mode, runtime::Mode::kFull);
  EXPECT_EQ(num_steps, 20);
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

// Returns the tokens that five sequences generate. Their beginnings repeat, so that drafts are
// right now and then.
std::vector<std::vector<int32_t>> texts_with_drafts(
    Device& device, Graphs graphs, Poison poison,
    const std::optional<model::ModelConfig>& draft = std::nullopt,
    model::Acceptance acceptance = model::Acceptance::kCoupled) {
  const bool rejects = acceptance == model::Acceptance::kRejection;
  ThreeWays run(device, {.draft = draft,
                         .acceptance = acceptance,
                         .graphs = graphs,
                         .poison = poison,
                         .limits = {.max_num_tokens = 96,
                                    .max_batch_size = 16,
                                    .max_q = 1,
                                    .max_seq_len = 256,
                                    .num_drafts = 3}});
  std::mt19937 random(7);
  std::vector<engine::SequenceId> ids;
  for (int i = 0; i < 5; ++i) {
    std::vector<int32_t> prompt = random_prompt(random, 3 + i);
    for (int repeats = 0; repeats < 3; ++repeats)
      prompt.insert(prompt.end(), prompt.begin(), prompt.begin() + 3 + i);
    const sample::SamplingParams sampling{
        .temperature = rejects ? 0.7F : 0.0F, .top_p = i % 2 == 0 ? 0.9F : 1.0F, .seed = i};
    ids.push_back(run.add(prompt, 60, sampling));
  }
  std::vector<std::vector<int32_t>> texts(ids.size());
  while (run.engine().step([&](const engine::Generated& generated) {
    texts[static_cast<size_t>(generated.sequence - ids[0])].push_back(generated.token);
  })) {
  }
  // Where tokens are drawn at random, few drafts from look-up are right.
  EXPECT_GT(run.engine().draft_counts().num_accepted(), rejects && !draft ? 0 : 20);
  const auto mode = graphs == Graphs::kNone   ? runtime::Mode::kEager
                    : graphs == Graphs::kFull ? runtime::Mode::kFull
                                              : runtime::Mode::kPiecewise;
  EXPECT_TRUE(std::ranges::any_of(run.engine().step_counts(), [&](const auto& count) {
    return count.key.q == 4 && count.mode == mode;
  }));
  return texts;
}

TEST_P(ThreeWaysTest, StepsWithDraftsGiveTheSameTokens) {
  const auto expected = texts_with_drafts(*device_, Graphs::kNone, Poison::kNone);
  for (const Graphs graphs : {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull}) {
    for (const Poison poison : {Poison::kNone, Poison::kNaN, Poison::kLarge})
      EXPECT_EQ(expected, texts_with_drafts(*device_, graphs, poison));
  }
}

// Returns the tokens that five sequences generate with a model in FP8, with `num_drafts` drafts of
// a draft model in floats.
std::vector<std::vector<int32_t>> texts_in_fp8(Device& device, int64_t num_drafts, Graphs graphs) {
  ThreeWays run(
      device,
      {.config = in_fp8(Tiny::kLlama, model::ScaleLayout::kRow),
       .draft = num_drafts == 0 ? std::nullopt
                                : std::optional(engine::testing::tiny_model(Tiny::kLlama).config),
       .graphs = graphs,
       .limits = {.max_num_tokens = 96,
                  .max_batch_size = 5,
                  .max_q = 1,
                  .max_seq_len = 256,
                  .num_drafts = num_drafts}});
  std::mt19937 random(7);
  std::vector<engine::SequenceId> ids;
  for (int i = 0; i < 5; ++i)
    ids.push_back(run.add(random_prompt(random, 3 + i), 40));
  std::vector<std::vector<int32_t>> texts(ids.size());
  while (run.engine().step([&](const engine::Generated& generated) {
    texts[static_cast<size_t>(generated.sequence - ids[0])].push_back(generated.token);
  })) {
  }
  EXPECT_EQ(run.engine().draft_counts().tokens > 0, num_drafts > 0);
  return texts;
}

// Steps stay below 33 rows, so activations are not in FP8.
TEST_P(ThreeWaysTest, DraftsChangeNoTokenOfAModelInFp8) {
  const auto expected = texts_in_fp8(*device_, 0, Graphs::kNone);
  for (const Graphs graphs : {Graphs::kNone, Graphs::kFull})
    EXPECT_EQ(expected, texts_in_fp8(*device_, 3, graphs));
}

// The draft model has the sizes and the weights of the model, so its drafts are right.
TEST_P(ThreeWaysTest, StepsWithADraftModelGiveTheSameTokens) {
  const auto expected = texts_with_drafts(*device_, Graphs::kNone, Poison::kNone);
  const model::ModelConfig draft = engine::testing::tiny_model(Tiny::kLlama).config;
  for (const Graphs graphs : {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull}) {
    for (const Poison poison : {Poison::kNone, Poison::kNaN, Poison::kLarge})
      EXPECT_EQ(expected, texts_with_drafts(*device_, graphs, poison, draft));
  }
}

TEST_P(ThreeWaysTest, StepsWhoseDraftsAreAcceptedByRejectionSamplingGiveTheSameTokens) {
  const auto rejecting = [&](Graphs graphs, Poison poison, bool has_model) {
    const std::optional draft = engine::testing::tiny_model(Tiny::kLlama).config;
    return texts_with_drafts(*device_, graphs, poison, has_model ? draft : std::nullopt,
                             model::Acceptance::kRejection);
  };
  for (const bool has_model : {false, true}) {
    const auto expected = rejecting(Graphs::kNone, Poison::kNone, has_model);
    for (const Graphs graphs : {Graphs::kPiecewise, Graphs::kFull}) {
      for (const Poison poison : {Poison::kNaN, Poison::kLarge})
        EXPECT_EQ(expected, rejecting(graphs, poison, has_model));
    }
  }
}

TEST_P(ThreeWaysTest, ASequenceIsTheSameAloneAndAmongFifteenOthers) {
  std::mt19937 random(5);
  const auto prompt = random_prompt(random, 20);
  const auto trace = [&](Tiny kind, int others) {
    const Trial trial{.kind = kind, .graphs = Graphs::kFull, .sequences = {16}, .tokens = {96}};
    ThreeWays run(*device_, trial);
    std::mt19937 theirs(6);
    const engine::SequenceId mine = run.add(prompt, 64);
    for (int i = 0; i < others; ++i)
      run.add(random_prompt(theirs, 1 + theirs() % 5), 64);
    Bits bits;
    for (auto step = run.step(); !step.empty(); step = run.step()) {
      const auto& runs = run.engine().last_plan().rows;
      for (size_t i = 0; i < runs.size(); ++i) {
        if (runs[i].sequence == mine) bits.push_back(step[i]);
      }
    }
    return bits;
  };
  for (const Tiny kind : {Tiny::kLlama, Tiny::kQwen3Moe}) {
    const Bits alone = trace(kind, 0);
    ASSERT_EQ(alone.size(), 64U);
    EXPECT_TRUE(same(alone, trace(kind, 15)));
  }
}

// Runs decode steps of up to 64 sequences. One sequence is always the same, at a random place,
// alone or beside others that write to their own pages only.
class StepsOfOneBucket {
 public:
  explicit StepsOfOneBucket(ThreeWays& run) : model_(run.model()) { fill_kv(model_, 3); }

  // Returns the bits of the logits of the sequence that is always the same.
  std::vector<uint32_t> logits(std::mt19937& random, int64_t batch, Graphs graphs) {
    runtime::Executor& executor = model_.executor();
    executor.set_graphs(graphs);
    (void)executor.begin(StepKey::uniform(batch));
    engine::InputWriter writer(executor, model_.page_size());
    const auto vocabulary = model_.config().vocab_size;
    const auto mine = static_cast<int64_t>(random() % static_cast<uint64_t>(batch));
    for (int64_t b = 0; b < batch; ++b) {
      const bool is_mine = b == mine;
      std::vector<int32_t> id = {is_mine ? 7 : static_cast<int32_t>(random() % vocabulary)};
      const auto past = is_mine ? kPast : static_cast<int64_t>(random() % (kPast + 1));
      std::vector<int32_t> pages;
      for (int64_t i = 0; i * model_.page_size() <= past; ++i)
        pages.push_back(static_cast<int32_t>(i * (kBucket + 1) + (is_mine ? kBucket : b)));
      writer.add({.ids = id, .first = past, .pages = pages, .sampling = {}, .max_len = INT32_MAX});
    }
    poison(executor, Poison::kNaN);
    executor.run({.max_query_len = 1, .max_kv_len = kPast + 1});
    std::vector<uint32_t> all(static_cast<size_t>(batch * vocabulary));
    read_output(executor, 1, all.data(), std::ssize(all) * 4);
    executor.loaded().stream.synchronize();
    const auto first = all.begin() + mine * vocabulary;
    return {first, first + vocabulary};
  }

  static constexpr int64_t kBucket = 64;
  static constexpr int64_t kPast = 90;
  static constexpr int64_t kPages = (kBucket + 1) * 3;  // pages of 32 tokens

 private:
  loader::LoadedModel& model_;
};

TEST_P(ThreeWaysTest, ASequenceOfExpertsIsTheSameInAnyCompositionOfABucket) {
  ThreeWays run(
      *device_,
      {.kind = Tiny::kQwen3Moe,
       .graphs = Graphs::kFull,
       .poison = Poison::kNaN,
       .limits = {.max_num_tokens = 96, .max_batch_size = 64, .max_q = 1, .max_seq_len = 256},
       .kv_tokens = StepsOfOneBucket::kPages * 32,
       .sequences = {StepsOfOneBucket::kBucket},
       .record_all_modes = true});
  ASSERT_EQ(run.model().page_size(), 32);
  StepsOfOneBucket steps(run);
  std::mt19937 random(23);
  const std::vector<uint32_t> alone = steps.logits(random, 1, Graphs::kNone);
  EXPECT_TRUE(std::ranges::all_of(alone, testing::finite));
  const int num_compositions = is_thorough() ? 500 : 25;
  for (int i = 0; i < num_compositions; ++i) {
    const int64_t batch = i == 0 ? 64 : 1 + static_cast<int64_t>(random() % 64);
    for (const Graphs graphs : {Graphs::kNone, Graphs::kPiecewise, Graphs::kFull})
      ASSERT_TRUE(steps.logits(random, batch, graphs) == alone) << i << ": " << batch << " rows";
  }
}

TEST_P(ThreeWaysTest, StepsAboveTheLadderRunEagerAndAreCounted) {
  ThreeWays run(*device_, {.sequences = {1, 2}, .tokens = {8}});
  std::mt19937 random(3);
  for (int i = 0; i < 3; ++i)
    run.add(random_prompt(random, 4), 3);
  while (!run.step().empty()) {
  }
  int64_t above = 0;
  for (const engine::StepCount& count : run.engine().step_counts()) {
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
}  // namespace encore::diagnose
