#include "text/regex.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace encore::text {
namespace {

std::vector<std::string> matches_of(const std::string& pattern, const std::string& text) {
  std::vector<Span> spans;
  Regex(pattern, "test").find_all(text, {0, static_cast<uint32_t>(text.size())}, spans);
  std::vector<std::string> matches;
  matches.reserve(spans.size());
  for (const Span span : spans)
    matches.emplace_back(span.in(text));
  return matches;
}

ErrorKind kind_of_failure(const std::string& pattern) {
  try {
    Regex(pattern, "test");
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("test"), std::string::npos);
    return error.kind();
  }
  ADD_FAILURE() << pattern << " compiled";
  return ErrorKind::kDevice;
}

using List = std::vector<std::string>;

TEST(Regex, FindsMatchesOfUnicodeClasses) {
  EXPECT_EQ(matches_of(R"(\p{L}+)", "né 日本, x2"), (List{"né", "日本", "x"}));
  EXPECT_EQ(matches_of(R"((?i:'s))", "'S '\u017f"), (List{"'S", "'\u017f"}));
}

TEST(Regex, KnowsTheCharactersOfUnicode16) {
  EXPECT_EQ(matches_of(R"(\p{Lu}|\d)", "\ua7cb\U00010d40\ua7cd"), (List{"\ua7cb", "\U00010d40"}));
  EXPECT_EQ(matches_of(R"([^\p{L}]+|\w)", "\U00010d40-\ua7cb"), (List{"\U00010d40-", "\ua7cb"}));
  EXPECT_EQ(matches_of(R"(\P{L}|\D\d)", "\ua7cb\U00010d40\U0001cc00"),
            (List{"\ua7cb\U00010d40", "\U0001cc00"}));
  EXPECT_EQ(matches_of(R"(\p{Han}\p{^L})", "\u4e2d1"), (List{"\u4e2d1"}));
}

TEST(Regex, ReadsWhatOnigurumaSpellsDifferently) {
  EXPECT_EQ(matches_of(R"(\h+)", "fg ff"), (List{"f", "ff"}));
  EXPECT_EQ(matches_of(R"(\s)", "\u180e\u00a0"), (List{"\u00a0"}));
  EXPECT_EQ(matches_of(R"(\w+)", "e\u0301x-y"), (List{"e\u0301x", "y"}));
  EXPECT_EQ(matches_of(R"([^\s,]+)", "a,b c"), (List{"a", "b", "c"}));
  EXPECT_EQ(matches_of(R"(\d{1,3}+)", "12345"), (List{"12345"}));
  EXPECT_EQ(matches_of(R"((?:ab){2}+c)", "ababababc"), (List{"ababababc"}));
  EXPECT_EQ(matches_of(R"([]a]{,2}!)", "]a!a!!"), (List{"]a!", "a!", "!"}));
  EXPECT_EQ(matches_of(R"(a$)", "a\na"), (List{"a", "a"}));
}

TEST(Regex, TakesEmptyMatchesOnlyApartFromOthers) {
  EXPECT_EQ(matches_of("a*", "baac"), (List{"", "aa", ""}));
}

TEST(Regex, RefusesWhatItCannotRunAndNamesIt) {
  EXPECT_EQ(kind_of_failure("[a-z&&[^x]]"), ErrorKind::kUnsupported);
  EXPECT_EQ(kind_of_failure("[a[bc]]"), ErrorKind::kUnsupported);
  EXPECT_EQ(kind_of_failure("(?m:.)"), ErrorKind::kUnsupported);
  EXPECT_EQ(kind_of_failure("(a"), ErrorKind::kModel);
  EXPECT_EQ(kind_of_failure("\\p{"), ErrorKind::kModel);
  EXPECT_EQ(kind_of_failure("\\"), ErrorKind::kModel);
  EXPECT_EQ(kind_of_failure("["), ErrorKind::kModel);
}

TEST(Regex, MatchesAMegabyteWithoutASpace) {
  const std::string text(1 << 20, 'a');
  EXPECT_EQ(matches_of(R"([^\r\n\p{L}\p{N}]?\p{L}+|\s+(?!\S)|\s+)", text).size(), 1U);
  EXPECT_EQ(matches_of(R"((?:a|b)+c?)", text).size(), 1U);
}

}  // namespace
}  // namespace encore::text
