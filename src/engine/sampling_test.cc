// Tests the parameters by which requests choose tokens, however far the device runs ahead of the
// host.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

using testing::Tiny;

using Tokens = std::vector<int32_t>;

// A bias that is larger than any logit of the model.
constexpr float kMuch = 1e4F;
constexpr float kNever = -std::numeric_limits<float>::infinity();

class SamplingTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    LoadOptions options;
    options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
    options.kv_tokens = 256;
    options.dtype = DType::kF32;
    options.bursts = true;
    model_ = std::make_unique<LoadedModel>(*device_, testing::tiny_model(Tiny::kLlama),
                                           testing::with_feature(options));
  }

  static std::vector<EngineOptions> ways() {
    return {{.overlap = false}, {.overlap = true}, {.overlap = true, .burst_steps = 16}};
  }
  // Runs all requests at once, and returns the tokens of each.
  std::vector<Tokens> generate(const std::vector<Request>& requests, const EngineOptions& way) {
    Engine engine(*model_, way);
    std::map<SequenceId, Tokens> tokens;
    for (const Request& request : requests) {
      const auto added = engine.add(request);
      EXPECT_TRUE(std::holds_alternative<SequenceId>(added)) << std::get<Rejection>(added).why;
      tokens[std::get<SequenceId>(added)];
    }
    while (engine.step([&](const Generated& generated) {
      tokens[generated.sequence].push_back(generated.token);
      if (generated.logprobs) logprobs_.push_back(*generated.logprobs);
    })) {
    }
    num_preemptions_ = engine.scheduler().num_preemptions();
    std::vector<Tokens> list;
    for (auto& [id, row] : tokens)
      list.push_back(std::move(row));
    return list;
  }
  Tokens generate(const Request& request, const EngineOptions& way = {}) {
    return generate(std::vector{request}, way).front();
  }
  std::string why_not(const Request& request) {
    Engine engine(*model_);
    const auto rejection = engine.check(request);
    return rejection ? rejection->why : "";
  }

  std::unique_ptr<LoadedModel> model_;
  std::vector<LogprobRow> logprobs_;
  int64_t num_preemptions_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Devices, SamplingTest, ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(SamplingTest, ABiasMakesATokenCertainOrImpossible) {
  const Tokens plain = generate({.prompt = {1, 2}, .max_tokens = 20});
  for (const EngineOptions& way : ways()) {
    EXPECT_EQ(generate({.prompt = {1, 2}, .max_tokens = 5, .token_bias = {{7, kMuch}}}, way),
              Tokens(5, 7));
    const Tokens other =
        generate({.prompt = {1, 2}, .max_tokens = 20, .token_bias = {{plain[0], kNever}}}, way);
    EXPECT_EQ(std::count(other.begin(), other.end(), plain[0]), 0);
  }
}

// Each time that one of the two tokens comes, its logit falls by 2, so neither gets far ahead,
// whatever their logits are.
TEST_P(SamplingTest, AFrequencyPenaltyCountsEveryTokenThatTheDeviceSampled) {
  const Request request{.prompt = {5, 5, 9},
                        .max_tokens = 100,
                        .sampling = {.frequency_penalty = 2},
                        .token_bias = {{5, kMuch + 1.5F}, {9, kMuch}}};
  for (const EngineOptions& way : ways()) {
    const Tokens tokens = generate(request, way);
    int64_t fives = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      ASSERT_TRUE(tokens[i] == 5 || tokens[i] == 9) << i;
      fives += tokens[i] == 5 ? 1 : 0;
      EXPECT_LE(std::abs(2 * fives - static_cast<int64_t>(i)), 8) << "after " << i;
    }
  }
}

TEST_P(SamplingTest, APresencePenaltyIsTakenOnceAndNotForThePrompt) {
  // Token 6 leads token 8 by more than one penalty. If the penalty were taken for each occurrence,
  // 8 would win in the end.
  const Request request{.prompt = {6, 8},
                        .max_tokens = 40,
                        .sampling = {.presence_penalty = 2},
                        .token_bias = {{6, kMuch + 30}, {8, kMuch}}};
  for (const EngineOptions& way : ways())
    EXPECT_EQ(generate(request, way), Tokens(40, 6));
}

