#include "sched/plan.h"

#include <gtest/gtest.h>

namespace encore::sched {
namespace {

using Rows = std::vector<ScheduledTokens>;

TEST(Plan, KnowsAUniformStep) {
  EXPECT_EQ((Plan{{{1, 5, 1}, {2, 7, 1}}}).uniform_q(1), 1);
  EXPECT_EQ((Plan{{{1, 5, 3}, {2, 7, 3}}}).uniform_q(4), 3);
  EXPECT_EQ((Plan{{{1, 5, 3}, {2, 7, 3}}}).uniform_q(2), std::nullopt);
  EXPECT_EQ((Plan{{{1, 5, 1}, {2, 7, 2}}}).uniform_q(4), std::nullopt);
  EXPECT_EQ(Plan{}.uniform_q(4), std::nullopt);
}

TEST(CutToFit, KeepsTheLimitOfTheStep) {
  SchedulerLimits limits{.max_num_tokens = 100, .max_batch_size = 4};
  const Plan wanted{{{1, 5, 1}, {2, 0, 60}, {3, 0, 60}}};
  EXPECT_EQ(cut_to_fit(wanted, limits, {}).rows, (Rows{{1, 5, 1}, {2, 0, 60}, {3, 0, 39}}));
  limits.max_num_tokens = 20;
  EXPECT_EQ(cut_to_fit(wanted, limits, {}).rows, (Rows{{1, 5, 1}, {2, 0, 19}}));
  limits.max_num_tokens = 4;
  EXPECT_EQ(cut_to_fit(wanted, limits, {}).num_tokens(), 4);
}

TEST(CutToFit, LimitsTokensOfPromptsOnlyWhereOthersGenerate) {
  const SchedulerLimits limits{.max_num_tokens = 100, .max_batch_size = 4};
  EXPECT_EQ(cut_to_fit({{{1, 5, 1}, {2, 9, 1}, {3, 0, 60}}}, limits, 10).rows,
            (Rows{{1, 5, 1}, {2, 9, 1}, {3, 0, 10}}));
  EXPECT_EQ(cut_to_fit({{{3, 0, 60}}}, limits, 10).rows, (Rows{{3, 0, 60}}));
  EXPECT_EQ(cut_to_fit({{{1, 5, 1}, {3, 0, 60}}}, limits, 0).rows, (Rows{{1, 5, 1}, {3, 0, 1}}));
}

TEST(Plan, ContinuesAStepWhoseRowsAreTheSameAndTakeTheTokensThatItSampled) {
  const Plan before{.rows = {{1, 5, 1}, {2, 8, 1}}};
  EXPECT_TRUE((Plan{.rows = {{1, 6, 1}, {2, 9, 1}}}.continues(before)));
  EXPECT_FALSE((Plan{.rows = {{2, 9, 1}, {1, 6, 1}}}.continues(before)));
  EXPECT_FALSE((Plan{.rows = {{1, 6, 1}}}.continues(before)));
  EXPECT_FALSE((Plan{.rows = {{1, 6, 1}, {2, 10, 1}}}.continues(before)));
  EXPECT_FALSE((Plan{.rows = {{1, 6, 1}, {2, 9, 1}}, .has_given_tokens = true}.continues(before)));
  EXPECT_FALSE((Plan{.rows = {{1, 6, 1, 2}, {2, 9, 1, 2}}}.continues(before)));
  // A step that computes the rest of a prompt does not continue the step before, as its tokens were
  // not sampled.
  EXPECT_FALSE((Plan{.rows = {{1, 8, 3}}}.continues({.rows = {{1, 5, 3}}})));
}

TEST(Plan, MovesTheRowOfOneSequenceOn) {
  Plan plan{.rows = {{1, 5, 1}, {2, 8, 1}}};
  plan.move_on(2, 3);
  EXPECT_EQ(plan.rows, (Rows{{1, 5, 1}, {2, 11, 1}}));
}

TEST(Plan, CountsTokensOfPromptsAlone) {
  const Plan plan{.rows = {{1, 5, 1}, {2, 0, 40}, {3, 9, 1}}};
  EXPECT_EQ(plan.prompt_tokens(1), 40);
  EXPECT_EQ(plan.prompt_tokens(64), 0);
}

TEST(CutToFit, LandsOnABucketWhereThatCutsLessThanItSaves) {
  SchedulerLimits limits{.max_batch_size = 4, .token_buckets = {1, 64, 128, 512}};
  const Plan wanted{{{1, 5, 1}, {2, 0, 400}}};
  const auto tokens = [&](int64_t max_num_tokens) {
    limits.max_num_tokens = max_num_tokens;
    return cut_to_fit(wanted, limits, {}).num_tokens();
  };
  EXPECT_EQ(tokens(64), 64);
  EXPECT_EQ(tokens(70), 64);
  EXPECT_EQ(tokens(127), 127);  // not cut: the step is padded by one token to 128
  EXPECT_EQ(tokens(200), 128);
  EXPECT_EQ(tokens(390), 390);
  EXPECT_EQ(tokens(450), 401);  // 1 + 400 tokens: a prompt that fits is not cut
}

TEST(CutToFit, CutsNoRowButTheLastAndLeavesATokenOfIt) {
  SchedulerLimits limits{
      .max_num_tokens = 70, .max_batch_size = 4, .token_buckets = {1, 64, 128, 512}};
  EXPECT_EQ(cut_to_fit({{{1, 5, 1}, {2, 0, 64}, {3, 0, 60}}}, limits, {}).rows,
            (Rows{{1, 5, 1}, {2, 0, 64}, {3, 0, 5}}));
  // Steps above the last bucket are not padded.
  limits.token_buckets = {64};
  EXPECT_EQ(cut_to_fit({{{2, 0, 400}}}, limits, {}).num_tokens(), 70);
}

}  // namespace
}  // namespace encore::sched
