// Tests drafts that are accepted by rejection sampling. Texts must be as likely as texts without
// drafts.
#include <map>

#include <gtest/gtest.h>

#include "base/testing/chi_square.h"
#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

using model::Acceptance;

constexpr int64_t kFewWords = 24;
constexpr int64_t kDraftsEach = 3;
constexpr int64_t kRows = 32;  // rows of a step

struct DrawnText {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::optional<Finish> finish;

  friend bool operator==(const DrawnText&, const DrawnText&) = default;
};

class RejectionTest : public testing::DeviceTest {
 protected:
  // Says where drafts come from.
  enum class Guesses { kNobody, kLookup, kDraftModel };

  static model::ModelSource words_of(size_t num_layers) {
    model::ModelSource source = testing::tiny_model(testing::Tiny::kLlama);
    source.config.layers.resize(num_layers);
    source.config.vocab_size = kFewWords;
    return source;
  }

  std::unique_ptr<LoadedModel> load(Guesses guesses) {
    LoadOptions options;
    if (guesses == Guesses::kDraftModel) options.draft = words_of(2);
    options.acceptance = Acceptance::kRejection;
    options.limits = {.max_num_tokens = 16 * kRows,
                      .max_batch_size = kRows,
                      .max_q = 1,
                      .max_seq_len = 96,
                      .num_drafts = guesses == Guesses::kNobody ? 0 : kDraftsEach};
    options.tokens = runtime::Ladder({128, 16 * kRows});
    options.sequences = runtime::Ladder({8, kRows});
    options.page_size = 16;
    options.dtype = DType::kF32;
    options.compile.batch_invariant = device_->kind() == DeviceKind::kCuda;
    return std::make_unique<LoadedModel>(*device_, words_of(1), options);
  }

  // Answers as many requests together as a step has rows, so that most steps have drafts.
  std::vector<DrawnText> answers(LoadedModel& model, const std::vector<Request>& requests) {
    Engine engine(model, {});
    std::vector<DrawnText> answers(requests.size());
    for (size_t first = 0; first < requests.size(); first += kRows) {
      std::map<SequenceId, size_t> numbers;
      for (size_t i = first; i < std::min(first + kRows, requests.size()); ++i)
        numbers[std::get<SequenceId>(engine.add(requests[i]))] = i;
      while (engine.step([&](const Generated& generated) {
        DrawnText& to = answers[numbers[generated.sequence]];
        to.tokens.push_back(generated.token);
        to.finish = generated.finish;
        if (generated.logprobs) to.logprobs.push_back(generated.logprobs->logprob);
      })) {
      }
    }
    num_accepted_ = engine.draft_counts().num_accepted();
    EXPECT_EQ(engine.page_pool().num_free(), engine.page_pool().num_pages());
    return answers;
  }

  // Expects the texts of requests with these parameters to be as likely with drafts of each kind as
  // without drafts.
  void expect_as_likely(const sample::SamplingParams& sampling,
                        const std::vector<TokenBias>& biases);