TEST_P(SamplingTest, ARepetitionPenaltyHoldsForThePromptToo) {
  const std::vector<TokenBias> bias = {{6, kMuch * 2}, {8, kMuch * 1.5F}};
  const SamplingParams penalty{.repetition_penalty = 2};
  for (const EngineOptions& way : ways()) {
    // Token 6 is in the prompt, so its logit is halved. That of token 8 is halved once it was
    // generated.
    const Request request{.prompt = {6}, .max_tokens = 3, .sampling = penalty, .token_bias = bias};
    EXPECT_EQ(generate(request, way), (Tokens{8, 6, 6}));
    const Request other{.prompt = {3}, .max_tokens = 3, .sampling = penalty, .token_bias = bias};
    EXPECT_EQ(generate(other, way), (Tokens{6, 8, 6}));
  }
}

TEST_P(SamplingTest, NoStopTokenComesBeforeTheLeastNumberOfTokens) {
  for (const EngineOptions& way : ways()) {
    for (const int64_t least : {0, 1, 7, 20}) {
      const Tokens tokens = generate({.prompt = {1, 2},
                                      .max_tokens = 20,
                                      .min_tokens = least,
                                      .token_bias = {{30, kMuch}},
                                      .stop_tokens = {31, 30}},
                                     way);
      ASSERT_EQ(std::ssize(tokens), std::min<int64_t>(least + 1, 20)) << least;
      EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 30), least < 20 ? 1 : 0);
    }
  }
}

// The requests have neither a bias nor a penalty. So the device adjusts their logits only because
// they ask for a least number of tokens.
TEST_P(SamplingTest, ALikelyStopTokenComesOnlyBehindTheLeastNumberOfTokens) {
  const Tokens plain = generate({.prompt = {1, 2}, .max_tokens = 20});
  for (const EngineOptions& way : ways()) {
    for (auto stop = plain.begin(); stop != plain.end(); ++stop) {
      if (std::find(plain.begin(), stop, *stop) != stop) continue;
      const int64_t num_before = stop - plain.begin();
      Request request{
          .prompt = {1, 2}, .max_tokens = 30, .min_tokens = num_before, .stop_tokens = {*stop}};
      EXPECT_EQ(generate(request, way), Tokens(plain.begin(), stop + 1));
      ++request.min_tokens;
      const Tokens tokens = generate(request, way);
      EXPECT_TRUE(std::equal(plain.begin(), stop, tokens.begin()));
      EXPECT_GT(std::ssize(tokens), request.min_tokens);
      EXPECT_NE(tokens[num_before], *stop);
    }
  }
}

// The place of the stop token among other stop tokens that never come, and the further parameters
// of the request.
struct HeldStop {
  size_t place;
  size_t num_stops;
  bool has_bias = false;
  bool has_penalty = false;
};

TEST_P(SamplingTest, EveryStopTokenIsHeldBackWhateverItsPlaceAmongTheOthers) {
  constexpr HeldStop kCases[] = {
      {.place = 0, .num_stops = 1},
      {.place = 7, .num_stops = 8},
      {.place = 8, .num_stops = 9},
      {.place = 0, .num_stops = 30},
      {.place = 29, .num_stops = 30},
      {.place = 8, .num_stops = 9, .has_bias = true},
      {.place = 20, .num_stops = 21, .has_penalty = true},
      {.place = 900, .num_stops = 901, .has_bias = true, .has_penalty = true},
  };
  for (const auto& [place, num_stops, has_bias, has_penalty] : kCases) {
    Request request{.prompt = {1, 2}, .max_tokens = 20};
    if (has_bias) request.token_bias = {{5, kNever}, {6, 0.5F}};
    if (has_penalty) request.sampling.presence_penalty = 0.25F;
    const Tokens plain = generate(request, {.overlap = false});
    // The answer begins with `num_before` tokens in front of one that comes for the first time.
    size_t num_before = 3;
    const auto is_new = [&] {
      const auto end = plain.begin() + static_cast<std::ptrdiff_t>(num_before);
      return std::find(plain.begin(), end, plain[num_before]) == end;
    };
    while (!is_new())
      ASSERT_LT(++num_before, plain.size());
    const int32_t stop = plain[num_before];
    for (int32_t token = 0; request.stop_tokens.size() < num_stops; ++token) {
      if (std::find(plain.begin(), plain.end(), token) == plain.end())
        request.stop_tokens.push_back(token);
    }
    request.stop_tokens[place] = stop;
    const Request companion{.prompt = {9, 8, 7}, .max_tokens = 15};
    const Tokens companions = generate(companion, {.overlap = false});
    for (const EngineOptions& way : ways()) {
      SCOPED_TRACE(fmt::format("stop token {} of {}, bias {}, penalty {}, overlap {}, bursts of {}",
                               place, num_stops, has_bias, has_penalty, *way.overlap,
                               way.burst_steps));
      request.min_tokens = static_cast<int64_t>(num_before);
      EXPECT_EQ(generate(request, way), Tokens(plain.begin(), plain.begin() + num_before + 1));
      ++request.min_tokens;
      const std::vector<Tokens> held = generate({companion, request}, way);
      EXPECT_EQ(held[0], companions);
      ASSERT_GT(held[1].size(), num_before);
      EXPECT_TRUE(std::equal(plain.begin(), plain.begin() + num_before, held[1].begin()));
      EXPECT_NE(held[1][num_before], stop);
      for (size_t i = 0; i <= num_before; ++i)
        EXPECT_EQ(std::ranges::count(request.stop_tokens, held[1][i]), 0) << i;
    }
  }
}

