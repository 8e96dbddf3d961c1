// Requests with random damage: each gets one answer, and the server lives.
#include <random>

#include "server/api_fixture.h"
#include "server/chat.h"
#include "server/completions.h"
#include "server/messages.h"
#include "server/responses.h"
#include "server/tokenize.h"

namespace encore::server {
namespace {

constexpr int kRounds = 10000;

const std::pair<std::string_view, std::string_view> kRequests[] = {
    {"/v1/completions",
     R"({"prompt": ["One day", [1, 2, 3]], "n": 2, "stop": ["a", "b"], "seed": -5, "echo": true,
         "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "max_tokens": 9, "stream": true,
         "stream_options": {"include_usage": true}, "stop_token_ids": [4, 5], "logit_bias": {}})"},
    {"/v1/chat/completions",
     R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content":
         [{"type": "text", "text": "Tell \u00e4 \ud83d\ude00 story"}]}], "max_tokens": 7,
         "chat_template_kwargs": {"mood": [1.5e3, null, true]}, "continue_final_message": false})"},
    {"/v1/chat/completions",
     R"({"messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "tool_calls": [{"id":
         "a", "function": {"name": "now", "arguments": "{\"zone\": 1}"}}]}, {"role": "tool", "content":
         "12:00", "tool_call_id": "a"}], "tools": [{"type": "function", "function": {"name": "now",
         "parameters": {"type": "object"}}}], "tool_choice": "auto", "stream": true})"},
    {"/v1/responses",
     R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": "Rain?"}]}, {"type":
         "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}, {"type":
         "function_call", "call_id": "a", "name": "now", "arguments": "{}"}, {"type":
         "function_call_output", "call_id": "a", "output": "12:00"}], "tools": [{"type": "function",
         "name": "now", "parameters": {}}], "reasoning": {"effort": "low"}, "stream": true, "text":
         {"format": {"type": "text"}}, "include": ["x"], "metadata": {}})"},
    {"/v1/messages",
     R"({"max_tokens": 50, "system": [{"type": "text", "text": "Be brief."}], "messages": [{"role":
         "user", "content": "Rain?"}, {"role": "assistant", "content": [{"type": "thinking", "thinking":
         "Hm."}, {"type": "text", "text": "So"}, {"type": "tool_use", "id": "a", "name": "now", "input":
         {"zone": 1}}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
         "content": "12:00"}]}], "tools": [{"name": "now", "input_schema": {"type": "object"}}],
         "tool_choice": {"type": "auto"}, "thinking": {"type": "enabled"}, "stream": true})"},
    {"/v1/messages/count_tokens", R"({"messages": [{"role": "user", "content": "Rain?"}]})"},
    {"/tokenize", R"({"prompt": "a\n\"b\"", "add_special_tokens": false})"},
    {"/detokenize", R"({"tokens": [1, 22, 333]})"},
};

constexpr const char* kAnswer =
    "<think>Hm</think>So <tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [1]}}</tool_call> "
    "it";

// A few bytes deleted, doubled, moved or overwritten.
std::string damaged(std::string text, std::mt19937& random) {
  constexpr std::string_view kBytes =
      "{}[]\",:0123456789.-+eE\\u \n\tnulltruefalse\xff\xc3\x80\x00";
  for (uint32_t i = 0; i <= random() % 4 && !text.empty(); ++i) {
    const size_t at = random() % text.size();
    const size_t length = std::min<size_t>(1 + random() % 8, text.size() - at);
    const std::string part = text.substr(at, length);
    switch (random() % 4) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, part);
        break;
      case 2:
        text.erase(at, length);
        text.insert(random() % (text.size() + 1), part);
        break;
      default:
        text[at] = kBytes[random() % kBytes.size()];
    }
  }
  return text;
}

