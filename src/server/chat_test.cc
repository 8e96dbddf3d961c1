#include "server/chat.h"

#include <boost/json/serialize.hpp>

#include "server/testing/api_fixture.h"

namespace encore::server {
namespace {

using engine::EndReason;

constexpr const char* kMessages = R"("messages": [{"role": "user", "content": "Tell a story."}])";

class ChatTest : public testing::ApiTest {
 protected:
  std::shared_ptr<testing::Exchange> chat(const std::string& more = "") {
    return send("POST", "/v1/chat/completions", fmt::format("{{{}{}}}", kMessages, more));
  }
  // Returns the token ids of the prompt that the template makes of the user's message.
  std::vector<int32_t> prompt(bool add_generation_prompt = true) const {
    const text::Conversation conversation{
        .messages = json::parse(fmt::format("{{{}}}", kMessages), "").at("messages").as_array(),
        .add_generation_prompt = add_generation_prompt};
    return ids(std::get<std::string>(chat_template_.render(conversation)));
  }
  void expect_refused(const std::string& body, std::string_view param, std::string_view code) {
    const auto exchange = send("POST", "/v1/chat/completions", body);
    EXPECT_EQ(exchange->status, 400) << body;
    EXPECT_EQ(error(parsed(*exchange)).at("param"), json::value(param)) << exchange->body;
    EXPECT_EQ(error(parsed(*exchange)).at("code"), json::value(code)) << exchange->body;
  }
};

TEST_F(ChatTest, AnswersTheRenderedConversationWithAsMuchAsThereIsRoomFor) {
  const auto exchange = chat();
  ASSERT_EQ(generator_.requests.size(), 1U) << exchange->body;
  EXPECT_EQ(generator_.requests[0].prompt, prompt());
  EXPECT_EQ(generator_.requests[0].max_tokens, 100 - std::ssize(prompt()));
  generator_.give(1, ids("A cat"));
  generator_.end(1, EndReason::kStop, {*tokenizer_.eos_id()});
  pump();
  const json::value body = parsed(*exchange);
  EXPECT_EQ(body.at("object"), "chat.completion");
  const json::value& choice = body.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_EQ(choice.at("message").at("content"), "A cat");
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(body.at("usage").at("prompt_tokens"), std::ssize(prompt()));
}

TEST_F(ChatTest, StreamsTheRoleThenTheTextThenTheReason) {
  const auto exchange = chat(R"(, "stream": true, "n": 2, "max_tokens": 5)");
  EXPECT_EQ(generator_.requests.at(0).max_tokens, 5);
  generator_.give(1, ids("A cat"));
  generator_.end(2, EndReason::kLength, ids("A dog"));
  generator_.end(1, EndReason::kStop, {*tokenizer_.eos_id()});
  pump();
  const auto all = events(*exchange);
  ASSERT_EQ(all.size(), 5U);
  const auto delta = [&](size_t i) -> const json::value& {
    EXPECT_EQ(all[i].at("object"), "chat.completion.chunk");
    return all[i].at("choices").at(0).at("delta");
  };
  EXPECT_EQ(delta(0).at("role"), "assistant");
  EXPECT_EQ(delta(0).at("content"), "");
  EXPECT_EQ(all[1].at("choices").at(0).at("index"), 1);
  EXPECT_EQ(delta(2).at("content"), "A cat");
  EXPECT_EQ(delta(3).at("content"), "A dog");
  EXPECT_EQ(all[3].at("choices").at(0).at("finish_reason"), "length");
  EXPECT_TRUE(delta(4).as_object().empty());
  EXPECT_EQ(all[4].at("choices").at(0).at("finish_reason"), "stop");
}

TEST_F(ChatTest, TakesTheNewerNameOfMaxTokensFirst) {
  chat(R"(, "max_tokens": 5, "max_completion_tokens": 6)");
  EXPECT_EQ(generator_.requests.at(0).max_tokens, 6);
  expect_refused(fmt::format(R"({{{}, "max_completion_tokens": 1000}})", kMessages),
                 "max_completion_tokens", "context_length_exceeded");
}

TEST_F(ChatTest, SaysThatAPromptIsTooLongInTheWordsThatClientsLookFor) {
  const auto exchange =
      send("POST", "/v1/chat/completions", fmt::format(R"({{{}, "max_tokens": 1000}})", kMessages));
  const std::string message(error(parsed(*exchange)).at("message").as_string());
  EXPECT_TRUE(message.starts_with("this model's maximum context length is 100 tokens")) << message;
}

TEST_F(ChatTest, TakesWhatClientsSendThoughItHasNoEffect) {
  chat(R"(, "prompt_cache_key": "k", "prompt_cache_retention": "24h", "verbosity": "low",
          "safety_identifier": "s", "user": "u", "metadata": {"a": "b"}, "store": true)");
  EXPECT_EQ(generator_.requests.size(), 1);
}

TEST_F(ChatTest, HandsTheTemplateItsVariables) {
  chat(R"(, "chat_template_kwargs": {"mood": "merry"})");
  EXPECT_EQ(tokenizer_.decode(generator_.requests.at(0).prompt),
            "user: Tell a story.\nassistant: merry");
}

TEST_F(ChatTest, MayGoOnFromTheLastMessage) {
  send("POST", "/v1/chat/completions",
       R"({"continue_final_message": true,
           "messages": [{"role": "assistant", "content": "Once upon"}]})");
  EXPECT_EQ(tokenizer_.decode(generator_.requests.at(0).prompt), "assistant: Once upon");
}

TEST_F(ChatTest, SaysWhereToGoWithoutATemplate) {
  ServedModel model;
  model.names = {"stories"};
  model.tokenizer = &tokenizer_;
  start(model, {});
  const auto exchange = chat();
  EXPECT_EQ(error(parsed(*exchange)).at("code"), "no_chat_template");
}

TEST_F(ChatTest, RefusesWhatIsNoConversationNamingTheMessage) {
  const std::string code = "invalid_message";
  expect_refused(R"({})", "messages", "missing_parameter");
  expect_refused(R"({"messages": []})", "messages", "out_of_range");
  expect_refused(R"({"messages": ["hello"]})", "messages", code);
  expect_refused(R"({"messages": [{"content": "hello"}]})", "messages", code);
  expect_refused(R"({"messages": [{"role": "user", "content": 5}]})", "messages", code);
  expect_refused(
      R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})",
      "messages", code);
}

