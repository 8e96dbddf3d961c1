#include "grammar/pattern.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace encore::grammar {
namespace {

bool finds(std::string_view pattern, std::string_view text) {
  return pattern_automaton(pattern, Extent::kSearch).accepts(text);
}

TEST(Pattern, IsFoundAnywhereUnlessItIsTiedToAnEnd) {
  EXPECT_TRUE(finds("b", "abc"));
  EXPECT_FALSE(finds("^b", "abc"));
  EXPECT_FALSE(finds("b$", "abc"));
  EXPECT_TRUE(finds("^a|c$", "abc"));
  EXPECT_TRUE(finds("^$", ""));
  EXPECT_FALSE(finds("^a$", "a\n"));
  EXPECT_FALSE(finds("a^b", "a^b"));
}

TEST(Pattern, KnowsWordBoundaries) {
  EXPECT_TRUE(finds(R"(\bcat\b)", "a cat."));
  EXPECT_FALSE(finds(R"(\bcat\b)", "concat"));
  EXPECT_TRUE(finds(R"(\Bcat)", "concat"));
}

TEST(Pattern, KnowsLookaheadAnywhere) {
  EXPECT_TRUE(finds("a(?=b)", "cab"));
  EXPECT_FALSE(finds("a(?=b)", "aac"));
  EXPECT_TRUE(finds("a(?!b)", "aab"));
  EXPECT_TRUE(finds("a(?!b)", "a"));
  EXPECT_FALSE(finds("^(?:a(?=b$)|c)+b$", "aab"));
  EXPECT_TRUE(finds("^(?:a(?=b$)|c)+b$", "ccab"));
  EXPECT_TRUE(finds("^(?:(?!ab)[a-c])*$", "acba"));
  EXPECT_FALSE(finds("^(?:(?!ab)[a-c])*$", "acab"));
  const char* const duration =
      R"(^P(?:(\d+W)|(?!.*W)(?=\d|T\d)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?)$)";
  for (const char* const text : {"P3W", "P1Y2D", "PT5M", "P1DT2H"})
    EXPECT_TRUE(finds(duration, text)) << text;
  for (const char* const text : {"P", "PT", "P1DT", "P1Y3W"})
    EXPECT_FALSE(finds(duration, text)) << text;
}

TEST(Pattern, KnowsLookaheadBehindTheStart) {
  EXPECT_TRUE(finds("^(?=.*[0-9])(?!x)[a-z0-9]{3}$", "ab1"));
  EXPECT_FALSE(finds("^(?=.*[0-9])(?!x)[a-z0-9]{3}$", "abc"));
  EXPECT_FALSE(finds("^(?=.*[0-9])(?!x)[a-z0-9]{3}$", "xb1"));
}

TEST(Pattern, KnowsCategoriesInAndOutsideOfBrackets) {
  EXPECT_TRUE(finds(R"(^[\p{Lu}_]\p{Ll}+\P{L}$)", "Éa1"));
  EXPECT_FALSE(finds(R"(^[\p{Lu}_])", "p"));
  EXPECT_TRUE(finds(R"(^\p{Letter}$)", "ß"));
}

TEST(Pattern, KnowsEscapesAndRepetitions) {
  EXPECT_TRUE(finds(R"(^\x41\u0042\u{43}\ud83d\ude00\cJ\/$)", "ABC\xf0\x9f\x98\x80\n/"));
  EXPECT_TRUE(finds("^(?:ab){2,3}?c{0}$", "abab"));
  EXPECT_FALSE(finds("^(?:ab){2,3}$", "abababab"));
  EXPECT_TRUE(finds("^{a}$", "{a}"));
  EXPECT_TRUE(finds(R"(^[\]\-^a]+$)", "]-^a"));
  EXPECT_TRUE(finds("^[^]$", "\n"));
  EXPECT_FALSE(finds("^.$", "\n"));
}

TEST(Automaton, ProductsComeBackToTheirStart) {
  const Automaton pairs = pattern_automaton("^(?:ab)*$", Extent::kSearch);
  const Automaton letters = pattern_automaton("^[ab]*$", Extent::kSearch);
  for (const Automaton& product : {both(pairs, letters), either(pairs, pairs)}) {
    for (const char* const text : {"", "ab", "abab"})
      EXPECT_TRUE(product.accepts(text)) << text;
    for (const char* const text : {"a", "aba", "abb"})
      EXPECT_FALSE(product.accepts(text)) << text;
  }
}

TEST(Pattern, RefusesWhatIsNotRegularOrNotAnExpression) {
  for (const char* const pattern :
       {R"((a)\1)", R"(\k<a>)", "a(?=^b)", "(?<=a)b", "(?<!a)b", "(?i)a", "(", "a)", "[a", "*a",
        "a**", "a{3,2}", R"(\p{Greek})", R"(\A)", "[b-a]", "\\"}) {
    EXPECT_THROW((void)pattern_automaton(pattern, Extent::kSearch), Error) << pattern;
  }
  EXPECT_THROW((void)pattern_automaton("((a{100}){100}){100}", Extent::kSearch), Error);
}

}  // namespace
}  // namespace encore::grammar
