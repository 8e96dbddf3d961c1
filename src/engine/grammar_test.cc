// Tests requests whose tokens are limited by a grammar, in every way to run steps.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <thread>
#include <tuple>

#include <gtest/gtest.h>

#include "backend/fault.h"
#include "base/error.h"
#include "base/processor_time.h"
#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

using testing::Tiny;

using Tokens = std::vector<int32_t>;

// Allows tokens m * `step` + 1, where m is by turns even and odd. No token may follow the token
// `last`.
class Alternating final : public sample::TokenGrammar {
 public:
  explicit Alternating(int32_t step, int32_t last = -1) : step_(step), last_(last) {}

  [[nodiscard]] bool fits(int32_t token, std::optional<int32_t> before) const {
    return token % step_ == 1 && (!before || (token / step_ + *before / step_) % 2 == 1);
  }
  [[nodiscard]] std::unique_ptr<sample::TokenMatcher> start() const override {
    return std::make_unique<Matcher>(*this);
  }

 private:
  class Matcher final : public sample::TokenMatcher {
   public:
    explicit Matcher(const Alternating& grammar) : grammar_(grammar) {}
    void fill(std::span<uint32_t> mask) override {
      std::ranges::fill(mask, 0);
      for (int32_t token = 0; token < 1000; ++token) {
        if (grammar_.fits(token, before_)) mask[token / 32] |= 1U << (token % 32);
      }
    }
    bool accept(int32_t token) override {
      if (!grammar_.fits(token, before_)) return false;
      before_ = token;
      return true;
    }
    [[nodiscard]] bool has_ended() const override { return before_ == grammar_.last_; }

   private:
    const Alternating& grammar_;
    std::optional<int32_t> before_;
  };

  int32_t step_;
  int32_t last_;
};

bool fits(const Tokens& tokens, const Alternating& grammar) {
  std::optional<int32_t> before;
  return std::ranges::all_of(
      tokens, [&](int32_t token) { return grammar.fits(token, std::exchange(before, token)); });
}

class GrammarTest : public testing::DeviceTest {
 protected:
  struct Result {
    std::vector<Tokens> tokens;
    std::vector<Finish> finishes;
    int64_t num_preemptions = 0;
    std::vector<StepCount> steps;
    DraftCounts drafts;
  };

