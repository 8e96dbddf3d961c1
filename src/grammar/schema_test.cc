#include "grammar/schema.h"

#include <cstdlib>
#include <optional>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "grammar/testing/sampled_answer.h"

namespace encore::grammar {
namespace {

using testing::Answer;
using testing::Model;

const Model& small_model() {
  static const Model model("/models/stories");
  return model;
}

// Returns why a schema is refused, or an empty text if it is accepted.
std::string refusal(const std::string& schema) {
  try {
    (void)schema_grammar(schema, true);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Returns a matcher for the schema that has accepted this text token by token. Returns nothing if
// no answer begins with the text.
std::optional<Matcher> matcher_behind(const std::string& schema, std::string_view text) {
  const Grammar grammar =
      testing::compiled(small_model(), {.kind = SourceKind::kJsonSchema, .text = schema});
  Matcher matcher = grammar.matcher();
  for (const char c : text) {
    bool is_taken = false;
    for (const int32_t token : testing::allowed(small_model(), matcher)) {
      if (small_model().tokenizer.is_special(token) ||
          small_model().tokenizer.token_bytes(token) != std::string(1, c))
        continue;
      is_taken = matcher.accept(token);
      break;
    }
    if (!is_taken) return std::nullopt;
  }
  return matcher;
}

bool begins(const std::string& schema, std::string_view text) {
  return matcher_behind(schema, text).has_value();
}

// Returns whether the text is a complete answer by the schema's grammar.
bool takes(const std::string& schema, std::string_view text) {
  const auto matcher = matcher_behind(schema, text);
  return matcher && matcher->is_complete();
}

TEST(SchemaGrammar, HoldsAnswersToAllOfSeveralSchemas) {
  const char* const both = R"({"allOf": [
      {"type": "object", "properties": {"x": {"enum": [1]}}, "required": ["x"]},
      {"type": "object", "properties": {"y": {"enum": [2]}}, "required": ["y"]}]})";
  EXPECT_TRUE(takes(both, R"({"x":1,"y":2})"));
  EXPECT_FALSE(takes(both, R"({"x":1})"));
  const char* const siblings =
      R"({"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n", "enum": [1, 5, "a"],
                                   "anyOf": [{"minimum": 3}, {"const": "a"}]})";
  EXPECT_TRUE(takes(siblings, "5"));
  EXPECT_FALSE(takes(siblings, "1"));
  EXPECT_FALSE(takes(siblings, "\"a\""));
}

TEST(SchemaGrammar, HoldsAnswersToOneOfSeveralSchemas) {
  const char* const required =
      R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}},
                                   "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})";
  EXPECT_TRUE(takes(required, R"({"b":2})"));
  EXPECT_TRUE(takes(required, R"({"a":1,"b":2})"));
  EXPECT_FALSE(takes(required, "{}"));
  const char* const one =
      R"({"oneOf": [{"type": "integer", "maximum": 5}, {"type": "integer", "minimum": 4}]})";
  EXPECT_TRUE(takes(one, "3"));
  EXPECT_TRUE(takes(one, "12"));
  EXPECT_FALSE(takes(one, "4"));
}

TEST(SchemaGrammar, HoldsAnswersToWhatDependsOnOthers) {
  EXPECT_FALSE(
      takes(R"({"type": "integer", "minimum": 0, "maximum": 3, "not": {"const": 2}})", "2"));
  EXPECT_TRUE(
      takes(R"({"type": "integer", "minimum": 0, "maximum": 3, "not": {"const": 2}})", "3"));
  const char* const conditional = R"({"type": "object", "required": ["a", "b"],
      "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, 9]}}, "if": {"properties": {"a": {"const": true}}},
      "then": {"properties": {"b": {"minimum": 5}}}, "else": {"properties": {"b": {"maximum": 4}}}})";
  EXPECT_TRUE(takes(conditional, R"({"a":true,"b":9})"));
  EXPECT_TRUE(takes(conditional, R"({"a":false,"b":1})"));
  EXPECT_FALSE(takes(conditional, R"({"a":true,"b":1})"));
  const char* const dependent =
      R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 2}},
                                    "dependentRequired": {"a": ["b"]}})";
  EXPECT_FALSE(takes(dependent, R"({"a":1})"));
  EXPECT_TRUE(takes(dependent, R"({"b":2})"));
}

