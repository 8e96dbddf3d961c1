#include "engine/draft_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace encore::engine {
namespace {

constexpr int64_t kDraftCounts[] = {1, 2, 4};

// Simulates the steps of a batch. Each draft is right with probability `acceptance` if those in
// front of it are. A draft makes a step longer by a share of the time without drafts that grows
// with the batch, as on a GPU: it costs little while reading the weights takes most of a step.
struct SimulatedBatch {
  int64_t sequences = 1;
  double acceptance = 0.5;
  double share_without = 0;  // share of rows that take no drafts
  double noise = 0.01;       // noise of a step's time
  std::mt19937_64 random{7};

  [[nodiscard]] double plain_ms() const { return 5 + 0.06 * static_cast<double>(sequences); }
  [[nodiscard]] double step_ms(int64_t num_drafts) const {
    const double share = 0.04 + 0.002 * static_cast<double>(sequences);
    return plain_ms() * (1 + share * static_cast<double>(num_drafts));
  }
  [[nodiscard]] double expected(int64_t num_drafts) const {
    double tokens = 1;
    for (int64_t j = 1; j <= num_drafts; ++j)
      tokens += (1 - share_without) * std::pow(acceptance, static_cast<double>(j));
    return tokens;
  }
  [[nodiscard]] sched::DraftableStep step() const {
    return {.sequences = sequences,
            .without = std::llround(share_without * static_cast<double>(sequences))};
  }
  // Returns the expected tokens of a row per millisecond with `num_drafts` drafts.
  [[nodiscard]] double speed(int64_t num_drafts) const {
    return expected(num_drafts) / step_ms(num_drafts);
  }
  [[nodiscard]] double best_speed() const {
    double best = speed(0);
    for (const int64_t count : kDraftCounts)
      best = std::max(best, speed(count));
    return best;
  }
  double number() { return std::uniform_real_distribution<double>(0, 1)(random); }
};

// Runs steps with the chosen numbers of drafts. Returns the tokens of a row per millisecond that
// these steps give on average.
double run_steps(DraftChoice& choice, SimulatedBatch& batch, int64_t num_steps) {
  double tokens = 0;
  double ms = 0;
  for (int64_t step = 0; step < num_steps; ++step) {
    const int64_t num_drafts = choice.choose(batch.step());
    for (int64_t b = 0; num_drafts > 0 && b < batch.sequences; ++b) {
      if (batch.number() < batch.share_without) {
        choice.add_row_without_drafts();
        continue;
      }
      int64_t num_right = 0;
      while (num_right < num_drafts && batch.number() < batch.acceptance)
        ++num_right;
      choice.add_row(num_drafts, num_right);
    }
    const double took = batch.step_ms(num_drafts) * (1 + batch.noise * (batch.number() - 0.5));
    choice.add_step(batch.sequences, num_drafts, took);
    tokens += batch.expected(num_drafts);
    ms += batch.step_ms(num_drafts);
  }
  return tokens / ms;
}

TEST(DraftChoice, IsNearTheBestNumberOfDraftsAtEveryBatchAndAcceptance) {
  for (const int64_t sequences : {1, 8, 32, 64, 128, 256}) {
    for (const double acceptance : {0.0, 0.2, 0.5, 0.9}) {
      SCOPED_TRACE(::testing::Message() << sequences << " sequences, " << acceptance);
      DraftChoice choice(kDraftCounts);
      SimulatedBatch batch{.sequences = sequences, .acceptance = acceptance};
      (void)run_steps(choice, batch, 200);
      const double speed = run_steps(choice, batch, 4000);
      EXPECT_GE(speed, 0.97 * batch.best_speed());
      EXPECT_GE(speed, 0.99 * batch.speed(0));
    }
  }
}

TEST(DraftChoice, FollowsTheTextWhenItChanges) {
  DraftChoice choice(kDraftCounts);
  SimulatedBatch batch{.sequences = 4, .acceptance = 0.9};
  for (const double acceptance : {0.9, 0.0, 0.9}) {
    batch.acceptance = acceptance;
    (void)run_steps(choice, batch, 3000);
    EXPECT_GE(run_steps(choice, batch, 1000), 0.97 * batch.best_speed()) << acceptance;
  }
}

TEST(DraftChoice, TriesAllOtherNumbersInTurn) {
  DraftChoice choice(kDraftCounts);
  SimulatedBatch batch{.sequences = 4, .acceptance = 0.9};
  (void)run_steps(choice, batch, 3000);
  std::set<int64_t> chosen;
  for (int step = 0; step < 9000; ++step) {
    chosen.insert(choice.choose(batch.step()));
    (void)run_steps(choice, batch, 1);
  }
  EXPECT_EQ(chosen, (std::set<int64_t>{0, 1, 2, 4}));
}

// The size of the batch changes all the time, as it does where requests come and go.
TEST(DraftChoice, ComparesStepsOfBatchesThatAreNearlyAlike) {
  DraftChoice choice(kDraftCounts);
  SimulatedBatch batch{.acceptance = 0.6, .noise = 0.02};
  double got = 0;
  double best = 0;
  for (int64_t i = 0; i < 3000; ++i) {
    batch.sequences = 40 + i % 7;
    const double speed = run_steps(choice, batch, 2);
    if (i < 500) continue;
    got += speed;
    best += batch.best_speed();
  }
  EXPECT_GE(got, 0.96 * best);
}

// Rows with a grammar or with penalties get one token from a step with drafts, as from one without,
// though it takes longer. The choice must count these rows in the mean number of tokens.
TEST(DraftChoice, CountsTheRowsThatTakeNoDrafts) {
  for (const double share : {0.0, 0.5, 0.95}) {
    DraftChoice choice(kDraftCounts, 100);
    SimulatedBatch batch{.sequences = 64, .acceptance = 0.8, .share_without = share};
    (void)run_steps(choice, batch, 500);
    EXPECT_GE(run_steps(choice, batch, 3000), 0.97 * batch.best_speed()) << share;
  }
}

// A sequence that takes no drafts gets one token in each step, so it slows down by as much as its
// steps get longer.
TEST(DraftChoice, KeepsStepsShortForSequencesThatTakeNone) {
  for (const double most_slowdown : {1.1, 1.25}) {
    SCOPED_TRACE(most_slowdown);
    DraftChoice choice(kDraftCounts, most_slowdown);
    SimulatedBatch batch{.sequences = 64, .acceptance = 0.95, .share_without = 0.5};
    (void)run_steps(choice, batch, 200);
    double ms = 0;
    for (int step = 0; step < 1000; ++step) {
      ms += batch.step_ms(choice.choose(batch.step()));
      (void)run_steps(choice, batch, 1);
    }
    EXPECT_LE(ms, 1000 * most_slowdown * batch.plain_ms());
    // Where all sequences of a batch take drafts, the limit does not count, and the fastest number
    // of drafts is chosen.
    batch.share_without = 0;
    (void)run_steps(choice, batch, 1000);
    EXPECT_GT(batch.step_ms(choice.choose(batch.step())), most_slowdown * batch.plain_ms());
  }
}

// num_alike() limits a burst to the steps for which its number of drafts stays the same: 8 steps in
// a trial, and otherwise 64 at most, so that a change of the text is noticed soon.
TEST(DraftChoice, SaysHowManyStepsMayFollowAlike) {
  DraftChoice choice(kDraftCounts);
  EXPECT_EQ(choice.num_alike(4), 8) << "nothing is known yet";
  SimulatedBatch batch{.sequences = 4, .acceptance = 0.9};
  int64_t num_steps = 0;
  int64_t longest = 0;
  for (int burst = 0; burst < 200; ++burst) {
    const int64_t steps = choice.num_alike(batch.sequences);
    const int64_t num_drafts = choice.choose(batch.step());
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t b = 0; num_drafts > 0 && b < batch.sequences; ++b)
        choice.add_row(num_drafts, num_drafts);
      choice.add_step(batch.sequences, num_drafts, batch.step_ms(num_drafts));
    }
    num_steps += steps;
    longest = std::max(longest, steps);
  }
  EXPECT_EQ(longest, 64);
  EXPECT_GT(num_steps, 200 * 32) << "trials are few";
  EXPECT_EQ(choice.num_alike(64), 8) << "of another batch nothing is known";
}