TEST_F(ChatTest, GivesLogProbabilitiesWithTheContent) {
  // The answer contains a character of four bytes, which no single token covers.
  const std::vector<int32_t> tokens = ids("Hi \U0001F600");
  const auto run = [&](bool streams) {
    const auto exchange =
        send("POST", "/v1/chat/completions",
             fmt::format(R"({{{}, "logprobs": true, "top_logprobs": 1, "stream": {}}})", kMessages,
                         streams));
    EXPECT_EQ(generator_.requests.back().sampling.num_logprobs, 1);
    const auto id = static_cast<engine::RequestId>(generator_.requests.size());
    for (const int32_t token : tokens) {
      LogprobRow row{.logprob = -1.5F, .rank = 2, .top = {}};
      row.top[0] = {tokens[0], -0.5F};
      generator_.give(id, {token}, {row});
      pump();
    }
    generator_.end(id, engine::EndReason::kStop, {*tokenizer_.eos_id()});
    pump();
    return exchange;
  };
  const json::value whole = parsed(*run(false)).at("choices").at(0);
  const json::array& content = whole.at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), tokens.size());
  std::string bytes;
  for (const json::value& token : content) {
    EXPECT_EQ(token.at("logprob").to_number<double>(), -1.5);
    EXPECT_EQ(token.at("top_logprobs").at(0).at("token"), content.front().at("token"));
    EXPECT_EQ(token.at("top_logprobs").at(0).at("logprob").to_number<double>(), -0.5);
    for (const json::value& byte : token.at("bytes").as_array())
      bytes += static_cast<char>(byte.to_number<int>());
  }
  EXPECT_EQ(json::value(bytes), whole.at("message").at("content"));

  json::array streamed;
  for (const json::value& event : events(*run(true))) {
    const json::value& logprobs = event.at("choices").at(0).at("logprobs");
    if (logprobs.is_null()) continue;
    for (const json::value& token : logprobs.at("content").as_array())
      streamed.push_back(token);
  }
  EXPECT_EQ(streamed, content);
  expect_refused(fmt::format(R"({{{}, "top_logprobs": 1}})", kMessages), "top_logprobs",
                 "invalid_value");
}

