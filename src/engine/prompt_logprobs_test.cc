// Tests log probabilities of prompts. They are those of the model, however a prompt is cut or
// computed again, and whatever runs beside it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "backend/fault.h"
#include "diagnose/probe.h"
#include "engine/testing/tiny_model.h"
#include "loader/memory_plan.h"

namespace encore::engine {
namespace {

using testing::Tiny;

using Tokens = std::vector<int32_t>;
using Scores = std::vector<LogprobRow>;

constexpr int32_t kNumLikely = 3;

Tokens random_prompt(int seed, int64_t length) {
  std::mt19937 random(seed);
  Tokens prompt(static_cast<size_t>(length));
  for (int32_t& token : prompt)
    token = static_cast<int32_t>(random() % 1000);
  return prompt;
}

LoadOptions scoring_options() {
  LoadOptions options;
  options.limits = {.max_num_tokens = 80, .max_batch_size = 4, .max_q = 1, .max_seq_len = 256};
  options.kv_tokens = 1024;
  options.scores_prompts = true;
  options.page_size = 16;
  options.dtype = DType::kF32;
  options.bursts = true;
  return options;
}

// Returns the bits of the entries of each row that the request asked for.
std::vector<uint32_t> bits(const Scores& scores) {
  std::vector<uint32_t> bits;
  for (const LogprobRow& row : scores) {
    std::vector<uint32_t> words(2 + 2 * kNumLikely);
    std::memcpy(words.data(), &row, words.size() * sizeof(uint32_t));
    bits.insert(bits.end(), words.begin(), words.end());
  }
  return bits;
}

double log_softmax(const std::vector<double>& logits, int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits)
    sum += std::exp(logit - largest);
  return logits[static_cast<size_t>(token)] - largest - std::log(sum);
}

class PromptLogprobsTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) load(scoring_options());
  }
  void load(const LoadOptions& options) {
    model_.reset();
    model_ = std::make_unique<LoadedModel>(*device_, testing::tiny_model(Tiny::kLlama),
                                           testing::with_feature(options));
  }
  static std::vector<EngineOptions> ways() {
    return {{.overlap = false}, {.overlap = true}, {.overlap = true, .burst_steps = 16}};
  }

  // Runs all requests at once. Returns the scores of each prompt; the generated tokens go to
  // `tokens_`.
  std::vector<Scores> score(Engine& engine, const std::vector<Request>& requests) {
    std::map<SequenceId, std::pair<Scores, Tokens>> given;
    for (const Request& request : requests)
      given[std::get<SequenceId>(engine.add(request))];
    while (engine.step([&](const Generated& generated) {
      auto& [scores, tokens] = given[generated.sequence];
      EXPECT_TRUE(tokens.empty() || generated.prompt_logprobs.empty());
      if (tokens.empty()) scores = generated.prompt_logprobs;
      tokens.push_back(generated.token);
    })) {
    }
    EXPECT_EQ(engine.page_pool().num_free(), engine.page_pool().num_pages());
    std::vector<Scores> list;
    tokens_.clear();
    for (auto& [id, of_one] : given) {
      list.push_back(std::move(of_one.first));
      tokens_.push_back(std::move(of_one.second));
    }
    return list;
  }
  Scores score(const Tokens& prompt, const EngineOptions& way = {}) {
    Engine engine(*model_, way);
    return score(engine, {asking(prompt)}).front();
  }
  static Request asking(const Tokens& prompt, int64_t max_tokens = 4) {
    return {.prompt = prompt, .max_tokens = max_tokens, .num_prompt_logprobs = kNumLikely};
  }
  // Returns the logits behind each token of a prompt, as a step that samples there computes them.
  std::vector<std::vector<double>> all_logits(const Tokens& prompt) {
    std::vector<std::vector<double>> rows;
    std::vector<float> logits(static_cast<size_t>(model_->config().vocab_size));
    for (size_t count = 1; count <= prompt.size(); ++count) {
      Engine engine(*model_, {.overlap = false});
      Request request{.prompt = {prompt.begin(), prompt.begin() + count}, .max_tokens = 1};
      request.sampling.num_logprobs = 0;  // so that ranks gather all logits
      (void)engine.add(std::move(request));
      while (engine.step([](const Generated&) {})) {
      }
      diagnose::read_output(model_->executor(), 1, logits.data(),
                            static_cast<int64_t>(logits.size() * sizeof(float)));
      rows.emplace_back(logits.begin(), logits.end());
    }
    return rows;
  }
  // Expects equal scores. On a CPU a row has the same bits whatever else its step has; on a GPU the
  // bits differ slightly.
  void expect_alike(const Scores& scores, const Scores& expected) {
    ASSERT_EQ(scores.size(), expected.size());
    if (device_->kind() == DeviceKind::kCpu) {
      EXPECT_EQ(bits(scores), bits(expected));
      return;
    }
    for (size_t i = 0; i < scores.size(); ++i)
      EXPECT_NEAR(scores[i].logprob, expected[i].logprob, 1e-4) << i;
  }

  std::unique_ptr<LoadedModel> model_;
  std::vector<Tokens> tokens_;
};
// Allows all tokens.
class Unbound final : public sample::TokenGrammar {
 public:
  [[nodiscard]] std::unique_ptr<sample::TokenMatcher> start() const override {
    return std::make_unique<Matcher>();
  }

