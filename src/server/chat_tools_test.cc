// Tests reasoning and tool calls in the chat API.
#include <boost/json/serialize.hpp>

#include "server/testing/api_fixture.h"

namespace encore::server {
namespace {

constexpr const char* kChatTools = R"("tools": [
    {"type": "function", "function": {"name": "get_weather", "description": "Says it", "strict": true,
     "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}},
    {"type": "function", "function": {"name": "now"}}])";
constexpr const char* kQuestion = R"("messages": [{"role": "user", "content": "Rain in Paris?"}])";
constexpr const char* kChatAnswer =
    "<think>\nI must look.\n</think>\n\nOne moment.\n<tool_call>\n"
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n<tool_call>\n"
    "{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

class ChatToolsTest : public testing::ApiTest {
 protected:
  void SetUp() override { start_with_tools(); }
  std::shared_ptr<testing::Exchange> chat(const std::string& more = "") {
    return send("POST", "/v1/chat/completions",
                fmt::format("{{{}, {}{}}}", kQuestion, kChatTools, more));
  }
  std::string prompt(size_t request = 0) {
    return tokenizer_.decode(generator_.requests.at(request).prompt, false);
  }
  void expect_refused(const std::string& more, std::string_view param, std::string_view code) {
    const auto exchange = chat(more);
    EXPECT_EQ(exchange->status, 400) << more;
    EXPECT_EQ(error(parsed(*exchange)).at("param"), json::value(param)) << exchange->body;
    EXPECT_EQ(error(parsed(*exchange)).at("code"), json::value(code)) << exchange->body;
  }
};

TEST_F(ChatToolsTest, AWholeAnswerHasReasoningContentAndCalls) {
  const auto exchange = chat();
  EXPECT_NE(prompt().find(R"({"type": "function", "function": {"name": "get_weather", )"
                          R"("description": "Says it", "parameters": {"type": "object")"),
            std::string::npos)
      << prompt();
  EXPECT_EQ(prompt().find("strict"), std::string::npos);
  answer(1, kChatAnswer);
  const json::value body = parsed(*exchange);
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  const json::value& message = choice.at("message");
  EXPECT_EQ(message.at("reasoning_content"), "I must look.");
  EXPECT_EQ(message.at("content"), "One moment.");
  const json::array& calls = message.at("tool_calls").as_array();
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].at("type"), "function");
  EXPECT_TRUE(calls[0].at("id").as_string().starts_with("call_"));
  EXPECT_NE(calls[0].at("id"), calls[1].at("id"));
  EXPECT_EQ(calls[0].at("function").at("name"), "get_weather");
  EXPECT_EQ(calls[0].at("function").at("arguments"), R"({"city": "Paris"})");
  EXPECT_EQ(calls[1].at("function").at("arguments"), "{}");
  const auto reasoning =
      body.at("usage").at("completion_tokens_details").at("reasoning_tokens").to_number<int64_t>();
  EXPECT_GE(reasoning, std::ssize(ids("I must look.")));
  EXPECT_LT(reasoning, body.at("usage").at("completion_tokens").to_number<int64_t>() / 2);
}

TEST_F(ChatToolsTest, LogProbabilitiesAreOfTheContentsTokensAndNoOthers) {
  for (const std::string answer : {"<think>\nI must.\n</think>\n\n\U0001F600 Yes.", "<thin air",
                                   "<th", "<think>Hm.</think>", "<think>Hm.</thi", "So.", ""}) {
    for (const char* streams : {"false", "true"}) {
      const auto exchange =
          send("POST", "/v1/chat/completions",
               fmt::format(R"({{{}, "logprobs": true, "stream": {}}})", kQuestion, streams));
      const auto id = static_cast<engine::RequestId>(generator_.requests.size());
      for (const int32_t token : ids(answer))
        generator_.give(id, {token}, {LogprobRow{.logprob = -1, .rank = 1, .top = {}}});
      generator_.end(id, engine::EndReason::kStop, {*tokenizer_.eos_id()});
      pump();
      std::string content;
      std::string bytes;
      const auto add = [&](const json::value& choice, const char* message) {
        const json::object& part = choice.at(message).as_object();
        if (part.contains("content") && part.at("content").is_string())
          content += part.at("content").as_string();
        if (choice.at("logprobs").is_null()) return;
        for (const json::value& token : choice.at("logprobs").at("content").as_array()) {
          for (const json::value& byte : token.at("bytes").as_array())
            bytes += static_cast<char>(byte.to_number<int>());
        }
      };
      if (*streams == 'f')
        add(parsed(*exchange).at("choices").at(0), "message");
      else
        for (const json::value& event : events(*exchange))
          add(event.at("choices").at(0), "delta");
      EXPECT_EQ(bytes, content) << answer;
    }
  }
}

