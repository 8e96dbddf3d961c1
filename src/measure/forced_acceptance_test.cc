#include "measure/forced_acceptance.h"

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "engine/testing/tiny_model.h"
#include "loader/loaded_model.h"
#include "measure/speculation.h"
#include "planning/floor.h"

namespace encore::measure {
namespace {

TEST(AcceptanceRates, AreThoseOfAGeometricSeriesOrOfTheLeastVariance) {
  EXPECT_EQ(rates_of_probability(0.5, 3), (std::vector<double>{0.5, 0.25, 0.125}));
  EXPECT_DOUBLE_EQ(expected_tokens(rates_of_probability(0.5, 3)), (1 - 0.0625) / (1 - 0.5));
  EXPECT_EQ(rates_of_length(3.5, 4), (std::vector<double>{1, 1, 0.5, 0}));
  EXPECT_EQ(rates_of_length(1, 3), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(rates_of_length(4, 3), (std::vector<double>{1, 1, 1}));
  EXPECT_DOUBLE_EQ(expected_tokens(rates_of_length(2.6, 3)), 2.6);
}

// In this test a step without drafts takes 4 ms, a draft 0.1 and a check 1.25 times as long, and
// each of K = 5 drafts is right with probability 0.8.
TEST(SpeculationTimes, PredictTheSpeedUpWithAndWithoutTheCostOfChecking) {
  const SpeculationTimes times{.plain_ms = 4, .draft_ms = 0.4, .verify_ms = 5};
  const double tokens = expected_tokens(rates_of_probability(0.8, 5));
  EXPECT_NEAR(tokens, 3.689, 1e-3);
  EXPECT_NEAR(times.with_free_checks(tokens, 5), tokens / 1.5, 1e-12);
  EXPECT_NEAR(times.predicted(tokens, 5), tokens / (0.5 + 1.25), 1e-12);
  EXPECT_DOUBLE_EQ(times.apart_ms(5), 7);
}

class ForcedAcceptance : public ::testing::Test {
 protected:
  static constexpr int64_t kDrafts = 3;

  std::unique_ptr<loader::LoadedModel> load(bool is_forced, bool has_draft_model) {
    loader::LoadOptions options;
    options.limits = {.max_num_tokens = 32,
                      .max_batch_size = 4,
                      .max_q = 1,
                      .max_seq_len = 1024,
                      .num_drafts = kDrafts};
    const auto model = engine::testing::tiny_model(engine::testing::Tiny::kLlama);
    if (has_draft_model) {
      options.draft = model;
      options.draft->config.layers.resize(1);
    }
    if (is_forced) options.compile.passes = {forced_acceptance_pass()};
    return std::make_unique<loader::LoadedModel>(*device_, model, options);
  }

  const std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
};

// A step with drafts reads the draft model's weights once for each draft, and its K and V
// projections once more. A step without drafts reads only the K and V projections.
TEST_F(ForcedAcceptance, WeightsOfADraftModelAreCountedByItsPasses) {
  const auto weight_bytes = [&](const loader::LoadedModel& model, int64_t q) {
    const passes::Program& program = model.program();
    return planning::step_cost(program.graph, StepKey::uniform(2, q).sizes()).weight_bytes;
  };
  const auto alone = load(false, false);
  const auto both = load(false, true);
  const int64_t reading = weight_bytes(*both, 1) - weight_bytes(*alone, 1);
  const int64_t guessing = weight_bytes(*both, 1 + kDrafts) - weight_bytes(*alone, 1 + kDrafts);
  EXPECT_GT(reading, 0);
  EXPECT_EQ((guessing - reading) % kDrafts, 0);
  EXPECT_GT((guessing - reading) / kDrafts, 2 * reading);
}

// Drafts are right as often as the rates say, whatever tokens they are. The tolerance covers the
// unevenness of draws over few steps.
TEST_F(ForcedAcceptance, MakesDraftsRightAsOftenAsItIsTold) {
  for (const bool has_draft_model : {false, true}) {
    const auto model = load(true, has_draft_model);
    for (const std::vector<double>& rates :
         {std::vector<double>{}, std::vector<double>{1, 1, 1}, rates_of_probability(0.8, kDrafts),
          rates_of_length(2.5, kDrafts)}) {
      force_acceptance(rates, model->executor().loaded());
      engine::Engine engine(*model, {});
      const TimedSteps steps =
          time_decoding(engine, {.batch = 2, .context = 8, .warmup_tokens = 1, .steps = 60});
      EXPECT_NEAR(steps.tokens_per_step, expected_tokens(rates), 0.06);
      EXPECT_GT(steps.tokens_per_s, 0);
    }
  }
}

TEST_F(ForcedAcceptance, RefusesRatesThatSayNothing) {
  const auto refusal = [](loader::LoadedModel& model, std::vector<double> rates) {
    return message_of(ErrorKind::kUsage,
                      [&] { force_acceptance(rates, model.executor().loaded()); });
  };
  const auto forced = load(true, false);
  EXPECT_NE(refusal(*forced, {0.5, 0.6}).find("an acceptance rate of 0.6"), std::string::npos);
  EXPECT_NE(refusal(*forced, {1.5}).find("an acceptance rate of 1.5"), std::string::npos);
  EXPECT_NE(refusal(*load(false, false), {0.5}).find("without forced acceptance"),
            std::string::npos);
}

}  // namespace
}  // namespace encore::measure
