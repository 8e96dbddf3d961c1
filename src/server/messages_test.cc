#include "server/messages.h"

#include <boost/json/serialize.hpp>

#include "server/testing/api_fixture.h"

namespace encore::server {
namespace {

constexpr const char* kConversation =
    R"("messages": [{"role": "user", "content": "Rain in Paris?"}], "max_tokens": 2000)";
constexpr const char* kMessageTools = R"("tools": [
    {"name": "get_weather", "description": "Says it", "input_schema":
      {"type": "object", "properties": {"city": {"type": "string"}}}},
    {"type": "custom", "name": "now", "input_schema": {"type": "object"}}])";
constexpr const char* kMessageAnswer =
    "<think>\nI must look.\n</think>\n\nOne moment.\n<tool_call>\n"
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n<tool_call>\n"
    "{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

class MessagesTest : public testing::ApiTest {
 protected:
  void SetUp() override { start_with_tools(); }
  std::shared_ptr<testing::Exchange> ask(const std::string& more = "", Headers headers = {}) {
    return send("POST", "/v1/messages",
                fmt::format("{{{}, {}{}}}", kConversation, kMessageTools, more),
                std::move(headers));
  }
  std::string prompt(size_t request = 0) {
    return tokenizer_.decode(generator_.requests.at(request).prompt, false);
  }
  // Sends a request with only these parameters, which must be refused. Returns the error's message.
  std::string refused(const std::string& parameters, int status = 400,
                      std::string_view type = "invalid_request_error") {
    const auto exchange = send("POST", "/v1/messages", "{" + parameters + "}");
    EXPECT_EQ(exchange->status, status) << parameters << exchange->body;
    const json::value body = parsed(*exchange);
    EXPECT_EQ(body.at("type"), "error");
    EXPECT_EQ(error(body).at("type"), json::value(type)) << exchange->body;
    return std::string(error(body).at("message").as_string());
  }
};

TEST_F(MessagesTest, AWholeAnswerIsAMessageOfBlocks) {
  const auto exchange = ask(R"(, "system": [{"type": "text", "text": "Be brief."}])");
  EXPECT_TRUE(prompt().starts_with("<|im_start|>system\nBe brief.\n\n# Tools")) << prompt();
  EXPECT_NE(prompt().find(R"({"name": "get_weather", "description": "Says it", "parameters")"),
            std::string::npos);
  EXPECT_EQ(generator_.requests[0].max_tokens, 2000);
  answer(1, kMessageAnswer);
  const json::value body = parsed(*exchange);
  EXPECT_EQ(body.at("type"), "message");
  EXPECT_EQ(body.at("role"), "assistant");
  EXPECT_TRUE(body.at("id").as_string().starts_with("msg_"));
  EXPECT_EQ(body.at("stop_reason"), "tool_use");
  EXPECT_TRUE(body.at("stop_sequence").is_null());
  const json::array& blocks = body.at("content").as_array();
  ASSERT_EQ(blocks.size(), 4U);
  EXPECT_EQ(blocks[0].at("thinking"), "I must look.");
  EXPECT_EQ(blocks[1].at("text"), "One moment.");
  EXPECT_EQ(blocks[2].at("type"), "tool_use");
  EXPECT_EQ(blocks[2].at("name"), "get_weather");
  EXPECT_EQ(blocks[2].at("input"), json::parse(R"({"city": "Paris"})", ""));
  EXPECT_EQ(blocks[3].at("input"), json::object());
  EXPECT_NE(blocks[2].at("id"), blocks[3].at("id"));
  EXPECT_EQ(body.at("usage").at("input_tokens"), generator_.requests[0].prompt.size());
  EXPECT_EQ(body.at("usage").at("output_tokens"), ids(kMessageAnswer).size() + 1);
}

