// Drafts: a step guesses some tokens behind the next one of each sequence and checks them all at once.
// Whatever it guesses, requests get the tokens, log probabilities and ends that they get without.
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

constexpr int32_t kWords = 24;  // of a vocabulary so small that guesses are often right
constexpr int64_t kMostDrafts = 8;

class RequestDice {
 public:
  explicit RequestDice(int64_t number) : random_(static_cast<uint64_t>(number)) {}
  int64_t between(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(random_() % static_cast<uint64_t>(last - first + 1));
  }
  bool chance(int percent) { return between(0, 99) < percent; }
  float of(std::initializer_list<float> values) {
    return values.begin()[between(0, std::ssize(values) - 1)];
  }
  std::vector<int32_t> tokens(int64_t count) {
    std::vector<int32_t> tokens;
    for (int64_t i = 0; i < count; ++i)
      tokens.push_back(static_cast<int32_t>(between(0, kWords - 1)));
    return tokens;
  }

 private:
  std::mt19937_64 random_;
};

// Every sampling parameter, in every tenth request or more.
Request any_request(int64_t number) {
  RequestDice dice(number);
  Request request{.prompt = dice.tokens(dice.between(1, 40)), .max_tokens = dice.between(1, 24)};
  sample::SamplingParams& sampling = request.sampling;
  sampling.temperature = dice.of({0, 0.7F, 1});
  sampling.seed = number;
  if (dice.chance(20)) sampling.top_k = static_cast<int32_t>(dice.between(1, 8));
  if (dice.chance(20)) sampling.top_p = 0.8F;
  if (dice.chance(20)) sampling.min_p = 0.1F;
  if (dice.chance(20)) sampling.typical_p = 0.9F;
  if (dice.chance(10)) sampling.repetition_penalty = 1.3F;
  if (dice.chance(10)) sampling.presence_penalty = 0.4F;
  if (dice.chance(10)) sampling.frequency_penalty = 0.5F;
  if (dice.chance(40)) sampling.num_logprobs = static_cast<int32_t>(dice.between(0, 3));
  if (dice.chance(10)) request.token_bias = {{static_cast<int32_t>(number % kWords), -3.0F}};
  if (dice.chance(40)) request.stop_tokens = dice.tokens(dice.between(1, 3));
  if (dice.chance(10)) request.stop_tokens = dice.tokens(12);  // more than a step looks at
  if (dice.chance(30)) request.min_tokens = dice.between(0, request.max_tokens);
  if (dice.chance(20)) request.priority = 1;
  return request;
}

// All that a request got, to the bit.
struct Given {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::optional<Finish> finish;
  int64_t num_drafted = 0;

  friend bool operator==(const Given& a, const Given& b) {
    return a.tokens == b.tokens && a.logprobs == b.logprobs && a.finish == b.finish;
  }
  friend void PrintTo(const Given& given, std::ostream* out) {
    *out << ::testing::PrintToString(given.tokens) << ", "
         << ::testing::PrintToString(given.logprobs);
  }
};

class SpeculationTest : public testing::DeviceTest {
 protected:
  std::unique_ptr<LoadedModel> load(int64_t num_drafts, int64_t max_seq_len = 96,
                                    int64_t num_adapters = 0) {
    model::ModelSource source = testing::tiny_model(testing::Tiny::kLlama);
    source.config.layers.resize(1);
    source.config.vocab_size = kWords;
    LoadOptions options;
    options.limits = {.max_num_tokens = 4 * (1 + kMostDrafts),
                      .max_batch_size = 4,
                      .max_q = 1,
                      .max_seq_len = max_seq_len,
                      .num_drafts = num_drafts};
    options.tokens = runtime::Ladder({8, 36});
    options.sequences = runtime::Ladder({1, 2, 4});
    options.page_size = 16;
    options.dtype = DType::kF32;  // so that a sequence's tokens do not depend on its bucket
    options.bursts = true;
    options.adapters = {.num_slots = num_adapters, .max_rank = 4, .fills_slots = num_adapters > 0};
    return std::make_unique<LoadedModel>(*device_, source, options);
  }

  // Requests take the adapters of the model by turns, and none.
  static std::map<int64_t, Given> answers(LoadedModel& model, int64_t first, int64_t last,
                                          const EngineOptions& how) {
    Engine engine(model, how);
    std::map<SequenceId, int64_t> numbers;
    std::map<int64_t, Given> given;
    const int64_t num_adapters = model.adapters() == nullptr ? 0 : model.adapters()->num_slots();
    for (int64_t number = first; number < last; ++number) {
      Request request = any_request(number);
      if (const int64_t turn = number % (num_adapters + 1); turn > 0)
        request.adapter = fmt::format("random-{}", turn - 1);
      numbers[std::get<SequenceId>(engine.add(std::move(request)))] = number;
    }
    while (engine.step([&](const Generated& generated) {
      Given& to = given[numbers[generated.sequence]];
      to.tokens.push_back(generated.token);
      to.num_drafted += generated.was_drafted ? 1 : 0;
      to.finish = generated.finish;
      if (!generated.logprobs) return;
      to.logprobs.insert(to.logprobs.end(), {generated.logprobs->logprob,
                                             static_cast<float>(generated.logprobs->rank)});
    })) {
    }
    EXPECT_EQ(engine.page_pool().num_free(), engine.page_pool().num_pages());
    return given;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, SpeculationTest, ::testing::Values("Cpu", "CpuShuffled"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(SpeculationTest, RequestsGetToTheBitWhatTheyGetWithoutDrafts) {
  const int64_t each = is_thorough() ? 125 : 10;
  const auto plain = load(0);
  const auto expected = answers(*plain, 0, kMostDrafts * each, {.overlap = false});
  int64_t num_drafted = 0;
  for (int64_t drafts = 1; drafts <= kMostDrafts; ++drafts) {
    const auto model = load(drafts);
    const EngineOptions how{.overlap = drafts % 2 == 0, .burst_steps = drafts % 3 == 0 ? 16 : 1};
    const auto actual = answers(*model, (drafts - 1) * each, drafts * each, how);
    ASSERT_EQ(std::ssize(actual), each);
    for (const auto& [number, given] : actual) {
      EXPECT_EQ(given, expected.at(number)) << "request " << number << ", drafts " << drafts;
      num_drafted += given.num_drafted;
    }
  }
  EXPECT_GT(num_drafted, each * kMostDrafts / 2);
}

// Rows of drafts have the adapter of their sequence, in the last layer, too.
TEST_P(SpeculationTest, RequestsOfAdaptersGetToTheBitWhatTheyGetWithoutDrafts) {
  constexpr int64_t kSeqLen = 96;
  constexpr int64_t kAdapters = 3;
  const int64_t count = is_thorough() ? 60 : 12;
  const auto plain = load(0, kSeqLen, kAdapters);
  const auto expected = answers(*plain, 0, count, {.overlap = false});
  EXPECT_NE(expected, answers(*load(0), 0, count, {.overlap = false})) << "adapters do nothing";
  int64_t num_drafted = 0;
  for (const int64_t drafts : {2, 5}) {
    const auto model = load(drafts, kSeqLen, kAdapters);
    const auto actual = answers(*model, 0, count, {.overlap = drafts == 5});
    EXPECT_EQ(actual, expected) << "drafts " << drafts;
    for (const auto& [number, given] : actual)
      num_drafted += given.num_drafted;
  }
  EXPECT_GT(num_drafted, 10);
}

}  // namespace
}  // namespace encore::engine
