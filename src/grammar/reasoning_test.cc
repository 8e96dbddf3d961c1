#include "grammar/reasoning.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace encore::grammar {
namespace {

constexpr int64_t kVocabulary = 40;
constexpr int32_t kOpening = 33;
constexpr int32_t kClosing = 34;
constexpr int32_t kEnd = 39;

// A grammar with one answer: token 7 and then the end token.
class Seven final : public sample::TokenGrammar {
 public:
  [[nodiscard]] std::unique_ptr<sample::TokenMatcher> start() const override {
    return std::make_unique<Matcher>();
  }

 private:
  class Matcher final : public sample::TokenMatcher {
   public:
    void fill(std::span<uint32_t> mask) override {
      std::ranges::fill(mask, 0);
      const int32_t token = next();
      mask[token / 32] |= 1U << (token % 32);
    }
    bool accept(int32_t token) override { return token == next() && ++length_ > 0; }
    [[nodiscard]] bool has_ended() const override { return length_ == 2; }

   private:
    [[nodiscard]] int32_t next() const { return length_ == 0 ? 7 : kEnd; }
    int length_ = 0;
  };
};

std::vector<int32_t> allowed(sample::TokenMatcher& matcher) {
  std::vector<uint32_t> mask(2);
  matcher.fill(mask);
  std::vector<int32_t> tokens;
  for (int32_t token = 0; token < 64; ++token) {
    if ((mask[token / 32] >> (token % 32) & 1U) != 0) tokens.push_back(token);
  }
  return tokens;
}

std::unique_ptr<sample::TokenMatcher> start(bool starts_inside) {
  const auto grammar = behind_reasoning(std::make_shared<Seven>(),
                                        {kOpening, kClosing, starts_inside, {kEnd}}, kVocabulary);
  return grammar->start();
}

TEST(BehindReasoning, LetsAnAnswerComeWithoutReasoning) {
  const auto matcher = start(false);
  EXPECT_EQ(allowed(*matcher), (std::vector<int32_t>{7, kOpening}));
  EXPECT_TRUE(matcher->accept(7));
  EXPECT_EQ(allowed(*matcher), std::vector<int32_t>{kEnd});
  EXPECT_FALSE(matcher->accept(kOpening));
  EXPECT_TRUE(matcher->accept(kEnd));
  EXPECT_TRUE(matcher->has_ended());
}

TEST(BehindReasoning, HoldsNothingBetweenTheMarksButTheEnd) {
  const auto matcher = start(false);
  EXPECT_TRUE(matcher->accept(kOpening));
  EXPECT_EQ(std::ssize(allowed(*matcher)), kVocabulary - 1);
  EXPECT_FALSE(matcher->accept(kEnd));
  for (const int32_t token : {0, 8, kOpening, 38, kClosing})
    EXPECT_TRUE(matcher->accept(token));
  EXPECT_EQ(allowed(*matcher), std::vector<int32_t>{7});
  EXPECT_FALSE(matcher->accept(8));
}

TEST(BehindReasoning, BeginsWithinWhereThePromptHasOpenedIt) {
  const auto matcher = start(true);
  EXPECT_TRUE(matcher->accept(8));
  EXPECT_FALSE(matcher->has_ended());
  EXPECT_TRUE(matcher->accept(kClosing));
  EXPECT_EQ(allowed(*matcher), std::vector<int32_t>{7});
}

}  // namespace
}  // namespace encore::grammar