TEST_F(MessagesTest, AStreamOpensAndClosesEachBlockInTurn) {
  const auto exchange = ask(R"(, "stream": true)");
  answer(1, kMessageAnswer);
  const auto all = typed_events(*exchange);
  std::string order;  // one letter for each event; successive deltas count once
  std::vector<std::string> blocks;
  for (const json::value& event : all) {
    const std::string type(event.at("type").as_string());
    if (type == "content_block_start") {
      EXPECT_EQ(event.at("index"), blocks.size());
      blocks.emplace_back();
    }
    if (type == "content_block_delta") {
      EXPECT_EQ(event.at("index"), blocks.size() - 1);
      for (const auto& [key, value] : event.at("delta").as_object())
        if (key != "type") blocks.back() += value.as_string();
    }
    const char letter = type == "content_block_start"   ? '('
                        : type == "content_block_delta" ? '.'
                        : type == "content_block_stop"  ? ')'
                        : type == "message_start"       ? '['
                        : type == "message_delta"       ? '!'
                        : type == "message_stop"        ? ']'
                                                        : '?';
    if (letter != '.' || !order.ends_with('.')) order += letter;
  }
  EXPECT_EQ(order, "[(.)(.)(.)(.)!]");
  EXPECT_EQ(blocks, (std::vector<std::string>{"I must look.", "One moment.", R"({"city": "Paris"})",
                                              "{}"}));
  const json::value& message = all.front().at("message");
  EXPECT_TRUE(message.at("content").as_array().empty());
  EXPECT_TRUE(message.at("stop_reason").is_null());
  EXPECT_EQ(message.at("usage").at("input_tokens"), generator_.requests[0].prompt.size());
  const json::value& delta = all.at(all.size() - 2);
  EXPECT_EQ(delta.at("delta").at("stop_reason"), "tool_use");
  EXPECT_EQ(delta.at("usage").at("output_tokens"), ids(kMessageAnswer).size() + 1);
}

TEST_F(MessagesTest, SaysWhyTheAnswerEnded) {
  const auto reason = [&](const std::string& more, engine::EndReason end) {
    const auto exchange = ask(more);
    const engine::RequestId id = std::ssize(generator_.requests);
    generator_.end(id, end, ids("It rains. STOP here"));
    pump();
    const json::value body = parsed(*exchange);
    return std::pair(body.at("stop_reason"), body.at("stop_sequence"));
  };
  EXPECT_EQ(reason("", engine::EndReason::kStop),
            std::pair(json::value("end_turn"), json::value()));
  EXPECT_EQ(reason("", engine::EndReason::kLength),
            std::pair(json::value("max_tokens"), json::value()));
  EXPECT_EQ(reason(R"(, "stop_sequences": ["STOP"])", engine::EndReason::kStop),
            std::pair(json::value("stop_sequence"), json::value("STOP")));
}

TEST_F(MessagesTest, BlocksOfEarlierMessagesReachTheTemplate) {
  send("POST", "/v1/messages", R"({"max_tokens": 9, "thinking": {"type": "disabled"}, "messages": [
      {"role": "user", "content": [{"type": "text", "text": "Rain?"}, {"type": "text", "text": "Now?"}]},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "a", "name": "now", "input": {"zone": 1}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "a", "is_error": false,
         "content": [{"type": "text", "text": "12:00"}]},
        {"type": "tool_result", "tool_use_id": "b"},
        {"type": "text", "text": "So?", "cache_control": {"type": "ephemeral"}}]}]})");
  ASSERT_EQ(generator_.requests.size(), 1U);
  EXPECT_EQ(
      prompt(),
      "<|im_start|>user\nRain?\nNow?<|im_end|>\n"
      "<|im_start|>assistant\nI look.\n"
      "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": 1}}\n</tool_call><|im_end|>\n"
      "<|im_start|>user\n<tool_response>\n12:00\n</tool_response>\n"
      "<tool_response>\n\n</tool_response><|im_end|>\n"
      "<|im_start|>user\nSo?<|im_end|>\n"
      "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST_F(MessagesTest, TheAnswerGoesOnFromALastMessageOfTheAssistant) {
  const auto exchange = send("POST", "/v1/messages", R"({"max_tokens": 9, "messages": [
      {"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "It is"}]})");
  ASSERT_EQ(generator_.requests.size(), 1U) << exchange->body;
  EXPECT_TRUE(prompt().ends_with("It is")) << prompt();
  answer(1, " dry.");
  EXPECT_EQ(parsed(*exchange).at("content").at(0).at("text"), " dry.");
}

