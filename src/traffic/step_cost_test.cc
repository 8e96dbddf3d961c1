#include "traffic/step_cost.h"

#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"

namespace encore::traffic {
namespace {

StepCost known_cost() {
  return {.decode = {.constant_us = 300,
                     .us_per_token_above = {{0, 1}, {64, 4}},
                     .us_per_sequence = 0.5,
                     .us_per_kv_token = 0.01},
          .mixed = {.constant_us = 500, .us_per_token_above = {{0, 2}, {256, 8}}},
          .host_us = 25};
}

// Makes random steps whose time is what `cost` says, times a random factor of about one.
std::vector<planning::LoggedStep> logged_steps(const StepCost& cost, double noise) {
  std::mt19937 random(5);
  std::uniform_int_distribution<int64_t> sequences(1, 256);
  std::uniform_int_distribution<int64_t> prompt(2, 2000);
  std::uniform_int_distribution<int64_t> context(1, 4000);
  std::normal_distribution<double> factor(1, noise);
  std::vector<planning::LoggedStep> steps;
  for (int i = 0; i < 2000; ++i) {
    StepShape shape{.is_decode = i % 2 == 0, .sequences = sequences(random)};
    shape.tokens = shape.sequences + (shape.is_decode ? 0 : prompt(random));
    shape.kv_tokens = shape.sequences * context(random);
    planning::LoggedStep step;
    step.generation_requests = shape.sequences;
    step.context_tokens = shape.tokens - shape.sequences;
    step.padding = shape.tokens % 3;
    step.tokens = shape.tokens - *step.padding;
    step.sequences = shape.sequences;
    step.kv_tokens = shape.kv_tokens;
    step.host_us = 25;
    step.gpu_us = cost(shape) * factor(random);
    steps.push_back(step);
  }
  return steps;
}

TEST(StepCost, IsASumOfItsTerms) {
  const StepCost cost = known_cost();
  EXPECT_DOUBLE_EQ(cost({true, 100, 100, 1000}), 300 + 100 + 4 * 36 + 50 + 10);
  EXPECT_DOUBLE_EQ(cost({true, 10, 10, 0}), 300 + 10 + 5);
  EXPECT_DOUBLE_EQ(cost({false, 300, 4, 5000}), 500 + 600 + 8 * 44);
}

TEST(FitStepCost, FindsWhatMadeTheTimes) {
  const StepCost cost = known_cost();
  const auto [fitted, quality] = fit_step_cost(logged_steps(cost, 0), "log");
  EXPECT_EQ(quality.num_steps, 2000);
  EXPECT_LT(quality.median_error, 0.002);
  EXPECT_LT(std::abs(quality.total_error), 0.002);
  EXPECT_EQ(fitted.host_us, 25);
  for (const StepShape& shape : {StepShape{true, 1, 1, 50}, StepShape{true, 256, 256, 500'000},
                                 StepShape{false, 2000, 3, 4000}, StepShape{false, 300, 200, 9000}})
    EXPECT_NEAR(fitted(shape) / cost(shape), 1, 0.02);
}

// A step reads each expert once that any of its tokens chooses. So its time rises fast with the
// first tokens and slowly later, which prices that only rise cannot describe.
TEST(FitStepCost, CountsTheExpertsThatTokensAreExpectedToChoose) {
  StepCost cost{.decode = {.constant_us = 300, .us_per_expert = 40},
                .mixed = {.constant_us = 400, .us_per_token_above = {{0, 2}}, .us_per_expert = 40},
                .experts = {128, 8}};
  EXPECT_NEAR(cost.experts.distinct(1), 8, 1e-9);
  EXPECT_NEAR(cost.experts.distinct(8), 51.62, 0.01);
  std::vector<planning::LoggedStep> steps = logged_steps(cost, 0);
  for (planning::LoggedStep& step : steps) {
    const StepShape shape{step.is_decode(), *step.tokens + *step.padding, *step.sequences,
                          *step.kv_tokens, cost.experts.distinct(*step.tokens)};
    step.gpu_us = cost(shape);
  }
  const auto [fitted, quality] = fit_step_cost(steps, "log", cost.experts);
  EXPECT_LT(quality.median_error, 0.002);
  EXPECT_NEAR(fitted.decode.us_per_expert, 40, 4);
  EXPECT_EQ(parse_step_cost(json::to_text(cost_json(cost)), "cost"), cost);
  EXPECT_EQ(fit_step_cost(steps, "log").first.decode.us_per_expert, 0);
}

TEST(FitStepCost, IsNotMisledByNoise) {
  const auto [fitted, quality] = fit_step_cost(logged_steps(known_cost(), 0.1), "log");
  EXPECT_NEAR(quality.median_error, 0.0675, 0.01);
  EXPECT_LT(std::abs(quality.total_error), 0.01);
  EXPECT_NEAR(fitted({true, 128, 128, 100'000}) / known_cost()({true, 128, 128, 100'000}), 1, 0.03);
}

TEST(FitStepCost, TakesTheDevicesTimeOutOfTheHostsWhereOneIsWithinTheOther) {
  auto steps = logged_steps(known_cost(), 0);
  for (planning::LoggedStep& step : steps)
    step.host_us = *step.gpu_us + 7;
  EXPECT_NEAR(fit_step_cost(steps, "log").first.host_us, 7, 1e-6);
}

TEST(FitStepCost, SharesTermsWhereAKindIsMissing) {
  auto steps = logged_steps(known_cost(), 0);
  std::erase_if(steps, [](const auto& step) { return step.is_decode(); });
  const StepCost fitted = fit_step_cost(steps, "log").first;
  EXPECT_EQ(fitted.decode, fitted.mixed);
}

TEST(FitStepCost, RefusesALogWithoutTimes) {
  auto steps = logged_steps(known_cost(), 0);
  for (planning::LoggedStep& step : steps)
    step.gpu_us.reset();
  EXPECT_THROW((void)fit_step_cost(steps, "log"), Error);
}

TEST(StepCostFile, ReadsWhatWasWritten) {
  const StepCost cost = known_cost();
  EXPECT_EQ(parse_step_cost(json::to_text(cost_json(cost)), "cost"), cost);
  EXPECT_EQ(parse_step_cost(R"({"decode": {"us": 5}, "mixed": {}})", "cost"),
            (StepCost{.decode = {.constant_us = 5}}));
}

TEST(StepCostFile, RefusesWhatIsNoCost) {
  for (const char* text : {"", "[]", R"({"decode": {}})", R"({"decode": {"us": -1}, "mixed": {}})",
                           R"({"decode": {"us": "x"}, "mixed": {}})",
                           R"({"decode": {"us_per_token_above": {"few": 1}}, "mixed": {}})",
                           R"({"decode": {}, "mixed": {}, "host_us": 1e300})"}) {
    const std::string message =
        message_of(ErrorKind::kUsage, [&] { (void)parse_step_cost(text, "cost"); });
    EXPECT_EQ(message.substr(0, 4), "cost") << text;
  }
}

constexpr const char* kMeasuredSums = R"({"ranks": 2, "cases": [
    {"rows": 1, "bytes": 1000, "all_reduce_us": 2, "fused_us": 3},
    {"rows": 2, "bytes": 2000, "all_reduce_us": 2, "fused_us": 4},
    {"rows": 8, "bytes": 8000, "all_reduce_us": 2, "fused_us": 10}]})";

