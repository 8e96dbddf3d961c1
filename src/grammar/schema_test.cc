#include "grammar/schema.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace encore::grammar {
namespace {

json::value rewritten(const std::string& schema) {
  return json::parse(with_lengths_as_patterns(schema), "result");
}

TEST(Schema, HasPatternsInThePlaceOfLengths) {
  EXPECT_EQ(rewritten(R"({"type": "string", "minLength": 2, "maxLength": 9, "title": "a"})"),
            (json::value{{"type", "string"}, {"title", "a"}, {"pattern", R"(^[\s\S]{2,9}$)"}}));
  EXPECT_EQ(rewritten(R"({"type": "string", "maxLength": 9})").at("pattern"), R"(^[\s\S]{0,9}$)");
  EXPECT_EQ(rewritten(R"({"type": "string", "minLength": 2})").at("pattern"), R"(^[\s\S]{2,}$)");
  const json::value inner = rewritten(
      R"({"type": "object", "properties": {"b": {"anyOf": [{"type": "string", "maxLength": 1}]},
          "a": {"type": "null"}}})");
  EXPECT_EQ(inner.at("properties").at("b").at("anyOf").at(0).at("pattern"), R"(^[\s\S]{0,1}$)");
  EXPECT_EQ(inner.at("properties").as_object().begin()->key(), "b");
}

TEST(Schema, KeepsWhatIsNoBoundedString) {
  for (
      const char* const schema :
      {R"(true)", R"({"type": "string"})", R"({"type": "string", "maxLength": 129})",
       R"({"type": "string", "maxLength": 2, "pattern": "a"})",
       R"({"type": "string", "maxLength": 20, "format": "date"})",
       R"({"type": "string", "minLength": 3, "maxLength": 2})",
       R"({"type": "string", "maxLength": -1})", R"({"type": "string", "maxLength": 1.5})",
       R"({"type": ["string", "null"], "maxLength": 3})",
       R"({"enum": [{"type": "string", "maxLength": 3}], "const": {"type": "string", "maxLength": 3}})",
       R"({"properties": {"type": {"const": "string"}, "maxLength": {"type": "integer"}}})"}) {
    EXPECT_EQ(rewritten(schema), json::parse(schema, "schema")) << schema;
  }
}

}  // namespace
}  // namespace encore::grammar
