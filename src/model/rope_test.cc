#include "model/rope.h"

#include <gtest/gtest.h>

namespace encore::model {
namespace {

using Golden = std::initializer_list<std::pair<int, float>>;

// Compares frequencies with those of transformers 5.23, for heads of 32 elements.
void expect_frequencies(const Rope& rope, int64_t max_seq_len, const Golden& golden) {
  const std::vector<float> found = inv_freq(rope, 32, max_seq_len);
  ASSERT_EQ(found.size(), 16U);
  for (const auto& [i, value] : golden)
    EXPECT_NEAR(found[static_cast<size_t>(i)], value, value * 1e-6F) << i;
}

TEST(InvFreq, OfYarnMatchesTheReference) {
  Rope rope{.scaling = RopeScaling::kYarn, .factor = 8, .original_max_position_embeddings = 64};
  expect_frequencies(rope, 512,
                     {{0, 1.0F},
                      {1, 0.46393159F},
                      {4, 0.0300000012F},
                      {8, 0.00124999997F},
                      {15, 2.22284925e-05F}});
  rope.original_max_position_embeddings = 4096;
  rope.beta_fast = 16;
  rope.beta_slow = 2;
  rope.truncate = false;
  expect_frequencies(rope, 512,
                     {{0, 1.0F},
                      {1, 0.562341332F},
                      {4, 0.100000001F},
                      {8, 0.00622188905F},
                      {12, 0.000125000006F}});
}

// transformers uses the table of frequencies for a sequence's own length. Encore uses the table for
// the longest sequence that it may have.
TEST(InvFreq, OfDynamicRopeIsThatOfTheLongestSequence) {
  const Rope rope{
      .scaling = RopeScaling::kDynamic, .factor = 4, .original_max_position_embeddings = 64};
  expect_frequencies(rope, 140,
                     {{0, 1.0F},
                      {1, 0.500443995F},
                      {4, 0.0627222881F},
                      {8, 0.00393408537F},
                      {15, 3.09265961e-05F}});
  EXPECT_EQ(inv_freq(rope, 32, 64), inv_freq(Rope{}, 32, 64));
  EXPECT_EQ(inv_freq(rope, 32, 10), inv_freq(Rope{}, 32, 64));
}

TEST(InvFreq, OfLongropeChoosesItsListByTheLongestSequenceAndLeavesTheRestOfAHead) {
  Rope rope{
      .scaling = RopeScaling::kLongrope, .original_max_position_embeddings = 64, .rotary_dim = 24};
  for (int i = 0; i < 12; ++i) {
    rope.short_factor.push_back(1 + i / 10.0);
    rope.long_factor.push_back(1 + i);
  }
  expect_frequencies(rope, 65,
                     {{0, 1.0F},
                      {1, 0.232079446F},
                      {4, 0.00928317662F},
                      {8, 0.000239381596F},
                      {12, 0.0F},
                      {15, 0.0F}});
  expect_frequencies(rope, 64,
                     {{1, 0.421962589F}, {4, 0.0331542045F}, {8, 0.00119690795F}, {12, 0.0F}});
}

// Returns the order in which the rows of two heads of 8 are read, as row numbers of the tensor.
std::vector<int64_t> row_order(const Rope& rope, int64_t first) {
  std::vector<int64_t> order;
  for (const ir::WeightPiece& piece : head_rows(rope, "q", first, 2, 8)) {
    for (int64_t row = piece.rows->first; row < piece.rows->last; ++row)
      order.push_back(row);
  }
  return order;
}

TEST(HeadRows, PairsElementsAsTheKernelsDo) {
  EXPECT_EQ(row_order({}, 3),
            (std::vector<int64_t>{3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}));
  EXPECT_EQ(row_order({.interleaved = true}, 0),
            (std::vector<int64_t>{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15}));
  EXPECT_EQ(row_order({.rotary_dim = 4}, 0),
            (std::vector<int64_t>{0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15}));
  EXPECT_EQ(row_order({.rotary_dim = 4, .interleaved = true}, 8),
            (std::vector<int64_t>{8, 10, 12, 13, 9, 11, 14, 15, 16, 18, 20, 21, 17, 19, 22, 23}));
}

TEST(HeadRows, ScaleWhatTurnsAlone) {
  for (const ir::WeightPiece& piece : head_rows({.rotary_dim = 4}, "k", 0, 1, 8, 2))
    EXPECT_EQ(piece.factor, piece.rows->first < 4 ? 2 : 1) << piece.rows->first;
}

}  // namespace
}  // namespace encore::model