TEST(SchemaGrammar, LetsRequiredPropertiesComeThatAreNotNamed) {
  EXPECT_TRUE(takes(R"({"type": "object", "required": ["a"]})", R"({"a":[1]})"));
  EXPECT_FALSE(takes(R"({"type": "object", "required": ["a"]})", "{}"));
  EXPECT_EQ(refusal(R"({"type": "object", "required": ["a"], "additionalProperties": false})"),
            "schema: no value fits it");
}

TEST(SchemaGrammar, HoldsAPropertyToItsNameAndToPatterns) {
  const char* const schema = R"({"type": "object", "properties": {"xa": {"enum": [1, 7, "s"]}},
      "patternProperties": {"^x": {"type": "integer"}, "a$": {"maximum": 3}}, "additionalProperties": false})";
  EXPECT_TRUE(takes(schema, R"({"xa":1,"xb":12})"));
  EXPECT_FALSE(takes(schema, R"({"xa":7})"));
  EXPECT_FALSE(takes(schema, R"({"xa":"s"})"));
  EXPECT_FALSE(takes(schema, R"({"xba":9})"));
  EXPECT_FALSE(takes(schema, R"({"xa":1,"xa":1})"));
  EXPECT_FALSE(takes(schema, R"({"xa":1,"x\u0061":1})"));
  EXPECT_FALSE(takes(schema, R"({"b":1})"));
}

TEST(SchemaGrammar, HoldsToOtherPropertiesNoneThatAPatternNames) {
  const char* const schema = R"({"type": "object", "patternProperties": {"^x": {"const": 1}},
      "additionalProperties": {"const": "s"}, "required": ["xa"], "maxProperties": 2})";
  EXPECT_TRUE(takes(schema, R"({"xa":1})"));
  EXPECT_TRUE(takes(schema, R"({"xa":1,"b":"s"})"));
  EXPECT_FALSE(takes(schema, R"({"xa":"s"})"));
}

TEST(SchemaGrammar, KeepsWhatAnArrayMayNotContain) {
  const char* const schema =
      R"({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2, "not": {"contains": {"const": 2}}})";
  EXPECT_TRUE(takes(schema, "[1,1]"));
  EXPECT_FALSE(takes(schema, "[1,2]"));
}

TEST(SchemaGrammar, CountsPropertiesAndItems) {
  const char* const two =
      R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"const": 1}, "c": {"const": 1}},
                              "minProperties": 2, "maxProperties": 2})";
  EXPECT_TRUE(takes(two, R"({"a":1,"c":1})"));
  EXPECT_FALSE(takes(two, R"({"b":1})"));
  EXPECT_FALSE(takes(two, R"({"a":1,"b":1,"c":1})"));
  const char* const items =
      R"({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3},
                                "minItems": 1, "maxItems": 4})";
  for (const char* const text : {"[1]", "[1,2]", "[1,2,3]", "[1,2,3,3]"})
    EXPECT_TRUE(takes(items, text)) << text;
  for (const char* const text : {"[]", "[2]", "[1,3]", "[1,2,3,3,3]"})
    EXPECT_FALSE(takes(items, text)) << text;
  const char* const contains =
      R"({"type": "array", "items": {"enum": [1, 2]}, "contains": {"const": 2}, "maxContains": 1,
                                   "maxItems": 3})";
  EXPECT_TRUE(takes(contains, "[1,2,1]"));
  EXPECT_FALSE(takes(contains, "[1,1]"));
  EXPECT_FALSE(takes(contains, "[2,1,2]"));
}

TEST(SchemaGrammar, LetsNoItemComeTwiceWhereTheyAreUnique) {
  const char* const few =
      R"({"type": "array", "items": {"enum": ["a", "b", 1, 1.0]}, "uniqueItems": true})";
  EXPECT_TRUE(takes(few, R"(["b",1,"a"])"));
  EXPECT_FALSE(takes(few, R"(["b","b"])"));
  const char* const texts =
      R"({"type": "array", "items": {"type": "string"}, "uniqueItems": true})";
  EXPECT_TRUE(takes(texts, R"(["red","blue","dry"])"));
  EXPECT_FALSE(takes(texts, R"(["red","red"])"));
  EXPECT_FALSE(takes(texts, R"(["red","re\u0064"])"));
  EXPECT_NE(refusal(R"({"type": "array", "items": {"type": "object"}, "uniqueItems": true})")
                .find("schema.uniqueItems"),
            std::string::npos);
}

