#include "server/completions.h"

#include "server/api_fixture.h"

namespace encore::server {
namespace {

using engine::EndReason;

class CompletionsTest : public testing::ApiTest {
 protected:
  std::shared_ptr<testing::Exchange> complete(std::string body) {
    return send("POST", "/v1/completions", std::move(body));
  }
  void expect_refused(std::string body, std::string_view param, std::string_view code) {
    const auto exchange = complete(body);
    EXPECT_EQ(exchange->status, 400) << body;
    const json::value answer = parsed(*exchange);
    EXPECT_EQ(error(answer).at("param"), json::value(param)) << exchange->body;
    EXPECT_EQ(error(answer).at("code"), json::value(code)) << exchange->body;
  }
};

TEST_F(CompletionsTest, AnswersOnceAllIsGenerated) {
  const auto exchange = complete(R"({"prompt": "One day", "max_tokens": 9})");
  ASSERT_EQ(generator_.requests.size(), 1U);
  EXPECT_EQ(generator_.requests[0].prompt, tokenizer_.encode("One day"));
  EXPECT_EQ(generator_.requests[0].max_tokens, 9);
  EXPECT_EQ(generator_.requests[0].stop_tokens, std::vector{*tokenizer_.eos_id()});
  const std::vector<int32_t> tokens = ids(" a cat sat.");
  for (const int32_t token : tokens)
    generator_.give(1, {token});
  pump();
  EXPECT_FALSE(exchange->has_ended);
  generator_.end(1, EndReason::kStop, {*tokenizer_.eos_id()});
  pump();
  ASSERT_TRUE(exchange->has_ended);
  EXPECT_EQ(exchange->status, 200);
  const json::value body = parsed(*exchange);
  EXPECT_EQ(body.at("choices").at(0).at("text"), " a cat sat.");
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_TRUE(body.at("choices").at(0).at("stop_reason").is_null());
  EXPECT_EQ(body.at("usage").at("completion_tokens"), std::ssize(tokens) + 1);
}

TEST_F(CompletionsTest, TakesTheDefaultsOfTheProtocol) {
  complete(R"({"prompt": "One day"})");
  const engine::Request& request = generator_.requests.at(0);
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.top_p, 1);
  EXPECT_EQ(request.sampling.top_k, 0);
}

TEST_F(CompletionsTest, HandsOnEverySamplingParameter) {
  complete(
      R"({"prompt": "One day", "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125,
          "typical_p": 0.375, "repetition_penalty": 1.5, "presence_penalty": -0.5, "frequency_penalty": 0.75,
          "logit_bias": {"5": 1.5, "9": -100}, "min_tokens": 3, "seed": 9, "n": 2})");
  ASSERT_EQ(generator_.requests.size(), 2U);
  const sample::SamplingParams& sampling = generator_.requests[0].sampling;
  EXPECT_EQ(sampling.temperature, 0.5F);
  EXPECT_EQ(sampling.top_p, 0.25F);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.min_p, 0.125F);
  EXPECT_EQ(sampling.typical_p, 0.375F);
  EXPECT_EQ(sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(sampling.presence_penalty, -0.5F);
  EXPECT_EQ(sampling.frequency_penalty, 0.75F);
  EXPECT_EQ(sampling.seed, 9);
  EXPECT_EQ(generator_.requests[0].min_tokens, 3);
  EXPECT_EQ(generator_.requests[0].token_bias, (std::vector<TokenBias>{{5, 1.5F}, {9, -100}}));
  EXPECT_EQ(generator_.requests[1].sampling.seed, 10);
}

TEST_F(CompletionsTest, StreamsTheUsageSoFarWhereItIsAskedFor) {
  const auto exchange = complete(
      R"({"prompt": "One day", "n": 2, "stream": true,
          "stream_options": {"include_usage": true, "continuous_usage_stats": true}})");
  generator_.give(1, ids(" a cat"));
  generator_.give(2, ids(" sat"));
  pump();
  const auto all = events(*exchange);
  ASSERT_EQ(all.size(), 2U);
  const int64_t first = std::ssize(ids(" a cat"));
  EXPECT_EQ(all[0].at("usage").at("completion_tokens"), first);
  EXPECT_EQ(all[1].at("usage").at("completion_tokens"), first + std::ssize(ids(" sat")));
  EXPECT_EQ(all[1].at("usage").at("prompt_tokens"), std::ssize(tokenizer_.encode("One day")));
}

