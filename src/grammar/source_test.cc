#include "grammar/source.h"

#include <gtest/gtest.h>

namespace encore::grammar {
namespace {

std::string problem_of(SourceKind kind, std::string text) {
  return problem({.kind = kind, .text = std::move(text)}).value_or("none");
}

TEST(Source, NamesThePlaceInASchemaThatIsBeyondTheLimits) {
  const std::string schema =
      R"({"properties": {"a": {"type": "array", "items": [{"type": "string", "maxLength": 1e9}]}}})";
  EXPECT_EQ(
      problem_of(SourceKind::kJsonSchema, schema),
      "schema.properties.a.items[0].maxLength: is at most 2000; leave it out where any number "
      "will do");
  EXPECT_EQ(problem_of(SourceKind::kJsonSchema, R"({"maxItems": 2000, "enum": [1, 2]})"), "none");
  // A property that is called maxItems is not the keyword maxItems.
  EXPECT_EQ(problem_of(SourceKind::kJsonSchema, R"({"properties": {"maxItems": {}}})"), "none");
}

TEST(Source, RefusesWhatIsNoSchema) {
  EXPECT_NE(problem_of(SourceKind::kJsonSchema, "[1]"), "none");
  EXPECT_NE(problem_of(SourceKind::kJsonSchema, "{\"a\": "), "none");
  EXPECT_NE(problem_of(SourceKind::kJsonSchema, "{\"a\": 1, \"a\": 2}"), "none");
  std::string deep;
  for (int i = 0; i < 100; ++i)
    deep += "{\"items\":";
  EXPECT_NE(problem_of(SourceKind::kJsonSchema, deep + "{}" + std::string(100, '}')), "none");
}

TEST(Source, BoundsWhatARegularExpressionRepeats) {
  EXPECT_EQ(problem_of(SourceKind::kRegex, "[a-z]{1,40}(, [a-z]{1,40})*"), "none");
  EXPECT_NE(problem_of(SourceKind::kRegex, "((a{100}){100}){100}"), "none");
  EXPECT_NE(problem_of(SourceKind::kRegex, "a{99999999999999999999}"), "none");
  // The brace is escaped, so this is not a repetition.
  EXPECT_EQ(problem_of(SourceKind::kRegex, "a\\{100000}"), "none");
  EXPECT_NE(problem_of(SourceKind::kRegex, std::string(100, '(') + std::string(100, ')')), "none");
  EXPECT_NE(problem_of(SourceKind::kRegex, std::string(5000, 'a')), "none");
  std::string optional;
  for (int i = 0; i < 200; ++i)
    optional += "a?";
  EXPECT_NE(problem_of(SourceKind::kRegex, optional), "none");
  const std::string within = R"({"properties": {"a": {"pattern": "(a{100}){100}"}}})";
  EXPECT_TRUE(
      problem_of(SourceKind::kJsonSchema, within).starts_with("schema.properties.a.pattern"));
}

TEST(Source, BoundsItsSize) {
  EXPECT_NE(problem_of(SourceKind::kEbnf, std::string(1 << 17, ' ')), "none");
  EXPECT_TRUE(problem({.kind = SourceKind::kChoice}));
  EXPECT_TRUE(problem({.kind = SourceKind::kChoice, .choices = {"a", ""}}));
  EXPECT_FALSE(problem({.kind = SourceKind::kChoice, .choices = {"a", "b"}}));
}

TEST(Source, QuotesChoices) {
  EXPECT_EQ(choice_grammar({"a", "b\"c\\\n"}), R"(root ::= "a" | "b\"c\\\n")");
}

}  // namespace
}  // namespace encore::grammar
