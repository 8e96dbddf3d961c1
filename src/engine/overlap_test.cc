// Tests that the loop gives the same answers however far the device runs ahead of the host: with no
// step in flight, with one, and in bursts.
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

using testing::Tiny;

LoadOptions bursting_options() {
  LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
  options.kv_tokens = 512;
  options.dtype = DType::kF32;  // so that a sequence's tokens do not depend on its bucket
  options.bursts = true;
  return options;
}

struct Story {
  std::map<SequenceId, std::vector<int32_t>> tokens;
  std::map<SequenceId, Finish> finishes;
  int64_t steps = 0;
};

class OverlapTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    load(bursting_options());
  }
  void load(const LoadOptions& options) {
    model_.reset();
    model_ = std::make_unique<LoadedModel>(*device_, testing::tiny_model(Tiny::kLlama),
                                           testing::with_feature(options));
  }

  // Runs seven sequences that come one by one, more than fit a step at once. They have long
  // prompts, single tokens, stop tokens that some of them generate, and samplers with seeds.
  Story tell(const EngineOptions& how, const std::vector<int32_t>& stops = {}) {
    Engine engine(*model_, how);
    Story story;
    std::mt19937 random(17);
    int left_to_add = 7;
    const auto add = [&] {
      Request request;
      request.prompt.resize(1 + random() % 45);
      for (int32_t& token : request.prompt)
        token = static_cast<int32_t>(random() % 1000);
      request.max_tokens = 1 + static_cast<int64_t>(random() % 40);
      request.sampling.temperature = left_to_add % 2 == 0 ? 0.0F : 1.0F;
      request.sampling.seed = left_to_add;
      request.stop_tokens = stops;
      --left_to_add;
      ASSERT_TRUE(std::holds_alternative<SequenceId>(engine.add(std::move(request))));
    };
    add();
    int64_t num_tokens = 0;
    const auto on_token = [&](const Generated& generated) {
      story.tokens[generated.sequence].push_back(generated.token);
      if (generated.finish) story.finishes[generated.sequence] = *generated.finish;
      if (++num_tokens % 5 == 0 && left_to_add > 0) add();
    };
    while (engine.step(on_token) || left_to_add > 0) {
      if (left_to_add > 0 && story.finishes.size() + left_to_add == 7) add();
    }
    for (const StepCount& count : engine.step_counts())
      story.steps += count.steps;
    return story;
  }

  std::unique_ptr<LoadedModel> model_;
};

TEST_P(OverlapTest, ASequenceGetsTheSameTokensHoweverFarTheDeviceRunsAhead) {
  const Story alone = tell({.overlap = false});
  EXPECT_EQ(alone.finishes.size(), 7U);
  const EngineOptions ways[] = {{.overlap = true},
                                {.overlap = false, .burst_steps = 8},
                                {.overlap = true, .burst_steps = 64}};
  for (const EngineOptions& way : ways) {
    SCOPED_TRACE(fmt::format("overlap {}, bursts of {}", *way.overlap, way.burst_steps));
    const Story story = tell(way);
    EXPECT_EQ(story.tokens, alone.tokens);
    EXPECT_EQ(story.finishes, alone.finishes);
  }
}

TEST_P(OverlapTest, AStepIsLaunchedAtOnceWhereNoRequestCanJoinIt) {
  constexpr std::chrono::steady_clock::time_point kAtOnce{};
  const auto launch_time = [&](int num_sequences, const EngineOptions& how) {
    Engine engine(*model_, how);
    for (int i = 0; i < num_sequences; ++i)
      (void)engine.add({.prompt = {1, 2, 3}, .max_tokens = 40});
    EXPECT_EQ(engine.launch_time(), kAtOnce);
    for (int i = 0; i < 20; ++i)
      EXPECT_TRUE(engine.step([](const Generated&) {}));
    return engine.launch_time();
  };
  EXPECT_GT(launch_time(3, {.overlap = true}), kAtOnce);
  EXPECT_EQ(launch_time(4, {.overlap = true}), kAtOnce);  // a step has no row for a further request
  EXPECT_EQ(launch_time(3, {.overlap = false}), kAtOnce);
}

