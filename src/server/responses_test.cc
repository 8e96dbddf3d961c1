#include "server/responses.h"

#include <boost/json/serialize.hpp>

#include "server/testing/api_fixture.h"

namespace encore::server {
namespace {

constexpr const char* kResponseTools = R"("tools": [
    {"type": "function", "name": "get_weather", "description": "Says it", "strict": true,
     "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
    {"type": "function", "name": "now", "parameters": null}])";
constexpr const char* kResponseAnswer =
    "<think>\nI must look.\n</think>\n\nOne moment.\n<tool_call>\n"
    "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n<tool_call>\n"
    "{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

class ResponsesTest : public testing::ApiTest {
 protected:
  void SetUp() override { start_with_tools(); }
  std::shared_ptr<testing::Exchange> ask(const std::string& more = "") {
    return send("POST", "/v1/responses",
                fmt::format(R"({{"input": "Rain in Paris?", {}{}}})", kResponseTools, more));
  }
  std::string prompt(size_t request = 0) {
    return tokenizer_.decode(generator_.requests.at(request).prompt, false);
  }
  void expect_refused(const std::string& parameters, std::string_view param) {
    const auto exchange = send("POST", "/v1/responses", "{" + parameters + "}");
    EXPECT_EQ(exchange->status, 400) << parameters << exchange->body;
    EXPECT_EQ(error(parsed(*exchange)).at("param"), json::value(param)) << exchange->body;
  }
  // Removes the members whose values are random or depend on the time.
  static json::value without_ids(json::value value) {
    if (auto* list = value.if_array()) {
      for (json::value& item : *list)
        item = without_ids(std::move(item));
    }
    if (auto* object = value.if_object()) {
      for (const char* key : {"id", "call_id", "created_at"})
        object->erase(key);
      for (auto& [key, item] : *object)
        item = without_ids(std::move(item));
    }
    return value;
  }
};

TEST_F(ResponsesTest, AWholeAnswerIsAListOfItems) {
  const auto exchange = ask(R"(, "instructions": "Be brief.", "max_output_tokens": 900,
                               "metadata": {"a": "b"}, "store": true)");
  EXPECT_TRUE(prompt().starts_with("<|im_start|>system\nBe brief.\n\n# Tools")) << prompt();
  EXPECT_EQ(generator_.requests[0].max_tokens, 900);
  answer(1, kResponseAnswer);
  const json::value body = parsed(*exchange);
  EXPECT_EQ(body.at("object"), "response");
  EXPECT_EQ(body.at("status"), "completed");
  EXPECT_EQ(body.at("instructions"), "Be brief.");
  EXPECT_EQ(body.at("metadata").at("a"), "b");
  EXPECT_EQ(body.at("store"), false);
  EXPECT_EQ(body.at("tools").as_array().size(), 2U);
  const json::array& items = body.at("output").as_array();
  ASSERT_EQ(items.size(), 4U);
  EXPECT_EQ(items[0].at("type"), "reasoning");
  EXPECT_EQ(items[0].at("content").at(0).at("text"), "I must look.");
  EXPECT_EQ(items[1].at("type"), "message");
  EXPECT_EQ(items[1].at("content").at(0).at("type"), "output_text");
  EXPECT_EQ(items[1].at("content").at(0).at("text"), "One moment.");
  EXPECT_EQ(items[2].at("type"), "function_call");
  EXPECT_EQ(items[2].at("name"), "get_weather");
  EXPECT_EQ(items[2].at("arguments"), R"({"city": "Paris"})");
  EXPECT_EQ(items[3].at("arguments"), "{}");
  EXPECT_NE(items[2].at("call_id"), items[3].at("call_id"));
  for (const json::value& item : items)
    EXPECT_EQ(item.at("status"), "completed");
  const json::value& usage = body.at("usage");
  EXPECT_EQ(usage.at("input_tokens"), generator_.requests[0].prompt.size());
  EXPECT_EQ(usage.at("output_tokens"), ids(kResponseAnswer).size() + 1);
  EXPECT_GT(usage.at("output_tokens_details").at("reasoning_tokens").to_number<int64_t>(), 0);
}

TEST_F(ResponsesTest, AStreamTellsOfEachItemInNumberedEvents) {
  const auto whole = ask();
  answer(1, kResponseAnswer);
  const auto exchange = ask(R"(, "stream": true)");
  answer(2, kResponseAnswer);
  const auto all = typed_events(*exchange);
  std::vector<std::string> order;  // types of the events; successive deltas count once
  std::vector<std::string> texts;  // texts of the deltas
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].at("sequence_number"), i);
    const std::string type(all[i].at("type").as_string().subview(9));
    if (type == "output_item.added") {
      EXPECT_EQ(all[i].at("output_index"), texts.size());
      texts.emplace_back();
    }
    if (type == "content_part.added" || type == "content_part.done") {
      EXPECT_EQ(all[i].at("part").at("type"), texts.size() == 1 ? "reasoning_text" : "output_text");
    }
    if (type.ends_with(".delta")) {
      EXPECT_EQ(all[i].at("output_index"), texts.size() - 1);
      texts.back() += all[i].at("delta").as_string();
    }
    if (order.empty() || order.back() != type) order.push_back(type);
  }
  const std::vector<std::string> call = {"output_item.added", "function_call_arguments.delta",
                                         "function_call_arguments.done", "output_item.done"};
  std::vector<std::string> expected = {"created", "in_progress"};
  for (const std::string text : {"reasoning_text", "output_text"}) {
    for (const std::string& type :
         {std::string("output_item.added"), std::string("content_part.added"), text + ".delta",
          text + ".done", std::string("content_part.done"), std::string("output_item.done")})
      expected.push_back(type);
  }
  for (int i = 0; i < 2; ++i)
    expected.insert(expected.end(), call.begin(), call.end());
  expected.emplace_back("completed");
  EXPECT_EQ(order, expected);
  EXPECT_EQ(texts, (std::vector<std::string>{"I must look.", "One moment.", R"({"city": "Paris"})",
                                             "{}"}));
  EXPECT_EQ(without_ids(all.back().at("response")), without_ids(parsed(*whole)));
  EXPECT_EQ(all.front().at("response").at("id"), all.back().at("response").at("id"));
}

