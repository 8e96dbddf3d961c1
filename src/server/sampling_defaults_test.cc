#include "server/sampling_defaults.h"

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "base/testing/temp_dir.h"
#include "server/testing/api_fixture.h"

namespace encore::server {
namespace {

SamplingDefaults parsed(const std::string& text) {
  const json::value value = json::parse(text, "generation_config.json");
  return parse_sampling_defaults(json::Object(value, "generation_config.json"));
}

TEST(SamplingDefaults, AreWhatTheFileSays) {
  const SamplingDefaults defaults = parsed(
      R"({"do_sample": true, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "min_p": 0.05, "typical_p": 0.9,
          "max_new_tokens": 2048, "repetition_penalty": 1.25, "eos_token_id": [1, 2]})");
  EXPECT_EQ(defaults.params.temperature, 0.7F);
  EXPECT_EQ(defaults.params.top_p, 0.8F);
  EXPECT_EQ(defaults.params.top_k, 20);
  EXPECT_EQ(defaults.params.min_p, 0.05F);
  EXPECT_EQ(defaults.params.typical_p, 0.9F);
  EXPECT_EQ(defaults.params.repetition_penalty, 1.25F);
  EXPECT_EQ(defaults.max_tokens, 2048);
  EXPECT_TRUE(defaults.ignored.empty());
}

TEST(SamplingDefaults, AreThoseOfTheProtocolWhereTheFileSaysNothing) {
  for (const SamplingDefaults& defaults :
       {parsed("{}"), parsed(R"({"temperature": null, "top_k": -1, "top_p": 0})"),
        read_sampling_defaults("/nowhere")}) {
    EXPECT_EQ(defaults.params.temperature, 1);
    EXPECT_EQ(defaults.params.top_p, 1);
    EXPECT_LE(defaults.params.top_k, 0);
    EXPECT_EQ(defaults.params.min_p, 0);
    EXPECT_FALSE(defaults.max_tokens.has_value());
  }
}

TEST(SamplingDefaults, AModelThatIsNotSampledTakesTheMostLikelyToken) {
  EXPECT_EQ(parsed(R"({"do_sample": false, "temperature": 0.7})").params.temperature, 0);
}

TEST(SamplingDefaults, NameWhatTheEngineDoesNotDo) {
  const SamplingDefaults defaults = parsed(
      R"({"no_repeat_ngram_size": 3, "num_beams": 4, "epsilon_cutoff": 0.0, "penalty_alpha": null})");
  EXPECT_EQ(defaults.ignored, (std::vector<std::string>{"no_repeat_ngram_size 3", "num_beams 4"}));
}

TEST(SamplingDefaults, RefuseValuesOutOfRangeNamingFileAndKey) {
  const TempDir dir;
  for (const auto& [text, key] :
       std::map<std::string, std::string>{{R"({"temperature": -1})", "temperature"},
                                          {R"({"top_p": 1.5})", "top_p"},
                                          {R"({"min_p": 1})", "min_p"},
                                          {R"({"top_k": 1e12})", "top_k"},
                                          {R"({"top_k": "many"})", "top_k"},
                                          {R"({"top_k": 1.5})", "top_k"},
                                          {R"({"repetition_penalty": 0})", "repetition_penalty"},
                                          {R"({"max_new_tokens": 0})", "max_new_tokens"},
                                          {R"({"do_sample": 1})", "do_sample"}}) {
    dir.write("generation_config.json", text);
    const std::string message =
        message_of(ErrorKind::kModel, [&] { read_sampling_defaults(dir.path()); });
    EXPECT_NE(message.find(key), std::string::npos) << text << ": " << message;
    EXPECT_NE(message.find("generation_config.json"), std::string::npos) << message;
  }
}

class SamplingDefaultsTest : public testing::ApiTest {};

TEST_F(SamplingDefaultsTest, HoldUnlessTheRequestSaysOtherwise) {
  ServedModel model;
  model.names = {"stories"};
  model.tokenizer = &tokenizer_;
  model.chat_template = &chat_template_;
  model.vocab_size = tokenizer_.vocab_size();
  model.max_seq_len = 1000;
  model.sampling = {.params = {.temperature = 0.5, .top_k = 20, .top_p = 0.75, .min_p = 0.25},
                    .max_tokens = 70};
  start(std::move(model), {});
  send("POST", "/v1/completions", R"({"prompt": "x"})");
  send("POST", "/v1/responses", R"({"input": "x"})");
  send(
      "POST", "/v1/chat/completions",
      R"({"messages": [{"role": "user", "content": "x"}], "temperature": 2, "top_p": 1, "top_k": -1,
           "min_p": 0, "max_tokens": 80})");
  ASSERT_EQ(generator_.requests.size(), 3U);
  for (size_t i = 0; i < 2; ++i) {
    const sample::SamplingParams& sampling = generator_.requests[i].sampling;
    EXPECT_EQ(sampling.temperature, 0.5F);
    EXPECT_EQ(sampling.top_p, 0.75F);
    EXPECT_EQ(sampling.top_k, 20);
    EXPECT_EQ(sampling.min_p, 0.25F);
  }
  EXPECT_EQ(generator_.requests[0].max_tokens, 16);
  EXPECT_EQ(generator_.requests[1].max_tokens, 70);
  const engine::Request& other = generator_.requests[2];
  EXPECT_EQ(other.sampling.temperature, 2);
  EXPECT_EQ(other.sampling.top_p, 1);
  EXPECT_EQ(other.sampling.top_k, -1);
  EXPECT_EQ(other.sampling.min_p, 0);
  EXPECT_EQ(other.max_tokens, 80);
}

}  // namespace
}  // namespace encore::server