  int64_t num_accepted_ = 0;  // accepted drafts of the last answers
};
INSTANTIATE_TEST_SUITE_P(Devices, RejectionTest, ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(RejectionTest, TextsAreAsLikelyAsThoseWithoutDrafts) {
  expect_as_likely({.temperature = 0.8F, .top_p = 0.95F}, {});
}

// Penalties count tokens, so the choice of a token depends on the drafts in front of it in the same
// step.
TEST_P(RejectionTest, TextsWithPenaltiesAndBiasesAreAsLikelyAsThoseWithoutDrafts) {
  expect_as_likely({.temperature = 0.8F, .repetition_penalty = 1.2F, .frequency_penalty = 0.5F},
                   {{3, 1.5F}, {7, -2}});
}

void RejectionTest::expect_as_likely(const sample::SamplingParams& sampling,
                                     const std::vector<TokenBias>& biases) {
  constexpr int64_t kTokens = 5;
  std::vector<Request> requests;
  for (int64_t seed = 0; seed < (is_thorough() ? 1500 : 500); ++seed) {
    Request request{.prompt = {3, 7, 1, 3, 7, 1, 3, 7}, .max_tokens = kTokens};
    request.sampling = sampling;
    request.sampling.seed = seed;
    request.token_bias = biases;
    requests.push_back(std::move(request));
  }
  const auto counts = [&](Guesses guesses, int64_t first_seed) {
    for (Request& request : requests)
      request.sampling.seed += first_seed;
    std::vector<std::vector<int64_t>> by_place(kTokens, std::vector<int64_t>(kFewWords));
    for (const DrawnText& answer : answers(*load(guesses), requests)) {
      for (size_t place = 0; place < answer.tokens.size(); ++place)
        ++by_place[place][static_cast<size_t>(answer.tokens[place])];
    }
    return by_place;
  };
  const auto expected = counts(Guesses::kNobody, 0);
  for (const Guesses guesses : {Guesses::kLookup, Guesses::kDraftModel}) {
    const auto actual = counts(guesses, 100000);
    EXPECT_GT(num_accepted_, std::ssize(requests) / 20);
    ChiSquare difference;
    for (size_t place = 0; place < kTokens; ++place)
      difference.add_pair(expected[place], actual[place]);
    EXPECT_GT(difference.p(), 0.001) << difference.p();
  }
}

// At temperature 0, and where only one token is kept, nothing is drawn, even with penalties and
// biases.
TEST_P(RejectionTest, RequestsThatDrawNothingOrTakeNoDraftsGetToTheBitWhatTheyGetWithout) {
  std::vector<Request> requests;
  for (int64_t number = 0; number < 48; ++number) {
    const auto token = [&](int64_t times) {
      return static_cast<int32_t>(number * times % kFewWords);
    };
    Request request{.prompt = {token(1), token(5), token(7), token(1), token(5)},
                    .max_tokens = 4 + number % 20};
    sample::SamplingParams& sampling = request.sampling;
    sampling.seed = number;
    sampling.temperature = 0.9F;
    if (number % 4 == 0) sampling.temperature = 0;
    if (number % 4 == 1) sampling.top_k = 1;
    if (number % 4 == 2) sampling.without_drafts = 1;
    if (number % 4 == 3) sampling.temperature = 0;
    if (number % 8 < 4) sampling.presence_penalty = 0.4F;
    if (number % 8 == 3) request.token_bias = {{token(3), -2.0F}};
    if (number % 3 == 0) sampling.num_logprobs = 2;
    if (number % 5 == 0) request.stop_tokens = {token(11), token(13)};
    if (number % 7 == 0) request.min_tokens = 3;
    requests.push_back(std::move(request));
  }
  const auto expected = answers(*load(Guesses::kNobody), requests);
  int64_t num_accepted = 0;
  for (const Guesses guesses : {Guesses::kLookup, Guesses::kDraftModel}) {
    const auto actual = answers(*load(guesses), requests);
    for (size_t i = 0; i < requests.size(); ++i)
      EXPECT_EQ(actual[i], expected[i]) << "request " << i;
    num_accepted += num_accepted_;
  }
  EXPECT_GT(num_accepted, 5);
}

// Whatever is drawn, texts end where they must, and consist of allowed tokens only.
TEST_P(RejectionTest, TextsKeepToWhatTheirRequestsAsk) {
  std::vector<Request> requests;
  for (int64_t number = 0; number < 64; ++number) {
    Request request{.prompt = {1, static_cast<int32_t>(number % kFewWords), 1}, .max_tokens = 20};
    request.sampling = {.temperature = 1.2F,
                        .top_k = number % 2 == 0 ? 6 : 0,
                        .min_p = number % 3 == 0 ? 0.1F : 0.0F,
                        .typical_p = number % 5 == 0 ? 0.9F : 1.0F,
                        .num_logprobs = 0,
                        .seed = number};
    request.stop_tokens = {static_cast<int32_t>((number + 5) % kFewWords)};
    request.min_tokens = 4;
    requests.push_back(std::move(request));
  }
  for (const Guesses guesses : {Guesses::kLookup, Guesses::kDraftModel}) {
    const auto model = load(guesses);
    const auto given = answers(*model, requests);
    EXPECT_GT(num_accepted_, 10);
    int64_t num_stopped = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const DrawnText& answer = given[i];
      const int32_t stop = requests[i].stop_tokens[0];
      const auto first_stop = std::ranges::find(answer.tokens, stop) - answer.tokens.begin();
      ASSERT_EQ(answer.logprobs.size(), answer.tokens.size());
      for (const float logprob : answer.logprobs)
        EXPECT_TRUE(logprob <= 0 && logprob > -30) << logprob;
      if (answer.finish == Finish::kStop) {
        ++num_stopped;
        EXPECT_GE(std::ssize(answer.tokens), 4);
        EXPECT_EQ(first_stop, std::ssize(answer.tokens) - 1);
      } else {
        EXPECT_EQ(answer.finish, Finish::kLength);
        EXPECT_EQ(std::ssize(answer.tokens), 20);
      }
    }
    EXPECT_GT(num_stopped, 10);
    EXPECT_EQ(given, answers(*model, requests)) << "the same again";
  }
}

}  // namespace
}  // namespace encore::engine