TEST_F(ResponsesTest, GivesLogProbabilitiesOfTheTextsTokensWithTheText) {
  // The answer contains a character of four bytes, which no single token covers, and a call.
  const std::vector<int32_t> text = ids("Hi \U0001F600!");
  const std::vector<int32_t> call =
      ids("\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>");
  const auto run = [&](bool streams, size_t tokens_at_once) {
    const auto exchange = ask(fmt::format(
        R"(, "include": ["message.output_text.logprobs"], "top_logprobs": 1, "stream": {})",
        streams));
    EXPECT_EQ(generator_.requests.back().sampling.num_logprobs, 1);
    const auto id = static_cast<engine::RequestId>(generator_.requests.size());
    std::vector<int32_t> tokens = text;
    tokens.insert(tokens.end(), call.begin(), call.end());
    for (size_t at = 0; at < tokens.size(); at += tokens_at_once) {
      const size_t end = std::min(at + tokens_at_once, tokens.size());
      std::vector<LogprobRow> rows;
      for (size_t i = at; i < end; ++i) {
        LogprobRow row{.logprob = -static_cast<float>(i), .rank = 2, .top = {}};
        row.top[0] = {tokens[0], -0.5F};
        rows.push_back(row);
      }
      generator_.give(
          id,
          {tokens.begin() + static_cast<int64_t>(at), tokens.begin() + static_cast<int64_t>(end)},
          rows);
      pump();
    }
    generator_.end(id, engine::EndReason::kStop, {*tokenizer_.eos_id()});
    pump();
    return exchange;
  };
  const json::value whole = parsed(*run(false, 1));
  EXPECT_EQ(whole.at("top_logprobs"), 1);
  const json::value& message = whole.at("output").at(0);
  ASSERT_EQ(message.at("type"), "message");
  const json::array& listed = message.at("content").at(0).at("logprobs").as_array();
  ASSERT_EQ(listed.size(), text.size());
  std::string bytes;
  for (size_t i = 0; i < listed.size(); ++i) {
    EXPECT_EQ(listed[i].at("logprob").to_number<double>(), -static_cast<double>(i));
    EXPECT_EQ(listed[i].at("top_logprobs").at(0).at("logprob").to_number<double>(), -0.5);
    for (const json::value& byte : listed[i].at("bytes").as_array())
      bytes += static_cast<char>(byte.to_number<int>());
  }
  EXPECT_EQ(json::value(bytes), message.at("content").at(0).at("text"));

  // The events must carry the same log probabilities, however many tokens the engine delivers at
  // once.
  for (const size_t tokens_at_once : {size_t{1}, size_t{3}, size_t{1000}}) {
    json::array streamed;
    for (const json::value& event : typed_events(*run(true, tokens_at_once))) {
      if (event.at("type") == "response.output_text.done") {
        EXPECT_EQ(event.at("logprobs"), listed);
      }
      if (event.at("type") != "response.output_text.delta") continue;
      std::string shown;
      for (const json::value& token : event.at("logprobs").as_array()) {
        streamed.push_back(token);
        for (const json::value& byte : token.at("bytes").as_array())
          shown += static_cast<char>(byte.to_number<int>());
      }
      EXPECT_EQ(event.at("delta"), json::value(shown));
    }
    EXPECT_EQ(streamed, listed);
  }
}

