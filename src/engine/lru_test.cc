// Tests recordings made while serving: they have exact sizes, and the least recently used one is
// evicted.
#include <algorithm>
#include <memory>

#include <gtest/gtest.h>

#include "backend/fault.h"
#include "engine/testing/tiny_model.h"
#include "planning/schedules.h"

namespace encore::engine {
namespace {

LoadOptions small_options(const char* decode_ladder) {
  LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 6, .max_q = 1, .max_seq_len = 64};
  options.kv_tokens = 1024;
  options.sequences = planning::named_or_list(decode_ladder, 6);
  options.tokens = runtime::Ladder({32});
  return options;
}

class LruTest : public ::testing::Test {
 protected:
  // Returns the tokens of `batch` sequences that end one after another, so that each size of step
  // follows the next larger one.
  std::vector<int32_t> generate(
      LoadedModel& model, int batch,
      const std::shared_ptr<const sample::TokenGrammar>& grammar = nullptr) {
    Engine engine(model);
    for (int i = 0; i < batch; ++i) {
      const auto added =
          engine.add({.prompt = {i + 1, 2, 3}, .max_tokens = 3 + i, .grammar = grammar});
      EXPECT_TRUE(std::holds_alternative<SequenceId>(added));
    }
    std::vector<int32_t> tokens;
    while (engine.step([&](const Generated& generated) { tokens.push_back(generated.token); })) {
    }
    counts_ = engine.step_counts();
    return tokens;
  }
  static int num_recorded(LoadedModel& model, runtime::StepPart part = runtime::StepPart::kWhole) {
    int recorded = 0;
    for (int sequences = 1; sequences <= 6; ++sequences) {
      const auto step = StepKey::uniform(sequences);
      recorded += model.executor().loaded().recordings.full(step, part) != nullptr ? 1 : 0;
    }
    return recorded;
  }
  [[nodiscard]] int64_t uniform_steps(runtime::Mode mode) const {
    int64_t steps = 0;
    for (const StepCount& count : counts_)
      steps += count.key.is_uniform() && count.mode == mode ? count.steps : 0;
    return steps;
  }
  [[nodiscard]] int64_t padding_of_uniform_steps() const {
    int64_t padding = 0;
    for (const StepCount& count : counts_)
      padding += count.key.is_uniform() ? count.padding : 0;
    return padding;
  }

  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  std::vector<StepCount> counts_;
};

TEST_F(LruTest, RecordsExactSizesAsTheyComeAndKeepsTheNumberAskedFor) {
  LoadedModel every(*device_, testing::tiny_model(testing::Tiny::kLlama),
                    testing::with_feature(small_options("step:1")));
  LoadedModel lru(*device_, testing::tiny_model(testing::Tiny::kLlama),
                  testing::with_feature(small_options("lru:2")));
  EXPECT_EQ(num_recorded(lru), 2) << "made at start, for their memory";
  for (const int batch : {6, 1, 4, 2, 6}) {
    EXPECT_EQ(generate(lru, batch), generate(every, batch)) << batch;
    EXPECT_EQ(num_recorded(lru), 2);
  }
  (void)generate(lru, 6);
  EXPECT_GT(uniform_steps(runtime::Mode::kFull), 0);
  EXPECT_EQ(uniform_steps(runtime::Mode::kEager), 0);
  EXPECT_EQ(padding_of_uniform_steps(), 0);
}

// Allows all tokens.
class Anything final : public sample::TokenGrammar {
 public:
  [[nodiscard]] std::unique_ptr<sample::TokenMatcher> start() const override {
    return std::make_unique<Matcher>();
  }