TEST_F(MessagesTest, OneCallEndsTheAnswerWhereParallelOnesAreDisabled) {
  const auto exchange =
      ask(R"(, "tool_choice": {"type": "auto", "disable_parallel_tool_use": true})");
  for (const int32_t token : ids(kMessageAnswer))
    generator_.give(1, {token});
  pump();
  EXPECT_EQ(parsed(*exchange).at("content").as_array().size(), 3U);
  EXPECT_EQ(generator_.aborted.size(), 1U);
  ask(R"(, "tool_choice": {"type": "none"})");
  EXPECT_EQ(prompt(1).find("get_weather"), std::string::npos);
}

TEST_F(MessagesTest, ArgumentsThatAreNoJsonAreKeptInAnObject) {
  const auto exchange = ask();
  answer(1, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": oops}}</tool_call>");
  EXPECT_EQ(parsed(*exchange).at("content").at(0).at("input").at("INVALID_JSON"), "{\"a\": oops}}");
}

TEST_F(MessagesTest, CountsTheTokensOfThePrompt) {
  ask();
  const auto exchange =
      send("POST", "/v1/messages/count_tokens",
           fmt::format(R"({{"messages": [{{"role": "user", "content": "Rain in Paris?"}}], {}}})",
                       kMessageTools));
  EXPECT_EQ(parsed(*exchange).at("input_tokens"), generator_.requests.at(0).prompt.size());
  EXPECT_EQ(generator_.requests.size(), 1U);
}

TEST_F(MessagesTest, RefusesInTheShapeOfItsProtocol) {
  const std::string hello = R"("messages": [{"role": "user", "content": "Hello"}])";
  EXPECT_NE(refused(hello).find("max_tokens"), std::string::npos);
  EXPECT_NE(refused(R"("max_tokens": 5)").find("messages"), std::string::npos);
  const auto names = [&](const std::string& more, std::string_view name) {
    EXPECT_NE(refused(fmt::format(R"({}, "max_tokens": 5, {})", hello, more)).find(name),
              std::string::npos)
        << more;
  };
  names(R"("temprature": 1)", "temprature");
  names(R"("n": 2)", "\"n\"");
  names(R"("tool_choice": {"type": "any"})", "there are no tools");
  names(R"("tool_choice": {"type": "tool"})", "tool with a name");
  names(R"("tools": [{"type": 5, "name": "web_search"}])", "tools[0]");
  names(R"("tools": [{"name": "a", "input_schema": 5}])", "tools[0]");
  names(R"("system": 5)", "system");
  names(R"("system": [{"type": "image"}])", "system");
  names(R"("thinking": {"type": "often"})", "thinking");
  names(R"("output_config": {"format": {}})", "output_config.format");
  names(R"("output_config": {"effort": 5})", "output_config");
  names(R"("mcp_servers": [{}])", "mcp_servers");
  names(R"("stop_sequences": [""])", "stop");
  names(R"("model": 5)", "model");
  refused(hello + R"(, "max_tokens": 5, "model": "other")", 404, "not_found_error");
  generator_.refusal = engine::Refusal{engine::RefusalKind::kQueueFull, "full"};
  refused(hello + R"(, "max_tokens": 5)", 429, "rate_limit_error");
  generator_.refusal = engine::Refusal{engine::RefusalKind::kDraining, "ending"};
  refused(hello + R"(, "max_tokens": 5)", 503, "overloaded_error");
  EXPECT_EQ(parsed(*send("GET", "/v1/messages")).at("type"), "error");
}

TEST_F(MessagesTest, LetsTheSystemSpeakBetweenTheOthers) {
  const auto exchange = send("POST", "/v1/messages", R"({"max_tokens": 5, "system": "Be brief.",
      "messages": [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"},
      {"role": "system", "content": [{"type": "text", "text": "Skills: none"}]},
      {"role": "user", "content": "Three"}]})");
  ASSERT_EQ(generator_.requests.size(), 1U) << exchange->body;
  EXPECT_NE(prompt().find("<|im_start|>system\nSkills: none<|im_end|>"), std::string::npos)
      << prompt();
}