TEST(SchemaGrammar, WritesAConstantInOneWay) {
  const char* const constant = R"({"const": {"b": [1, {"c": "d e"}], "a": 3.14159265358979}})";
  EXPECT_TRUE(takes(constant, R"({"b":[1,{"c":"d e"}],"a":3.14159265358979})"));
  for (const char* const text :
       {R"({"b": [1)", R"({ "b")", R"({"b":[1, )", R"({"b":[1,{"c":"d e"} )", R"({"a")"})
    EXPECT_FALSE(begins(constant, text)) << text;
  const char* const several =
      R"({"type": "object", "properties": {"p": {"enum": [[1, 2], [3], {"q": null}], "maxItems": 1}}})";
  for (const char* const text : {R"({"p": [3] })", R"({ "p":{"q":null}})"})
    EXPECT_TRUE(takes(several, text)) << text;
  for (const char* const text : {R"({"p":[1)", R"({"p":[ )", R"({"p":{"q": )"})
    EXPECT_FALSE(begins(several, text)) << text;
  const char* const unique =
      R"({"type": "array", "items": {"enum": [{"a": 1}, [2], {"a": 1.0}]}, "uniqueItems": true})";
  EXPECT_TRUE(takes(unique, R"([[2], {"a":1}])"));
  EXPECT_FALSE(begins(unique, R"([{"a":1}, {)"));
}

TEST(SchemaGrammar, KnowsWhatIsNotEvaluated) {
  const char* const schema =
      R"({"type": "object", "anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]},
      {"properties": {"b": {"const": 2}}}], "unevaluatedProperties": false})";
  EXPECT_TRUE(takes(schema, R"({"a":1})"));
  EXPECT_TRUE(takes(schema, R"({"b":2})"));
  EXPECT_FALSE(takes(schema, R"({"c":2})"));
  // For unevaluatedItems and unevaluatedProperties, the keyword enum evaluates no items and no
  // properties of its values.
  const char* const items =
      R"({"enum": [[-3], [true], 5], "unevaluatedItems": {"type": "boolean"}})";
  EXPECT_TRUE(takes(items, "[true]"));
  EXPECT_FALSE(begins(items, "[-"));
  const char* const members = R"({"enum": [{"a": 1}, {}], "unevaluatedProperties": false})";
  EXPECT_TRUE(takes(members, "{}"));
  EXPECT_FALSE(begins(members, R"({")"));
}