TEST_F(ChatToolsTest, TheDeltasOfAStreamJoinToTheWholeAnswer) {
  const auto exchange = chat(R"(, "stream": true)");
  answer(1, kChatAnswer);
  std::string reasoning;
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;
  std::vector<std::string> ids;
  const auto all = events(*exchange);
  for (const json::value& event : all) {
    const json::object& delta = event.at("choices").at(0).at("delta").as_object();
    if (const auto* text = delta.if_contains("reasoning_content")) reasoning += text->as_string();
    if (const auto* text = delta.if_contains("content")) content += text->as_string();
    if (!delta.contains("tool_calls")) continue;
    const json::value& call = delta.at("tool_calls").at(0);
    const auto index = call.at("index").to_number<size_t>();
    if (call.as_object().contains("id")) {
      ASSERT_EQ(index, calls.size());
      ids.emplace_back(call.at("id").as_string());
      calls.emplace_back(call.at("function").at("name").as_string(), "");
    }
    ASSERT_EQ(index, calls.size() - 1);
    calls[index].second += call.at("function").at("arguments").as_string();
  }
  EXPECT_EQ(reasoning, "I must look.");
  EXPECT_EQ(content, "One moment.");
  using Calls = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(calls, (Calls{{"get_weather", R"({"city": "Paris"})"}, {"now", "{}"}}));
  EXPECT_EQ(ids.size(), 2U);
  EXPECT_EQ(all.back().at("choices").at(0).at("finish_reason"), "tool_calls");
  EXPECT_GT(all.size(), 15U);  // the stream sends the text as it is generated
}

TEST_F(ChatToolsTest, AnAnswerThatIsAllReasoningOrCallsHasNoContent) {
  const auto first = chat();
  answer(1, "<think>\nI am cut o");
  EXPECT_TRUE(parsed(*first).at("choices").at(0).at("message").at("content").is_null());
  const auto second = chat();
  answer(2, "<tool_call>{\"name\": \"now\"}</tool_call>");
  EXPECT_TRUE(parsed(*second).at("choices").at(0).at("message").at("content").is_null());
  const auto third = chat(R"(, "max_tokens": 500)");
  generator_.end(3, engine::EndReason::kLength, ids("<tool_call>{\"name\": \"now\"}</tool_call>"));
  pump();
  EXPECT_EQ(parsed(*third).at("choices").at(0).at("finish_reason"), "length");
}

TEST_F(ChatToolsTest, WithoutToolsOrWithChoiceNoneACallIsText) {
  const auto exchange = chat(R"(, "tool_choice": "none", "parallel_tool_calls": false)");
  EXPECT_EQ(prompt().find("get_weather"), std::string::npos);
  const std::string call = "<tool_call>{\"name\": \"now\"}</tool_call>";
  answer(1, call);
  EXPECT_EQ(parsed(*exchange).at("choices").at(0).at("message").at("content"), json::value(call));
  EXPECT_EQ(parsed(*exchange).at("choices").at(0).at("finish_reason"), "stop");
}

TEST_F(ChatToolsTest, OneCallEndsTheAnswerUnlessCallsMayBeParallel) {
  const auto exchange = chat(R"(, "parallel_tool_calls": false)");
  for (const int32_t token : ids(kChatAnswer))
    generator_.give(1, {token});
  pump();
  EXPECT_EQ(generator_.aborted, std::vector<engine::RequestId>{1});
  const json::value choice = parsed(*exchange).at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("tool_calls").as_array().size(), 1U);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_LT(parsed(*exchange).at("usage").at("completion_tokens").to_number<int64_t>(),
            std::ssize(ids(kChatAnswer)));
}

