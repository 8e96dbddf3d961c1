#include "backend/random.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace encore::random {
namespace {

std::vector<uint32_t> words_of(const Words& words) {
  return {words.word, words.word + 4};
}

// Tests the known answers that the authors of Philox publish for philox4x32 with 10 rounds.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(words_of(philox(0, {{0, 0, 0, 0}})),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words_of(philox(~uint64_t{0}, {{~0U, ~0U, ~0U, ~0U}})),
            (std::vector<uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      words_of(philox(0x299f31d0a4093822, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}})),
      (std::vector<uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, StaysInsideTheOpenInterval) {
  EXPECT_EQ(uniform01(0), 0x1p-33F);
  EXPECT_EQ(uniform01(~0U), 1 - 0x1p-24F);
  EXPECT_NEAR(uniform01(0x80000000U), 0.5, 1e-7);
}

TEST(Logarithm, IsWithinTwoUnitsInTheLastPlace) {
  for (const float x : {1e-30F, 1e-10F, 0.1F, 0.5F, 0.70710677F, 0.70710683F, 0.99F, 0.9999999F,
                        1.0000001F, 1.4142135F, 1.4142137F, 2.0F, 16.6F, 1e20F}) {
    const double exact = std::log(static_cast<double>(x));
    EXPECT_NEAR(log_positive(x), exact, 2.5e-7 * std::fabs(exact)) << x;
  }
  EXPECT_EQ(log_positive(1.0F), 0.0F);
}

TEST(Gumbel, FollowsItsDefinitionFromEndToEnd) {
  uint32_t bits = 1;
  for (int i = 0; i < 10000; ++i) {
    const double u = uniform01(bits);
    const double exact = -std::log(-std::log1p(-u));
    EXPECT_NEAR(gumbel(bits), exact, 4e-7 * (1 + std::fabs(exact))) << bits;
    bits = bits * 1664525U + 1013904223U;
  }
  EXPECT_NEAR(gumbel(0), 33 * std::log(2.0), 1e-5);
  EXPECT_TRUE(std::isfinite(gumbel(~0U)));
}

TEST(Gumbel, IsTheNoiseOfOneTokenOfItsBlock) {
  const Words block = sample_words(99, 7, 3);
  for (uint32_t i = 0; i < 4; ++i)
    EXPECT_EQ(sample_noise(99, 7, 12 + i), gumbel(block.word[i]));
  EXPECT_NE(sample_noise(99, 7, 12), sample_noise(98, 7, 12));
  EXPECT_NE(sample_noise(99, 7, 12), sample_noise(99, 8, 12));
}

TEST(Normal, FollowsBoxMuller) {
  uint32_t bits = 12345;
  for (int i = 0; i < 10000; ++i) {
    const uint32_t first = bits;
    const uint32_t second = bits = bits * 1664525U + 1013904223U;
    bits = bits * 1664525U + 1013904223U;
    const double radius = std::sqrt(-2 * std::log(static_cast<double>(uniform01(first))));
    const double angle = 6.283185307179586 * static_cast<double>(uniform01(second));
    const NormalPair pair = normal_pair(first, second);
    EXPECT_NEAR(pair.first, radius * std::cos(angle), 1e-6 * (1 + radius));
    EXPECT_NEAR(pair.second, radius * std::sin(angle), 1e-6 * (1 + radius));
  }
}

TEST(Normal, HasTheMomentsAndTheShapeOfANormal) {
  constexpr int kBlocks = 100000;
  double moment[5] = {};
  int beyond_two = 0;
  for (int b = 0; b < kBlocks; ++b) {
    for (const float number : fill_block(5, static_cast<uint64_t>(b)).number) {
      double power = 1;
      for (double& m : moment)
        m += power, power *= number;
      beyond_two += std::fabs(number) > 2 ? 1 : 0;
    }
  }
  const double n = 4.0 * kBlocks;
  EXPECT_NEAR(moment[1] / n, 0, 0.01);
  EXPECT_NEAR(moment[2] / n, 1, 0.01);
  EXPECT_NEAR(moment[3] / n, 0, 0.03);
  EXPECT_NEAR(moment[4] / n, 3, 0.06);
  EXPECT_NEAR(beyond_two / n, 0.0455, 0.002);
}

}  // namespace
}  // namespace encore::random
