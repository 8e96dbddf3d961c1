#include "setup/logged_step.h"

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"

namespace encore::setup {
namespace {

TEST(LoggedStep, IsWhatTheEngineCounts) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
  options.kv_tokens = 512;
  loader::LoadedModel model(*device, engine::testing::tiny_model(engine::testing::Tiny::kLlama),
                            options);
  std::vector<planning::LoggedStep> steps;
  engine::Engine engine(
      model, {.on_step = [&](const engine::MeasuredStep& step) { steps.push_back(logged(step)); }});
  (void)engine.add({.prompt = std::vector<int32_t>(40, 7), .max_tokens = 4});
  (void)engine.add({.prompt = {1, 2}, .max_tokens = 6});
  while (engine.step([](const engine::Generated&) {})) {
  }
  int64_t tokens = 0;
  int64_t padding = 0;
  for (const planning::LoggedStep& step : steps) {
    tokens += *step.tokens;
    padding += *step.padding;
    EXPECT_EQ(*step.tokens, step.size());
    EXPECT_EQ(*step.bucket, step.size() + *step.padding);
    EXPECT_EQ(step.mode, "full");
    EXPECT_GE(*step.host_us, 0);
    EXPECT_GT(*step.gpu_us, 0);
  }
  for (const engine::StepCount& count : engine.step_counts()) {
    tokens -= count.tokens;
    padding -= count.padding;
  }
  EXPECT_EQ(tokens, 0);
  EXPECT_EQ(padding, 0);
  // The first step has 32 tokens, which is the limit: both tokens of the short prompt, which
  // overtakes the long one, and 30 of the 40 tokens of the long prompt. The second step has the
  // other 10, and the third token of the short sequence.
  EXPECT_EQ(steps.front().context_tokens, 32);
  EXPECT_EQ(steps.front().sequences, 2);
  EXPECT_EQ(steps.front().kv_tokens, 32);
  EXPECT_EQ(steps[1].sequences, 2);
  EXPECT_EQ(steps[1].kv_tokens, 40 + 3);
  EXPECT_EQ(steps.back().generation_requests, 1);
}

}  // namespace
}  // namespace encore::setup