  // Loads the model. It makes `num_drafts` drafts, as its own draft model.
  void load(runtime::Graphs graphs, int64_t kv_tokens = 1024, int64_t num_drafts = 0) {
    LoadOptions options;
    options.limits = {.max_num_tokens = 48, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
    options.limits.num_drafts = num_drafts;
    if (num_drafts > 0) options.draft = testing::tiny_model(Tiny::kLlama);
    options.kv_tokens = kv_tokens;
    options.dtype = DType::kF32;
    options.graphs = graphs;
    options.bursts = graphs == runtime::Graphs::kFull;
    model_.reset();
    model_ = std::make_unique<LoadedModel>(*device_, testing::tiny_model(Tiny::kLlama),
                                           testing::with_feature(options));
  }

  Result generate(const std::vector<Request>& requests, const EngineOptions& way) {
    Engine engine(*model_, way);
    std::map<SequenceId, Tokens> tokens;
    std::map<SequenceId, Finish> finishes;
    for (const Request& request : requests) {
      const auto added = engine.add(request);
      EXPECT_TRUE(std::holds_alternative<SequenceId>(added)) << std::get<Rejection>(added).why;
      tokens[std::get<SequenceId>(added)];
    }
    while (engine.step([&](const Generated& generated) {
      tokens[generated.sequence].push_back(generated.token);
      if (generated.finish) finishes[generated.sequence] = *generated.finish;
    })) {
    }
    Result result;
    for (auto& [id, row] : tokens) {
      result.tokens.push_back(std::move(row));
      result.finishes.push_back(finishes.at(id));
    }
    result.num_preemptions = engine.scheduler().num_preemptions();
    result.steps = engine.step_counts();
    result.drafts = engine.draft_counts();
    return result;
  }

  static std::vector<EngineOptions> ways() {
    return {{.overlap = false}, {.overlap = true}, {.overlap = true, .burst_steps = 16}};
  }

  std::unique_ptr<LoadedModel> model_;
};

TEST_P(GrammarTest, HoldsTheTokensOfEachRequestAndDisturbsNoOther) {
  const auto sevens = std::make_shared<Alternating>(7);
  const auto thirds = std::make_shared<Alternating>(3);
  const Request plain{.prompt = {5, 6, 7}, .max_tokens = 12};
  Request seven{.prompt = {1, 2, 3, 4}, .max_tokens = 20, .grammar = sevens};
  seven.sampling = {.temperature = 1.5F, .seed = 11};
  const Request third{.prompt = Tokens(60, 9), .max_tokens = 16, .grammar = thirds};
  std::optional<std::vector<Tokens>> first;
  for (const auto graphs :
       {runtime::Graphs::kFull, runtime::Graphs::kPiecewise, runtime::Graphs::kNone}) {
    load(graphs);
    const Tokens alone = generate({plain}, {}).tokens[0];
    for (const EngineOptions& way : ways()) {
      SCOPED_TRACE(fmt::format("graphs {}, overlap {}, bursts of {}", static_cast<int>(graphs),
                               *way.overlap, way.burst_steps));
      const Result result = generate({plain, seven, third, plain}, way);
      EXPECT_TRUE(fits(result.tokens[1], *sevens));
      EXPECT_TRUE(fits(result.tokens[2], *thirds));
      EXPECT_EQ(result.tokens[0], alone);
      EXPECT_EQ(result.tokens[3], alone);
      if (!first) first = result.tokens;
      EXPECT_EQ(result.tokens, *first);
    }
  }
}

// In vLLM issue 27969, a step with a JSON schema beside rows with drafts crashed.
TEST_P(GrammarTest, RowsWithAGrammarTakeNoDraftsOfADraftModelBesideRowsThatDo) {
  const Request plain{.prompt = {5, 6, 7}, .max_tokens = 24};
  const Request held{
      .prompt = {1, 2, 3, 4}, .max_tokens = 20, .grammar = std::make_shared<Alternating>(7)};
  for (const auto graphs : {runtime::Graphs::kFull, runtime::Graphs::kNone}) {
    load(graphs);
    const Result expected = generate({plain, held, plain}, {});
    load(graphs, 1024, 3);
    for (const EngineOptions& way : ways()) {
      const Result result = generate({plain, held, plain}, way);
      EXPECT_EQ(result.tokens, expected.tokens);
      EXPECT_GT(result.drafts.tokens, 0);
      EXPECT_GE(result.drafts.rows_without, 1);
    }
  }
}

TEST_P(GrammarTest, RunsEveryStepAsItWouldRunWithoutAGrammar) {
  load(runtime::Graphs::kAuto);
  std::vector<Request> requests{{.prompt = {1, 2}, .max_tokens = 20},
                                {.prompt = {3}, .max_tokens = 30}};
  const auto modes = [&] {
    std::vector<std::tuple<runtime::Mode, int64_t, int64_t>> modes;
    for (const StepCount& count : generate(requests, {.overlap = true}).steps)
      modes.emplace_back(count.mode, count.tokens, count.steps);
    return modes;
  };
  const auto plain = modes();
  for (Request& request : requests)
    request.grammar = std::make_shared<Alternating>(2);
  EXPECT_EQ(modes(), plain);
}

TEST_P(GrammarTest, AsksOnceForRecordingsThatThereIsNoMemoryFor) {
  load(runtime::Graphs::kAuto);
  const auto sevens = std::make_shared<Alternating>(7);
  const Request request{.prompt = {1, 2}, .max_tokens = 20, .grammar = sevens};
  const std::vector<Tokens> tokens = generate({request}, {.overlap = false}).tokens;
  load(runtime::Graphs::kAuto);
  std::atomic<int> num_asked = 0;  // recordings that all ranks tried to make
  const fault::Injection injection([&](std::string_view call) {
    if (call != "end_recording") return;
    ++num_asked;
    fail(ErrorKind::kMemory, "injected");
  });
  EXPECT_EQ(generate({request}, {.overlap = true}).tokens, tokens);
  const int num_sizes = num_asked;
  EXPECT_GE(num_sizes, 1);
  // Each rank tries a recording for at most two sizes of step: that of the prompt and that of the
  // decode steps.
  EXPECT_LE(num_sizes, 2 * device_->rank().size);
  EXPECT_EQ(generate({request}, {.overlap = true}).tokens, tokens);
  EXPECT_EQ(num_asked.load(), num_sizes);
}

TEST_P(GrammarTest, EndsASequenceWhereNothingCanFollow) {
  load(runtime::Graphs::kAuto);
  const Request request{.prompt = {1},
                        .max_tokens = 100,
                        .token_bias = {{951, 1e4F}},
                        .grammar = std::make_shared<Alternating>(50, 951)};
  for (const EngineOptions& way : ways()) {
    const Result result = generate({request, {.prompt = {2}, .max_tokens = 40}}, way);
    EXPECT_LE(result.tokens[0].size(), 2U);
    EXPECT_EQ(result.finishes[0], Finish::kStop);
    EXPECT_EQ(result.tokens[0].back(), 951);
    EXPECT_EQ(result.tokens[1].size(), 40U);
  }
}

TEST_P(GrammarTest, TellsADeadEndFromAnEnd) {
  load(runtime::Graphs::kAuto);
  const Request request{.prompt = {1},
                        .max_tokens = 100,
                        .token_bias = {{1, -std::numeric_limits<float>::infinity()}},
                        .grammar = std::make_shared<Alternating>(500)};
  for (const EngineOptions& way : ways()) {
    const Result result = generate({request, {.prompt = {2}, .max_tokens = 10}}, way);
    EXPECT_EQ(result.finishes[0], Finish::kDeadEnd);
    EXPECT_EQ(result.tokens[0].front(), 501);
    EXPECT_EQ(result.tokens[0].size(), 2U);
    EXPECT_EQ(result.finishes[1], Finish::kLength);
  }
}

// The cost of a grammar's calls, and the number of calls.
struct Cost {
  std::chrono::milliseconds of_a_mask{};
  std::chrono::milliseconds of_a_token{};
  int masks_until_it_gives_up = -1;   // -1: it never gives up
  int tokens_until_it_gives_up = -1;  // -1: it never gives up
  int num_calls = 0;
};

// Allows all tokens, but takes a long time to answer.
class Slow final : public sample::TokenGrammar {
 public:
  explicit Slow(Cost& cost) : cost_(cost) {}
  [[nodiscard]] std::unique_ptr<sample::TokenMatcher> start() const override {
    return std::make_unique<Matcher>(cost_);
  }