TEST_F(ResponsesTest, AnAnswerThatIsCutIsIncomplete) {
  const auto exchange = ask();
  generator_.end(1, engine::EndReason::kLength, ids("One mo"));
  pump();
  const json::value body = parsed(*exchange);
  EXPECT_EQ(body.at("status"), "incomplete");
  EXPECT_EQ(body.at("incomplete_details").at("reason"), "max_output_tokens");
  EXPECT_EQ(body.at("output").at(0).at("status"), "incomplete");
  const auto stream = ask(R"(, "stream": true)");
  generator_.end(2, engine::EndReason::kLength, ids("One mo"));
  pump();
  EXPECT_EQ(typed_events(*stream).back().at("type"), "response.incomplete");
}

TEST_F(ResponsesTest, ItemsOfEarlierTurnsReachTheTemplate) {
  const auto exchange =
      send("POST", "/v1/responses", R"({"reasoning": {"effort": "none"}, "input": [
      {"role": "developer", "content": "Be brief."},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rain?"}]},
      {"type": "reasoning", "id": "rs", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
      {"type": "message", "id": "m", "role": "assistant", "status": "completed",
       "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
      {"type": "function_call", "id": "f", "call_id": "a", "name": "now", "arguments": "{\"zone\":1}"},
      {"type": "function_call", "call_id": "b", "name": "now", "arguments": ""},
      {"type": "function_call_output", "call_id": "a", "output": "12:00"},
      {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "noon"}]},
      {"role": "assistant", "content": "Dry."},
      {"role": "user", "content": "So?"}]})");
  ASSERT_EQ(generator_.requests.size(), 1U) << exchange->body;
  EXPECT_EQ(prompt(),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nRain?<|im_end|>\n"
            "<|im_start|>assistant\nI look.\n"
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"zone\": 1}}\n</tool_call>\n"
            "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call><|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n12:00\n</tool_response>\n"
            "<tool_response>\nnoon\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\nDry.<|im_end|>\n<|im_start|>user\nSo?<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n");
}

TEST_F(ResponsesTest, ReasoningGoesToTheMessageOrCallThatFollowsIt) {
  send("POST", "/v1/responses", R"({"input": [{"role": "user", "content": "Rain?"},
      {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
      {"type": "function_call", "call_id": "a", "name": "now", "arguments": "{}"},
      {"type": "function_call_output", "call_id": "a", "output": "12:00"}]})");
  EXPECT_NE(prompt().find("<think>\nHm.\n</think>\n\n<tool_call>"), std::string::npos) << prompt();
}

TEST_F(ResponsesTest, ParallelCallsAndChoiceNoneWorkAsInTheChatApi) {
  const auto exchange = ask(R"(, "parallel_tool_calls": false)");
  for (const int32_t token : ids(kResponseAnswer))
    generator_.give(1, {token});
  pump();
  EXPECT_EQ(parsed(*exchange).at("output").as_array().size(), 3U);
  EXPECT_EQ(parsed(*exchange).at("parallel_tool_calls"), false);
  ask(R"(, "tool_choice": "none")");
  EXPECT_EQ(prompt(1).find("get_weather"), std::string::npos);
}

