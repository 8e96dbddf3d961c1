#include "text/split_pattern.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

#include "text/regex.h"
#include "text/unicode.h"

namespace encore::text {
namespace {

Span whole(std::string_view text) {
  return {0, static_cast<uint32_t>(text.size())};
}

std::vector<std::string> words_of(SplitPattern pattern, std::string_view text) {
  std::vector<Span> spans;
  split_words(pattern, text, whole(text), spans);
  std::vector<std::string> words;
  words.reserve(spans.size());
  for (const Span span : spans)
    words.emplace_back(span.in(text));
  return words;
}

using List = std::vector<std::string>;

TEST(SplitWords, LeavesASpaceToTheWordThatFollows) {
  EXPECT_EQ(words_of(SplitPattern::kGpt2, "Hello  world 12!?"),
            (List{"Hello", " ", " world", " 12", "!?"}));
  EXPECT_EQ(words_of(SplitPattern::kLlama3, "Hello  world 12!?"),
            (List{"Hello", " ", " world", " ", "12", "!?"}));
}

TEST(SplitWords, GroupsDigitsAsTheFamilyDoes) {
  EXPECT_EQ(words_of(SplitPattern::kGpt2, "1234567"), (List{"1234567"}));
  EXPECT_EQ(words_of(SplitPattern::kLlama3, "1234567"), (List{"123", "456", "7"}));
  EXPECT_EQ(words_of(SplitPattern::kQwen2, "1234"), (List{"1", "2", "3", "4"}));
}

TEST(SplitWords, CutsContractions) {
  EXPECT_EQ(words_of(SplitPattern::kGpt2, "it's IT'S we'll"),
            (List{"it", "'s", " IT", "'", "S", " we", "'ll"}));
  EXPECT_EQ(words_of(SplitPattern::kLlama3, "IT'S we'LL x'\u017f 'quoted"),
            (List{"IT", "'S", " we", "'LL", " x", "'\u017f", " '", "quoted"}));
}

TEST(SplitWords, TakesLineEndsWithWhatPrecedesThem) {
  EXPECT_EQ(words_of(SplitPattern::kLlama3, "end.\r\n\n  next"),
            (List{"end", ".\r\n\n", " ", " next"}));
  EXPECT_EQ(words_of(SplitPattern::kLlama3, "a \n \n  b"), (List{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(words_of(SplitPattern::kLlama3, "a   "), (List{"a", "   "}));
  EXPECT_EQ(words_of(SplitPattern::kLlama3, "\tx\t!"), (List{"\tx", "\t", "!"}));
}

TEST(FindSplitPattern, KnowsItsOwnRegularExpressions) {
  for (const auto pattern : {SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2}) {
    EXPECT_EQ(find_split_pattern(regex_of(pattern)), pattern);
  }
  EXPECT_EQ(find_split_pattern("\\s+"), std::nullopt);
}

// Draws random texts from code points that the patterns treat specially, and from others that
// PCRE2's older tables know as well.
class RandomText {
 public:
  std::string draw(std::mt19937& random) const {
    std::string text;
    for (size_t n = random() % 40; n > 0; --n)
      append_utf8(code_point(random), text);
    return text;
  }

 private:
  [[nodiscard]] uint32_t code_point(std::mt19937& random) const {
    static constexpr std::u32string_view kFrequent =
        U"  "
        U"\t\n\r'''stmdrevlSTMDREVL\u017f\u00a0\u3000\u0085abc1239.,!?-"
        U"\u00e9\u0301\u4e2d\u00b2\u2028\u180e";
    if (random() % 4 != 0) return kFrequent[random() % kFrequent.size()];
    while (true) {
      const uint32_t c = random() % 0x20000;
      if (c >= 0xd800 && c < 0xe000) continue;
      std::string text;
      append_utf8(c, text);
      std::vector<Span> matches;
      unassigned_.find_all(text, whole(text), matches);
      if (matches.empty()) return c;
    }
  }

  Regex unassigned_ = Regex("\\p{Cn}", "test");
};

TEST(SplitWords, FindsWhatTheRegularExpressionMatches) {
  std::mt19937 random(1);
  const RandomText texts;
  for (const auto pattern : {SplitPattern::kGpt2, SplitPattern::kLlama3, SplitPattern::kQwen2}) {
    const Regex regex(regex_of(pattern), "test");
    for (int i = 0; i < 8000; ++i) {
      const std::string text = texts.draw(random);
      std::vector<Span> expected;
      std::vector<Span> words;
      regex.find_all(text, whole(text), expected);
      split_words(pattern, text, whole(text), words);
      ASSERT_EQ(words, expected) << testing::PrintToString(text);
    }
  }
}

TEST(SplitWords, SeesOnlyItsRange) {
  const std::string text = "ab cd";
  std::vector<Span> words;
  split_words(SplitPattern::kGpt2, text, {1, 3}, words);
  EXPECT_EQ(words, (std::vector<Span>{{1, 2}, {2, 3}}));
}

}  // namespace
}  // namespace encore::text