TEST_P(OverlapTest, ASequenceThatLosesItsPagesGetsTheSameTokensLater) {
  int64_t num_preemptions = 0;
  const auto run = [&](const EngineOptions& how) {
    Engine engine(*model_, how);
    for (const int32_t first : {3, 5, 7, 9}) {
      const std::vector<int32_t> prompt(static_cast<size_t>(first) + 6, first);
      (void)engine.add({.prompt = prompt, .max_tokens = 40});
    }
    std::map<SequenceId, std::vector<int32_t>> tokens;
    while (engine.step([&](const Generated& generated) {
      tokens[generated.sequence].push_back(generated.token);
    })) {
    }
    num_preemptions = engine.scheduler().num_preemptions();
    return tokens;
  };
  const auto plenty = run({.overlap = false});
  EXPECT_EQ(num_preemptions, 0);
  LoadOptions few = bursting_options();
  few.page_size = 16;
  few.kv_tokens = 96;  // one and a half times the tokens of a sequence
  load(few);
  for (const EngineOptions& way : {EngineOptions{.overlap = false}, EngineOptions{.overlap = true},
                                   EngineOptions{.overlap = true, .burst_steps = 16}}) {
    EXPECT_EQ(run(way), plenty);
    EXPECT_GT(num_preemptions, 0);
  }
}

// A step in which each sequence has one token looks as if it continued the step before. In this
// test one of the tokens belongs to a prompt, so no earlier step sampled it and only the host knows
// it.
TEST_P(OverlapTest, APromptThatRunsATokenAStepIsNotTakenForOneThatGenerates) {
  LoadOptions narrow = bursting_options();
  narrow.limits.max_num_tokens = 4;
  load(narrow);
  const auto run = [&](const EngineOptions& how) {
    Engine engine(*model_, how);
    std::map<SequenceId, std::vector<int32_t>> tokens;
    const auto keep = [&](const Generated& generated) {
      tokens[generated.sequence].push_back(generated.token);
    };
    for (const int32_t first : {3, 5, 7})
      (void)engine.add({.prompt = {first}, .max_tokens = 60});
    for (int i = 0; i < 3; ++i)
      engine.step(keep);
    (void)engine.add({.prompt = {9, 8, 7, 6, 5, 4, 3, 2, 1, 11, 12}, .max_tokens = 20});
    while (engine.step(keep)) {
    }
    return tokens;
  };
  const auto expected = run({.overlap = false});
  EXPECT_EQ(run({.overlap = true}), expected);
  EXPECT_EQ(run({.overlap = true, .burst_steps = 16}), expected);
  Engine alone(*model_, {.overlap = false});
  (void)alone.add({.prompt = {9, 8, 7, 6, 5, 4, 3, 2, 1, 11, 12}, .max_tokens = 20});
  std::vector<int32_t> tokens;
  while (alone.step([&](const Generated& generated) { tokens.push_back(generated.token); })) {
  }
  EXPECT_EQ(tokens, expected.at(4));
}

TEST_P(OverlapTest, AStopTokenEndsASequenceThatHasRunFurther) {
  std::vector<int32_t> stops;
  for (const auto& [id, tokens] : tell({.overlap = false}).tokens)
    stops.push_back(tokens[tokens.size() / 2]);
  const Story alone = tell({.overlap = false}, stops);
  for (const EngineOptions& way :
       {EngineOptions{.overlap = true}, EngineOptions{.overlap = true, .burst_steps = 16}}) {
    const Story story = tell(way, stops);
    EXPECT_EQ(story.tokens, alone.tokens);
    EXPECT_EQ(story.finishes, alone.finishes);
  }
  // The step input has room for kMaxStopTokens stop tokens. Three more are put in front, so the
  // host must check the last three, which the device does not get.
  stops.resize(kMaxStopTokens, 0);
  stops.insert(stops.begin(), {1, 2, 3});
  EXPECT_EQ(tell({.overlap = true, .burst_steps = 16}, stops).tokens,
            tell({.overlap = false}, stops).tokens);
}

TEST_P(OverlapTest, StepsAfterTheFirstDecodeCopyNoInputs) {
  Engine engine(*model_, {.overlap = true});
  ASSERT_TRUE(std::holds_alternative<SequenceId>(engine.add({.prompt = {1, 2}, .max_tokens = 90})));
  std::vector<int32_t> tokens;
  const auto keep = [&](const Generated& generated) { tokens.push_back(generated.token); };
  for (int i = 0; i < 4; ++i)
    engine.step(keep);
  // The decode steps after the first take their inputs from the device, so what the host writes to
  // its copy of the inputs does not matter.
  for (const auto name : {"ids", "positions", "kv_lens"}) {
    for (int32_t& value : model_->executor().loaded().inputs.host<int32_t>(name))
      value = 77;
  }
  while (engine.step(keep)) {
  }
  std::vector<int32_t> expected;
  Engine other(*model_, {.overlap = false});
  ASSERT_TRUE(std::holds_alternative<SequenceId>(other.add({.prompt = {1, 2}, .max_tokens = 90})));
  while (other.step([&](const Generated& generated) { expected.push_back(generated.token); })) {
  }
  EXPECT_EQ(tokens, expected);
}

