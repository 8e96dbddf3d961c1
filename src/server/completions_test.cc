#include "server/completions.h"

#include "server/openai_format.h"
#include "server/testing/api_fixture.h"

namespace encore::server {
namespace {

using engine::EndReason;

class CompletionsTest : public testing::ApiTest {
 protected:
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

TEST_F(CompletionsTest, WithoutTheModelsEndTheOtherStopTokensAreHeldBackAsLong) {
  for (const bool ignores : {false, true}) {
    generator_.requests.clear();
    complete(fmt::format(R"({{"prompt": "One day", "ignore_eos": {}, "min_tokens": 3,
                              "stop_token_ids": [7, 9]}})",
                         ignores));
    const engine::Request& request = generator_.requests.at(0);
    std::vector<int32_t> expected{7, 9};
    if (!ignores) expected.push_back(*tokenizer_.eos_id());
    std::vector<int32_t> stops = request.stop_tokens;
    std::ranges::sort(stops);
    std::ranges::sort(expected);
    EXPECT_EQ(stops, expected) << ignores;
    EXPECT_EQ(request.min_tokens, 3);
  }
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
  EXPECT_EQ(exchange->header("Content-Type"), "text/event-stream; charset=utf-8");
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
  expect_refused(R"({"prompt": "x", "top_p": -0.1})", "top_p", "out_of_range");
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

TEST_F(CompletionsTest, TakesRefusedParametersAtTheValueThatChangesNothing) {
  const auto exchange = complete(
      R"({"prompt": "x", "logprobs": null, "presence_penalty": 0, "suffix": "",
          "frequency_penalty": 0.0, "logit_bias": {}, "user": "me", "response_format": {"type": "text"},
          "no_stop_trim": false, "return_hidden_states": false, "separate_reasoning": true,
          "stream_reasoning": true, "length_penalty": 1, "bad_words": [], "n": 3, "best_of": 3,
          "unheard_of": null, "stream_options": {"include_obfuscation": false}})");
  EXPECT_EQ(generator_.requests.size(), 3U) << exchange->body;
  for (const char* refused :
       {R"("no_stop_trim": true)", R"("separate_reasoning": false)", R"("best_of": 2)",
        R"("stream_options": {"include_obfuscation": true})",
        R"("stream_options": {"include_usage": true})"}) {
    const auto other = complete(fmt::format(R"({{"prompt": "x", {}}})", refused));
    EXPECT_EQ(other->status, 400) << refused;
  }
}

TEST_F(CompletionsTest, TakesATopPOfZero) {
  complete(R"({"prompt": "x", "temperature": 1, "top_p": 0})");
  ASSERT_EQ(generator_.requests.size(), 1U);
  EXPECT_EQ(generator_.requests[0].sampling.top_p, 0);
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

TEST_F(CompletionsTest, TakesAnAdapterAsAModel) {
  ServedModel model;
  model.names = {"base", "other"};
  model.adapters->put({"poet", "/adapters/poet"});
  model.adapters->put({"base:odd", "/adapters/odd"});
  model.vocab_size = 100;
  model.max_seq_len = 50;
  start(model, {});
  const std::pair<const char*, const char*> rows[] = {
      {"poet", "poet"}, {"base:poet", "poet"}, {"other:poet", "poet"},
      {"base", ""},     {"other", ""},         {"base:odd", "base:odd"}};
  for (const auto& [name, adapter] : rows) {
    complete(fmt::format(R"({{"prompt": [1, 2], "model": "{}"}})", name));
    EXPECT_EQ(generator_.requests.back().adapter, adapter) << name;
  }
  complete(R"({"prompt": [1, 2]})");
  EXPECT_EQ(generator_.requests.back().adapter, "");
  for (const char* name : {"poets", "base:poets", "base:", ":poet", "poet:poet"}) {
    const auto exchange = complete(fmt::format(R"({{"prompt": [1, 2], "model": "{}"}})", name));
    EXPECT_EQ(exchange->status, 404) << name;
  }
  EXPECT_EQ(generator_.requests.size(), std::size(rows) + 1);
}

TEST(UsageJson, SaysHowManyTokensWereDraftsThatWereRight) {
  EXPECT_FALSE(to_json(Usage{.completion_tokens = 9}).contains("completion_tokens_details"));
  const auto details = to_json(Usage{.completion_tokens = 9, .drafted_tokens = 4})
                           .at("completion_tokens_details")
                           .as_object();
  EXPECT_EQ(details, (json::object{{"accepted_prediction_tokens", 4}}));
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