TEST_F(ChatTest, GivesLogProbabilitiesOfThePromptBesideItsChoices) {
  const auto exchange = send("POST", "/v1/chat/completions",
                             fmt::format(R"({{{}, "prompt_logprobs": 0}})", kMessages));
  const std::vector<int32_t> prompt = generator_.requests.at(0).prompt;
  const std::vector<LogprobRow> rows(prompt.size() - 1, {.logprob = -1.5F, .rank = 2, .top = {}});
  generator_.give(1, ids("Hi"), {}, rows);
  generator_.end(1, engine::EndReason::kLength);
  pump();
  const json::value reply = parsed(*exchange);
  EXPECT_EQ(reply.at("choices").at(0).at("message").at("content"), "Hi");
  const json::array& list = reply.at("prompt_logprobs").as_array();
  ASSERT_EQ(list.size(), prompt.size());
  EXPECT_EQ(list.at(1).at(std::to_string(prompt[1])).at("logprob").to_number<double>(), -1.5);
}

TEST_F(ChatTest, RefusesByNameWhatItDoesNotDo) {
  const auto refused = [&](const std::string& name, const std::string& value) {
    expect_refused(fmt::format(R"({{{}, "{}": {}}})", kMessages, name, value), name,
                   "unsupported_parameter");
  };
  refused("tools", R"([{"type": "function", "function": {"name": "now"}}])");
  refused("chat_template", R"("{{ 1 }}")");
  refused("modalities", R"(["audio"])");
  refused("web_search_options", R"({"search_context_size": "low"})");
  expect_refused(fmt::format(R"({{{}, "prompt": "x"}})", kMessages), "prompt", "unknown_parameter");
  EXPECT_TRUE(generator_.requests.empty());
}

TEST_F(ChatTest, TokenizesAPromptOrAConversationAndBack) {
  const json::value whole = parsed(*send("POST", "/tokenize", R"({"prompt": "One day"})"));
  const auto expected = tokenizer_.encode("One day");
  EXPECT_EQ(whole.at("tokens"), json::value(json::array(expected.begin(), expected.end())));
  EXPECT_EQ(whole.at("count"), expected.size());
  const json::value plain = parsed(
      *send("POST", "/tokenize",
            R"({"prompt": "One day", "add_special_tokens": false, "return_token_strs": true})"));
  EXPECT_EQ(plain.at("token_strs").as_array().size(), ids("One day").size());
  const json::value chat = parsed(*send("POST", "/tokenize", fmt::format("{{{}}}", kMessages)));
  EXPECT_EQ(chat.at("count"), prompt().size());
  EXPECT_EQ(send("POST", "/tokenize", "{}")->status, 400);
  const json::value back = parsed(*send(
      "POST", "/detokenize", R"({"tokens": )" + boost::json::serialize(plain.at("tokens")) + "}"));
  EXPECT_EQ(back.at("prompt"), "One day");
  EXPECT_EQ(send("POST", "/detokenize", R"({"tokens": [999999]})")->status, 400);
}

}  // namespace
}  // namespace encore::server