TEST_F(CompletionsTest, StreamsTheTextOfEachUpdate) {
  const auto exchange = complete(
      R"({"prompt": "One day", "stream": true, "stream_options": {"include_usage": true}})");
  EXPECT_EQ(exchange->header("Content-Type"), "text/event-stream");
  generator_.give(1, ids(" a cat"));
  pump();
  EXPECT_EQ(events(*exchange).size(), 1U);
  generator_.end(1, EndReason::kLength, ids(" sat"));
  pump();
  const auto all = events(*exchange);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].at("choices").at(0).at("text"), " a cat");
  EXPECT_TRUE(all[0].at("choices").at(0).at("finish_reason").is_null());
  EXPECT_EQ(all[1].at("choices").at(0).at("finish_reason"), "length");
  EXPECT_TRUE(all[2].at("choices").as_array().empty());
  EXPECT_EQ(all[2].at("usage").at("total_tokens"), std::ssize(tokenizer_.encode("One day")) +
                                                       std::ssize(ids(" a cat")) +
                                                       std::ssize(ids(" sat")));
  EXPECT_TRUE(exchange->has_ended);
}

TEST_F(CompletionsTest, AStopStringEndsTheChoiceAndItsSequence) {
  const auto exchange = complete(R"({"prompt": "One day", "stop": "cat sat", "n": 2})");
  generator_.give(1, ids(" a cat sat down"));
  pump();
  EXPECT_EQ(generator_.aborted, std::vector<engine::RequestId>{1});
  generator_.give(1, ids(" and more"));
  generator_.end(1, EndReason::kAborted);
  generator_.end(2, EndReason::kLength, ids(" a dog"));
  pump();
  const json::value body = parsed(*exchange);
  EXPECT_EQ(body.at("choices").at(0).at("text"), " a ");
  EXPECT_EQ(body.at("choices").at(0).at("stop_reason"), "cat sat");
  EXPECT_EQ(body.at("choices").at(1).at("text"), " a dog");
  EXPECT_EQ(body.at("choices").at(1).at("finish_reason"), "length");
}

TEST_F(CompletionsTest, EchoBeginsWithThePromptAndChoicesAreNumberedByPrompt) {
  const auto exchange =
      complete(R"({"prompt": ["One day", "The cat"], "n": 2, "echo": true, "max_tokens": 1})");
  for (engine::RequestId id = 1; id <= 4; ++id)
    generator_.end(id, EndReason::kLength, ids("!"));
  pump();
  const json::value body = parsed(*exchange);
  EXPECT_EQ(body.at("choices").at(1).at("text"), "One day!");
  EXPECT_EQ(body.at("choices").at(2).at("text"), "The cat!");
  EXPECT_EQ(body.at("choices").at(3).at("index"), 3);
}

TEST_F(CompletionsTest, AClientThatLeavesHasItsSequencesAborted) {
  const auto exchange = complete(R"({"prompt": "One day", "n": 2, "stream": true})");
  generator_.give(1, ids(" a"));
  pump();
  exchange->leave();
  EXPECT_EQ(generator_.aborted, (std::vector<engine::RequestId>{1, 2}));
  generator_.give(2, ids(" b"));
  generator_.end(1, EndReason::kAborted);
  pump();
  EXPECT_EQ(events(*exchange).size(), 1U);
}

TEST_F(CompletionsTest, ADeviceErrorIsTheAnswerAndEndsAStream) {
  const auto whole = complete(R"({"prompt": "One day"})");
  const auto stream = complete(R"({"prompt": "One day", "stream": true})");
  generator_.give(2, ids(" a"));
  for (const engine::RequestId id : {1, 2})
    generator_.end(id, EndReason::kError, {}, "the GPU is gone");
  pump();
  EXPECT_EQ(whole->status, 500);
  EXPECT_EQ(error(parsed(*whole)).at("message"), "the GPU is gone");
  const auto all = events(*stream);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(error(all[1]).at("code"), "device_error");
  EXPECT_TRUE(stream->has_ended);
}

