// Sends requests with random damage. Each request must get exactly one answer, and the server must
// go on serving.
//
// `server_test --gtest_filter=DamageTest.StructuredRequests* --gtest_shuffle --gtest_repeat=50`
// sends a million requests, because each repetition has a different seed.
#include <chrono>
#include <cmath>
#include <random>

#include <boost/json/serialize.hpp>

#include "base/testing/thorough.h"
#include "server/chat.h"
#include "server/completions.h"
#include "server/messages.h"
#include "server/responses.h"
#include "server/testing/api_fixture.h"
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

constexpr const char* kUndamagedAnswer =
    "<think>Hm</think>So <tool_call>{\"name\": \"now\", \"arguments\": {\"a\": [1]}}</tool_call> "
    "it";

// Returns the text with a few bytes deleted, doubled, moved or overwritten.
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

// Returns the ParameterTable of the requests on this path.
const ParameterTable& table_of(std::string_view path) {
  if (path == "/v1/completions") return completion_parameters();
  if (path == "/v1/chat/completions") return chat_parameters();
  if (path == "/v1/responses") return response_parameters();
  if (path == "/v1/messages") return message_parameters();
  if (path == "/v1/messages/count_tokens") return count_tokens_parameters();
  return path == "/tokenize" ? tokenize_parameters() : detokenize_parameters();
}

// Makes random changes to the JSON of requests, so that many requests remain valid.
class Mutator {
 public:
  explicit Mutator(std::mt19937& random) : random_(random) {}

  std::string mutated(std::string_view path, std::string_view body) {
    json::value request = json::parse(body, "request");
    for (uint32_t i = below(4); i > 0; --i) {
      if (below(3) == 0) {
        change(place_in(request, 6));
      } else {
        const ParameterTable& table = table_of(path);
        const Parameter& row = table[below(table.size())];
        request.as_object()[row.name] = value_for(row);
      }
      if (!request.is_object()) break;
    }
    return boost::json::serialize(request);
  }

 private:
  size_t below(size_t end) { return random_() % end; }

  // Returns a value for the parameter: inside its range, at the end of its range, or outside.
  json::value value_for(const Parameter& row) {
    if (below(8) == 0) return any_value(2);
    if (below(6) == 0) return nullptr;
    const double low = std::isfinite(row.min) ? row.min : -2;
    const double high = std::isfinite(row.max) ? row.max : low + 10;
    const double at = low + (high - low) * static_cast<double>(below(9)) / 8;
    switch (row.kind) {
      case ParameterKind::kBoolean:
        return below(2) == 0;
      case ParameterKind::kInteger:
        return static_cast<int64_t>(below(5) == 0 ? high + 1 : at);
      case ParameterKind::kNumber:
        return below(5) == 0 ? high + 0.5 : at;
      case ParameterKind::kString:
        return json::value(any_text());
      case ParameterKind::kStrings:
        return json::array{json::value(any_text()), json::value(any_text())};
      case ParameterKind::kIntegers:
        return json::array{below(3000), below(10)};
      default:
        return any_value(2);
    }
  }
  std::string any_text() {
    constexpr std::string_view kTexts[] = {"",
                                           "a",
                                           "auto",
                                           "none",
                                           "text",
                                           "stories",
                                           "required",
                                           "user",
                                           "\u0000",
                                           "\xc3\xa4",
                                           "{% for i in x %}",
                                           "</think>",
                                           "<tool_call>",
                                           "[a-z]{1,9}",
                                           "root ::= \"a\" root",
                                           "-1"};
    std::string text(kTexts[below(std::size(kTexts))]);
    return below(20) == 0 ? std::string(below(5000), 'x') + text : text;
  }
  json::value any_value(int depth) {
    constexpr double kNumbers[] = {0, 1, -1, 0.5, 1e308, 4294967296, -9.3e18, 2048, 1e-320};
    switch (below(depth > 0 ? 7 : 5)) {
      case 0:
        return nullptr;
      case 1:
        return below(2) == 0;
      case 2:
        return kNumbers[below(std::size(kNumbers))];
      case 3:
        return static_cast<int64_t>(kNumbers[below(6)]);
      case 4:
        return json::value(any_text());
      case 5: {
        json::array list;
        for (size_t i = below(4); i > 0; --i)
          list.push_back(any_value(depth - 1));
        return list;
      }
      default: {
        constexpr std::string_view kKeys[] = {"type",   "role",       "content", "text",   "name",
                                              "schema", "properties", "items",   "effort", "json"};
        json::object object;
        for (size_t i = below(4); i > 0; --i)
          object[kKeys[below(std::size(kKeys))]] = any_value(depth - 1);
        return object;
      }
    }
  }
  // Picks a random place in the JSON `value`: `value` itself, or a value nested in it.
  json::value& place_in(json::value& value, int depth) {
    if (depth == 0 || below(4) == 0) return value;
    if (value.is_array() && !value.get_array().empty())
      return place_in(value.get_array()[below(value.get_array().size())], depth - 1);
    if (value.is_object() && !value.get_object().empty()) {
      auto member =
          value.get_object().begin() + static_cast<int64_t>(below(value.get_object().size()));
      return place_in(member->value(), depth - 1);
    }
    return value;
  }
  // Replaces the value, or adds or removes an element or member.
  void change(json::value& value) {
    if (value.is_array() && below(2) == 0) {
      json::array& list = value.get_array();
      if (list.empty() || below(2) == 0) return list.push_back(any_value(2));
      if (below(2) == 0) return list.push_back(json::value(list.back()));
      return list.pop_back();
    }
    if (value.is_object() && below(3) > 0 && !value.get_object().empty()) {
      json::object& object = value.get_object();
      object.erase(object.begin() + static_cast<int64_t>(below(object.size())));
      return;
    }
    value = any_value(3);
  }

  std::mt19937& random_;
};

class DamageTest : public testing::ApiTest {
 protected:
  void SetUp() override { start_with_tools(); }
  // Sends a request, completes its generation, and returns the answer's status. Expects that the
  // answer is complete and well formed.
  int answered(std::string_view path, std::string body) {
    const auto exchange = send("POST", std::string(path), std::move(body));
    // The next posted function may belong to an earlier request, so several may be needed.
    while (!exchange->has_ended && generator_.live.empty())
      wait_and_pump();
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

  std::string answer_ = kUndamagedAnswer;  // the text that the model generates
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

TEST_F(DamageTest, StructuredRequestsAreAnsweredSoonAndOftenAdmitted) {
  std::mt19937 random(1 + ::testing::UnitTest::GetInstance()->random_seed());
  Mutator mutator(random);
  const int num_structured = is_thorough() ? 20000 : 4000;
  int num_taken = 0;
  for (int i = 0; i < num_structured; ++i) {
    const auto& [path, body] = kRequests[random() % std::size(kRequests)];
    const std::string request = mutator.mutated(path, body);
    const auto start = std::chrono::steady_clock::now();
    num_taken += answered(path, request) == 200 ? 1 : 0;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1)) << request;
    generator_.requests.clear();
    if (HasFailure()) FAIL() << path << " " << request;
  }
  EXPECT_GE(num_taken, num_structured / 5);
  RecordProperty("admitted", num_taken);
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
    answer_ = damaged(kUndamagedAnswer, random);
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
    std::string_view needs;  // the parameter that the request must have
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
