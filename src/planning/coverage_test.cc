#include "planning/coverage.h"

#include <random>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"

namespace encore::planning {
namespace {

using namespace runtime;

// Calls `visit` for each step that a scheduler may form. It goes through all numbers of tokens for
// every sequence.
void each_step(const Limits& limits, int64_t sequences, int64_t tokens, int64_t first,
               bool same_as_first, const auto& visit) {
  if (sequences > 0) {
    const bool same = first == 0 || same_as_first;
    visit(same && first <= limits.max_q ? StepKey::uniform(sequences, first)
                                        : StepKey::mixed(tokens, sequences));
  }
  if (sequences == limits.max_batch_size) return;
  for (int64_t run = 1; run <= limits.max_seq_len && tokens + run <= limits.max_num_tokens; ++run) {
    each_step(limits, sequences + 1, tokens + run, sequences == 0 ? run : first,
              sequences == 0 || (same_as_first && run == first), visit);
  }
}

std::map<StepKey, Choice> by_hand(const Limits& limits, const Coverage& coverage) {
  std::map<StepKey, Choice> choices;
  each_step(limits, 0, 0, 0, true, [&](const StepKey& step) {
    if (!step.is_uniform() && step.tokens > limits.mixed_tokens()) return;
    choices.try_emplace(step, choose(step, coverage));
  });
  return choices;
}

Ladder random_ladder(std::mt19937& random, int64_t max) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < 3; ++i)
    sizes.push_back(1 + static_cast<int64_t>(random() % max));
  return Ladder(sizes);
}

TEST(Coverage, CountsEveryStepThatASchedulerMayForm) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 200; ++trial) {
    Limits limits{.max_num_tokens = 1 + static_cast<int64_t>(random() % 10),
                  .max_batch_size = 1 + static_cast<int64_t>(random() % 4),
                  .max_q = 1 + static_cast<int64_t>(random() % 3),
                  .max_seq_len = 1 + static_cast<int64_t>(random() % 9)};
    if (random() % 2 == 0) limits.max_mixed_tokens = 1 + static_cast<int64_t>(random() % 10);
    Coverage coverage;
    coverage.graphs = static_cast<Graphs>(random() % 6);
    coverage.sequences = random_ladder(random, 5);
    coverage.tokens = random_ladder(random, 12);
    coverage.pad_uniform = random() % 3 != 0;
    coverage.max_num_tokens = limits.max_num_tokens;
    plan_recordings(coverage, {random() % 3 != 0, random() % 3 != 0});
    if (random() % 3 == 0) coverage.mixed_sequences = random_ladder(random, 5);
    if (random() % 2 == 0) coverage.dropped_tokens.insert(coverage.tokens.sizes().front());
    if (random() % 2 == 0)
      coverage.dropped_full.insert(StepKey::uniform(coverage.sequences.sizes().front()));

    std::map<CoverageReport::Key, int64_t> steps;
    int64_t worst_uniform = 0;
    int64_t worst_mixed = 0;
    bool is_covered = true;
    std::optional<std::tuple<bool, int64_t, int64_t>> first;  // mixed?, sequences, tokens
    for (const auto& [step, choice] : by_hand(limits, coverage)) {
      const bool is_uniform = step.is_uniform();
      ++steps[{is_uniform, choice.mode, choice.reason}];
      int64_t& worst = is_uniform ? worst_uniform : worst_mixed;
      worst = std::max(worst, choice.padding);
      if (choice.mode != Mode::kEager) continue;
      is_covered = false;
      const std::tuple order{!is_uniform, step.sequences, step.tokens};
      first = std::min(first.value_or(order), order);
    }
    const CoverageReport report = cover(limits, coverage);
    EXPECT_EQ(report.steps, steps);
    EXPECT_EQ(report.worst_uniform ? report.worst_uniform->choice.padding : 0, worst_uniform);
    EXPECT_EQ(report.worst_mixed ? report.worst_mixed->choice.padding : 0, worst_mixed);
    EXPECT_EQ(!report.first_eager.has_value(), is_covered);
    EXPECT_EQ(report.share() == 1, is_covered);
    if (report.first_eager) {
      const StepKey& step = report.first_eager->step;
      EXPECT_EQ(first, std::tuple(!step.is_uniform(), step.sequences, step.tokens));
    }
  }
}

Coverage everything(Ladder sequences, Ladder tokens, int64_t max_num_tokens) {
  Coverage coverage;
  coverage.sequences = std::move(sequences);
  coverage.tokens = std::move(tokens);
  coverage.max_num_tokens = max_num_tokens;
  coverage.eager_steps = EagerSteps::kForbid;
  plan_recordings(coverage, {});
  return coverage;
}

std::string refusal(const Limits& limits, const Coverage& coverage) {
  return message_of(ErrorKind::kUsage, [&] { require_coverage(limits, coverage); });
}

