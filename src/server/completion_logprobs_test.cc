#include <limits>

#include "server/testing/api_fixture.h"

namespace encore::server {
namespace {

using engine::EndReason;

class CompletionLogprobsTest : public testing::ApiTest {};

// Requests the same tokens twice: as a whole answer and as a stream.
TEST_F(CompletionLogprobsTest, GivesLogProbabilitiesOfTokensAndOfTheLikeliest) {
  const std::vector<int32_t> tokens = ids("One day");
  ASSERT_GE(tokens.size(), 2U);
  const auto row = [&](float logprob, int32_t other) {
    LogprobRow row{.logprob = logprob, .rank = 2, .top = {}};
    row.top[0] = {other, -0.25F};
    row.top[1] = {tokens[0], -std::numeric_limits<float>::infinity()};
    return row;
  };
  const int32_t end = *tokenizer_.eos_id();
  const auto run = [&](bool streams) {
    const auto exchange = complete(fmt::format(
        R"({{"prompt": "x", "logprobs": 2, "stream": {}, "temperature": 1}})", streams));
    EXPECT_EQ(generator_.requests.back().sampling.num_logprobs, 2);
    const auto id = static_cast<engine::RequestId>(generator_.requests.size());
    for (size_t i = 0; i < tokens.size(); ++i)
      generator_.give(id, {tokens[i]}, {row(-0.5F - static_cast<float>(i), end)});
    generator_.give(id, {end}, {row(-3, end)});
    generator_.end(id, EndReason::kStop);
    pump();
    return exchange;
  };
  const json::value whole = parsed(*run(false)).at("choices").at(0).at("logprobs");
  ASSERT_EQ(whole.at("tokens").as_array().size(), tokens.size()) << "not the end token";
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(whole.at("text_offset").at(i), json::value(static_cast<int64_t>(text.size())));
    text += whole.at("tokens").at(i).as_string();
    EXPECT_EQ(whole.at("token_logprobs").at(i).to_number<double>(), -0.5 - static_cast<double>(i));
  }
  EXPECT_EQ(text, tokenizer_.decode(tokens));
  const json::object& top = whole.at("top_logprobs").at(1).as_object();
  EXPECT_EQ(top.at(*tokenizer_.token(end)).to_number<double>(), -0.25);
  EXPECT_EQ(top.at(whole.at("tokens").at(0).as_string()).to_number<double>(), -9999);
  EXPECT_EQ(top.at(whole.at("tokens").at(1).as_string()).to_number<double>(), -1.5) << "chosen";