TEST_P(OverlapTest, AChangeOfModeIsSeenByTheNextStep) {
  Engine engine(*model_, {.overlap = true});
  (void)engine.add({.prompt = {1, 2}, .max_tokens = 12});
  for (int i = 0; i < 4; ++i)
    engine.step([](const Generated&) {});
  model_->executor().set_graphs(runtime::Graphs::kNone);
  while (engine.step([](const Generated&) {})) {
  }
  int64_t eager = 0;
  for (const StepCount& count : engine.step_counts())
    eager += count.mode == runtime::Mode::kEager ? count.steps : 0;
  EXPECT_GE(eager, 7);
}

TEST_P(OverlapTest, ABurstIsOneLaunchAndEndsWithItsSequences) {
  Engine engine(*model_, {.overlap = false, .burst_steps = 64});
  ASSERT_TRUE(std::holds_alternative<SequenceId>(engine.add({.prompt = {4}, .max_tokens = 21})));
  ASSERT_TRUE(std::holds_alternative<SequenceId>(engine.add({.prompt = {5}, .max_tokens = 50})));
  const int64_t before = model_->executor().loaded().recordings.stats().replays;
  int64_t tokens = 0;
  while (engine.step([&](const Generated&) { ++tokens; })) {
  }
  EXPECT_EQ(tokens, 71);
  EXPECT_LE(model_->executor().loaded().recordings.stats().replays - before, 4);
}

TEST_P(OverlapTest, ABurstEndsWithAStopToken) {
  const auto run = [&](const std::vector<int32_t>& stops) {
    Engine engine(*model_, {.overlap = false, .burst_steps = 64});
    (void)engine.add({.prompt = {4}, .max_tokens = 60, .stop_tokens = stops});
    std::vector<int32_t> tokens;
    while (engine.step([&](const Generated& generated) { tokens.push_back(generated.token); })) {
    }
    int64_t steps = 0;
    for (const StepCount& count : engine.step_counts())
      steps += count.steps;
    EXPECT_LE(steps, std::ssize(tokens) + runtime::Recordings::kStepsPerIteration);
    return tokens;
  };
  const auto tokens = run({});
  EXPECT_EQ(tokens.size(), 60U);
  const auto stopped = run({tokens[5]});
  EXPECT_EQ(stopped.back(), tokens[5]);
  EXPECT_LT(stopped.size(), 7U);
}

TEST_P(OverlapTest, AnAbortInterruptsABurst) {
  const auto run = [&](bool aborts) {
    Engine engine(*model_, {.overlap = false, .burst_steps = 64});
    const SequenceId id = std::get<SequenceId>(engine.add({.prompt = {4}, .max_tokens = 90}));
    int num_tokens = 0;
    while (engine.step([&](const Generated&) {
      if (++num_tokens == 4 && aborts) engine.abort(id);
    })) {
    }
    int64_t steps = 0;
    for (const StepCount& count : engine.step_counts())
      steps += count.steps;
    return steps;
  };
  EXPECT_GE(run(false), 90);
  EXPECT_LT(run(true), 90 - 2 * runtime::Recordings::kStepsPerIteration);
}

TEST_P(OverlapTest, TokensInFlightSurviveSleep) {
  const auto run = [&](const EngineOptions& how, bool sleeps) {
    Engine engine(*model_, how);
    (void)engine.add({.prompt = {1, 2, 3}, .max_tokens = 40});
    std::vector<int32_t> tokens;
    int step = 0;
    while (engine.step([&](const Generated& generated) { tokens.push_back(generated.token); })) {
      if (!sleeps || ++step % 3 != 0) continue;
      engine.sleep(SleepDepth::kKv);
      engine.wake();
    }
    return tokens;
  };
  const auto expected = run({.overlap = false}, false);
  EXPECT_EQ(expected.size(), 40U);
  EXPECT_EQ(run({.overlap = true}, true), expected);
  EXPECT_EQ(run({.overlap = true, .burst_steps = 8}, true), expected);
}

LoadOptions long_bursts() {
  LoadOptions options = bursting_options();
  options.limits.max_seq_len = 512;
  options.page_size = 16;
  options.kv_tokens = 2048;
  return options;
}

