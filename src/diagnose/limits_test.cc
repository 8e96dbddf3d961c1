// Tests that a model either starts and serves or reports what is wrong, whatever limits and ladders
// are asked for.
#include <random>

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "engine/testing/tiny_model.h"
#include "planning/coverage.h"
#include "planning/schedules.h"

namespace encore::diagnose {
namespace {

using runtime::Graphs;
using runtime::Ladder;

model::ModelSource smallest_model() {
  model::ModelSource source = engine::testing::tiny_model(engine::testing::Tiny::kLlama);
  source.config.layers.resize(1);
  source.config.hidden_size = 32;
  source.config.num_heads = 2;
  source.config.num_kv_heads = 1;
  source.config.head_dim = 16;
  source.config.intermediate_size = 32;
  source.config.vocab_size = 64;
  return source;
}

std::string refusal(const loader::LoadOptions& options) {
  const auto device = create_cpu_device({.num_threads = 1});
  return message_of(ErrorKind::kUsage,
                    [&] { const loader::LoadedModel model(*device, smallest_model(), options); });
}

loader::LoadOptions with_limits(int64_t max_num_tokens, int64_t max_batch_size) {
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = max_num_tokens,
                    .max_batch_size = max_batch_size,
                    .max_q = 1,
                    .max_seq_len = 64};
  options.kv_tokens = 256;
  return options;
}

TEST(Limits, AStepHasATokenForEachSequence) {
  EXPECT_NE(refusal(with_limits(8, 64)).find("raise the first to 64"), std::string::npos);
  EXPECT_EQ(refusal(with_limits(8, 8)), "");
}

TEST(Limits, AreAtLeastOne) {
  EXPECT_NE(refusal(with_limits(8, 0)), "");
  EXPECT_NE(refusal(with_limits(0, 0)), "");
  loader::LoadOptions options = with_limits(8, 8);
  options.limits.max_mixed_tokens = 0;
  EXPECT_NE(refusal(options), "");
}

TEST(Limits, EndTheLadders) {
  loader::LoadOptions options = with_limits(8, 4);
  options.sequences = Ladder({2, 4, 64});
  options.tokens = Ladder({8, 512});
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadedModel model(*device, smallest_model(), options);
  EXPECT_EQ(model.executor().coverage().sequences.sizes(), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(model.executor().coverage().tokens.sizes(), (std::vector<int64_t>{8}));
  options.sequences = Ladder({64});
  EXPECT_EQ(refusal(options), "");
}

class Choices {
 public:
  explicit Choices(uint64_t seed) : random_(seed) {}

  int64_t between(int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(random_);
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[between(0, std::ssize(values) - 1)];
  }
  // Returns a random ladder: an absent one, a list of sizes, or a schedule.
  Ladder ladder(int64_t max, std::initializer_list<const char*> schedules) {
    if (chance(30)) return {};
    if (chance(30)) return planning::named_or_list(one_of(schedules), max);
    std::vector<int64_t> sizes(between(1, 4));
    for (int64_t& size : sizes)
      size = between(1, chance(80) ? max : 2 * max);
    return Ladder(sizes);
  }

 private:
  std::mt19937_64 random_;
};

loader::LoadOptions random_options(Choices& choices) {
  loader::LoadOptions options;
  runtime::Limits& limits = options.limits;
  limits.max_num_tokens = choices.between(1, 40);
  limits.max_batch_size = choices.between(1, choices.chance(80) ? limits.max_num_tokens : 40);
  limits.max_q = choices.one_of<int64_t>({1, 1, 1, 2, 3});
  limits.max_seq_len = choices.between(1, 70);
  if (choices.chance(20)) limits.max_mixed_tokens = choices.between(1, 40);
  options.sequences = choices.ladder(limits.max_batch_size, {"pow2", "step:3", "lru:2", "vllm"});
  options.tokens = choices.ladder(limits.max_num_tokens, {"pow2", "step:5", "sglang", "trtllm"});
  options.graphs = choices.one_of({Graphs::kAuto, Graphs::kNone, Graphs::kPiecewise, Graphs::kFull,
                                   Graphs::kFullDecodeOnly, Graphs::kFullAndPiecewise});
  options.record_all_modes = choices.chance(20);
  options.pad_uniform = choices.chance(70);
  options.bursts = choices.chance(20);
  options.page_size = choices.one_of<int64_t>({16, 32, 64});
  if (choices.chance(80)) options.kv_tokens = choices.between(1, 200);
  if (choices.chance(10)) options.eager_steps = runtime::EagerSteps::kForbid;
  if (choices.chance(50)) options.record_order = runtime::RecordOrder::kAscending;
  if (choices.chance(50)) {
    options.limits = planning::split_limits(options.limits, options.sequences, options.tokens);
  }
  return options;
}

// Serves more requests than fit in a step. Returns whether all requests that were taken came to an
// end.
bool serves(loader::LoadedModel& model, Choices& choices) {
  engine::EngineOptions engine_options;
  if (choices.chance(50)) engine_options.overlap = choices.chance(50);
  if (choices.chance(30)) engine_options.burst_steps = 16;
  engine::Engine engine(model, engine_options);
  int64_t wanted = 0;
  for (int i = 0; i < 5; ++i) {
    const int64_t max_tokens = choices.between(1, 10);
    std::vector<int32_t> prompt(choices.between(1, 50), 7);
    const auto added = engine.add({.prompt = std::move(prompt), .max_tokens = max_tokens});
    if (std::holds_alternative<engine::SequenceId>(added)) wanted += max_tokens;
  }
  int64_t generated = 0;
  while (engine.step([&](const engine::Generated&) { ++generated; })) {
  }
  return generated == wanted;
}

TEST(Limits, AnyOfThemWithAnyLaddersServeOrAreRefused) {
  const auto device = create_cpu_device({.num_threads = 1});
  const model::ModelSource source = smallest_model();
  int served = 0;
  int refused = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Choices choices(seed);
    try {
      const loader::LoadOptions options = random_options(choices);
      loader::LoadedModel model(*device, source, options);
      if (options.eager_steps == runtime::EagerSteps::kForbid)
        planning::require_coverage(options.limits, model.executor().coverage());
      EXPECT_TRUE(serves(model, choices));
      ++served;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(served, 100);
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace encore::diagnose