 private:
  class Matcher final : public sample::TokenMatcher {
   public:
    explicit Matcher(Cost& cost) : cost_(cost) {}
    void fill(std::span<uint32_t> mask) override {
      ++cost_.num_calls;
      std::this_thread::sleep_for(cost_.of_a_mask);
      is_exhausted_ |= num_masks_++ == cost_.masks_until_it_gives_up;
      std::ranges::fill(mask, is_exhausted_ ? 0 : ~uint32_t{0});
    }
    bool accept(int32_t /*token*/) override {
      ++cost_.num_calls;
      std::this_thread::sleep_for(cost_.of_a_token);
      is_exhausted_ |= num_tokens_++ == cost_.tokens_until_it_gives_up;
      return !is_exhausted_;
    }
    [[nodiscard]] bool has_ended() const override { return false; }
    [[nodiscard]] bool is_exhausted() const override { return is_exhausted_; }

   private:
    Cost& cost_;
    int num_masks_ = 0;
    int num_tokens_ = 0;
    bool is_exhausted_ = false;
  };

  Cost& cost_;
};

TEST_P(GrammarTest, EndsASequenceWhoseGrammarKeepsTheOthersWaiting) {
  load(runtime::Graphs::kAuto);
  using std::chrono::milliseconds;
  for (const Cost& given :
       {Cost{.of_a_mask = milliseconds(100)}, Cost{.of_a_token = milliseconds(100)},
        Cost{.masks_until_it_gives_up = 2}, Cost{.tokens_until_it_gives_up = 2}}) {
    for (const EngineOptions& way : ways()) {
      Cost cost = given;
      const Result result =
          generate({{.prompt = {1}, .max_tokens = 100, .grammar = std::make_shared<Slow>(cost)},
                    {.prompt = {2}, .max_tokens = 40}},
                   way);
      EXPECT_EQ(result.finishes[0], Finish::kSlowGrammar);
      EXPECT_LE(result.tokens[0].size(), 4U);
      EXPECT_EQ(result.finishes[1], Finish::kLength);
      EXPECT_EQ(result.tokens[1].size(), 40U);
    }
  }
}

// Allows all tokens, and computes for a while in every call. In call `long_call` it computes ten
// times as long.
class Busy final : public sample::TokenGrammar {
 public:
  static constexpr std::chrono::milliseconds kEach{1};