TEST_F(ChatToolsTest, EarlierCallsReachTheTemplateAsObjects) {
  const auto exchange = send("POST", "/v1/chat/completions", R"({"messages": [
      {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
      {"role": "user", "content": "Rain?"},
      {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "now", "arguments": "{\"zone\": [1,  2]}"}},
        {"id": "2", "type": "function", "function": {"name": "now", "arguments": ""}},
        {"id": "3", "type": "function", "function": {"name": "now", "arguments": "no JSON"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "12:00"}]})");
  ASSERT_EQ(exchange->status, 0) << exchange->body;
  EXPECT_NE(prompt().find("<|im_start|>system\nBe\nbrief.<|im_end|>"), std::string::npos);
  EXPECT_NE(prompt().find("<think>\nHm.\n</think>"), std::string::npos) << prompt();
  EXPECT_NE(prompt().find(R"({"name": "now", "arguments": {"zone": [1, 2]}})"), std::string::npos);
  EXPECT_NE(prompt().find(R"({"name": "now", "arguments": {}})"), std::string::npos);
  EXPECT_NE(prompt().find(R"({"name": "now", "arguments": no JSON})"), std::string::npos);
  EXPECT_NE(prompt().find("<tool_response>\n12:00\n</tool_response>"), std::string::npos);
}

TEST_F(ChatToolsTest, APromptThatOpensTheReasoningPutsTheAnswerWithinIt) {
  start_with_tools("Qwen-QwQ-32B");
  const auto exchange = send(
      "POST", "/v1/chat/completions",
      fmt::format(R"({{{}, "chat_template_kwargs": {{"enable_thinking": true}}}})", kQuestion));
  ASSERT_TRUE(prompt().ends_with("<think>\n")) << prompt();
  answer(1, "Hm.\n</think>\n\nYes.");
  const json::value message = parsed(*exchange).at("choices").at(0).at("message");
  EXPECT_EQ(message.at("reasoning_content"), "Hm.");
  EXPECT_EQ(message.at("content"), "Yes.");
}

TEST_F(ChatToolsTest, LlamaCallsAreFoundByTheNamesOfTheTools) {
  start_with_tools("meta-llama-Llama-3.1-8B-Instruct");
  const auto exchange = chat();
  answer(1, R"({"name": "get_weather", "parameters": {"city": "Paris"}})");
  const json::value choice = parsed(*exchange).at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_EQ(choice.at("message").at("tool_calls").at(0).at("function").at("arguments"),
            R"({"city": "Paris"})");
  const auto other = chat();
  answer(2, R"({"name": "Ann", "parameters": {}})");
  EXPECT_EQ(parsed(*other).at("choices").at(0).at("message").at("content"),
            R"({"name": "Ann", "parameters": {}})");
}

TEST_F(ChatToolsTest, MistralTemplatesGetTheirShortIdsOfCalls) {
  start_with_tools("mistralai-Mistral-Nemo-Instruct-2407");
  const auto first = chat();
  answer(1, R"([TOOL_CALLS] [{"name": "now", "arguments": {"zone": 1}}])");
  const json::value message = parsed(*first).at("choices").at(0).at("message");
  ASSERT_EQ(message.at("tool_calls").at(0).at("function").at("arguments"), R"({"zone": 1})");
  const json::value& id = message.at("tool_calls").at(0).at("id");
  const auto second = send(
      "POST", "/v1/chat/completions",
      fmt::format(R"({{"messages": [{{"role": "user", "content": "Rain?"}}, {}, {{"role": "tool",
                       "content": "12:00", "tool_call_id": {}}}], {}}})",
                  boost::json::serialize(message), boost::json::serialize(id), kChatTools));
  ASSERT_EQ(generator_.requests.size(), 2U) << second->body;
  const std::string text = prompt(1);
  const size_t at = text.find(R"(, "id": ")");
  ASSERT_NE(at, std::string::npos) << text;
  const std::string short_id = text.substr(at + 9, 9);
  EXPECT_NE(text.find(fmt::format(R"("id": "{}"}}])", short_id)), std::string::npos) << text;
  EXPECT_NE(text.find(fmt::format(R"("call_id": "{}")", short_id)), std::string::npos) << text;
}