// Four sequences run, more than the pages allow, beside sequences that have no penalties.
TEST_P(SamplingTest, EachSequenceKeepsItsOwnCountsThroughPreemption) {
  std::vector<Request> requests;
  for (int32_t i = 0; i < 9; ++i) {
    Request request{.prompt = Tokens(static_cast<size_t>(20 + 5 * i), i), .max_tokens = 60};
    if (i % 3 != 0) request.sampling = {.repetition_penalty = 1.2F, .presence_penalty = 0.3F};
    if (i % 3 == 2) {
      request.sampling.temperature = 1;
      request.sampling.frequency_penalty = 0.5F;
      request.sampling.seed = i;
      request.token_bias = {{i, 3.0F}, {i + 1, kNever}};
    }
    requests.push_back(request);
  }
  std::vector<Tokens> alone;
  for (const Request& request : requests)
    alone.push_back(generate(request, {.overlap = false}));
  for (const EngineOptions& way : ways()) {
    EXPECT_EQ(generate(requests, way), alone);
    EXPECT_GT(num_preemptions_, 0);
  }
}

// Two sequences need all pages before the first of them ends, so the third one loses its pages. A
// sequence that came later but goes first then takes the third one's row, while the third waits for
// the second to end.
TEST_P(SamplingTest, ASequenceThatLostItsPagesFindsItsRowTakenAndKeepsItsCounts) {
  const Request first{.prompt = Tokens(30, 1), .max_tokens = 80};
  const Request second{.prompt = Tokens(30, 2), .max_tokens = 97};
  const Request loser{.prompt = Tokens(10, 3),
                      .max_tokens = 100,
                      .sampling = {.frequency_penalty = 2},
                      .token_bias = {{5, kMuch + 1.5F}, {9, kMuch}},
                      .priority = 1};
  const Request newcomer{.prompt = Tokens(5, 4), .max_tokens = 60, .token_bias = {{6, kMuch}}};
  const Tokens expected = generate(loser, {.overlap = false});
  for (const EngineOptions& way : ways()) {
    Engine engine(*model_, way);
    ASSERT_TRUE(std::holds_alternative<SequenceId>(engine.add(first)));
    ASSERT_TRUE(std::holds_alternative<SequenceId>(engine.add(second)));
    const auto id = std::get<SequenceId>(engine.add(loser));
    Tokens tokens;
    bool is_newcomer_there = false;
    while (engine.step([&](const Generated& generated) {
      if (generated.sequence == id) tokens.push_back(generated.token);
    })) {
      if (is_newcomer_there || engine.scheduler().num_preemptions() == 0) continue;
      engine.add(newcomer);
      is_newcomer_there = true;
    }
    EXPECT_TRUE(is_newcomer_there);
    EXPECT_EQ(tokens, expected);
  }
}