 private:
  class Matcher final : public sample::TokenMatcher {
   public:
    void fill(std::span<uint32_t> mask) override { std::ranges::fill(mask, ~uint32_t{0}); }
    bool accept(int32_t /*token*/) override { return true; }
    [[nodiscard]] bool has_ended() const override { return false; }
  };
};

TEST_F(LruTest, TheHalvesThatTokenMasksNeedGoWithTheirRecording) {
  using enum runtime::StepPart;
  const auto grammar = std::make_shared<Anything>();
  LoadedModel model(*device_, testing::tiny_model(testing::Tiny::kLlama),
                    testing::with_feature(small_options("lru:2")));
  for (const int batch : {6, 1, 4, 2, 6}) {
    std::vector<int32_t> tokens = generate(model, batch, grammar);
    EXPECT_EQ(uniform_steps(runtime::Mode::kEager), 0);
    EXPECT_LE(num_recorded(model, kToLogits), 2);
    EXPECT_LE(num_recorded(model, kFromLogits), 2);
    std::vector<int32_t> plain = generate(model, batch);
    EXPECT_EQ(num_recorded(model), 2);
    // A step's sequences may come in another order than in the other run, so both runs' tokens are
    // compared in sorted order.
    std::ranges::sort(tokens);
    std::ranges::sort(plain);
    EXPECT_EQ(tokens, plain);
  }
  const runtime::RecordingStats& stats = model.recording_stats();
  EXPECT_EQ(stats.full.recordings - stats.full.erased, 2);
  EXPECT_GT(stats.halves.erased, 0);
}

TEST_F(LruTest, HalvesAreRecordedAtStartWhereThatIsAskedFor) {
  LoadOptions options = testing::with_feature(small_options("2,6"));
  options.masks_tokens = true;
  LoadedModel later(*device_, testing::tiny_model(testing::Tiny::kLlama), options);
  EXPECT_EQ(later.recording_stats().halves.recordings, 0);
  options.halves = true;
  LoadedModel model(*device_, testing::tiny_model(testing::Tiny::kLlama), options);
  const runtime::RecordingStats& stats = model.recording_stats();
  EXPECT_EQ(stats.halves.recordings, 2 * stats.num_full());
  EXPECT_EQ(num_recorded(model, runtime::StepPart::kToLogits), 2);
  EXPECT_EQ(model.half_bytes(), 0) << "nothing more is to come that memory is kept free for";
  const int made = stats.halves.recordings;
  const auto grammar = std::make_shared<Anything>();
  std::vector<int32_t> tokens = generate(model, 6, grammar);
  std::vector<int32_t> expected = generate(later, 6, grammar);
  std::ranges::sort(tokens);  // the order of a step's sequences may differ
  std::ranges::sort(expected);
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ(model.recording_stats().halves.recordings, made);
  EXPECT_GT(later.recording_stats().halves.recordings, 0);
}

TEST_F(LruTest, HalvesAreRecordedOnce) {
  const auto grammar = std::make_shared<Anything>();
  LoadedModel model(*device_, testing::tiny_model(testing::Tiny::kLlama),
                    testing::with_feature(small_options("lru:6")));
  (void)generate(model, 6, grammar);
  const int made = model.recording_stats().halves.recordings;
  EXPECT_GT(made, 0);
  (void)generate(model, 6, grammar);
  EXPECT_EQ(model.recording_stats().halves.recordings, made);
}

TEST_F(LruTest, MakesNoRecordingTwiceWhileThereIsRoom) {
  LoadedModel model(*device_, testing::tiny_model(testing::Tiny::kLlama),
                    testing::with_feature(small_options("lru:6")));
  (void)generate(model, 6);
  const int made = model.executor().loaded().recordings.stats().full.recordings;
  (void)generate(model, 6);
  EXPECT_EQ(model.executor().loaded().recordings.stats().full.recordings, made);
}

TEST_F(LruTest, MakesRoomByTheRecordingUsedLongestAgo) {
  LoadedModel model(*device_, testing::tiny_model(testing::Tiny::kLlama),
                    testing::with_feature(small_options("lru:2")));
  (void)generate(model, 3);  // steps of 3 sequences, then 2, then 1
  const int made = model.executor().loaded().recordings.stats().full.recordings;
  (void)generate(model, 2);
  EXPECT_EQ(model.executor().loaded().recordings.stats().full.recordings, made);
}

TEST_F(LruTest, AFailureWhileServingIsACountedEagerStepWithTheSameTokens) {
  LoadedModel model(*device_, testing::tiny_model(testing::Tiny::kLlama),
                    testing::with_feature(small_options("lru:1")));
  const auto wanted = generate(model, 1);
  LoadedModel broken(*device_, testing::tiny_model(testing::Tiny::kLlama),
                     testing::with_feature(small_options("lru:1")));
  std::vector<int32_t> tokens;
  {
    const fault::Injection injection([](std::string_view call) {
      if (call == "end_recording") fail(ErrorKind::kDevice, "injected");
    });
    tokens = generate(broken, 4);
  }
  EXPECT_EQ(tokens, generate(model, 4));
  (void)generate(broken, 4);
  bool is_counted = false;
  for (const StepCount& count : counts_)
    is_counted |= count.reason == runtime::Reason::kRecordingFailed && count.steps > 0;
  EXPECT_TRUE(is_counted);
  EXPECT_EQ(generate(broken, 1), wanted) << "the size recorded at start is there still";
}

}  // namespace
}  // namespace encore::engine