TEST_F(ChatToolsTest, AMarkerThatIsASpecialTokenIsSeenWhereThereAreTools) {
  json::value file = json::parse_file(bundled_model() / "tokenizer.json");
  json::array& added = file.at("added_tokens").as_array();
  json::value token = added.back();
  token.at("id") = 2048;
  token.at("content") = "<|python_tag|>";
  added.push_back(token);
  const TempDir dir;
  dir.write("tokenizer.json", json::to_text(file));
  std::filesystem::copy(bundled_model() / "tokenizer_config.json",
                        dir.path() / "tokenizer_config.json");
  tokenizer_ = text::Tokenizer::load(dir.path());
  ASSERT_TRUE(tokenizer_.is_special(2048));
  start_with_tools("meta-llama-Llama-3.1-8B-Instruct");
  const auto with = chat();
  const auto without = chat(R"(, "tool_choice": "none")");
  const std::string call = R"({"name": "now", "parameters": {}})";
  for (const engine::RequestId id : {1, 2})
    answer(id, "Look: <|python_tag|>" + call);
  const json::value message = parsed(*with).at("choices").at(0).at("message");
  EXPECT_EQ(message.at("content"), "Look:");
  EXPECT_EQ(message.at("tool_calls").at(0).at("function").at("name"), "now");
  EXPECT_EQ(parsed(*without).at("choices").at(0).at("message").at("content"),
            json::value("Look: " + call));
}

TEST_F(ChatToolsTest, RefusesChoicesThatAreNone) {
  expect_refused(R"(, "tool_choice": {"type": "function", "function": {"name": "never"}})",
                 "tool_choice", "invalid_value");
  expect_refused(R"(, "tool_choice": {"type": "function"})", "tool_choice", "invalid_type");
  expect_refused(R"(, "tool_choice": "sometimes")", "tool_choice", "invalid_type");
  expect_refused(R"(, "tool_choice": "required", "min_tokens": 3)", "min_tokens", "invalid_value");
  expect_refused(R"(, "tool_choice": "required", "response_format": {"type": "json_object"})",
                 "response_format", "invalid_value");
  expect_refused(R"(, "functions": [{"name": "now"}])", "functions", "unsupported_parameter");
  expect_refused(R"(, "function_call": {"name": "now"})", "function_call", "unsupported_parameter");
  EXPECT_TRUE(generator_.requests.empty());
}

TEST_F(ChatToolsTest, TakesTheOlderFormsThatChangeNothing) {
  for (const char* const call : {"\"none\"", "\"auto\"", "null"}) {
    const auto exchange = send("POST", "/v1/chat/completions",
                               fmt::format(R"({{"messages": [{{"role": "user", "content": "x"}}],
                                   "functions": [], "function_call": {}}})",
                                           call));
    EXPECT_EQ(exchange->status, 0) << exchange->body;
  }
  EXPECT_EQ(generator_.requests.size(), 3U);
}

TEST_F(ChatToolsTest, RefusesToolsAndCallsThatAreNone) {
  const auto refused = [&](const std::string& body, std::string_view param) {
    const auto exchange = send("POST", "/v1/chat/completions", body);
    EXPECT_EQ(exchange->status, 400) << body;
    EXPECT_EQ(error(parsed(*exchange)).at("param"), json::value(param)) << exchange->body;
  };
  for (
      const char* tools :
      {"[1]", "[{}]", R"([{"type": ""}])", R"([{"type": "function", "function": {}}])",
       R"([{"type": "function", "function": {"name": "a b"}}])",
       R"([{"type": "function", "function": {"name": "a", "parameters": []}}])",
       R"([{"type": "function", "function": {"name": "a", "description": 5}}])",
       R"([{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "a"}}])"})
    refused(fmt::format(R"({{{}, "tools": {}}})", kQuestion, tools), "tools");
  for (const char* calls : {"5", "[5]", "[{}]", R"([{"function": {"name": 5}}])",
                            R"([{"function": {"name": "a", "arguments": 5}}])"})
    refused(fmt::format(R"({{"messages": [{{"role": "assistant", "tool_calls": {}}}]}})", calls),
            "messages");
}

}  // namespace
}  // namespace encore::server