TEST_P(SamplingTest, GivesTheLogProbabilitiesThatAreAskedFor) {
  for (const EngineOptions& way : ways()) {
    logprobs_.clear();
    const std::vector<Tokens> tokens =
        generate({{.prompt = {1, 2}, .max_tokens = 30, .sampling = {.num_logprobs = 4}},
                  {.prompt = {3}, .max_tokens = 30}},
                 way);
    ASSERT_EQ(logprobs_.size(), 30U);
    for (size_t i = 0; i < logprobs_.size(); ++i) {
      const LogprobRow& row = logprobs_[i];
      EXPECT_EQ(row.rank, 1);
      EXPECT_EQ(row.top[0].token, tokens[0][i]);
      EXPECT_EQ(row.top[0].logprob, row.logprob);
      double sum = 0;
      for (int k = 0; k < 4; ++k) {
        sum += std::exp(row.top[k].logprob);
        EXPECT_LE(row.top[k].logprob, row.top[std::max(0, k - 1)].logprob);
      }
      EXPECT_LE(sum, 1);
    }
  }
}

TEST_P(SamplingTest, LogProbabilitiesAreThoseOfTheModelWhateverIsChosen) {
  const Tokens plain =
      generate({.prompt = {1, 2}, .max_tokens = 1, .sampling = {.num_logprobs = 3}});
  const LogprobRow before = logprobs_.back();
  const Tokens other = generate({.prompt = {1, 2},
                                 .max_tokens = 1,
                                 .sampling = {.num_logprobs = 3},
                                 .token_bias = {{plain[0], kNever}}});
  const LogprobRow after = logprobs_.back();
  EXPECT_EQ(after.rank, 2);
  EXPECT_EQ(after.top[0].token, plain[0]);
  EXPECT_EQ(after.top[1].token, other[0]);
  EXPECT_EQ(after.logprob, before.top[1].logprob);
}

TEST_P(SamplingTest, RefusesWhatCannotBe) {
  const Request good{.prompt = {1}, .max_tokens = 4};
  const auto with = [&](const auto& change) {
    Request request = good;
    change(request);
    return why_not(request);
  };
  EXPECT_EQ(why_not(good), "");
  EXPECT_NE(with([](Request& r) {
              r.token_bias = {{1000, 1}};
            }).find("token 1000"),
            std::string::npos);
  EXPECT_NE(with([](Request& r) { r.token_bias = {{-1, 1}}; }).find("token -1"), std::string::npos);
  EXPECT_NE(with([](Request& r) { r.token_bias = {{3, NAN}}; }).find("nan"), std::string::npos);
  EXPECT_NE(with([](Request& r) {
              r.token_bias = {{3, INFINITY}};
            }).find("bias of token 3 is inf"),
            std::string::npos);
  EXPECT_EQ(with([](Request& r) { r.token_bias = {{3, -INFINITY}}; }), "");
  EXPECT_NE(with([](Request& r) {
              r.token_bias = {{3, 1}, {4, 1}, {3, 2}};
            }).find("two biases"),
            std::string::npos);
  EXPECT_NE(with([](Request& r) { r.token_bias.resize(kMaxTokenBias + 1); }).find("1024"),
            std::string::npos);
  EXPECT_NE(with([](Request& r) {
              r.stop_tokens = {3, 1000};
            }).find("stop token 1000"),
            std::string::npos);
  EXPECT_NE(with([](Request& r) { r.stop_tokens = {-1}; }).find("stop token -1"),
            std::string::npos);
  const auto with_stops = [&](int64_t min_tokens, size_t num_stops) {
    return with([&](Request& r) {
      r.min_tokens = min_tokens;
      r.stop_tokens.assign(num_stops, 5);
      r.token_bias = {{3, 1}};
    });
  };
  EXPECT_EQ(with_stops(1, kMaxTokenBias + 7), "");
  EXPECT_NE(with_stops(1, kMaxTokenBias + 8).find("1032 together, not 1033"), std::string::npos);
  EXPECT_EQ(with_stops(0, kMaxTokenBias + 8), "");
  EXPECT_NE(with([](Request& r) { r.min_tokens = 5; }).find("min_tokens"), std::string::npos);
  EXPECT_NE(with([](Request& r) { r.sampling.presence_penalty = 3; }).find("presence_penalty"),
            std::string::npos);
  EXPECT_NE(with([](Request& r) { r.sampling.num_logprobs = 21; }).find("num_logprobs"),
            std::string::npos);
}

}  // namespace
}  // namespace encore::engine
