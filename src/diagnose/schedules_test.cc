// Tests that the ways to run a step agree bit for bit at every size of every named schedule.
#include "planning/schedules.h"

#include <set>

#include <gtest/gtest.h>

#include "base/testing/thorough.h"
#include "diagnose/compare.h"
#include "engine/testing/tiny_model.h"

namespace encore::diagnose {
namespace {

constexpr int64_t kMaxBatchSize = 512;
constexpr int64_t kMaxNumTokens = 4096;

// Returns the sizes up to `max` of all named schedules together, without the schedules that count
// `others` (sequences or tokens).
runtime::Ladder all_sizes(int64_t max, planning::Counts others) {
  std::set<int64_t> sizes;
  for (const planning::Schedule& schedule : planning::schedules()) {
    if (schedule.counts == others) continue;
    const runtime::Ladder ladder = schedule.ladder(8, max);
    sizes.insert(ladder.sizes().begin(), ladder.sizes().end());
  }
  return runtime::Ladder(std::vector<int64_t>(sizes.begin(), sizes.end()));
}

// Returns all sizes in a thorough run, and every 16th in a quick run, the largest among them.
std::vector<int64_t> tried(const std::vector<int64_t>& sizes) {
  const size_t step = is_thorough() ? 1 : 16;
  std::vector<int64_t> tried;
  for (size_t i = (sizes.size() - 1) % step; i < sizes.size(); i += step)
    tried.push_back(sizes[i]);
  return tried;
}

// Returns a small model, as there are some hundred sizes with up to thousands of tokens.
model::ModelSource narrow_model() {
  model::ModelSource source = engine::testing::tiny_model(engine::testing::Tiny::kLlama);
  source.config.layers.resize(1);
  source.config.hidden_size = 64;
  source.config.num_heads = 2;
  source.config.num_kv_heads = 1;
  source.config.intermediate_size = 64;
  source.config.vocab_size = 64;
  return source;
}

class SchedulesTest : public engine::testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    loader::LoadOptions options;
    options.limits = {.max_num_tokens = kMaxNumTokens,
                      .max_batch_size = kMaxBatchSize,
                      .max_q = 1,
                      .max_seq_len = 2048};
    options.kv_tokens = kMaxBatchSize * 32;
    options.record_all_modes = true;
    options.sequences = all_sizes(kMaxBatchSize, planning::Counts::kTokens);
    options.tokens = all_sizes(kMaxNumTokens, planning::Counts::kSequences);
    model_.emplace(*device_, narrow_model(), options);
    fill_kv(*model_, 3);
  }

  void expect_equal(const StepKey& key, runtime::Graphs graphs, runtime::Mode mode) {
    model_->executor().set_graphs(graphs);
    const auto step = trial_step(*model_, key);
    ASSERT_TRUE(step.has_value()) << runtime::describe(key);
    const runtime::Choice choice = choose(key, model_->executor().coverage());
    EXPECT_EQ(choice.mode, mode) << runtime::describe(key);
    EXPECT_EQ(choice.padding, 0) << runtime::describe(key);
    const auto difference = compare_outputs(*model_, *step, 4);
    EXPECT_FALSE(difference.has_value())
        << runtime::describe(key) << ": " << describe(*difference, mode);
  }

  std::optional<loader::LoadedModel> model_;
};

TEST_P(SchedulesTest, FullIsPiecewiseIsEagerAtEverySizeOfUniformSteps) {
  const std::vector<int64_t> sizes = all_sizes(kMaxBatchSize, planning::Counts::kTokens).sizes();
  EXPECT_GT(sizes.size(), 70U);
  for (const int64_t size : tried(sizes)) {
    expect_equal(StepKey::uniform(size), runtime::Graphs::kFull, runtime::Mode::kFull);
    expect_equal(StepKey::uniform(size), runtime::Graphs::kPiecewise, runtime::Mode::kPiecewise);
  }
}

TEST_P(SchedulesTest, PiecewiseIsEagerAtEverySizeOfMixedSteps) {
  const std::vector<int64_t> sizes = all_sizes(kMaxNumTokens, planning::Counts::kSequences).sizes();
  EXPECT_GT(sizes.size(), 100U);
  for (const int64_t size : tried(sizes)) {
    if (size == 1) continue;  // a step of one token is uniform
    expect_equal(StepKey::mixed(size, std::min<int64_t>((size + 1) / 2, 16)),
                 runtime::Graphs::kPiecewise, runtime::Mode::kPiecewise);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SchedulesTest, ::testing::Values("Cpu", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::diagnose
