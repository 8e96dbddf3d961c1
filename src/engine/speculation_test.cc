// Tests drafts: a step guesses some tokens behind the next one of each sequence, and checks all of
// them at once. Whatever it guesses, requests get the same tokens, log probabilities and ends as
// without drafts.
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "engine/testing/tiny_model.h"
#include "engine/testing/words_checkpoint.h"

namespace encore::engine {
namespace {

using testing::WordsCheckpoint;

constexpr int32_t kWords = WordsCheckpoint::kWords;
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

// Returns request `number`. Each sampling parameter is set in at least every tenth request.
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

// Holds all that a request got. Log probabilities are compared bit for bit.
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

model::ModelSource words_model(size_t num_layers) {
  model::ModelSource source = testing::tiny_model(testing::Tiny::kLlama);
  source.config.layers.resize(num_layers);
  source.config.vocab_size = kWords;
  return source;
}

// Returns the number of requests for each of the eight numbers of drafts.
// ENCORE_DRAFTED_REQUESTS=10000 runs that many requests in all.
int64_t requests_each() {
  if (const char* wanted = std::getenv("ENCORE_DRAFTED_REQUESTS"))
    return std::atoll(wanted) / kMostDrafts;
  return is_thorough() ? 125 : 10;
}

class SpeculationTest : public testing::DeviceTest {
 protected:
  // Texts are equal to the bit on a CPU. On a GPU they are where rows do not depend on the size of
  // their step.
  [[nodiscard]] bool is_on_gpu() const { return device_->kind() == DeviceKind::kCuda; }

  // `num_draft_layers`: layers of a draft model. 0: there is no draft model, and drafts are looked
  // up.
  std::unique_ptr<LoadedModel> load(int64_t num_drafts, size_t num_draft_layers = 0,
                                    int64_t max_seq_len = 96, int64_t num_adapters = 0,
                                    int64_t draft_vocabulary = kWords) {
    const model::ModelSource source = words_model(1);
    LoadOptions options;
    if (num_draft_layers > 0) {
      options.draft = words_model(num_draft_layers);
      options.draft->config.vocab_size = draft_vocabulary;
    }
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
    options.compile.batch_invariant = is_on_gpu();
    options.adapters = {.num_slots = num_adapters, .max_rank = 4, .fills_slots = num_adapters > 0};
    return std::make_unique<LoadedModel>(device_for_another(), source, options);
  }

  // Returns the answers to the requests [first, last). Requests use no adapter and each of the
  // model's adapters by turns.
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

  // Expects a model that is its own draft model to make right drafts only, except drafts behind the
  // end of a text.
  void expect_right_drafts(const std::vector<int64_t>& fewer_drafts) {
    const WordsCheckpoint words;
    LoadOptions options;
    options.limits = {.max_num_tokens = 16,
                      .max_batch_size = 4,
                      .max_q = 1,
                      .max_seq_len = 128,
                      .num_drafts = 3,
                      .fewer_drafts = fewer_drafts};
    options.page_size = 16;
    options.compile.batch_invariant = is_on_gpu();
    options.draft = words.source();
    LoadedModel model(device_for_another(), words.source(), options);
    Engine engine(model, {.prefix_cache = kv::PrefixCacheOptions{}});
    const auto generate = [&](int64_t first, int64_t last) {
      for (int64_t number = first; number < last; ++number) {
        Request request{.prompt = RequestDice(7).tokens(50), .max_tokens = 40};
        for (const int32_t token : RequestDice(number).tokens(number % 20))
          request.prompt.push_back(token);
        request.sampling = {.temperature = number % 2 == 0 ? 0.0F : 1.0F, .seed = number};
        (void)engine.add(std::move(request));
      }
      while (engine.step([](const Generated&) {})) {
      }
    };
    generate(0, 6);
    generate(6, 12);  // each finds 3 full pages of 16 tokens of the common 50
    EXPECT_GE(engine.prefix_cache()->stats().hit_tokens, 6 * 48);
    const DraftCounts& drafts = engine.draft_counts();
    // The bound allows the 3 drafts in the last step of each of the 12 texts to be wrong.
    EXPECT_GE(drafts.num_accepted(), drafts.tokens - 12 * 3);
    // Where a step may have several numbers of drafts, each number is tried in at least four steps.
    EXPECT_GT(drafts.tokens, fewer_drafts.empty() ? 12 * 12 : 12 * 3);
  }

