#include "text/added_tokens.h"

#include <gtest/gtest.h>

namespace encore::text {
namespace {

AddedToken token(int32_t id, std::string content) {
  AddedToken token;
  token.id = id;
  token.content = std::move(content);
  return token;
}

// Splits a text and returns each segment as "text" or "<id:text>".
std::string split(const std::vector<AddedToken>& tokens, std::string_view text) {
  AddedTokenMatcher matcher;
  for (const AddedToken& token : tokens)
    matcher.add(token, token.content);
  std::vector<Segment> segments;
  matcher.split(text, segments);
  std::string out;
  for (const Segment& segment : segments) {
    const std::string part(segment.span.in(text));
    out += segment.token < 0 ? "[" + part + "]"
                             : "<" + std::to_string(segment.token) + ":" + part + ">";
  }
  return out;
}

TEST(AddedTokens, AreFoundLeftmostAndLongest) {
  EXPECT_EQ(split({token(1, "<a>"), token(2, "<a><b>"), token(3, "b>")}, "x<a><b><a>y"),
            "[x]<2:<a><b>><1:<a>>[y]");
  EXPECT_EQ(split({token(1, "ab")}, "aab"), "[a]<1:ab>");
  EXPECT_EQ(split({}, "abc"), "[abc]");
  EXPECT_EQ(split({token(1, "")}, ""), "");
}

TEST(AddedTokens, TakeTheSpacesAround) {
  AddedToken both = token(1, "#");
  both.lstrip = both.rstrip = true;
  EXPECT_EQ(split({both}, "a \u3000# \nb##"), "[a]<1: \u3000# \n>[b]<1:#><1:#>");
}

TEST(AddedTokens, MatchWholeWordsOnlyWhenAsked) {
  AddedToken word = token(1, "word");
  word.single_word = true;
  EXPECT_EQ(split({word}, "word words sword (word)"), "<1:word>[ words sword (]<1:word>[)]");
  EXPECT_EQ(split({word}, "\u00e9word word\u0301"), "[\u00e9word word\u0301]");
}

}  // namespace
}  // namespace encore::text