TEST(DraftChoice, KeepsMixedStepsShortForSequencesThatTakeNone) {
  const DraftChoice choice(kDraftCounts);
  EXPECT_EQ(choice.choose_mixed({.sequences = 64, .prompt_tokens = 400}), 4);
  EXPECT_EQ(choice.choose_mixed({.sequences = 64, .without = 8, .prompt_tokens = 400}), 2)
      << "112 tokens more of 464 are below a quarter, 224 are not";
  EXPECT_EQ(choice.choose_mixed({.sequences = 57, .without = 1, .prompt_tokens = 400}), 2);
}

// In a step with prompts, the time is taken to be proportional to the tokens. So the more prompt
// tokens a step has, the less its drafts prolong it.
TEST(DraftChoice, BesidePromptsGoesByTheTokensOfAStep) {
  DraftChoice choice(kDraftCounts);
  EXPECT_EQ(choice.choose_mixed({.sequences = 8, .prompt_tokens = 512}), 4)
      << "7 of 10 drafts are right until more is known";
  EXPECT_EQ(choice.choose_mixed({.sequences = 256, .prompt_tokens = 16}), 0)
      << "drafts would be most of the step";
  for (int step = 0; step < 50; ++step) {
    for (int row = 0; row < 8; ++row)
      choice.add_row(4, 0);
    choice.add_mixed_step();
  }
  EXPECT_EQ(choice.choose_mixed({.sequences = 8, .prompt_tokens = 512}), 0) << "no draft is right";
  int64_t num_steps = 0;
  while (choice.choose_mixed({.sequences = 8, .prompt_tokens = 512}) == 0 && num_steps < 2000) {
    choice.add_mixed_step();
    ++num_steps;
  }
  EXPECT_GT(num_steps, 100);
  EXPECT_LT(num_steps, 2000) << "they are never tried again";
}

}  // namespace
}  // namespace encore::engine