TEST_F(ResponsesTest, RefusesByNameWhatItDoesNotDo) {
  const auto refused = [&](const std::string& more, std::string_view param) {
    expect_refused(R"("input": "x", )" + more, param);
  };
  refused(R"("previous_response_id": "resp_1")", "previous_response_id");
  refused(R"("conversation": "conv_1")", "conversation");
  refused(R"("background": true)", "background");
  refused(R"("prompt": {"id": "x"})", "prompt");
  refused(R"("truncation": "middle")", "truncation");
  refused(R"("top_logprobs": 2)", "top_logprobs");  // include is missing
  refused(R"("include": ["message.output_text.logprobs"], "top_logprobs": 21)", "top_logprobs");
  refused(R"("text": {"format": {"type": "xml"}})", "text.format");
  refused(R"("reasoning": {"effort": 5})", "reasoning");
  refused(R"("tools": [{"type": 5}])", "tools");
  refused(R"("tools": [{"type": "function"}])", "tools");
  refused(R"("tool_choice": "required")", "tool_choice");  // tools are missing
  refused(R"("tool_choice": {"type": "file_search"})", "tool_choice");
  refused(R"("n": 2)", "n");
  refused(R"("max_tokens": 2)", "max_tokens");
  refused(R"("max_output_tokens": 100000)", "max_output_tokens");
  EXPECT_TRUE(generator_.requests.empty());
  ask(R"(, "text": {"format": {"type": "text"}, "verbosity": "low"}, "truncation": "disabled",
         "include": ["reasoning.encrypted_content"], "reasoning": {"effort": null, "summary": "auto"},
         "background": false, "top_logprobs": 0, "user": "me")");
  EXPECT_EQ(generator_.requests.size(), 1U);
}

// Returns a conversation with one turn for each length. A user's message is "turn N" and as many
// further words as the length says. Behind each message but the last come a tool call, its output
// and an answer.
std::string turns(const std::vector<int>& lengths) {
  std::string items;
  for (size_t turn = 0; turn < lengths.size(); ++turn) {
    std::string words = fmt::format("turn {}", turn);
    for (int i = 0; i < lengths[turn]; ++i)
      words += " word";
    items += fmt::format(R"(, {{"role": "user", "content": "{}"}})", words);
    if (turn + 1 == lengths.size()) continue;
    items += fmt::format(
        R"(, {{"type": "function_call", "call_id": "c{0}", "name": "now", "arguments": "{{}}"}},
        {{"type": "function_call_output", "call_id": "c{0}", "output": "noon {0}"}},
        {{"role": "assistant", "content": "answer {0}"}})",
        turn);
  }
  return items;
}

TEST_F(ResponsesTest, LeavesOutTheOldestTurnsWhereItMay) {
  start_with_tools("qwen3", 500);
  const auto ask_turns = [&](const std::vector<int>& lengths, const std::string& more) {
    return send(
        "POST", "/v1/responses",
        fmt::format(R"({{{} "input": [{{"role": "developer", "content": "Be brief."}}{}]}})", more,
                    turns(lengths)));
  };
  const std::string may = R"("truncation": "auto",)";
  EXPECT_EQ(ask_turns({90, 90, 90, 90, 2}, "")->status, 400);
  ask_turns({90, 90, 90, 90, 2}, may);
  ASSERT_EQ(generator_.requests.size(), 1U);
  const std::string text = prompt();
  EXPECT_TRUE(text.starts_with("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nturn "))
      << text;
  for (int turn = 0; turn < 4; ++turn) {
    const bool is_kept = text.find(fmt::format("turn {} word", turn)) != std::string::npos;
    for (const char* const part : {"noon", "answer"}) {
      EXPECT_EQ(text.find(fmt::format("{} {}", part, turn)) != std::string::npos, is_kept)
          << part << turn;
    }
  }
  EXPECT_EQ(text.find("turn 0"), std::string::npos);
  EXPECT_NE(text.find("turn 3"), std::string::npos) << "no more turns are left out than it takes";
  EXPECT_NE(text.find("turn 4"), std::string::npos);
  // Truncation also makes room for the answer: of the 500 tokens, 390 for the answer leave too few
  // for turn 3, which has 90 words. A conversation that fits is unchanged. A last turn that is too
  // long is refused.
  ask_turns({90, 90, 90, 90, 2}, may + R"("max_output_tokens": 390,)");
  ASSERT_EQ(generator_.requests.size(), 2U);
  EXPECT_EQ(prompt(1).find("turn 3"), std::string::npos);
  const auto whole = ask_turns({3, 3}, may);
  ASSERT_EQ(generator_.requests.size(), 3U);
  EXPECT_NE(prompt(2).find("turn 0"), std::string::npos);
  answer(3, "No.");
  EXPECT_EQ(parsed(*whole).at("truncation"), "auto");
  const auto hopeless = ask_turns({3, 600}, may);
  EXPECT_EQ(hopeless->status, 400);
  EXPECT_EQ(error(parsed(*hopeless)).at("code"), "context_length_exceeded");
}