class DamageTest : public testing::ApiTest {
 protected:
  void SetUp() override { start_with_tools(); }
  // The answer's status, once it is whole and well formed.
  int answered(std::string_view path, std::string body) {
    const auto exchange = send("POST", std::string(path), std::move(body));
    if (!exchange->has_ended && generator_.live.empty()) wait_and_pump();
    while (!generator_.live.empty())
      generator_.end(generator_.live.begin()->first, engine::EndReason::kLength, ids(answer_));
    pump();
    EXPECT_TRUE(exchange->has_ended);
    EXPECT_TRUE(exchange->status == 200 || exchange->status == 400 || exchange->status == 404)
        << exchange->status << exchange->body;
    if (exchange->header("Content-Type") == "application/json") {
      EXPECT_NO_THROW(parsed(*exchange)) << exchange->body;
    } else {
      const bool is_typed = exchange->body.starts_with("event: ");
      EXPECT_FALSE((is_typed ? typed_events(*exchange) : events(*exchange)).empty());
    }
    return exchange->status;
  }

  std::string answer_ = kAnswer;  // of the model
};

TEST_F(DamageTest, EveryRequestGetsOneAnswer) {
  std::mt19937 random(11);
  int num_taken = 0;
  int num_refused = 0;
  for (int i = 0; i < kRounds; ++i) {
    const auto& [path, body] = kRequests[random() % std::size(kRequests)];
    ++(answered(path, damaged(std::string(body), random)) == 200 ? num_taken : num_refused);
  }
  EXPECT_GT(num_taken, kRounds / 50);
  EXPECT_GT(num_refused, kRounds / 4);
}

TEST_F(DamageTest, WhateverTheModelSaysTheAnswerIsWellFormed) {
  std::mt19937 random(12);
  for (int i = 0; i < kRounds / 5; ++i) {
    const auto& [path, body] = kRequests[random() % std::size(kRequests)];
    std::string request(body);
    if (path != "/v1/completions" && random() % 2 == 0) {
      if (const size_t at = request.find(", \"stream\": true"); at != std::string::npos)
        request.erase(at, 16);
    }
    answer_ = damaged(kAnswer, random);
    EXPECT_EQ(answered(path, request), 200) << request << answer_;
  }
}

TEST_F(DamageTest, EveryParameterTakesOrRefusesEveryKindOfValue) {
  const std::string values[] = {"null",
                                "true",
                                "0",
                                "1",
                                "-1",
                                "2147483648",
                                "-9223372036854775808",
                                "18446744073709551615",
                                "0.5",
                                "-0.0",
                                "1e308",
                                "\"\"",
                                "\"text\"",
                                "\"none\"",
                                "[]",
                                "[1, 2]",
                                "[\"a\"]",
                                "[[]]",
                                "[null]",
                                "[{}]",
                                "{}",
                                "{\"type\": \"text\"}",
                                "{\"type\": \"none\"}",
                                "[{\"type\": \"function\", \"name\": \"a\"}]",
                                "[{\"role\": \"user\", \"content\": []}]",
                                "{\"effort\": null}",
                                "{\"include_usage\": 1}",
                                "[9223372036854775807]",
                                "\"" + std::string(5000, 'x') + "\""};
  struct Api {
    std::string_view path;
    const ParameterTable* table;
    std::string_view needs;  // a parameter
    std::string_view value;
    std::string_view besides = "";
  };
  constexpr std::string_view kMessages = R"([{"role": "user", "content": "x"}])";
  const Api apis[] = {
      {"/v1/completions", &completion_parameters(), "prompt", R"("x")"},
      {"/v1/chat/completions", &chat_parameters(), "messages", kMessages},
      {"/v1/responses", &response_parameters(), "input", R"("x")"},
      {"/v1/messages", &message_parameters(), "messages", kMessages, R"(, "max_tokens": 5)"},
      {"/v1/messages/count_tokens", &count_tokens_parameters(), "messages", kMessages},
      {"/tokenize", &tokenize_parameters(), "messages", kMessages},
      {"/detokenize", &detokenize_parameters(), "tokens", "[1]"}};
  for (const auto& [path, table, needs, needed, besides] : apis) {
    int num_taken = 0;
    for (const Parameter& row : *table) {
      for (const std::string& value : values) {
        std::string body = fmt::format("{{\"{}\": {}", row.name, value);
        if (row.name != needs) body += fmt::format(", \"{}\": {}", needs, needed);
        if (row.name != "max_tokens") body += besides;
        num_taken += answered(path, body + "}") == 200 ? 1 : 0;
      }
    }
    EXPECT_GT(num_taken, 0) << path;
  }
}

}  // namespace
}  // namespace encore::server
