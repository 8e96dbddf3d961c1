#include "traffic/prompts.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace encore::traffic {
namespace {

std::vector<int32_t> prompt(int64_t length, std::vector<int64_t> blocks, int64_t number,
                            uint64_t seed = 1) {
  return prompt_tokens({.input_tokens = length, .blocks = std::move(blocks)}, number, 1000, seed);
}

// Returns how many tokens two prompts have in common at their beginning.
int64_t shared(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

TEST(Prompts, HaveTheirLengthAndTokensOfTheVocabulary) {
  const auto tokens = prompt(1300, {5, 6}, 0);
  ASSERT_EQ(tokens.size(), 1300U);
  for (const int32_t token : tokens)
    EXPECT_TRUE(token >= 0 && token < 1000);
  EXPECT_TRUE(prompt(0, {}, 0).empty());
}

TEST(Prompts, OfNoBlocksDifferFromRequestToRequestAndFromSeedToSeed) {
  EXPECT_EQ(prompt(100, {}, 4), prompt(100, {}, 4));
  EXPECT_LT(shared(prompt(100, {}, 4), prompt(100, {}, 5)), 3);
  EXPECT_LT(shared(prompt(100, {}, 4, 1), prompt(100, {}, 4, 2)), 3);
}

TEST(Prompts, AreEqualWhereTheirBlocksAre) {
  const auto tokens = prompt(1536, {7, 8, 9}, 0);
  EXPECT_EQ(prompt(1536, {7, 8, 9}, 1), tokens);
  const int64_t two_blocks = shared(tokens, prompt(1536, {7, 8, 10}, 1));
  EXPECT_GE(two_blocks, 1024);
  EXPECT_LT(two_blocks, 1024 + 3);
  // A block that the prompt's end, or a limit on the prompt, cuts short is the beginning of the
  // whole block.
  EXPECT_EQ(shared(tokens, prompt(700, {7, 8}, 2)), 700);
  // The rest of a prompt, behind its blocks, belongs to the request alone.
  const int64_t one_block = shared(prompt(1000, {7}, 3), prompt(1000, {7}, 4));
  EXPECT_GE(one_block, 512);
  EXPECT_LT(one_block, 512 + 3);
}

TEST(Prompts, ABlockIsNotTheTokensOfTheRequestOfThatNumber) {
  EXPECT_LT(shared(prompt(512, {3}, 0), prompt(512, {}, 3)), 3);
}

}  // namespace
}  // namespace encore::traffic
