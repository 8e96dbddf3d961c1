// Tests faults of speculation that users of other engines reported. Each test has the input that
// shows one fault.
#include <map>

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"
#include "engine/testing/words_checkpoint.h"

namespace encore::engine {
namespace {

constexpr int64_t kTokensKnown = 24;

// The number of drafts of a model's steps, and the source of the drafts.
struct Drafting {
  int64_t num_drafts = 0;
  bool has_model = false;
  model::Acceptance acceptance = model::Acceptance::kCoupled;
  int64_t max_seq_len = 128;
};

// A token that a request got, and what came with it.
struct Got {
  int32_t token = 0;
  std::optional<LogprobRow> logprobs;
  std::optional<Finish> finish;
};

std::vector<Drafting> all_with(int64_t num_drafts, int64_t max_seq_len = 128) {
  std::vector<Drafting> all;
  for (const bool has_model : {false, true}) {
    for (const auto acceptance : {model::Acceptance::kCoupled, model::Acceptance::kRejection})
      all.push_back({num_drafts, has_model, acceptance, max_seq_len});
  }
  return all;
}

class SpeculationReports : public testing::DeviceTest {
 protected:
  std::unique_ptr<LoadedModel> load(const Drafting& drafting) {
    const auto words = [](size_t num_layers) {
      model::ModelSource source = testing::tiny_model(testing::Tiny::kLlama);
      source.config.layers.resize(num_layers);
      source.config.vocab_size = kTokensKnown;
      return source;
    };
    LoadOptions options;
    if (drafting.has_model) options.draft = words(2);
    options.acceptance = drafting.acceptance;
    options.limits = {.max_num_tokens = 128,
                      .max_batch_size = 4,
                      .max_q = 1,
                      .max_seq_len = drafting.max_seq_len,
                      .num_drafts = drafting.num_drafts};
    options.tokens = runtime::Ladder({36, 128});
    options.sequences = runtime::Ladder({1, 4});
    options.page_size = 16;
    options.dtype = DType::kF32;
    options.compile.batch_invariant = device_->kind() == DeviceKind::kCuda;
    return std::make_unique<LoadedModel>(device_for_another(), words(1), options);
  }