TEST(Coverage, IsCompleteUnderTheDefaultLadders) {
  const Limits limits{.max_num_tokens = 8192, .max_batch_size = 512};
  const Coverage coverage = everything(Ladder::sequences(512), Ladder::tokens(8192), 8192);
  EXPECT_EQ(refusal(limits, coverage), "");
  const CoverageReport report = cover(limits, coverage);
  EXPECT_EQ(report.num_steps(), report.num_steps(Mode::kFull));
  EXPECT_EQ(report.share(), 1);

  Coverage pieces = coverage;
  pieces.graphs = Graphs::kFullAndPiecewise;
  plan_recordings(pieces, {});
  const CoverageReport both = cover(limits, pieces);
  EXPECT_EQ(both.num_steps(Mode::kFull), 512);
  EXPECT_EQ(both.num_steps(), both.num_steps(Mode::kFull) + both.num_steps(Mode::kPiecewise));
}

TEST(Coverage, NamesTheFirstStepThatHasNoRecording) {
  const Limits limits{.max_num_tokens = 64, .max_batch_size = 8};
  const std::string decode = refusal(limits, everything(Ladder({1, 2, 4}), Ladder({64}), 64));
  // The steps of 5 to 8 sequences have no recording. For each such number B, these are one decode
  // step and a mixed step for each number of tokens from B + 1 to 64, which are 59 mixed steps for
  // B = 5, 58 for 6, 57 for 7 and 56 for 8: 234 steps in all.
  EXPECT_EQ(decode.find("--eager-steps forbid: 234 of 484 admissible steps have no recording, the "
                        "first a decode step of 5 sequences (above_ladder: "),
            0U)
      << decode;
  const std::string mixed = refusal(limits, everything(Ladder({8}), Ladder({16, 32}), 64));
  EXPECT_NE(mixed.find("a mixed step of 33 tokens and 1 sequence (above_ladder: "),
            std::string::npos)
      << mixed;
  EXPECT_NE(mixed.find("--above-ladder split"), std::string::npos);
}

TEST(Coverage, NamesEachReasonAndItsRemedy) {
  const Limits limits{.max_num_tokens = 16, .max_batch_size = 4};
  const Coverage full = everything(Ladder({1, 2, 4}), Ladder({16}), 16);
  Coverage exact = full;
  exact.pad_uniform = false;
  EXPECT_NE(refusal(limits, exact).find("of 3 sequences (no_exact_size"), std::string::npos);
  EXPECT_NE(refusal(limits, exact).find("--padding on"), std::string::npos);
  Coverage decode_only = full;
  decode_only.graphs = Graphs::kFullDecodeOnly;
  EXPECT_NE(refusal(limits, decode_only).find("take --graphs auto"), std::string::npos);
  Coverage none = full;
  none.graphs = Graphs::kNone;
  EXPECT_NE(refusal(limits, none).find("(disabled"), std::string::npos);
  Coverage dropped = full;
  dropped.dropped_full.insert(StepKey::mixed(16, 4));
  EXPECT_NE(refusal(limits, dropped).find("(recording_failed"), std::string::npos);
  Coverage lru = full;
  lru.sequences = Ladder::on_demand(2, 4);
  EXPECT_NE(refusal(limits, lru).find("lru:2 records while serving"), std::string::npos);
}

TEST(SplitLimits, LeaveNoStepAboveALadder) {
  std::mt19937 random(9);
  int64_t refused = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const Limits limits{.max_num_tokens = 1 + static_cast<int64_t>(random() % 40),
                        .max_batch_size = 1 + static_cast<int64_t>(random() % 20),
                        .max_q = 1 + static_cast<int64_t>(random() % 4)};
    const Ladder sequences = random_ladder(random, limits.max_batch_size);
    const Ladder tokens = random_ladder(random, limits.max_num_tokens);
    Limits split;
    try {
      split = split_limits(limits, sequences, tokens);
    } catch (const Error&) {
      EXPECT_GT(sequences.sizes().front() * limits.max_q, limits.max_num_tokens);
      ++refused;
      continue;
    }
    EXPECT_LE(split.max_num_tokens, limits.max_num_tokens);
    EXPECT_LE(split.max_batch_size, limits.max_batch_size);
    EXPECT_EQ(refusal(split, everything(sequences, tokens, split.max_num_tokens)), "");
  }
  EXPECT_LT(refused, 400);
}

TEST(SplitLimits, KeepWhatTheDefaultLaddersReach) {
  const Limits limits{.max_num_tokens = 8192, .max_batch_size = 512, .max_q = 4};
  const Limits split = split_limits(limits, {}, {});
  EXPECT_EQ(split.max_num_tokens, 8192);
  EXPECT_EQ(split.max_batch_size, 512);
  EXPECT_EQ(split.mixed_tokens(), 8192);
}

TEST(SplitLimits, LetUniformStepsBeLargerThanMixedOnes) {
  const Limits limits{.max_num_tokens = 8192, .max_batch_size = 512, .max_q = 4};
  const Limits split = split_limits(limits, Ladder({1, 64, 256}), Ladder({128, 512}));
  EXPECT_EQ(split.max_batch_size, 256);
  EXPECT_EQ(split.mixed_tokens(), 512);
  EXPECT_EQ(split.max_num_tokens, 1024);
}

}  // namespace
}  // namespace encore::planning
