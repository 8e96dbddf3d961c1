#include <gtest/gtest.h>

#include "runtime/ladder.h"

namespace encore::runtime {
namespace {

// A mixed step has fewer sequences than tokens.
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

}  // namespace
}  // namespace encore::runtime