TEST_F(CompletionsTest, AFullQueueAndADrainSayWhenToComeAgain) {
  generator_.refusal = engine::Refusal{engine::RefusalKind::kQueueFull, "all places are taken"};
  const auto full = complete(R"({"prompt": "One day"})");
  EXPECT_EQ(full->status, 429);
  EXPECT_EQ(full->header("Retry-After"), "1");
  generator_.refusal = engine::Refusal{engine::RefusalKind::kDraining, "the end is near"};
  EXPECT_EQ(complete(R"({"prompt": "One day"})")->status, 503);
  EXPECT_EQ(send("GET", "/health")->status, 503);
  EXPECT_EQ(send("GET", "/live")->status, 200);
}

TEST_F(CompletionsTest, RefusesWhatIsWrongNamingIt) {
  expect_refused(R"({"prompt": "x", "bogus": 1})", "bogus", "unknown_parameter");
  expect_refused(R"({"prompt": "x", "max_tokens": 1000})", "max_tokens", "context_length_exceeded");
  expect_refused(R"({"prompt": "x", "temperature": -1})", "temperature", "out_of_range");
  expect_refused(R"({"prompt": "x", "temperature": "hot"})", "temperature", "invalid_type");
  expect_refused(R"({"prompt": "x", "n": 5000000})", "n", "out_of_range");
  expect_refused(R"({"prompt": "x", "n": 1.5})", "n", "invalid_type");
  expect_refused(R"({"prompt": "x", "top_p": 0})", "top_p", "out_of_range");
  expect_refused(R"({"prompt": "x", "min_p": 1})", "min_p", "out_of_range");
  expect_refused(R"({"prompt": "x", "seed": 1e300})", "seed", "invalid_type");
  expect_refused(R"({"prompt": "x", "stop": [""]})", "stop", "out_of_range");
  expect_refused(R"({"prompt": "x", "stop_token_ids": [99999]})", "stop_token_ids", "out_of_range");
  expect_refused(R"({"prompt": "x", "min_tokens": 17})", "min_tokens", "out_of_range");
  expect_refused(R"({"prompt": "x", "logprobs": 21})", "logprobs", "out_of_range");
  expect_refused(R"({"prompt": "x", "prompt_logprobs": 1, "stream": true})", "prompt_logprobs",
                 "unsupported_parameter");
  expect_refused(
      R"({"prompt": "x", "stream": true, "stream_options": {"continuous_usage_stats": true}})",
      "stream_options", "invalid_value");
  expect_refused(R"({"prompt": "x", "prompt_logprobs": 21})", "prompt_logprobs", "out_of_range");
  expect_refused(R"({"prompt": "x", "repetition_penalty": 0})", "repetition_penalty",
                 "out_of_range");
  expect_refused(R"({"prompt": "x", "presence_penalty": 2.5})", "presence_penalty", "out_of_range");
  expect_refused(R"({"prompt": "x", "top_k": 99999999999})", "top_k", "out_of_range");
  for (const char* biases : {R"({"5": 101})", R"({"5": "much"})", R"({"99999": 1})", R"({"-1": 1})",
                             R"({"a": 1})", R"({"5": 1, "05": 2})"}) {
    const auto exchange = complete(fmt::format(R"({{"prompt": "x", "logit_bias": {}}})", biases));
    EXPECT_EQ(exchange->status, 400) << biases;
    EXPECT_EQ(error(parsed(*exchange)).at("param"), "logit_bias") << biases;
  }
  expect_refused(R"({"prompt": [-1]})", "prompt", "out_of_range");
  expect_refused(R"({"prompt": [[1], 2]})", "prompt", "invalid_type");
  expect_refused(R"({"prompt": 5})", "prompt", "invalid_type");
  expect_refused(R"({})", "prompt", "missing_parameter");
  std::string list;
  for (int i = 0; i < 200; ++i)
    list += R"("x",)";
  expect_refused(R"({"n": 2, "prompt": [)" + list + R"("x"]})", "prompt", "out_of_range");
  EXPECT_TRUE(generator_.requests.empty());
}

