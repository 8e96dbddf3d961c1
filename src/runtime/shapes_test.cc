#include <algorithm>

#include <gtest/gtest.h>

#include "runtime/ladder.h"

namespace encore::runtime {
namespace {

// A mixed step has fewer sequences than tokens. So 3 tokens have at most 2 sequences, which are
// padded to 4, and only 6 or more tokens can have the 5 sequences that are padded to 16.
TEST(MixedShapes, AreThePairsThatSomeStepIsPaddedTo) {
  const Ladder sequences({4, 16});
  const Ladder tokens({3, 5, 6, 32});
  std::vector<std::pair<int64_t, int64_t>> sizes;
  for (const StepKey& shape : mixed_shapes(sequences, tokens)) {
    EXPECT_FALSE(shape.is_uniform());
    sizes.emplace_back(shape.tokens, shape.sequences);
  }
  EXPECT_EQ(sizes, (std::vector<std::pair<int64_t, int64_t>>{
                       {32, 16}, {32, 4}, {6, 16}, {6, 4}, {5, 4}, {3, 4}}));
}

// The shapes are steps larger than any bucket, from the largest step down to the smallest that no
// bucket holds.
TEST(AboveShapes, HalveDownToTheFirstSizeThatTheLaddersLack) {
  for (const int64_t bucket : {1, 3, 8, 31}) {
    std::vector<int64_t> sizes;
    const Limits limits{.max_num_tokens = 64, .max_batch_size = 64};
    for (const StepKey& shape : above_shapes(Ladder({bucket}), Ladder({64}), limits)) {
      if (shape.is_uniform()) sizes.push_back(shape.sequences);
    }
    EXPECT_EQ(sizes.front(), 64);
    EXPECT_EQ(sizes.back(), bucket + 1);
    for (size_t i = 1; i < sizes.size(); ++i)
      EXPECT_EQ(sizes[i], std::max(sizes[i - 1] / 2, bucket + 1));
    EXPECT_TRUE(above_shapes(Ladder({64}), Ladder({64}), limits).empty());
  }
}

}  // namespace
}  // namespace encore::runtime
