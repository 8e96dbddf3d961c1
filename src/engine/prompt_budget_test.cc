#include "sched/prompt_budget.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

using sched::PromptBudget;

// Returns the milliseconds that a simulated device takes for a step of that many tokens.
double step_ms(int64_t tokens) {
  return 5 + static_cast<double>(tokens) * 0.1;
}

TEST(PromptBudget, FollowsItsTarget) {
  for (const double target : {20.0, 60.0, 120.0}) {
    PromptBudget budget(target, 2048);
    EXPECT_EQ(budget.tokens(), 2048);
    for (int step = 0; step < 30; ++step)
      budget.measured(budget.tokens(), step_ms(budget.tokens()));
    EXPECT_NEAR(step_ms(budget.tokens()), target, 1);
  }
}

TEST(PromptBudget, StaysWithinItsLimits) {
  PromptBudget slow(1, 2048);
  PromptBudget fast(1000, 2048);
  for (int step = 0; step < 30; ++step) {
    slow.measured(slow.tokens(), step_ms(slow.tokens()));
    fast.measured(fast.tokens(), step_ms(fast.tokens()));
  }
  EXPECT_EQ(slow.tokens(), 128);
  EXPECT_EQ(fast.tokens(), 2048);
}

TEST(PromptBudget, LearnsNothingFromShortPromptsThatAreFast) {
  PromptBudget budget(60, 2048);
  for (int step = 0; step < 30; ++step)
    budget.measured(budget.tokens(), step_ms(budget.tokens()));
  const int64_t learned = budget.tokens();
  for (int step = 0; step < 30; ++step)
    budget.measured(10, step_ms(10));
  EXPECT_EQ(budget.tokens(), learned);
  budget.measured(10, 200);  // slow although it has few tokens
  EXPECT_LT(budget.tokens(), learned);
}

TEST(PromptBudget, IsNotRuinedByOneOddStep) {
  PromptBudget budget(60, 2048);
  for (int step = 0; step < 30; ++step)
    budget.measured(budget.tokens(), step_ms(budget.tokens()));
  const int64_t learned = budget.tokens();
  budget.measured(learned, 10000);
  EXPECT_GE(budget.tokens(), learned / 2);
  for (int step = 0; step < 30; ++step)
    budget.measured(budget.tokens(), step_ms(budget.tokens()));
  EXPECT_NEAR(static_cast<double>(budget.tokens()), static_cast<double>(learned), 12);
}

// Returns how many steps have the smallest chunk of a prompt, while an engine computes a prompt of
// 300 tokens beside a sequence that generates.
int64_t num_least_chunks(bool overlap, double target_ms) {
  const auto device = create_cpu_device({.num_threads = 1});
  LoadOptions options;
  options.limits = {.max_num_tokens = 64, .max_batch_size = 4, .max_q = 1, .max_seq_len = 512};
  options.kv_tokens = 1024;
  LoadedModel model(*device, testing::tiny_model(testing::Tiny::kLlama),
                    testing::with_feature(options));
  Engine engine(model, {.overlap = overlap, .target_step_ms = target_ms});
  (void)engine.add({.prompt = {1, 2, 3}, .max_tokens = 400});
  for (int i = 0; i < 4; ++i)
    engine.step([](const Generated&) {});
  const auto id =
      std::get<SequenceId>(engine.add({.prompt = std::vector<int32_t>(300, 5), .max_tokens = 1}));
  bool is_done = false;
  std::vector<int64_t> tokens;
  while (!is_done) {
    engine.step([&](const Generated& generated) { is_done |= generated.sequence == id; });
    tokens.push_back(engine.last_plan().num_tokens());
  }
  EXPECT_EQ(*std::max_element(tokens.begin(), tokens.end()), 64);
  // The budget never falls below 64 / 16 = 4 prompt tokens. With the one token of the generating
  // sequence, such a step would have 5 tokens. The chunk is cut to 3 tokens, so that the step has
  // 4, a size of the ladder.
  return std::count(tokens.begin(), tokens.end(), 4);
}

constexpr double kNeverMs = 0.01;  // no step is as short as this
constexpr double kAlwaysMs = 1e9;

TEST(PromptBudget, CutsPromptsOfAnEngineBesideThoseWhoGenerate) {
  EXPECT_GT(num_least_chunks(false, kNeverMs), 20);
  EXPECT_EQ(num_least_chunks(false, kAlwaysMs), 0);
}

// A synchronous CPU device has run a step when the launch returns.
TEST(PromptBudget, LearnsNothingFromAStepThatHadEndedWhenTheNextWasLaunched) {
  EXPECT_EQ(num_least_chunks(true, kNeverMs), 0);
}

}  // namespace
}  // namespace encore::engine
