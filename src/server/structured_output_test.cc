// Tests requests whose answers are constrained by a grammar, up to the point where the engine
// receives them.
#include "server/answer_grammars.h"
#include "server/testing/api_fixture.h"

namespace encore::server {
namespace {

using testing::ApiTest;
using testing::Exchange;

class StructuredOutputTest : public ApiTest {
 protected:
  // Sends a request and waits until its grammar has been compiled. Returns its answer.
  std::shared_ptr<Exchange> send_held(const std::string& path, const std::string& body) {
    auto exchange = send("POST", path, body);
    wait_and_pump();
    return exchange;
  }
  const engine::Request& submitted() { return generator_.requests.back(); }

  // Returns a text that the grammar allows: at each step it takes the first allowed token.
  std::string walk(const sample::TokenGrammar& grammar, int64_t max_tokens) {
    const auto matcher = grammar.start();
    std::vector<uint32_t> mask(static_cast<size_t>((tokenizer_.vocab_size() + 31) / 32));
    std::vector<int32_t> ids;
    while (std::ssize(ids) < max_tokens && !matcher->has_ended()) {
      matcher->fill(mask);
      int32_t token = 0;
      while ((mask[token / 32] >> (token % 32) & 1U) == 0)
        ++token;
      EXPECT_TRUE(matcher->accept(token));
      ids.push_back(token);
    }
    if (matcher->has_ended()) ids.pop_back();
    return tokenizer_.decode(ids);
  }
};

TEST_F(StructuredOutputTest, GivesTheEngineAGrammarOfTheFormat) {
  const std::pair<std::string, std::string> requests[] = {
      {"/v1/completions", R"({"prompt": "a", "structured_outputs": {"choice": ["yes"]}})"},
      {"/v1/completions", R"({"prompt": "a", "structured_outputs": {"regex": "yes"}})"},
      {"/v1/completions",
       R"({"prompt": "a", "structured_outputs": {"grammar": "root ::= \"yes\""}})"},
      {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}],
        "structured_outputs": {"choice": ["yes"]}})"},
      {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}],
        "response_format": {"type": "json_schema",
                            "json_schema": {"name": "n", "schema": {"const": "yes"}}}})"},
      {"/v1/responses", R"({"input": "a", "text": {"format":
        {"type": "json_schema", "name": "n", "schema": {"const": "yes"}}}})"}};
  for (const auto& [path, body] : requests) {
    const auto exchange = send_held(path, body);
    ASSERT_TRUE(exchange->body.empty()) << exchange->body;
    ASSERT_NE(submitted().grammar, nullptr);
    const std::string text = walk(*submitted().grammar, 20);
    EXPECT_TRUE(text == "yes" || text == "\"yes\"") << text;
  }
}

TEST_F(StructuredOutputTest, GivesTheChoicesOfARequestOneGrammar) {
  (void)send_held("/v1/completions",
                  R"({"prompt": "a", "n": 3, "structured_outputs": {"choice": ["a", "b"]}})");
  ASSERT_EQ(generator_.requests.size(), 3U);
  for (const engine::Request& request : generator_.requests)
    EXPECT_EQ(request.grammar, submitted().grammar);
}