TEST_F(MessagesTest, MakesLateWordsOfTheSystemTheUsersWhereTheTemplateTakesThemFirstAlone) {
  start_with_tools("Qwen3.5-4B");
  const auto exchange = send("POST", "/v1/messages", R"({"max_tokens": 5, "system": "Be brief.",
      "messages": [{"role": "system", "content": "In French."}, {"role": "user", "content": "One"},
      {"role": "system", "content": "Skills: none"}, {"role": "user", "content": "Two"},
      {"role": "user", "content": "Three"}]})");
  ASSERT_EQ(generator_.requests.size(), 1U) << exchange->body;
  EXPECT_NE(prompt().find("Be brief.\n\nIn French.<|im_end|>"), std::string::npos) << prompt();
  EXPECT_NE(prompt().find("<|im_start|>user\nOne\n\nSkills: none\n\nTwo\n\nThree<|im_end|>"),
            std::string::npos)
      << prompt();
}

TEST_F(MessagesTest, TakesWhatClaudeCodeAsksFor) {
  const auto exchange = ask(R"(, "context_management": {"edits": [
      {"type": "clear_thinking_20251015", "keep": "all"}]}, "thinking": {"type": "adaptive"})");
  EXPECT_EQ(generator_.requests.size(), 1U) << exchange->body;
  const auto searching = send(
      "POST", "/v1/messages",
      fmt::format(R"({{{}, "tools": [{{"type": "web_search_20250305", "name": "web_search"}}]}})",
                  kConversation));
  answer(2, "No.");
  EXPECT_EQ(searching->header("X-Encore-Warning"),
            "tools of the type web_search_20250305 are left out");
}

TEST_F(MessagesTest, TakesToolsThatAreAddedOnTheWay) {
  const auto exchange = send("POST", "/v1/messages", R"({"max_tokens": 5, "tools": [
      {"name": "search", "input_schema": {"type": "object"}}], "messages": [
      {"role": "user", "content": "Find"}, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "a", "name": "search", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [
        {"type": "tool_reference", "tool_name": "found"}]}]},
      {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_definition",
        "definition": {"name": "found", "input_schema": {"type": "object"}}}},
        {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "search"}}]}]})");
  ASSERT_EQ(generator_.requests.size(), 1U) << exchange->body;
  EXPECT_NE(prompt().find(R"({"name": "found", "parameters")"), std::string::npos) << prompt();
  EXPECT_NE(prompt().find("<tool_response>\nfound"), std::string::npos) << prompt();
}

TEST_F(MessagesTest, RefusesMessagesThatAreNoneNamingThem) {
  for (
      const char* message :
      {"5", "{}", R"({"role": "system", "content": 5})", R"({"role": "user"})",
       R"({"role": "user", "content": []})", R"({"role": "user", "content": [5]})",
       R"({"role": "user", "content": [{"type": "text"}]})",
       R"({"role": "user", "content": [{"type": "image", "source": {}}]})",
       R"({"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]})",
       R"({"role": "user", "content": [{"type": "tool_result"}]})",
       R"({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [5]}]})",
       R"({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b"}]})",
       R"({"role": "assistant", "content": [{"type": "thinking"}]})",
       R"({"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "a"}]})"}) {
    const std::string why = refused(fmt::format(
        R"("max_tokens": 5, "messages": [{{"role": "user", "content": "x"}}, {}])", message));
    EXPECT_NE(why.find("messages[1]"), std::string::npos) << message << why;
  }
}

TEST_F(MessagesTest, AFailureWithinAStreamIsAnErrorEvent) {
  const auto exchange = ask(R"(, "stream": true)");
  generator_.end(1, engine::EndReason::kError, {}, "the device is gone");
  pump();
  const auto all = typed_events(*exchange);
  EXPECT_EQ(all.back().at("type"), "error");
  EXPECT_EQ(all.back().at("error").at("type"), "api_error");
  EXPECT_TRUE(exchange->has_ended);
}

TEST_F(MessagesTest, TakesTheKeyOfItsProtocol) {
  ServedModel model;
  model.names = {"stories"};
  start(std::move(model), {.gate = {.api_keys = {"secret"}}});
  const auto without = ask();
  EXPECT_EQ(without->status, 401);
  EXPECT_EQ(error(parsed(*without)).at("type"), "authentication_error");
  EXPECT_EQ(ask("", {{"x-api-key", "secrets"}})->status, 401);
  const auto with = ask("", {{"x-api-key", "secret"}, {"anthropic-version", "2023-06-01"}});
  EXPECT_EQ(error(parsed(*with)).at("type"), "invalid_request_error") << with->body;
}

}  // namespace
}  // namespace encore::server