  void expect_as_without_drafts(size_t num_draft_layers) {
    const int64_t each = requests_each();
    const auto plain = load(0);
    const auto expected = answers(*plain, 0, kMostDrafts * each, {.overlap = false});
    int64_t num_drafted = 0;
    for (int64_t drafts = 1; drafts <= kMostDrafts; ++drafts) {
      const auto model = load(drafts, num_draft_layers);
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

  // The number of replays and steps of one run of a test, and the tokens per sequence of its
  // uniform steps.
  int64_t num_replays_ = 0;
  int64_t num_steps_ = 0;
  std::set<int> uniform_qs_;
};
INSTANTIATE_TEST_SUITE_P(Devices, SpeculationTest, ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST(DraftModelRefusals, NameWhatDoesNotGoTogether) {
  const auto device = create_cpu_device({.num_threads = 1});
  LoadOptions options;
  options.limits = {.max_num_tokens = 8, .max_batch_size = 2, .max_seq_len = 64, .num_drafts = 2};
  options.draft = words_model(1);
  const auto refusal = [&] {
    return message_of(ErrorKind::kUsage,
                      [&] { const LoadedModel model(*device, words_model(1), options); });
  };
  options.draft->config.vocab_size = 25;
  EXPECT_NE(refusal().find("a vocabulary of 25 tokens, and the model one of 24"), std::string::npos)
      << refusal();
  options.draft = words_model(1);
  options.draft->config.max_position_embeddings = 63;
  EXPECT_NE(refusal().find("sequences of 64 tokens: the draft model was made for at most 63"),
            std::string::npos)
      << refusal();
  options.draft = words_model(1);
  options.limits.num_drafts = 0;
  EXPECT_NE(refusal().find("without --speculative-tokens"), std::string::npos) << refusal();
}

TEST_P(SpeculationTest, RequestsGetToTheBitWhatTheyGetWithoutDrafts) {
  expect_as_without_drafts(0);
}

TEST_P(SpeculationTest, ADraftModelChangesNoBitOfWhatRequestsGet) {
  expect_as_without_drafts(2);
}

// The draft model does not guess the last tokens of the vocabulary, and reads them as padding.
TEST_P(SpeculationTest, ADraftModelMayKnowTheFirstTokensAlone) {
  constexpr int64_t kEach = 12;
  const auto plain = load(0);
  const auto expected = answers(*plain, 0, kEach, {.overlap = false});
  const auto model = load(3, 2, 96, 0, kWords - 9);
  EXPECT_EQ(answers(*model, 0, kEach, {}), expected);
}

// A draft model that is the model itself guesses what the model chooses, with the same noise. It is
// wrong only where a text ends in front of a draft. It must have read every prompt, in chunks or
// found in the prefix cache, and every generated token.
// The same holds where steps have fewer drafts from time to time, or none.
TEST_P(SpeculationTest, ADraftModelThatIsTheModelIsRightWhereverATextGoesOn) {
  for (const std::vector<int64_t>& fewer : {std::vector<int64_t>{}, std::vector<int64_t>{1, 2}}) {
    SCOPED_TRACE(fewer.size());
    expect_right_drafts(fewer);
  }
}

// Sequences have drafts while prompts of others are read in chunks in the same steps. The draft
// model is the model itself, so its drafts are right. That shows that it has read those prompts,
// too, once they are done.
TEST_P(SpeculationTest, SequencesThatGenerateGuessBesideThePromptsOfOthers) {
  const WordsCheckpoint words;
  LoadOptions options;
  options.limits = {
      .max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 160, .num_drafts = 3};
  options.page_size = 16;
  options.compile.batch_invariant = is_on_gpu();
  options.draft = words.source();
  LoadedModel model(device_for_another(), words.source(), options);
  Engine engine(model, {});
  int64_t num_running = 0;
  const auto add = [&](int64_t prompt, int64_t max_tokens) {
    (void)engine.add({.prompt = RequestDice(prompt).tokens(prompt),
                      .max_tokens = max_tokens,
                      .sampling = {.temperature = 1, .seed = prompt}});
    ++num_running;
  };
  const auto step = [&] {
    return engine.step([&](const Generated& token) { num_running -= token.finish ? 1 : 0; });
  };
  add(10, 90);
  add(11, 90);
  for (int i = 0; i < 4; ++i)
    step();
  add(100, 20);
  add(120, 20);
  while (step()) {
  }
  EXPECT_EQ(num_running, 0);
  const DraftCounts& drafts = engine.draft_counts();
  EXPECT_GE(drafts.mixed_rows, 2 * 6) << "prompts of 220 tokens take seven steps or more";
  EXPECT_EQ(drafts.mixed_drafting_rows, drafts.mixed_rows);
  // The bound allows the 3 drafts in the last step of each of the 4 texts to be wrong.
  EXPECT_GE(drafts.num_accepted(), drafts.tokens - 4 * 3);
}

// In a mixed step, the row of a sequence that takes no drafts has one token, and no places for
// drafts.
TEST_P(SpeculationTest, SequencesThatTakeNoDraftsHaveOneTokenOfAMixedStep) {
  const auto model = load(3);
  Engine engine(*model, {});
  (void)engine.add(
      {.prompt = RequestDice(1).tokens(5), .max_tokens = 20, .sampling = {.without_drafts = 1}});
  (void)engine.add({.prompt = RequestDice(2).tokens(5), .max_tokens = 20});
  const auto step = [&] { return engine.step([](const Generated&) {}); };
  for (int i = 0; i < 3; ++i)
    step();
  (void)engine.add({.prompt = RequestDice(3).tokens(70), .max_tokens = 1});
  while (step()) {
    const sched::Plan& plan = engine.last_plan();
    if (plan.uniform_q(1)) continue;
    EXPECT_EQ(plan.rows[0].num_tokens(), plan.rows[0].count);
  }
  const DraftCounts& drafts = engine.draft_counts();
  EXPECT_GE(drafts.mixed_rows, 4);
  EXPECT_EQ(2 * drafts.mixed_drafting_rows, drafts.mixed_rows);
}

TEST_P(SpeculationTest, AMixedStepInWhichNobodyGuessesHasARecordingWithoutDrafts) {
  const auto model = load(3, 1);
  Engine engine(*model, {});
  const auto step = [&] { return engine.step([](const Generated&) {}); };
  (void)engine.add({.prompt = RequestDice(1).tokens(70), .max_tokens = 20});
  (void)engine.add(
      {.prompt = RequestDice(2).tokens(5), .max_tokens = 12, .sampling = {.without_drafts = 1}});
  while (step()) {
  }
  (void)engine.add({.prompt = RequestDice(3).tokens(5), .max_tokens = 30});
  step();
  step();
  (void)engine.add({.prompt = RequestDice(4).tokens(70), .max_tokens = 2});
  while (step()) {
  }
  // The number of mixed steps that ran, by the number of places for drafts in a row.
  std::map<int, int64_t> steps;
  for (const StepCount& count : engine.step_counts()) {
    if (!count.key.is_uniform()) steps[count.key.drafts] += count.steps;
  }
  EXPECT_GE(steps[0], 2) << "the first prompt";
  EXPECT_GE(steps[3], 2) << "the last prompt, beside a sequence that guesses";
  EXPECT_EQ(steps.size(), 2U);
}

// A whole burst is one launch. The draft model is the model itself, so each step of a burst begins
// as far ahead as drafts allow.
TEST_P(SpeculationTest, BurstsHaveDraftsAndChangeTheirNumberInBetween) {
  const WordsCheckpoint words;
  for (const std::vector<int64_t>& fewer : {std::vector<int64_t>{}, std::vector<int64_t>{1, 2}}) {
    SCOPED_TRACE(fewer.size());
    LoadOptions options;
    options.limits = {.max_num_tokens = 32,
                      .max_batch_size = 2,
                      .max_q = 1,
                      .max_seq_len = 500,
                      .num_drafts = 3,
                      .fewer_drafts = fewer};
    options.page_size = 16;
    options.dtype = DType::kF32;
    options.compile.batch_invariant = is_on_gpu();
    options.draft = words.source();
    options.bursts = true;
    LoadedModel model(*device_, words.source(), options);
    const auto generate = [&](const EngineOptions& how) {
      Engine engine(model, how);
      std::map<SequenceId, std::vector<int32_t>> texts;
      for (const int64_t number : {1, 2}) {
        Request request{.prompt = RequestDice(number).tokens(9), .max_tokens = 480};
        request.sampling = {.temperature = 1, .frequency_penalty = 0.1F, .seed = number};
        (void)engine.add(std::move(request));
      }
      const auto& stats = model.executor().loaded().recordings.stats();
      const int64_t replays_before = stats.replays;
      while (engine.step([&](const Generated& generated) {
        texts[generated.sequence].push_back(generated.token);
      })) {
      }
      num_replays_ = stats.replays - replays_before;
      num_steps_ = 0;
      uniform_qs_.clear();
      for (const StepCount& count : engine.step_counts()) {
        num_steps_ += count.steps;
        if (count.key.q) uniform_qs_.insert(*count.key.q);
      }
      // Where steps may choose how many drafts they have, the choice depends on measured times, so
      // the second bound is low. It is above 0 since each number of drafts is tried.
      EXPECT_GT(engine.draft_counts().num_accepted(), fewer.empty() ? 100 : 10);
      EXPECT_EQ(engine.page_pool().num_free(), engine.page_pool().num_pages());
      return texts;
    };
    const auto expected = generate({.overlap = false});
    for (const bool overlap : {false, true}) {
      EXPECT_EQ(generate({.overlap = overlap, .burst_steps = 64}), expected);
      EXPECT_LT(num_replays_, num_steps_ / 2) << "launches are single steps";
      if (!fewer.empty()) {
        EXPECT_EQ(uniform_qs_, (std::set<int>{1, 2, 3, 4}));
      } else {
        EXPECT_EQ(uniform_qs_, (std::set<int>{4}));
      }
    }
  }
}

// Rows of drafts use the adapter of their sequence, in the last layer, too.
TEST_P(SpeculationTest, RequestsOfAdaptersGetToTheBitWhatTheyGetWithoutDrafts) {
  constexpr int64_t kSeqLen = 96;
  constexpr int64_t kAdapters = 3;
  const int64_t count = is_thorough() ? 60 : 12;
  const auto plain = load(0, 0, kSeqLen, kAdapters);
  const auto expected = answers(*plain, 0, count, {.overlap = false});
  EXPECT_NE(expected, answers(*load(0), 0, count, {.overlap = false})) << "adapters do nothing";
  int64_t num_drafted = 0;
  for (const int64_t drafts : {2, 5}) {
    const auto model = load(drafts, 0, kSeqLen, kAdapters);
    const auto actual = answers(*model, 0, count, {.overlap = drafts == 5});
    EXPECT_EQ(actual, expected) << "drafts " << drafts;
    for (const auto& [number, given] : actual)
      num_drafted += given.num_drafted;
  }
  EXPECT_GT(num_drafted, 10);
}

}  // namespace
}  // namespace encore::engine
