#include "server/answer_format.h"

#include <gtest/gtest.h>

namespace encore::server {
namespace {

using grammar::SourceKind;

struct Read {
  std::optional<AnswerFormat> format;
  std::optional<ApiError> error;
};

Read openai(std::string_view text, const std::string& wrapper = "json_schema") {
  Read read;
  read.error =
      read_openai_format(json::parse(text, "test"), "response_format", wrapper, read.format);
  return read;
}

Read structured(std::string_view text) {
  Read read;
  read.error = read_structured_outputs(json::parse(text, "test").get_object(), read.format);
  return read;
}

TEST(AnswerFormat, TextHoldsNothing) {
  const Read read = openai(R"({"type": "text"})");
  EXPECT_FALSE(read.error);
  EXPECT_FALSE(read.format);
}

TEST(AnswerFormat, ReadsTheFormatsOfOpenAi) {
  EXPECT_EQ(openai(R"({"type": "json_object"})").format->source.kind, SourceKind::kJsonObject);
  const Read schema = openai(
      R"({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "description": "d",
          "schema": {"type": "integer"}}})");
  ASSERT_TRUE(schema.format);
  EXPECT_EQ(schema.format->source.kind, SourceKind::kJsonSchema);
  EXPECT_EQ(schema.format->source.text, R"({"type": "integer"})");
  EXPECT_EQ(schema.format->param, "response_format");
  const Read exact = openai(
      R"({"type": "json_schema", "json_schema": {"name": "n", "schema": {"maximum": 0.123456789}}})");
  EXPECT_EQ(exact.format->source.text, R"({"maximum": 0.123456789})");
  const Read flat =
      openai(R"({"type": "json_schema", "name": "n", "schema": {"type": "integer"}})", "");
  ASSERT_TRUE(flat.format);
  EXPECT_EQ(flat.format->source, schema.format->source);
}

TEST(AnswerFormat, ReadsEachOfTheStructuredOutputs) {
  const auto source = [](std::string_view text) {
    const Read read = structured(text);
    EXPECT_TRUE(read.format) << text;
    return read.format.value_or(AnswerFormat{}).source;
  };
  EXPECT_EQ(source(R"({"json": {"type": "null"}})").text, R"({"type": "null"})");
  EXPECT_EQ(source(R"({"json": "{\"type\": \"null\"}"})").text, R"({"type": "null"})");
  EXPECT_EQ(source(R"({"json_object": true, "regex": null})").kind, SourceKind::kJsonObject);
  EXPECT_EQ(source(R"({"regex": "a+"})").text, "a+");
  EXPECT_EQ(source(R"({"regex": "a+"})").kind, SourceKind::kRegex);
  EXPECT_EQ(source(R"({"choice": ["a", "b"]})").choices, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(source(R"({"grammar": "root ::= \"x\"", "json_object": false})").kind,
            SourceKind::kEbnf);
}

TEST(AnswerFormat, NamesWhatIsWrong) {
  const char* const formats[] = {
      R"("text")",
      R"({})",
      R"({"type": 3})",
      R"({"type": "xml"})",
      R"({"type": "text", "schema": {}})",
      R"({"type": "json_object", "schema": {}})",
      R"({"type": "json_schema"})",
      R"({"type": "json_schema", "json_schema": {"name": "n"}})",
      R"({"type": "json_schema", "json_schema": {"schema": "{}"}})",
      R"({"type": "json_schema", "json_schema": {"schema": {}, "strict": "yes"}})",
      R"({"type": "json_schema", "json_schema": {"schema": {}, "name": 3}})",
      R"({"type": "json_schema", "json_schema": {"schema": {}, "more": 3}})",
      R"({"type": "json_schema", "json_schema": {"schema": {}}, "more": 3})"};
  for (const char* text : formats) {
    const Read read = openai(text);
    ASSERT_TRUE(read.error) << text;
    EXPECT_EQ(read.error->status, 400);
    EXPECT_EQ(read.error->param, "response_format");
  }
  const char* const outputs[] = {R"({})",
                                 R"({"json": 3})",
                                 R"({"json_object": 1})",
                                 R"({"regex": ["a"]})",
                                 R"({"choice": []})",
                                 R"({"choice": ["a", 1]})",
                                 R"({"choice": "a"})",
                                 R"({"grammar": {}})",
                                 R"({"regex": "a", "choice": ["a"]})",
                                 R"({"xml": "a"})"};
  for (const char* text : outputs) {
    const Read read = structured(text);
    ASSERT_TRUE(read.error) << text;
    EXPECT_EQ(read.error->status, 400);
    EXPECT_TRUE(read.error->param.starts_with("structured_outputs")) << read.error->param;
  }
}

}  // namespace
}  // namespace encore::server