// The request's parameter `tools`, with the kinds of tools that Codex offers.
constexpr const char* kOtherTools = R"("tools": [
    {"type": "function", "name": "shell", "parameters": {"type": "object", "properties": {}}},
    {"type": "web_search"}, {"type": "custom", "name": "apply_patch"}, {"type": "web_search"},
    {"type": "namespace", "name": "mcp", "tools": []}])";

TEST_F(ResponsesTest, LeavesOutToolsThatAreNoFunctionsAndSaysSo) {
  const auto exchange =
      send("POST", "/v1/responses", fmt::format(R"({{"input": "x", {}}})", kOtherTools));
  ASSERT_EQ(generator_.requests.size(), 1U) << exchange->body;
  const std::string prompt = tokenizer_.decode(generator_.requests[0].prompt, false);
  EXPECT_NE(prompt.find("shell"), std::string::npos);
  EXPECT_EQ(prompt.find("apply_patch"), std::string::npos);
  answer(1, "No.");
  EXPECT_EQ(exchange->status, 200);
  EXPECT_EQ(exchange->header("X-Encore-Warning"),
            "tools of the type web_search, custom, namespace are left out");
}

TEST_F(ResponsesTest, MayRefuseToolsThatAreNoFunctions) {
  ServedModel model;
  model.names = {"stories"};
  model.tokenizer = &tokenizer_;
  model.chat_template = &chat_template_;
  model.vocab_size = tokenizer_.vocab_size();
  model.max_seq_len = 4096;
  start(std::move(model), {.other_tools = OtherTools::kRefuse});
  const auto exchange =
      send("POST", "/v1/responses", fmt::format(R"({{"input": "x", {}}})", kOtherTools));
  EXPECT_EQ(exchange->status, 400);
  EXPECT_NE(exchange->body.find("web_search, custom, namespace"), std::string::npos);
}

TEST_F(ResponsesTest, RefusesItemsThatAreNoneNamingThem) {
  expect_refused(R"("store": false)", "input");
  for (const char* input : {"5", "[]", "{}"})
    expect_refused(fmt::format(R"("input": {})", input), "input");
  for (const char* item :
       {"5", "{}", R"({"role": "tool", "content": "x"})", R"({"role": "user"})",
        R"({"role": "user", "content": [5]})",
        R"({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]})",
        R"({"type": "function_call", "name": "x"})", R"({"type": "function_call_output"})",
        R"({"type": "function_call_output", "call_id": "x", "output": 5})",
        R"({"type": "reasoning", "content": 5})", R"({"type": "item_reference", "id": "x"})",
        R"({"type": "web_search_call"})"}) {
    const auto exchange =
        send("POST", "/v1/responses",
             fmt::format(R"({{"input": [{{"role": "user", "content": "x"}}, {}]}})", item));
    EXPECT_EQ(exchange->status, 400) << item;
    const json::value body = parsed(*exchange);
    EXPECT_NE(error(body).at("message").as_string().find("input[1]"), std::string::npos) << item;
  }
}

TEST_F(ResponsesTest, AFailureWithinAStreamIsAFailedResponse) {
  const auto exchange = ask(R"(, "stream": true)");
  generator_.give(1, ids("One mo"));
  generator_.end(1, engine::EndReason::kError, {}, "the device is gone");
  pump();
  const auto all = typed_events(*exchange);
  EXPECT_EQ(all.back().at("type"), "response.failed");
  EXPECT_EQ(all.back().at("response").at("status"), "failed");
  EXPECT_EQ(all.back().at("response").at("error").at("message"), "the device is gone");
}

}  // namespace
}  // namespace encore::server
