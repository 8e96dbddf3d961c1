#include "runtime/dispatch.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/testing/message_of.h"

namespace encore::runtime {
namespace {

Coverage everything(Graphs graphs) {
  return {graphs, Ladder({1, 2, 4}), Ladder({8, 16}), true, true, true, true};
}

constexpr StepKey kUniform{3, 3, 1};
constexpr StepKey kMixed{11, 3};
constexpr StepKey kWide{5, 5, 1};
constexpr StepKey kLong{17, 2};

struct Row {
  StepKey step;
  Graphs graphs;
  Mode mode;
  Reason reason;
};

TEST(Dispatch, FollowsItsTruthTable) {
  const Row rows[] = {
      {kUniform, Graphs::kAuto, Mode::kFull, Reason::kNone},
      {kUniform, Graphs::kFull, Mode::kFull, Reason::kNone},
      {kUniform, Graphs::kPiecewise, Mode::kPiecewise, Reason::kNone},
      {kUniform, Graphs::kNone, Mode::kEager, Reason::kDisabled},
      {kMixed, Graphs::kAuto, Mode::kFull, Reason::kNone},
      {kMixed, Graphs::kFull, Mode::kFull, Reason::kNone},
      {kMixed, Graphs::kPiecewise, Mode::kPiecewise, Reason::kNone},
      {kMixed, Graphs::kNone, Mode::kEager, Reason::kDisabled},
      {kUniform, Graphs::kFullDecodeOnly, Mode::kFull, Reason::kNone},
      {kMixed, Graphs::kFullDecodeOnly, Mode::kEager, Reason::kPolicy},
      {kWide, Graphs::kFullDecodeOnly, Mode::kEager, Reason::kAboveLadder},
      {kUniform, Graphs::kFullAndPiecewise, Mode::kFull, Reason::kNone},
      {kMixed, Graphs::kFullAndPiecewise, Mode::kPiecewise, Reason::kNone},
      {kLong, Graphs::kFullAndPiecewise, Mode::kEager, Reason::kAboveLadder},
      {kWide, Graphs::kAuto, Mode::kEager, Reason::kAboveLadder},
      {kLong, Graphs::kPiecewise, Mode::kEager, Reason::kAboveLadder},
      {kLong, Graphs::kNone, Mode::kEager, Reason::kDisabled},
  };
  for (const Row& row : rows) {
    const Choice choice = choose(row.step, everything(row.graphs));
    EXPECT_EQ(choice.mode, row.mode) << row.step.tokens << " tokens";
    EXPECT_EQ(choice.reason, row.reason) << row.step.tokens << " tokens";
  }
}

TEST(Dispatch, CountsAFullStepThatHasOnlyPieces) {
  Coverage coverage = everything(Graphs::kAuto);
  coverage.uniform_full = false;
  EXPECT_EQ(choose(kUniform, coverage).mode, Mode::kPiecewise);
  EXPECT_EQ(choose(kUniform, coverage).reason, Reason::kUnsupportedOp);
  coverage.uniform_pieces = false;
  EXPECT_EQ(choose(kUniform, coverage).mode, Mode::kEager);
  EXPECT_EQ(choose(kUniform, coverage).reason, Reason::kNotRecorded);
}

TEST(Dispatch, TakesPiecesOfAMixedStepThatCannotBeOneRecording) {
  Coverage coverage = everything(Graphs::kAuto);
  coverage.mixed_full = false;
  EXPECT_EQ(choose(kMixed, coverage).mode, Mode::kPiecewise);
  EXPECT_EQ(choose(kMixed, coverage).reason, Reason::kNone);
  coverage.graphs = Graphs::kFull;
  EXPECT_EQ(choose(kMixed, coverage).mode, Mode::kPiecewise);
  EXPECT_EQ(choose(kMixed, coverage).reason, Reason::kMixedStep);
  EXPECT_EQ(choose(kUniform, coverage).mode, Mode::kFull);
}

TEST(Dispatch, PadsAStepAlikeInEveryMode) {
  for (const Graphs graphs : {Graphs::kAuto, Graphs::kNone, Graphs::kPiecewise, Graphs::kFull,
                              Graphs::kFullDecodeOnly, Graphs::kFullAndPiecewise}) {
    EXPECT_EQ(choose(kUniform, everything(graphs)).key.sizes(), StepKey::mixed(4, 4).sizes());
    EXPECT_EQ(choose(kMixed, everything(graphs)).key.sizes(), StepKey::mixed(16, 4).sizes());
    EXPECT_EQ(choose(kMixed, everything(graphs)).padding, 5);
    EXPECT_EQ(choose(kLong, everything(graphs)).key.sizes(), StepKey::mixed(17, 2).sizes());
  }
}

TEST(Dispatch, PadsAVerificationStepBySequences) {
  const Choice choice = choose(StepKey::uniform(3, 3), everything(Graphs::kAuto));
  EXPECT_EQ(choice.key.sizes(), StepKey::uniform(4, 3).sizes());
  EXPECT_EQ(choice.key.q, 3);
}

TEST(Dispatch, GivesAnEmptyStepTheSmallestBucket) {
  EXPECT_EQ(choose(StepKey::mixed(0, 0), everything(Graphs::kAuto)).key.sizes(),
            StepKey::mixed(8, 1).sizes());
}

TEST(Dispatch, ReplaysOnlyExactSizesOfUniformStepsWithPaddingOff) {
  for (const Graphs graphs : {Graphs::kAuto, Graphs::kPiecewise, Graphs::kFullDecodeOnly}) {
    Coverage coverage = everything(graphs);
    coverage.pad_uniform = false;
    const Choice between = choose(kUniform, coverage);
    EXPECT_EQ(between.mode, Mode::kEager);
    EXPECT_EQ(between.reason, Reason::kNoExactSize);
    EXPECT_EQ(between.key.sizes(), StepKey::mixed(3, 3).sizes());
    EXPECT_EQ(between.padding, 0);
    EXPECT_NE(choose(StepKey::uniform(4), coverage).mode, Mode::kEager);
    EXPECT_EQ(choose(kWide, coverage).reason, Reason::kAboveLadder);
    EXPECT_EQ(choose(kMixed, coverage).key.sizes(), StepKey::mixed(16, 4).sizes());
    EXPECT_EQ(choose(kLong, coverage).reason, Reason::kAboveLadder);
  }
  Coverage none = everything(Graphs::kNone);
  none.pad_uniform = false;
  EXPECT_EQ(choose(kUniform, none).reason, Reason::kDisabled);
}

// Where a recording failed, steps of its size run in pieces with the same padding. Recordings of
// other sizes are still used.
TEST(Dispatch, FallsBackFromADroppedRecordingAtTheSameSize) {
  Coverage coverage = everything(Graphs::kAuto);
  const Choice whole = choose(kUniform, coverage);
  coverage.dropped_full.insert(StepKey::uniform(4));
  EXPECT_EQ(choose(kUniform, coverage).mode, Mode::kPiecewise);
  EXPECT_EQ(choose(kUniform, coverage).reason, Reason::kRecordingFailed);
  EXPECT_EQ(choose(kUniform, coverage).key.sizes(), whole.key.sizes());
  EXPECT_EQ(choose(StepKey::uniform(2), coverage).mode, Mode::kFull);
  EXPECT_EQ(choose(StepKey::uniform(3, 3), coverage).mode, Mode::kFull);  // not affected: another q
  coverage.uniform_pieces = false;
  EXPECT_EQ(choose(kUniform, coverage).mode, Mode::kEager);
  EXPECT_EQ(choose(kUniform, coverage).reason, Reason::kRecordingFailed);
  EXPECT_EQ(choose(kUniform, coverage).key.sizes(), whole.key.sizes());
  coverage.graphs = Graphs::kPiecewise;
  coverage.uniform_pieces = true;
  EXPECT_EQ(choose(kUniform, coverage).reason, Reason::kNone);
}

TEST(Dispatch, RunsAStepEagerWhenOneOfItsPiecesIsMissing) {
  for (const bool tail : {false, true}) {
    Coverage coverage = everything(Graphs::kFullAndPiecewise);
    if (tail) coverage.dropped_tails.insert(4);
    if (!tail) coverage.dropped_tokens.insert(16);
    EXPECT_EQ(choose(kMixed, coverage).mode, Mode::kEager);
    EXPECT_EQ(choose(kMixed, coverage).reason, Reason::kRecordingFailed);
    EXPECT_EQ(choose(kMixed, coverage).key.sizes(), StepKey::mixed(16, 4).sizes());
    EXPECT_EQ(choose(StepKey::mixed(7, 2), coverage).mode, Mode::kPiecewise);
    EXPECT_EQ(choose(kUniform, coverage).mode, Mode::kFull);
    coverage.dropped_full.insert(StepKey::uniform(4));
    coverage.dropped_tokens.insert(4);
    EXPECT_EQ(choose(kUniform, coverage).mode, Mode::kEager);
  }
}

// A step is not padded beyond the largest step, for which the fixed buffers are made.
TEST(Dispatch, NeverPadsAUniformStepBeyondTheLargestStep) {
  Coverage coverage = everything(Graphs::kAuto);
  coverage.max_num_tokens = 10;
  EXPECT_EQ(choose(StepKey::uniform(3, 3), coverage).reason, Reason::kAboveLadder);
  EXPECT_EQ(choose(StepKey::uniform(3, 3), coverage).key.sizes(), StepKey::uniform(3, 3).sizes());
  EXPECT_EQ(choose(StepKey::uniform(3, 2), coverage).mode, Mode::kFull);
}

TEST(Dispatch, PadsMixedStepsByALadderOfTheirOwn) {
  Coverage coverage = everything(Graphs::kAuto);
  coverage.sequences = Ladder::on_demand(2, 8);
  coverage.mixed_sequences = Ladder({4, 8});
  EXPECT_EQ(choose(kUniform, coverage).key.sizes(), StepKey::mixed(3, 3).sizes());
  EXPECT_EQ(choose(kMixed, coverage).key.sizes(), StepKey::mixed(16, 4).sizes());
}

TEST(Dispatch, ForbidsEagerStepsByName) {
  Coverage coverage = everything(Graphs::kAuto);
  const auto refusal = [&](StepKey step) -> std::string {
    return message_of(ErrorKind::kUnsupported,
                      [&] { require_replay(step, choose(step, coverage), coverage); });
  };
  EXPECT_EQ(refusal(kWide), "");
  coverage.eager_steps = EagerSteps::kForbid;
  EXPECT_EQ(refusal(kUniform), "");
  coverage.graphs = Graphs::kNone;
  EXPECT_EQ(refusal(kUniform), "");  // as whoever compares modes does; see require_coverage
  coverage.graphs = Graphs::kAuto;
  EXPECT_NE(refusal(kWide).find("a decode step of 5 sequences would run eager (above_ladder: "),
            std::string::npos);
  coverage.graphs = Graphs::kFullDecodeOnly;
  EXPECT_NE(refusal(kMixed).find("11 tokens and 3 sequences would run eager (policy: "),
            std::string::npos);
}

TEST(Dispatch, SaysWhyAndWhatToDoInEveryRule) {
  for (const Rule& rule : rules()) {
    EXPECT_FALSE(rule.name.empty());
    EXPECT_FALSE(rule.why.empty()) << rule.name;
    const bool can_fall_back = rule.reason != Reason::kNone;
    EXPECT_EQ(rule.remedy.empty(), !can_fall_back) << rule.name;
    EXPECT_FALSE(rule.full && rule.piecewise) << rule.name;
    if (can_fall_back) {
      EXPECT_EQ(rule.name, name(rule.reason));
    }
  }
}

}  // namespace
}  // namespace encore::runtime