  // Returns everything that requests get, in the order in which they were added.
  static std::vector<std::vector<Got>> answers(Engine& engine,
                                               const std::vector<Request>& requests) {
    std::map<SequenceId, size_t> numbers;
    for (const Request& request : requests) {
      const size_t number = numbers.size();
      numbers[std::get<SequenceId>(engine.add(request))] = number;
    }
    std::vector<std::vector<Got>> answers(requests.size());
    while (engine.step([&](const Generated& generated) {
      answers[numbers[generated.sequence]].push_back(
          {generated.token, generated.logprobs ? std::optional(*generated.logprobs) : std::nullopt,
           generated.finish});
    })) {
    }
    return answers;
  }
  static std::vector<int32_t> tokens(const std::vector<Got>& answer) {
    std::vector<int32_t> tokens;
    for (const Got& got : answer)
      tokens.push_back(got.token);
    return tokens;
  }
  static std::vector<int32_t> prompt_of(int64_t length, int32_t factor = 5) {
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < length; ++i)
      prompt.push_back((factor * i + i * i / 7) % static_cast<int32_t>(kTokensKnown));
    return prompt;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, SpeculationReports,
                         ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

// In vLLM 42744, a bias was not applied where drafts were checked.
TEST_P(SpeculationReports, ABiasHoldsAgainstWhatTheDraftsAre) {
  Request request{.prompt = prompt_of(20), .max_tokens = 16};
  const auto plain = load({});
  Engine alone(*plain, {});
  const int32_t favourite = answers(alone, {request})[0][0].token;
  request.token_bias = {{favourite, -100.0F}};
  const std::vector<int32_t> expected = tokens(answers(alone, {request})[0]);
  EXPECT_EQ(std::ranges::count(expected, favourite), 0);
  for (const Drafting& drafting : all_with(4)) {
    const auto model = load(drafting);
    Engine engine(*model, {});
    // The request gets the same tokens beside a request that takes drafts.
    const Request beside{.prompt = prompt_of(12, 3), .max_tokens = 16};
    EXPECT_EQ(tokens(answers(engine, {request, beside})[0]), expected);
    EXPECT_GT(engine.draft_counts().tokens, 0);
  }
}

// In vLLM 32591, the drafts of a sequence reached past its longest length.
TEST_P(SpeculationReports, ASequenceEndsAtTheLongestLengthWhereverItsDraftsReach) {
  const Request request{.prompt = prompt_of(27), .max_tokens = 5};
  const auto plain = load({.max_seq_len = 32});
  Engine alone(*plain, {});
  const std::vector<int32_t> expected = tokens(answers(alone, {request})[0]);
  ASSERT_EQ(expected.size(), 5U);
  for (const Drafting& drafting : all_with(8, 32)) {
    const auto model = load(drafting);
    Engine engine(*model, {});
    const auto answer = answers(engine, {request})[0];
    EXPECT_EQ(tokens(answer), expected);
    EXPECT_EQ(answer.back().finish, Finish::kLength);
    EXPECT_EQ(engine.page_pool().num_free(), engine.page_pool().num_pages());
  }
}

// In vLLM 42592, the log probabilities of a row had entries for all drafts, although rows had
// accepted different numbers of drafts.
TEST_P(SpeculationReports, EachTokenOfTwoAnswersHasItsFiveLogProbabilities) {
  std::vector<Request> both;
  for (const int64_t seed : {1, 2}) {
    both.push_back({.prompt = prompt_of(9), .max_tokens = 20});
    both.back().sampling = {.temperature = 0.7F, .num_logprobs = 5, .seed = seed};
  }
  const auto plain = load({});
  Engine alone(*plain, {});
  const auto expected = answers(alone, both);
  for (const Drafting& drafting : all_with(3)) {
    const auto model = load(drafting);
    Engine engine(*model, {});
    const auto given = answers(engine, both);
    for (size_t n = 0; n < both.size(); ++n) {
      ASSERT_EQ(given[n].size(), 20U);
      for (size_t i = 0; i < given[n].size(); ++i) {
        ASSERT_TRUE(given[n][i].logprobs.has_value());
        const LogprobRow& row = *given[n][i].logprobs;
        EXPECT_TRUE(row.logprob <= 0 && row.rank >= 1 && row.rank <= kTokensKnown);
        for (int place = 0; place < 5; ++place) {
          EXPECT_TRUE(row.top[place].token >= 0 && row.top[place].token < kTokensKnown);
          EXPECT_LE(row.top[place].logprob, row.top[std::max(place - 1, 0)].logprob);
        }
        if (drafting.acceptance == model::Acceptance::kRejection) continue;
        EXPECT_EQ(given[n][i].token, expected[n][i].token);
        for (int place = 0; place < 5; ++place) {
          EXPECT_EQ(row.top[place].token, expected[n][i].logprobs->top[place].token);
          EXPECT_EQ(row.top[place].logprob, expected[n][i].logprobs->top[place].logprob);
        }
      }
    }
  }
}

// In vLLM 51771, 50438 and 39690, a draft model's KV of a shared beginning depended on the token
// behind it. The beginning was then not found again, or another text's KV was found.
TEST_P(SpeculationReports, AFoundBeginningServesBothTokensThatMayFollowIt) {
  std::vector<Request> requests;
  for (const int32_t next : {3, 11}) {
    requests.push_back({.prompt = prompt_of(64), .max_tokens = 24});
    requests.back().prompt.push_back(next);
  }
  for (const Drafting& drafting : all_with(3)) {
    const auto model = load(drafting);
    const auto other = load(drafting);
    Engine warm(*model, {.prefix_cache = kv::PrefixCacheOptions{}});
    for (const Request& request : requests) {
      Engine cold(*other, {});
      const std::vector<int32_t> expected = tokens(answers(cold, {request})[0]);
      const int64_t accepted_before = warm.draft_counts().num_accepted();
      EXPECT_EQ(tokens(answers(warm, {request})[0]), expected);
      EXPECT_EQ(warm.draft_counts().num_accepted() - accepted_before,
                cold.draft_counts().num_accepted());
    }
    EXPECT_EQ(warm.prefix_cache()->stats().hit_tokens, 64);
  }
}

// In SGLang 31071 and TensorRT-LLM 12024, ranks broke ties of equal logits differently, and then
// accepted different numbers of drafts. In this test the equal logits lie on different ranks.
TEST(SpeculationOfRanks, AcceptsAlikeWhereTheTwoLargestLogitsAreEqual) {
  const testing::WordsCheckpoint twins(true);
  constexpr int32_t kFirstTwins = testing::WordsCheckpoint::kWords / 2;
  LoadOptions options;
  options.limits = {.max_num_tokens = 16, .max_batch_size = 2, .max_q = 1, .max_seq_len = 500};
  options.page_size = 16;
  options.dtype = DType::kF32;
  options.bursts = true;
  const auto texts = [&](int64_t num_drafts, bool has_model, int64_t burst_steps,
                         int64_t* num_accepted) {
    options.limits.num_drafts = num_drafts;
    options.draft = has_model ? std::optional(twins.source()) : std::nullopt;
    const auto device = create_cpu_device({.num_threads = 2, .num_ranks = 2});
    LoadedModel model(*device, twins.source(), options);
    Engine engine(model, {.burst_steps = burst_steps});
    std::map<SequenceId, std::vector<int32_t>> texts;
    for (int32_t number = 0; number < (is_thorough() ? 12 : 4); ++number) {
      Request request{.prompt = {number, 5, 1, number}, .max_tokens = is_thorough() ? 450 : 60};
      request.sampling = {.temperature = number % 2 == 0 ? 0.0F : 1.0F, .seed = number};
      if (number % 4 == 1) request.sampling.frequency_penalty = 0.2F;
      (void)engine.add(std::move(request));
    }
    while (engine.step(
        [&](const Generated& token) { texts[token.sequence].push_back(token.token); })) {
    }
    if (num_accepted != nullptr) *num_accepted = engine.draft_counts().num_accepted();
    return texts;
  };
  const auto expected = texts(0, false, 1, nullptr);
  for (const auto& [sequence, text] : expected) {
    const bool is_greedy = sequence % 2 == expected.begin()->first % 2;
    const auto second = std::ranges::count_if(text, [&](int32_t id) { return id >= kFirstTwins; });
    if (is_greedy) {
      EXPECT_EQ(second, 0) << "of equal logits the first";
    } else {
      EXPECT_GT(second, 0);
    }
  }
  for (const bool has_model : {false, true}) {
    for (const int64_t burst_steps : {1, 32}) {
      SCOPED_TRACE(fmt::format("draft model {}, bursts of {}", has_model, burst_steps));
      int64_t num_accepted = 0;
      EXPECT_EQ(texts(4, has_model, burst_steps, &num_accepted), expected);
      EXPECT_GT(num_accepted, has_model ? 100 : 10);
    }
  }
}

}  // namespace
}  // namespace encore::engine