TEST_F(CompletionsTest, RefusesWhatIsNotSupportedUnlessItAsksForNothing) {
  expect_refused(R"({"prompt": "x", "best_of": 2})", "best_of", "unsupported_parameter");
  expect_refused(R"({"prompt": "x", "suffix": "y"})", "suffix", "unsupported_parameter");
  expect_refused(R"({"prompt": "x", "use_beam_search": true})", "use_beam_search",
                 "unsupported_parameter");
  EXPECT_TRUE(generator_.requests.empty());
  complete(R"({"prompt": "x", "best_of": 1.0, "suffix": "", "use_beam_search": false})");
  EXPECT_EQ(generator_.requests.size(), 1U);
}

// Twice the same tokens, whole and as a stream.
TEST_F(CompletionsTest, GivesLogProbabilitiesOfTokensAndOfTheLikeliest) {
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
    generator_.end(id, engine::EndReason::kStop);
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

// As clients that rate texts ask: nothing is generated, and the prompt's tokens have their offsets in
// the echoed text, in which special tokens take no place.
TEST_F(CompletionsTest, EchoWithLogprobsGivesThoseOfThePrompt) {
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

TEST_F(CompletionsTest, PromptLogprobsNameTokensByTheirIds) {
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
  // Each field has as many of the likeliest as it asks for.
  EXPECT_EQ(choice.at("logprobs").at("top_logprobs").at(1).as_object().size(), 1U);
}

TEST_F(CompletionsTest, NamesNoMoreTokensThanTheVocabularyHas) {
  ServedModel model;
  model.names = {"tiny"};
  model.vocab_size = 3;
  model.max_seq_len = 100;
  start(std::move(model), {});
  const auto exchange = complete(R"({"prompt": [0, 1], "logprobs": 5, "prompt_logprobs": 4})");
  LogprobRow row{.logprob = -1, .rank = 1, .top = {}};
  for (int i = 0; i < LogprobRow::kMaxTop; ++i)
    row.top[i] = {i, -1.0F - static_cast<float>(i)};  // from the fourth on what was there before
  generator_.give(1, {0}, {row}, {row});
  generator_.end(1, EndReason::kLength);
  pump();
  const json::value choice = parsed(*exchange).at("choices").at(0);
  EXPECT_EQ(choice.at("logprobs").at("top_logprobs").at(0).as_object().size(), 3U);
  EXPECT_EQ(choice.at("prompt_logprobs").at(1).as_object().size(), 3U);
}

TEST_F(CompletionsTest, TakesRefusedParametersAtTheValueThatChangesNothing) {
  const auto exchange = complete(
      R"({"prompt": "x", "logprobs": null, "best_of": 1, "presence_penalty": 0, "suffix": "",
          "frequency_penalty": 0.0, "logit_bias": {}, "user": "me", "response_format": {"type": "text"}})");
  EXPECT_EQ(generator_.requests.size(), 1U) << exchange->body;
}

TEST_F(CompletionsTest, MayTakeUnknownParametersWithAWarning) {
  start({.unknown_parameters = UnknownParameters::kWarn});
  ::testing::internal::CaptureStderr();
  complete("{\"prompt\": \"x\", \"bogus\\nname\": 1}");
  EXPECT_EQ(generator_.requests.size(), 1U);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "encore: warning: parameter \"bogus\\nname\" is unknown and has no effect\n");
}

TEST_F(CompletionsTest, RefusesAModelThatIsNotServed) {
  const auto exchange = complete(R"({"prompt": "x", "model": "gpt-4"})");
  EXPECT_EQ(exchange->status, 404);
  EXPECT_EQ(error(parsed(*exchange)).at("code"), "model_not_found");
}

TEST_F(CompletionsTest, AnswersWithIdsWhereThereIsNoTokenizer) {
  ServedModel model;
  model.names = {"synthetic"};
  model.vocab_size = 100;
  model.max_seq_len = 50;
  start(model, {});
  EXPECT_EQ(complete(R"({"prompt": "text"})")->status, 400);
  const auto exchange = complete(R"({"prompt": [1, 2]})");
  generator_.give(1, {7});
  generator_.end(1, EndReason::kLength, {8, 9});
  pump();
  EXPECT_EQ(parsed(*exchange).at("choices").at(0).at("text"), "7 8 9");
}

}  // namespace
}  // namespace encore::server