  json::array streamed;
  json::array offsets;
  for (const json::value& event : events(*run(true))) {
    const json::value& logprobs = event.at("choices").at(0).at("logprobs");
    for (const json::value& token : logprobs.at("tokens").as_array())
      streamed.push_back(token);
    for (const json::value& offset : logprobs.at("text_offset").as_array())
      offsets.push_back(offset);
  }
  EXPECT_EQ(streamed, whole.at("tokens"));
  EXPECT_EQ(offsets, whole.at("text_offset"));
}

// Clients that rate texts send requests with `echo`, `logprobs` and max_tokens 0. The answer then
// has no generated text, and the prompt's tokens get their offsets in the echoed text, to which
// special tokens add no characters.
TEST_F(CompletionLogprobsTest, EchoWithLogprobsGivesThoseOfThePrompt) {
  const std::string prompt = "Once \u00fcber";
  const std::vector<int32_t> prompt_ids = tokenizer_.encode(prompt);
  ASSERT_TRUE(tokenizer_.is_special(prompt_ids[0]));
  std::vector<LogprobRow> rows;
  for (size_t i = 1; i < prompt_ids.size(); ++i) {
    rows.push_back({.logprob = -static_cast<float>(i), .rank = 3, .top = {}});
    rows.back().top[0] = {prompt_ids[0], -0.5F};
  }
  for (const bool streams : {false, true}) {
    for (const int max_tokens : {0, 2}) {
      const auto exchange = complete(fmt::format(
          R"({{"prompt": "{}", "echo": true, "logprobs": 1, "max_tokens": {}, "stream": {}}})",
          prompt, max_tokens, streams));
      const auto id = static_cast<engine::RequestId>(generator_.requests.size());
      EXPECT_EQ(generator_.requests.back().max_tokens, std::max(max_tokens, 1));
      EXPECT_EQ(generator_.requests.back().num_prompt_logprobs, 1);
      const std::vector<int32_t> answer = ids("!");
      generator_.give(id, answer, {{.logprob = -9, .rank = 1, .top = {}}}, rows);
      generator_.end(id, EndReason::kStop);
      pump();
      const json::value choice =
          (streams ? events(*exchange).front() : parsed(*exchange)).at("choices").at(0);
      const std::string text(choice.at("text").as_string());
      EXPECT_EQ(text, max_tokens == 0 ? prompt : prompt + "!");
      const json::object& logprobs = choice.at("logprobs").as_object();
      EXPECT_EQ(logprobs.at("tokens").as_array().size(),
                prompt_ids.size() + (max_tokens == 0 ? 0 : answer.size()));
      EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
      EXPECT_TRUE(logprobs.at("top_logprobs").at(0).is_null());
      for (size_t i = 1; i < prompt_ids.size(); ++i) {
        EXPECT_EQ(logprobs.at("token_logprobs").at(i).to_number<double>(), -static_cast<double>(i));
        EXPECT_EQ(logprobs.at("top_logprobs").at(i).as_object().size(), 2U) << "and the token";
      }
      EXPECT_EQ(logprobs.at("text_offset").at(0).to_number<int>(), 0);
      EXPECT_EQ(logprobs.at("text_offset").at(1).to_number<int>(), 0);
      if (max_tokens > 0) {
        EXPECT_EQ(logprobs.at("text_offset").as_array().back().to_number<int>(), 9);
      }
      if (streams) continue;
      EXPECT_EQ(choice.at("finish_reason"), max_tokens == 0 ? "length" : "stop");
      EXPECT_EQ(parsed(*exchange).at("usage").at("completion_tokens").to_number<int>(),
                max_tokens == 0 ? 0 : std::ssize(answer));
    }
  }
}

TEST_F(CompletionLogprobsTest, PromptLogprobsNameTokensByTheirIds) {
  const auto exchange = complete(
      R"({"prompt": [5, 6], "prompt_logprobs": 1, "logprobs": 0, "echo": true, "max_tokens": 1})");
  EXPECT_EQ(generator_.requests.at(0).num_prompt_logprobs, 1);
  LogprobRow row{.logprob = -2.5F, .rank = 7, .top = {}};
  row.top[0] = {9, -0.5F};
  generator_.give(1, {8}, {{.logprob = -1, .rank = 1, .top = {}}}, {row});
  generator_.end(1, EndReason::kLength);
  pump();
  const json::value choice = parsed(*exchange).at("choices").at(0);
  const json::array& list = choice.at("prompt_logprobs").as_array();
  ASSERT_EQ(list.size(), 2U);
  EXPECT_TRUE(list.at(0).is_null());
  EXPECT_EQ(list.at(1).as_object().size(), 2U);
  EXPECT_EQ(list.at(1).at("6").at("logprob").to_number<double>(), -2.5);
  EXPECT_EQ(list.at(1).at("6").at("rank").to_number<int>(), 7);
  EXPECT_EQ(list.at(1).at("9").at("rank").to_number<int>(), 1);
  EXPECT_EQ(json::value(tokenizer_.token_bytes(9)), list.at(1).at("9").at("decoded_token"));
  // The member `logprobs` lists as many of the likeliest tokens as the parameter `logprobs` asks
  // for, and `prompt_logprobs` as many as the parameter `prompt_logprobs` asks for.
  EXPECT_EQ(choice.at("logprobs").at("top_logprobs").at(1).as_object().size(), 1U);
}

TEST_F(CompletionLogprobsTest, NamesNoMoreTokensThanTheVocabularyHas) {
  ServedModel model;
  model.names = {"tiny"};
  model.vocab_size = 3;
  model.max_seq_len = 100;
  start(std::move(model), {});
  const auto exchange = complete(R"({"prompt": [0, 1], "logprobs": 5, "prompt_logprobs": 4})");
  LogprobRow row{.logprob = -1, .rank = 1, .top = {}};
  for (int i = 0; i < LogprobRow::kMaxTop; ++i)
    row.top[i] = {i, -1.0F - static_cast<float>(i)};  // leftover values from the fourth on
  generator_.give(1, {0}, {row}, {row});
  generator_.end(1, EndReason::kLength);
  pump();
  const json::value choice = parsed(*exchange).at("choices").at(0);
  EXPECT_EQ(choice.at("logprobs").at("top_logprobs").at(0).as_object().size(), 3U);
  EXPECT_EQ(choice.at("prompt_logprobs").at(1).as_object().size(), 3U);
}

}  // namespace
}  // namespace encore::server