TEST_F(StructuredOutputTest, TellsAClientWhatIsWrongWithItsGrammar) {
  const auto refused = [&](const std::string& members) {
    const auto exchange = send("POST", "/v1/completions", R"({"prompt": "a", )" + members + "}");
    if (exchange->body.empty()) wait_and_pump();
    EXPECT_EQ(exchange->status, 400) << members;
    return std::string(error(parsed(*exchange)).at("param").as_string());
  };
  EXPECT_EQ(refused(R"("structured_outputs": {"regex": "(("})"), "structured_outputs.regex");
  EXPECT_EQ(refused(R"("structured_outputs": {"json": "no JSON"})"), "structured_outputs.json");
  EXPECT_EQ(refused(R"("structured_outputs": {"grammar": "leaf ::= "})"),
            "structured_outputs.grammar");
  EXPECT_EQ(refused(R"("response_format": {"type": "json_object"}, "min_tokens": 2)"),
            "min_tokens");
  EXPECT_EQ(refused(R"("response_format": {"type": "json_object"},
                       "structured_outputs": {"regex": "a"})"),
            "structured_outputs");
  EXPECT_TRUE(generator_.live.empty());
}

TEST_F(StructuredOutputTest, LeavesReasoningAlone) {
  start_with_tools();
  (void)send_held("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}],
    "structured_outputs": {"choice": ["yes"]}})");
  ASSERT_NE(submitted().grammar, nullptr);
  EXPECT_EQ(walk(*submitted().grammar, 20), "yes") << "this vocabulary has no token <think>";
}

TEST_F(StructuredOutputTest, HoldsRequiredCallsToTheToolsAndTheirSchemas) {
  start_with_tools();
  const std::string messages = R"("messages": [{"role": "user", "content": "a"}])";
  const std::string schema =
      R"({"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"]})";
  const std::string now = R"({"type": "object", "properties": {}})";
  const auto function = [](std::string_view name, std::string_view key, const std::string& more) {
    return fmt::format(R"({{"type": "function", "name": "{}", "{}": {}}})", name, key, more);
  };
  const auto wrapped = [](std::string_view name, const std::string& parameters) {
    return fmt::format(R"({{"type": "function", "function": {{"name": "{}", "parameters": {}}}}})",
                       name, parameters);
  };
  const std::string in_messages =
      fmt::format(R"("max_tokens": 90, {}, "tools": [{{"name": "rain", "input_schema": {}}}])",
                  messages, schema);
  const std::pair<std::string, std::string> requests[] = {
      {"/v1/chat/completions",
       fmt::format(R"({}, "tools": [{}], "parallel_tool_calls": false, "tool_choice": "required")",
                   messages, wrapped("rain", schema))},
      {"/v1/chat/completions",
       fmt::format(R"({}, "tools": [{}, {}], "tool_choice": {})", messages, wrapped("now", now),
                   wrapped("rain", schema),
                   R"({"type": "function", "function": {"name": "rain"}})")},
      {"/v1/responses",
       fmt::format(R"("input": "a", "tools": [{}, {}], "tool_choice": {})",
                   function("now", "parameters", now), function("rain", "parameters", schema),
                   R"({"type": "function", "name": "rain"})")},
      {"/v1/messages", in_messages + R"(, "tool_choice": {"type": "tool", "name": "rain"})"},
      {"/v1/messages", in_messages + R"(, "tool_choice": {"type": "any",
                                                          "disable_parallel_tool_use": true})"}};
  for (const auto& [path, body] : requests) {
    const auto exchange = send_held(path, fmt::format("{{{}}}", body));
    ASSERT_TRUE(exchange->body.empty()) << exchange->body;
    ASSERT_NE(submitted().grammar, nullptr) << body;
    const std::string text = walk(*submitted().grammar, 200);
    text::AnswerParser parser(
        {.tool_calls = text::ToolCallFormat::kHermes, .tools = {"now", "rain"}});
    text::AnswerParts parts = parser.push(text);
    ASSERT_EQ(parts.size(), 2U) << text;
    EXPECT_EQ(parts[0], (text::AnswerPart{text::AnswerPart::Kind::kCall, "rain"}));
    EXPECT_EQ(json::parse(parts[1].text, "arguments"), (json::value{{"city", "Paris"}})) << text;
    EXPECT_EQ(parser.finish(), text::AnswerParts{});
  }
}

TEST_F(StructuredOutputTest, NamesTheToolWhoseSchemaCannotBeHeld) {
  start_with_tools();
  const auto exchange = send_held("/v1/chat/completions",
                                  R"({"messages": [{"role": "user", "content": "a"}],
    "tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f",
    "parameters": {"type": "object", "properties": {"a": {"type": "string", "pattern": "(("}}}}}]})");
  EXPECT_EQ(exchange->status, 400);
  EXPECT_EQ(error(parsed(*exchange)).at("param"), "tool_choice");
}

TEST_F(StructuredOutputTest, TakesNoToolsBesideAFormat) {
  start_with_tools();
  const auto exchange = send("POST", "/v1/chat/completions",
                             R"({"messages": [{"role": "user", "content": "a"}],
    "response_format": {"type": "json_object"},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]})");
  EXPECT_EQ(exchange->status, 400);
  EXPECT_EQ(error(parsed(*exchange)).at("param"), "response_format");
}

TEST_F(StructuredOutputTest, SaysWhatModelCannotHoldItsAnswers) {
  const AnswerFormat format{{.kind = grammar::SourceKind::kRegex, .text = "a+"}, "regex"};
  ServedModel model;
  AnswerGrammars without_tokenizer(model);
  const auto none = without_tokenizer.compile(format, {});
  ASSERT_TRUE(std::holds_alternative<ApiError>(none));
  EXPECT_EQ(std::get<ApiError>(none).code, "unsupported_parameter");
  EXPECT_NE(std::get<ApiError>(none).message.find("no tokenizer"), std::string::npos);

  // The vocabulary of the stories model has no token </think>.
  model.tokenizer = &tokenizer_;
  model.vocab_size = tokenizer_.vocab_size();
  model.end_tokens = {*tokenizer_.eos_id()};
  AnswerGrammars grammars(model);
  const auto may_fit = [&](const text::AnswerRules& rules) {
    const auto compiled = grammars.compile(format, rules);
    return !std::holds_alternative<ApiError>(compiled);
  };
  EXPECT_TRUE(may_fit({}));
  EXPECT_TRUE(may_fit({.has_reasoning = true}));
  EXPECT_FALSE(may_fit({.has_reasoning = true, .starts_in_reasoning = true}));
}

TEST_F(StructuredOutputTest, AGrammarThatFailsIsTheRequestsFault) {
  const auto exchange =
      send_held("/v1/completions", R"({"prompt": "a", "structured_outputs": {"choice": ["a"]}})");
  generator_.end(1, engine::EndReason::kGrammar, {}, "no token fits");
  pump();
  EXPECT_EQ(exchange->status, 400);
  EXPECT_EQ(error(parsed(*exchange)).at("code"), "grammar_failed");
}

}  // namespace
}  // namespace encore::server