TEST_P(OverlapTest, ASleepInTheMidstOfABurstChangesNoToken) {
  load(long_bursts());
  const auto run = [&](bool sleeps) {
    Engine engine(*model_, {.overlap = true, .burst_steps = 64});
    (void)engine.add({.prompt = {1, 2, 3}, .max_tokens = 200});
    (void)engine.add({.prompt = {4}, .max_tokens = 150});
    std::map<SequenceId, std::vector<int32_t>> tokens;
    int looks = 0;
    while (engine.step([&](const Generated& generated) {
      tokens[generated.sequence].push_back(generated.token);
    })) {
      if (!sleeps || ++looks % 2 != 0) continue;
      engine.sleep(SleepDepth::kKv);
      engine.wake();
    }
    return tokens;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_P(OverlapTest, ABurstIsNoLongerThanTheTokensThatTheHostCanRead) {
  load(long_bursts());
  const auto run = [&](const EngineOptions& how) {
    Engine engine(*model_, how);
    (void)engine.add({.prompt = {1, 2, 3}, .max_tokens = 500});
    std::vector<int32_t> tokens;
    while (engine.step([&](const Generated& generated) { tokens.push_back(generated.token); })) {
    }
    return tokens;
  };
  EXPECT_EQ(run({.overlap = true, .burst_steps = 4096}), run({.overlap = false}));
}

// The test counts the tokens that one sequence gets from the moment when another is added until the
// other's first token.
TEST_P(OverlapTest, ANewcomerInterruptsABurst) {
  load(long_bursts());
  Engine engine(*model_, {.overlap = true, .burst_steps = 64});
  const auto old = std::get<SequenceId>(engine.add({.prompt = {1, 2, 3}, .max_tokens = 400}));
  SequenceId newcomer = 0;
  int64_t before = 0;
  int64_t since = 0;
  bool has_begun = false;
  const auto on_token = [&](const Generated& generated) {
    has_begun |= generated.sequence == newcomer;
    if (generated.sequence != old || has_begun) return;
    ++(newcomer == 0 ? before : since);
  };
  while (engine.step(on_token)) {
    if (newcomer == 0 && before > 40)
      newcomer = std::get<SequenceId>(engine.add({.prompt = {5}, .max_tokens = 3}));
  }
  EXPECT_TRUE(has_begun);
  EXPECT_LE(since, 64 + 2 * runtime::Recordings::kStepsPerIteration);
}

TEST_P(OverlapTest, NoBurstKeepsThoseWaitingThatAPlaceIsFreeFor) {
  load(long_bursts());
  Engine engine(*model_, {.overlap = true, .burst_steps = 64});
  for (const int64_t max_tokens : {20, 300, 300, 300})
    (void)engine.add({.prompt = {1, 2}, .max_tokens = max_tokens});
  const auto last = std::get<SequenceId>(engine.add({.prompt = {5, 6, 7}, .max_tokens = 3}));
  std::map<SequenceId, int64_t> num_tokens;
  while (engine.step([&](const Generated& generated) { ++num_tokens[generated.sequence]; })) {
    if (num_tokens.contains(last)) break;
  }
  EXPECT_EQ(num_tokens.at(1), 20);
  EXPECT_LE(num_tokens.at(2), 24);
}

TEST_P(OverlapTest, AnEngineThatEndsInABurstLeavesTheModelToTheNext) {
  const auto run = [&] {
    Engine engine(*model_, {.overlap = true});
    (void)engine.add({.prompt = {7, 8}, .max_tokens = 30});
    std::vector<int32_t> tokens;
    while (engine.step([&](const Generated& generated) { tokens.push_back(generated.token); })) {
    }
    return tokens;
  };
  const auto expected = run();
  for (int num_steps = 1; num_steps < 5; ++num_steps) {
    {
      Engine engine(*model_, {.overlap = true, .burst_steps = 64});
      (void)engine.add({.prompt = {4}, .max_tokens = 100});
      for (int i = 0; i < num_steps; ++i)
        engine.step([](const Generated&) {});
    }
    EXPECT_EQ(run(), expected) << num_steps;
  }
}

TEST_P(OverlapTest, AModelThatEndsWaitsForItsSteps) {
  for (const bool bursts : {false, true}) {
    {
      Engine engine(*model_, {.overlap = true, .burst_steps = bursts ? 64 : 1});
      (void)engine.add({.prompt = {1, 2, 3}, .max_tokens = 100});
      EXPECT_TRUE(engine.step([](const Generated&) {}));
      EXPECT_TRUE(engine.step([](const Generated&) {}));
    }
    load(bursting_options());
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, OverlapTest, ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::engine