  explicit Busy(int& num_calls, int long_call = 0) : num_calls_(num_calls), long_call_(long_call) {}
  [[nodiscard]] std::unique_ptr<sample::TokenMatcher> start() const override {
    return std::make_unique<Matcher>(num_calls_, long_call_);
  }

 private:
  class Matcher final : public sample::TokenMatcher {
   public:
    Matcher(int& num_calls, int long_call) : num_calls_(num_calls), long_call_(long_call) {}
    void fill(std::span<uint32_t> mask) override {
      compute();
      std::ranges::fill(mask, ~uint32_t{0});
    }
    bool accept(int32_t /*token*/) override {
      compute();
      return true;
    }
    [[nodiscard]] bool has_ended() const override { return false; }

   private:
    void compute() {
      const bool is_long = ++num_calls_ == long_call_;
      const auto end = thread_processor_time() + kEach * (is_long ? 10 : 1);
      while (thread_processor_time() < end) {
      }
    }
    int& num_calls_;
    int long_call_;
  };

  int& num_calls_;
  int long_call_;
};

// Even on a busy machine, each step has time for at least one call of a grammar.
TEST_P(GrammarTest, TheLongestThatTheGrammarsOfAStepComputedIsThatOfOneStep) {
  load(runtime::Graphs::kAuto);
  for (const EngineOptions& way : ways()) {
    int num_calls = 0;
    Engine engine(*model_, way);
    (void)engine.add({.prompt = {2}, .max_tokens = 4});
    while (engine.step([](const Generated&) {})) {
    }
    EXPECT_EQ(engine.host_times().longest_grammars.count(), 0);
    (void)engine.add(
        {.prompt = {1}, .max_tokens = 12, .grammar = std::make_shared<Busy>(num_calls)});
    while (engine.step([](const Generated&) {})) {
    }
    EXPECT_GE(engine.host_times().longest_grammars, Busy::kEach);
    EXPECT_LT(engine.host_times().longest_grammars, num_calls * Busy::kEach / 2);
  }
}

TEST_P(GrammarTest, TheLongestMayBeThatOfTheLastToken) {
  load(runtime::Graphs::kAuto);
  for (const EngineOptions& way : ways()) {
    int num_calls = 0;
    Engine engine(*model_, way);
    constexpr int64_t kTokens = 3;
    // The grammar is called once before each token and once behind it.
    constexpr int kLast = 2 * kTokens;
    (void)engine.add({.prompt = {1},
                      .max_tokens = kTokens,
                      .grammar = std::make_shared<Busy>(num_calls, kLast)});
    while (engine.step([](const Generated&) {})) {
    }
    EXPECT_EQ(num_calls, kLast);
    EXPECT_GE(engine.host_times().longest_grammars, 10 * Busy::kEach);
  }
}

// Each call of a grammar takes 13 ms. A step asks no further grammar once 25 ms are spent
// (GrammarTime), so it asks two of the three.
TEST_P(GrammarTest, SequencesThatAStepHasNoTimeForSitItOutAndLoseNothing) {
  load(runtime::Graphs::kAuto);
  Cost quick;
  std::vector<Request> requests;
  // The answers have so few tokens that no grammar exceeds its time, even where a busy machine
  // sleeps longer than asked.
  for (int32_t i = 0; i < 3; ++i) {
    Request request{.prompt = Tokens(static_cast<size_t>(3 + 20 * i), i + 1), .max_tokens = 3};
    request.sampling = {.temperature = 1, .frequency_penalty = 0.5F, .seed = i};
    request.grammar = std::make_shared<Slow>(quick);
    requests.push_back(request);
  }
  requests.push_back({.prompt = {7}, .max_tokens = 30});
  const Result expected = generate(requests, {.overlap = false});
  for (const bool is_in_masks : {true, false}) {
    for (const EngineOptions& way : ways()) {
      constexpr std::chrono::milliseconds kEach(13);
      Cost cost;
      (is_in_masks ? cost.of_a_mask : cost.of_a_token) = kEach;
      for (size_t i = 0; i < 3; ++i)
        requests[i].grammar = std::make_shared<Slow>(cost);
      Engine engine(*model_, way);
      std::map<SequenceId, Tokens> tokens;
      std::map<SequenceId, Finish> finishes;
      for (const Request& request : requests)
        (void)engine.add(request);
      int most_calls = 0;
      int most_held = 0;  // most tokens in one step of sequences with a grammar
      while (true) {
        cost.num_calls = 0;
        int num_held = 0;
        const bool goes_on = engine.step([&](const Generated& generated) {
          tokens[generated.sequence].push_back(generated.token);
          num_held += generated.sequence <= 3 ? 1 : 0;
          if (generated.finish) finishes[generated.sequence] = *generated.finish;
        });
        if (!goes_on) break;
        most_calls = std::max(most_calls, cost.num_calls);
        most_held = std::max(most_held, num_held);
      }
      EXPECT_LE(most_held, 2);
      // A step has at most two slow calls, as two take 26 ms, and at most three calls that take no
      // time, one for each sequence with a grammar.
      EXPECT_LE(most_calls, 2 + 3);
      for (SequenceId id = 1; id <= 4; ++id) {
        EXPECT_EQ(tokens[id], expected.tokens[static_cast<size_t>(id - 1)]) << id;
        EXPECT_EQ(finishes[id], Finish::kLength);
      }
    }
  }
}

TEST_P(GrammarTest, KeepsItsPlaceWhenASequenceIsComputedAgain) {
  const auto grammar = std::make_shared<Alternating>(5);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 4; ++i)
    requests.push_back({.prompt = Tokens(20, i + 1), .max_tokens = 60, .grammar = grammar});
  load(runtime::Graphs::kAuto);
  const Result roomy = generate(requests, {.overlap = true});
  EXPECT_EQ(roomy.num_preemptions, 0);
  load(runtime::Graphs::kAuto, 192);
  const Result tight = generate(requests, {.overlap = true});
  EXPECT_GT(tight.num_preemptions, 0);
  EXPECT_EQ(tight.tokens, roomy.tokens);
}

TEST_P(GrammarTest, GoesWithNoLeastNumberOfTokens) {
  load(runtime::Graphs::kAuto);
  Engine engine(*model_);
  const auto rejection =
      engine.check({.prompt = {1}, .min_tokens = 3, .grammar = std::make_shared<Alternating>(2)});
  ASSERT_TRUE(rejection);
  EXPECT_EQ(rejection->reason, RejectionReason::kBadParameter);
}

INSTANTIATE_TEST_SUITE_P(Devices, GrammarTest, ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::engine
