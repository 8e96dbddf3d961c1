#include "runtime/eligibility.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "runtime/dispatch.h"

namespace encore::runtime {
namespace {

constexpr StepRequest kUniform{3, 3, 1};
constexpr StepRequest kMixed{11, 3, 0};

Coverage everything() {
  return {Graphs::kAuto, Ladder({1, 2, 4}), Ladder({8, 16}), true, true, true};
}

struct Row {
  Feature feature;
  Mode uniform;
  Mode mixed;
  Reason reason;  // of whichever of the two falls back
};

TEST(Eligibility, FollowsItsTruthTable) {
  const Row rows[] = {
      {Feature::kPromptLogprobs, Mode::kEager, Mode::kEager, Reason::kFeature},
      {Feature::kMultimodalInput, Mode::kEager, Mode::kEager, Reason::kFeature},
      {Feature::kPooling, Mode::kEager, Mode::kEager, Reason::kFeature},
      {Feature::kDataDependentShapes, Mode::kPiecewise, Mode::kPiecewise, Reason::kUnsupportedOp},
      {Feature::kCrossAttention, Mode::kFull, Mode::kPiecewise, Reason::kNone},
      {Feature::kCollectives, Mode::kFull, Mode::kPiecewise, Reason::kNone},
      {Feature::kLora, Mode::kFull, Mode::kPiecewise, Reason::kNone},
      {Feature::kStructuredOutput, Mode::kFull, Mode::kPiecewise, Reason::kNone},
      {Feature::kAllRowsLogits, Mode::kFull, Mode::kPiecewise, Reason::kNone},
      {Feature::kVerification, Mode::kFull, Mode::kPiecewise, Reason::kNone},
      {Feature::kDraftModel, Mode::kFull, Mode::kPiecewise, Reason::kNone},
  };
  EXPECT_EQ(std::size(rows), static_cast<size_t>(kNumFeatures));
  for (const Row& row : rows) {
    for (const bool of_program : {false, true}) {
      StepRequest uniform = kUniform;
      StepRequest mixed = kMixed;
      Coverage coverage = everything();
      (of_program ? coverage.needs : uniform.needs).insert(row.feature);
      (of_program ? coverage.needs : mixed.needs).insert(row.feature);
      const Choice of_uniform = choose(uniform, coverage);
      const Choice of_mixed = choose(mixed, coverage);
      EXPECT_EQ(of_uniform.mode, row.uniform) << name(row.feature);
      EXPECT_EQ(of_mixed.mode, row.mixed) << name(row.feature);
      EXPECT_EQ(of_uniform.reason, row.reason) << name(row.feature);
      EXPECT_EQ(of_uniform.rule != nullptr, row.uniform != Mode::kFull);
      if (of_uniform.rule != nullptr) {
        EXPECT_EQ(of_uniform.rule->name, name(row.feature));
      }
      EXPECT_EQ(of_uniform.padded, (ir::Sizes{4, 4}));
      EXPECT_EQ(of_mixed.padded, (ir::Sizes{16, 4}));
    }
  }
}

TEST(Eligibility, TakesTheSlowestOfWhatAStepNeeds) {
  StepRequest step = kUniform;
  step.needs = {Feature::kLora, Feature::kDataDependentShapes, Feature::kStructuredOutput};
  EXPECT_EQ(choose(step, everything()).mode, Mode::kPiecewise);
  step.needs.insert(Feature::kPooling);
  EXPECT_EQ(choose(step, everything()).mode, Mode::kEager);
  EXPECT_EQ(choose(step, everything()).rule->name, "pooling");
}

TEST(Eligibility, HasARowAFeatureAndSaysWhyAndWhatToDo) {
  std::set<std::string_view> features;
  for (const Rule& row : rules()) {
    EXPECT_FALSE(row.name.empty());
    EXPECT_FALSE(row.why.empty()) << row.name;
    EXPECT_EQ(row.feature.has_value(), row.holds == nullptr) << row.name;
    const bool can_fall_back = row.reason != Reason::kNone;
    EXPECT_EQ(row.remedy.empty(), !can_fall_back) << row.name;
    EXPECT_TRUE(!can_fall_back || !row.full || !row.piecewise) << row.name;
    if (row.feature) {
      EXPECT_TRUE(features.insert(row.name).second) << row.name;
      EXPECT_EQ(name(*row.feature), row.name);
    } else if (can_fall_back) {
      EXPECT_EQ(row.name, name(row.reason));
    }
  }
  EXPECT_EQ(features.size(), static_cast<size_t>(kNumFeatures));
}

// A served feature without a recording would make every configuration refuse --eager-steps forbid.
TEST(Eligibility, EveryServedFeatureIsReplayed) {
  for (int i = 0; i < kNumFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    EXPECT_EQ(served_features().contains(feature), rule(feature).served);
    EXPECT_TRUE(!rule(feature).served || (rule(feature).full && rule(feature).piecewise));
  }
}

TEST(Eligibility, PricesWhatIsPartOfTheKey) {
  EXPECT_EQ(key_cost(rule(Feature::kVerification)),
            "q: a full recording a size and q, 36 kB and 3.2 kB a node");
  EXPECT_EQ(key_cost(rule(Feature::kLora)), "-");
}

TEST(Features, AreASet) {
  Features features{Feature::kLora};
  EXPECT_TRUE(features.contains(Feature::kLora));
  EXPECT_FALSE(features.contains(Feature::kDraftModel));
  features.insert(Feature::kDraftModel);
  EXPECT_EQ(features, (Features{Feature::kDraftModel, Feature::kLora}));
  EXPECT_FALSE(features.empty());
  EXPECT_TRUE(Features().empty());
}

}  // namespace
}  // namespace encore::runtime