TEST(ExchangeCost, IsALineThroughWhatWasMeasured) {
  const ExchangeCost cost = parse_exchange_cost(kMeasuredSums, "file");
  EXPECT_EQ(cost.ranks, 2);
  EXPECT_NEAR(cost.constant_us, 2, 1e-9);
  EXPECT_NEAR(cost.us_per_byte, 0.001, 1e-12);
}

TEST(ExchangeCost, SaysWhatAFileLacks) {
  const auto message = [](const char* text) {
    return message_of(ErrorKind::kUsage, [&] { (void)parse_exchange_cost(text, "file"); });
  };
  EXPECT_NE(message(R"({"ranks": 2, "cases": [{"bytes": 8, "fused_us": 1}]})").find("two lengths"),
            std::string::npos);
  EXPECT_NE(message(R"({"ranks": 2, "cases": [{"bytes": 8, "fused_us": 0}]})").find("above 0"),
            std::string::npos);
  EXPECT_NE(message(R"({"ranks": 2})").find("cases"), std::string::npos);
}

TEST(ExchangeCost, MakesTheCostOfADeviceThatOfRanks) {
  const ExchangeCost exchange = parse_exchange_cost(kMeasuredSums, "file");
  const StepCost alone = known_cost();
  const StepCost shared = shared_cost(alone, exchange, {.count = 10, .bytes_per_token = 500});
  for (const StepShape& step : {StepShape{true, 100, 100, 1000}, StepShape{false, 300, 4, 5000}}) {
    const double sums = 10 * (2 + 0.5 * static_cast<double>(step.tokens));
    EXPECT_NEAR(shared(step), alone(step) / 2 + sums, 1e-6);
  }
  EXPECT_EQ(shared.host_us, alone.host_us);
}

}  // namespace
}  // namespace encore::traffic