TEST(SchemaGrammar, FollowsReferencesWithinTheSchema) {
  const char* const defs =
      R"("$defs": {"a/b": {"const": 1}, "c~d": {"const": 2}, "e f": {"const": 3},
      "g": {"$anchor": "here", "const": 4}, "h": {"$id": "other.json", "$defs": {"i": {"const": 5}}, "$ref": "#/$defs/i"}})";
  const std::pair<const char*, const char*> cases[] = {{"#/$defs/a~1b", "1"},
                                                       {"#/$defs/c~0d", "2"},
                                                       {"#/$defs/e%20f", "3"},
                                                       {"#here", "4"},
                                                       {"other.json", "5"},
                                                       {"https://example.com/other.json", "5"},
                                                       {"https://example.com/s.json#here", "4"}};
  for (const auto& [reference, text] : cases) {
    const std::string schema = fmt::format(
        R"({{"$id": "https://example.com/s.json", "$ref": "{}", {}}})", reference, defs);
    EXPECT_TRUE(takes(schema, text)) << reference;
    EXPECT_FALSE(takes(schema, "6")) << reference;
  }
  EXPECT_EQ(refusal(R"({"properties": {"a": {"$ref": "#/$defs/none"}}})"),
            "schema.properties.a.$ref: there is nothing at schema.$defs");
  EXPECT_EQ(
      refusal(R"({"$ref": "https://example.com/far.json"})"),
      "schema.$ref: \"https://example.com/far.json\" is no part of this schema: put it into $defs");
  EXPECT_EQ(refusal(R"({"$ref": "#"})"),
            "schema: refers to itself, with no property or item between");
  EXPECT_TRUE(
      takes(R"({"type": "object", "properties": {"n": {"$ref": "#"}}})", R"({"n":{"n":{}}})"));
  EXPECT_EQ(refusal(R"({"type": "object", "properties": {"n": {"$ref": "#"}}, "required": ["n"]})"),
            "schema: no value fits it");
}

TEST(SchemaGrammar, EscapesWhatAPatternStandsFor) {
  EXPECT_TRUE(takes(R"({"type": "string", "pattern": "^\"[a-z]\"$"})", R"("\"q\"")"));
  EXPECT_FALSE(takes(R"({"type": "string", "pattern": "^\"[a-z]\"$"})", R"(""q"")"));
  EXPECT_TRUE(takes(R"({"type": "string", "pattern": "^C:\\\\[a-z]$"})", R"("C:\\q")"));
  EXPECT_TRUE(takes(R"({"type": "string", "pattern": "^a\\nb$"})", R"("a\nb")"));
  EXPECT_TRUE(takes(R"({"type": "string", "pattern": "^a\\nb$"})", R"("a\u000Ab")"));
}

TEST(SchemaGrammar, CountsACharacterInEachSpelling) {
  const char* const schema = R"({"type": "string", "minLength": 1, "maxLength": 1})";
  for (const char* const text :
       {R"("a")", R"("\n")", R"("\/")", R"("/")", R"("\u0041")", R"("\ud83d\ude00")"})
    EXPECT_TRUE(takes(schema, text)) << text;
  for (const char* const text : {R"("")", R"("ab")", R"("\n\n")", R"("\ud83d")", R"("\ude00")"})
    EXPECT_FALSE(takes(schema, text)) << text;
  EXPECT_FALSE(takes(R"({"type": "string", "pattern": "^[a-z]*$", "maxLength": 3})", R"("abcd")"));
  EXPECT_FALSE(takes(R"({"type": "string", "maxLength": 200})",
                     fmt::format("\"{}\"", std::string(201, 'a'))));
}

TEST(SchemaGrammar, KeepsBoundsAndMultiplesOfNumbers) {
  const char* const hundredths =
      R"({"type": "number", "minimum": -0.5, "exclusiveMaximum": 10.25, "multipleOf": 0.25})";
  for (const char* const text : {"-0.5", "0", "10", "10.00", "3.75"})
    EXPECT_TRUE(takes(hundredths, text)) << text;
  for (const char* const text : {"-0.75", "10.25", "3.7", "11"})
    EXPECT_FALSE(takes(hundredths, text)) << text;
  EXPECT_TRUE(takes(R"({"type": "integer", "multipleOf": 1000, "minimum": 5})", "12000"));
  EXPECT_FALSE(takes(R"({"type": "integer", "multipleOf": 1000, "minimum": 5})", "12500"));
  EXPECT_FALSE(
      takes(R"({"type": "integer", "minimum": -9223372036854775808})", "-9223372036854775809"));
}

TEST(SchemaGrammar, NamesWhatItRefuses) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"properties": {"a": {"pattern": "(a)\\1"}}})", "schema.properties.a.pattern: "},
      {R"x({"pattern": "a(?=^b)"})x", "schema.pattern: "},
      {R"({"pattern": "(?<=a)b"})", "schema.pattern: "},
      {R"({"pattern": "\\p{Script=Greek}"})", "schema.pattern: "},
      {R"({"format": "regex"})", "schema.format: "},
      {R"({"$dynamicRef": "#a"})", "schema.$dynamicRef: "},
      {R"({"minLength": "2"})", "schema.minLength: "},
      {R"({"exclusiveMinimum": true})", "schema.exclusiveMinimum: "},
      {R"({"type": "text"})", "schema.type: "},
      {R"({"anyOf": []})", "schema.anyOf: "},
      {R"({"not": {"type": "object", "additionalProperties": false}})",
       "schema.not.additionalProperties: "}};
  for (const auto& [schema, place] : cases)
    EXPECT_TRUE(refusal(schema).starts_with(place)) << schema << "\n" << refusal(schema);
  // JSON Schema does not have the keywords x-order and nullable, so they have no effect.
  EXPECT_EQ(refusal(R"({"type": "object", "x-order": 1, "nullable": true})"), "");
}

// Prints the rules of a schema from the environment: ENCORE_SCHEMA=TEXT grammar_test
// --gtest_filter='*PrintsItsRules*'
TEST(SchemaGrammar, PrintsItsRules) {
  const char* const schema = std::getenv("ENCORE_SCHEMA");
  if (schema == nullptr) GTEST_SKIP() << "ENCORE_SCHEMA has no schema";
  fmt::print("{}\n", schema_grammar(schema, true));
  const Grammar grammar =
      testing::compiled(small_model(), {.kind = SourceKind::kJsonSchema, .text = schema});
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Answer answer = testing::sample(small_model(), grammar, seed, 300);
    fmt::print("{}{}\n", answer.text, answer.is_whole ? "" : "...");
  }
}

}  // namespace
}  // namespace encore::grammar
