#include "engine/step_counts.h"

#include <gtest/gtest.h>

namespace encore::engine {
namespace {

using runtime::Choice;
using runtime::Mode;
using runtime::Reason;

TEST(StepCounts, CountsStepsOfOneSizeTogether) {
  StepCounts counts;
  counts.add({.mode = Mode::kFull, .key = StepKey::uniform(8), .padding = 3});
  counts.add({.mode = Mode::kFull, .key = StepKey::uniform(8)});
  counts.add({.mode = Mode::kEager, .key = StepKey::uniform(9), .reason = Reason::kAboveLadder});
  const std::vector<StepCount> all = counts.all();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].steps, 2);
  EXPECT_EQ(all[1].tokens, 13);
  EXPECT_EQ(all[1].padding, 3);
  EXPECT_EQ(all[0].key, StepKey::uniform(9));
}

// Steps above the ladders come in any size.
TEST(StepCounts, ManySizesAreCountedByPowersOfTwoAndLoseNoStep) {
  StepCounts counts;
  counts.add({.mode = Mode::kFull, .key = StepKey::uniform(5)});
  int64_t tokens = 5;
  for (int64_t t = 33; t < 433; ++t) {
    for (int64_t b = 1; b <= 20; ++b) {
      counts.add(
          {.mode = Mode::kEager, .key = StepKey::mixed(t, b), .reason = Reason::kAboveLadder});
      tokens += t;
    }
  }
  counts.add({.mode = Mode::kFull, .key = StepKey::uniform(5)});
  tokens += 5;
  int64_t counted_steps = 0;
  int64_t counted_tokens = 0;
  int64_t exact = 0;
  for (const StepCount& count : counts.all()) {
    counted_steps += count.steps;
    counted_tokens += count.tokens;
    if (count.key == StepKey::uniform(5)) exact = count.steps;
  }
  EXPECT_LE(counts.all().size(), StepCounts::kMaxSizes + 64);
  EXPECT_EQ(counted_steps, 400 * 20 + 2);
  EXPECT_EQ(counted_tokens, tokens);
  EXPECT_EQ(exact, 2);
}

}  // namespace
}  // namespace encore::engine