 private:
  class Matcher final : public sample::TokenMatcher {
   public:
    void fill(std::span<uint32_t> mask) override { std::ranges::fill(mask, ~uint32_t{0}); }
    bool accept(int32_t /*token*/) override { return true; }
    [[nodiscard]] bool has_ended() const override { return false; }
  };
};

TEST_P(PromptLogprobsTest, AreGivenBesideGrammarsToo) {
  const Tokens prompt = random_prompt(31, 100);
  const Scores alone = score(prompt);
  ASSERT_EQ(alone.size(), prompt.size() - 1);
  Request with_grammar = asking(prompt);
  with_grammar.grammar = std::make_shared<Unbound>();
  const Request companion{
      .prompt = random_prompt(32, 20), .max_tokens = 12, .grammar = with_grammar.grammar};
  for (const EngineOptions& way : ways()) {
    Engine engine(*model_, way);
    const std::vector<Scores> given = score(engine, {companion, asking(prompt), with_grammar});
    EXPECT_TRUE(given[0].empty());
    expect_alike(given[1], alone);
    expect_alike(given[2], alone);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, PromptLogprobsTest,
                         ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(PromptLogprobsTest, EveryTokenBehindTheFirstHasThatOfTheModel) {
  for (const int64_t length : {1, 2, 65, 130}) {
    const Tokens prompt = random_prompt(1, length);
    const auto logits = all_logits(prompt);
    const Scores scores = score(prompt);
    ASSERT_EQ(std::ssize(scores), length - 1);
    for (size_t i = 0; i < scores.size(); ++i) {
      const LogprobRow& row = scores[i];
      const std::vector<double>& of_token = logits[i];
      const int32_t token = prompt[i + 1];
      EXPECT_NEAR(row.logprob, log_softmax(of_token, token), 2e-5) << i;
      const double logit = of_token[static_cast<size_t>(token)];
      const auto num_likelier = std::count_if(of_token.begin(), of_token.end(),
                                              [&](double other) { return other > logit; });
      EXPECT_NEAR(row.rank, 1 + num_likelier, 2) << i;
      for (const LogprobRow::Entry& likely : std::span(row.top, kNumLikely))
        EXPECT_NEAR(likely.logprob, log_softmax(of_token, likely.token), 2e-5) << i;
      EXPECT_NEAR(row.top[0].logprob - row.logprob,
                  *std::max_element(of_token.begin(), of_token.end()) - logit, 2e-5);
    }
  }
}

TEST_P(PromptLogprobsTest, TheWaysToRunAStepAgreeBitForBit) {
  const Tokens prompt = random_prompt(2, 200);
  std::vector<uint32_t> expected;
  for (const runtime::Graphs graphs :
       {runtime::Graphs::kNone, runtime::Graphs::kPiecewise, runtime::Graphs::kFull}) {
    for (const auto poison : {diagnose::Poison::kNone, diagnose::Poison::kNaN}) {
      LoadOptions how = scoring_options();
      how.graphs = graphs;
      load(how);
      diagnose::poison_steps(model_->executor(), poison);
      EXPECT_EQ(model_->prompt_scorer().is_recorded(), graphs != runtime::Graphs::kNone);
      const std::vector<uint32_t> now = bits(score(prompt));
      if (expected.empty()) expected = now;
      EXPECT_EQ(now, expected);
    }
  }
}

// The program that scores prompts uses the model's weights as passes have merged them. A token has
// the same log probability as a part of a prompt as when it was generated.
TEST_P(PromptLogprobsTest, AreThoseOfGeneratedTokensWhateverPassesAreLeftOut) {
  const Tokens prompt = random_prompt(4, 90);
  for (const char* pass : {"fuse_linear_prologue", "merge_linears", "all"}) {
    LoadOptions how = scoring_options();
    how.compile.disabled = {pass};
    load(how);
    Tokens all = prompt;
    std::vector<float> generated;
    Engine engine(*model_);
    (void)engine.add({.prompt = prompt, .max_tokens = 8, .sampling = {.num_logprobs = 0}});
    while (engine.step([&](const Generated& token) {
      all.push_back(token.token);
      generated.push_back(token.logprobs->logprob);
    })) {
    }
    const Scores scores = score(all);
    ASSERT_EQ(scores.size(), all.size() - 1) << pass;
    for (size_t k = 0; k < generated.size(); ++k)
      EXPECT_NEAR(scores[prompt.size() - 1 + k].logprob, generated[k], 1e-4) << pass << ' ' << k;
  }
}

// Steps cut the long prompts, pages are short, and one request does not ask for log probabilities.
TEST_P(PromptLogprobsTest, APromptHasTheSameOnesWhoeverRunsBesideIt) {
  std::vector<Request> requests;
  std::vector<Scores> alone;
  for (int i = 0; i < 7; ++i) {
    requests.push_back(asking(random_prompt(i, 1 + 23 * i), 40));
    if (i == 3) requests.back().num_prompt_logprobs = -1;
    alone.push_back(i == 3 ? Scores() : score(requests.back().prompt));
  }
  LoadOptions narrow = scoring_options();
  narrow.limits.max_num_tokens = 16;
  narrow.kv_tokens = 256;
  load(narrow);
  for (EngineOptions way : ways()) {
    for (const bool with_cache : {false, true}) {
      if (with_cache) way.prefix_cache.emplace();
      Engine engine(*model_, way);
      const std::vector<Scores> scores = score(engine, requests);
      EXPECT_GT(engine.scheduler().num_preemptions(), 0);
      for (size_t i = 0; i < scores.size(); ++i)
        expect_alike(scores[i], alone[i]);
    }
  }
}

// The scored request loses its pages midway, while a first request keeps the same prompt in the
// prefix cache. When the scored one goes on, it must compute the tokens whose log probabilities it
// lacks, and must not take their pages from the cache.
TEST_P(PromptLogprobsTest, OneThatLosesItsPlaceMidwayGetsTheOthersLater) {
  LoadOptions two = scoring_options();
  two.limits.max_num_tokens = 32;
  two.limits.max_batch_size = 2;
  load(two);
  const Tokens prompt = random_prompt(3, 120);
  const Scores alone = score(prompt);
  Engine engine(
      *model_,
      {.overlap = false, .prefix_cache = kv::PrefixCacheOptions{}, .preempts_by_priority = true});
  int num_tokens = 0;
  Scores scores;
  const auto on_token = [&](const Generated& generated) {
    ++num_tokens;
    if (!generated.prompt_logprobs.empty()) scores = generated.prompt_logprobs;
  };
  (void)engine.add({.prompt = prompt, .max_tokens = 100});
  while (num_tokens == 0)
    ASSERT_TRUE(engine.step(on_token));
  Request later = asking(prompt);
  later.priority = 1;
  (void)engine.add(std::move(later));
  for (int step = 0; step < 2; ++step)
    ASSERT_TRUE(engine.step(on_token));
  (void)engine.add({.prompt = {1, 2, 3}, .max_tokens = 4});
  while (engine.step(on_token)) {
  }
  EXPECT_EQ(engine.scheduler().num_preemptions(), 1);
  expect_alike(scores, alone);
}

TEST_P(PromptLogprobsTest, AskingComputesThePromptWhateverIsCachedAndChangesNoToken) {
  const Tokens prompt = random_prompt(9, 100);
  const Request plain{.prompt = prompt, .max_tokens = 4};
  Engine engine(*model_, {.prefix_cache = kv::PrefixCacheOptions{}});
  (void)score(engine, {plain});
  const std::vector<Tokens> expected = tokens_;
  const int64_t before = engine.prefix_cache()->stats().hit_tokens;
  const Scores scores = score(engine, {asking(prompt)}).front();
  EXPECT_EQ(std::ssize(scores), 99);
  EXPECT_EQ(tokens_, expected);
  EXPECT_EQ(engine.prefix_cache()->stats().hit_tokens, before);
  EXPECT_TRUE(score(engine, {plain}).front().empty());
  EXPECT_EQ(engine.prefix_cache()->stats().hit_tokens, before + 96);
  // Two requests have one prompt. The one that asks for log probabilities computes it, so it does
  // not wait until the other has computed a page.
  EXPECT_EQ(score(engine, {plain, asking(prompt)}).back().size(), 99U);
}

TEST_P(PromptLogprobsTest, ARequestThatDoesNotAskCostsNoReplay) {
  // Returns how many recordings were replayed besides those of steps, which are recordings that
  // score prompts.
  const auto num_replays_beside = [&](const Request& request) {
    int64_t replays = 0;  // replays by this thread; other ranks have threads of their own
    const auto own = std::this_thread::get_id();
    const fault::Injection injection([&](std::string_view call) {
      if (call == "replay" && std::this_thread::get_id() == own) ++replays;
    });
    const auto of_steps = [&] { return model_->executor().loaded().recordings.stats().replays; };
    const int64_t before = of_steps();
    Engine engine(*model_, {.overlap = false});
    (void)score(engine, {request});
    return replays - (of_steps() - before);
  };
  const Tokens prompt = random_prompt(4, 200);
  EXPECT_EQ(num_replays_beside({.prompt = prompt, .max_tokens = 4}), 0);
  EXPECT_EQ(num_replays_beside(asking(prompt)),
            5);  // 199 rows in steps of up to 80 tokens: 80, 80, 39
}

TEST_P(PromptLogprobsTest, OneThatIsAbortedLeavesNothing) {
  for (const EngineOptions& way : ways()) {
    Engine engine(*model_, way);
    const auto id = std::get<SequenceId>(engine.add(asking(random_prompt(5, 200))));
    for (int i = 0; i < 2; ++i)
      ASSERT_TRUE(engine.step([](const Generated&) {}));
    engine.abort(id);
    EXPECT_EQ(score(engine, {asking(random_prompt(6, 70))}).front().size(), 69U);
  }
}

TEST_P(PromptLogprobsTest, AModelLoadedWithoutThemTakesNoMemoryForThemAndRefuses) {
  LoadOptions without = scoring_options();
  without.scores_prompts = false;
  load(without);
  EXPECT_EQ(loader::memory_plan(*model_).prompt_scores, 0);
  Engine engine(*model_);
  const auto added = engine.add(asking({1, 2, 3}));
  ASSERT_TRUE(std::holds_alternative<Rejection>(added));
  EXPECT_EQ(std::get<Rejection>(added).why, "the model is loaded without what scores prompts");
}

TEST_P(PromptLogprobsTest, RefusesMoreThanTheDeviceNames) {
  Engine engine(*model_);
  Request request = asking({1, 2});
  request.num_prompt_logprobs = 21;
  const auto rejection = engine.check(request);
  ASSERT_TRUE(rejection.has_value());
  EXPECT_NE(rejection->why.find("at most 20"), std::string::npos) << rejection->why;
}

}  // namespace
}  // namespace encore::engine
