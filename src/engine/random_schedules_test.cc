// Runs random schedules with a model. Requests of every kind come, go early, and run beside each
// other in every way that the engine has. Each request gets the tokens and log probabilities that
// it gets alone in eager steps without overlap, and no page is lost.
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int32_t kVocab = 128;
constexpr int32_t kNumTop = 2;

// The answer to a request.
struct Answer {
  Tokens tokens;
  std::vector<float> logprobs;  // log probabilities of its tokens and of its prompt's
  std::optional<Finish> finish;

  // Returns whether this answer is the beginning of the other.
  [[nodiscard]] bool begins(const Answer& other) const {
    return tokens.size() <= other.tokens.size() && logprobs.size() <= other.logprobs.size() &&
           std::equal(tokens.begin(), tokens.end(), other.tokens.begin()) &&
           std::equal(logprobs.begin(), logprobs.end(), other.logprobs.begin());
  }
  void add(const Generated& generated) {
    for (const LogprobRow& row : generated.prompt_logprobs)
      logprobs.insert(logprobs.end(), {row.logprob, row.top[kNumTop - 1].logprob});
    tokens.push_back(generated.token);
    if (generated.logprobs) logprobs.push_back(generated.logprobs->logprob);
    finish = generated.finish;
  }
};

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int64_t between(int64_t first, int64_t last) {
    return first + static_cast<int64_t>(random_() % static_cast<uint64_t>(last - first + 1));
  }
  bool chance(int percent) { return between(0, 99) < percent; }
  Tokens tokens(int64_t count) {
    Tokens tokens;
    for (int64_t i = 0; i < count; ++i)
      tokens.push_back(static_cast<int32_t>(between(0, kVocab - 1)));
    return tokens;
  }

 private:
  std::mt19937_64 random_;
};

// Returns request `number` of those that schedules choose from. Many requests begin alike.
Request request_of(int64_t number) {
  Dice dice(static_cast<uint64_t>(number));
  Request request{.prompt = Dice(static_cast<uint64_t>(number % 3)).tokens(dice.between(0, 50)),
                  .max_tokens = dice.between(1, 24)};
  for (const int32_t token : dice.tokens(dice.between(1, 20)))
    request.prompt.push_back(token);
  if (dice.chance(50)) request.sampling = {.temperature = 1, .top_p = 0.9F};
  request.sampling.seed = number;
  if (dice.chance(20)) request.sampling.repetition_penalty = 1.3F;
  if (dice.chance(20)) request.sampling.frequency_penalty = 0.5F;
  if (dice.chance(20)) request.token_bias = {{static_cast<int32_t>(number % kVocab), -3.0F}};
  if (dice.chance(30)) request.stop_tokens = dice.tokens(12);  // more than a step looks at
  if (dice.chance(20)) request.min_tokens = dice.between(0, request.max_tokens);
  if (dice.chance(30)) request.sampling.num_logprobs = 0;
  if (dice.chance(40)) request.num_prompt_logprobs = kNumTop;
  return request;
}
constexpr int64_t kNumRequests = 80;

// As in sched/random_schedules_test.cc, ENCORE_SCHEDULES=10000 runs ten times as many schedules.
int64_t num_schedules() {
  const char* const wanted = std::getenv("ENCORE_SCHEDULES");
  return wanted == nullptr ? 1000 : std::atoll(wanted);
}

class RandomEngineTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    const model::ModelSource source = source_of({{}});
    LoadOptions options = base_options();
    answer_alone(source, options);
    options.bursts = true;
    model_ =
        std::make_unique<LoadedModel>(device_for_another(), source, testing::with_feature(options));
    options.limits.num_drafts = 4;
    drafting_model_ =
        std::make_unique<LoadedModel>(device_for_another(), source, testing::with_feature(options));
    options.draft = source;
    two_models_ =
        std::make_unique<LoadedModel>(device_for_another(), source, testing::with_feature(options));
    options.limits.fewer_drafts = {1, 2};
    choosing_options_ = testing::with_feature(options);
  }

  bool is_on_gpu() const { return device_->kind() == DeviceKind::kCuda; }

  static model::ModelSource source_of(const std::vector<model::LayerKind>& layers) {
    model::ModelSource source = testing::tiny_model(testing::Tiny::kLlama);
    source.config.layers = layers;
    source.config.vocab_size = kVocab;
    return source;
  }
  LoadOptions base_options() const {
    LoadOptions options;
    options.limits = {.max_num_tokens = 24, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
    options.scores_prompts = true;
    options.kv_tokens = 112;  // a little more than the longest request needs
    options.page_size = 16;
    options.dtype = DType::kF32;  // so that a sequence's tokens do not depend on its bucket
    options.compile.batch_invariant = is_on_gpu();
    return options;
  }

  // Answers each request alone. Where the test's device is a single CPU, it uses a CPU device whose
  // work is done when a launch returns. Otherwise it uses a device of the test's kind, as ranks add
  // up in another order.
  void answer_alone(const model::ModelSource& source, LoadOptions options) {
    options.graphs = runtime::Graphs::kNone;
    const bool is_alone = !is_on_gpu() && device_->peers().empty();
    const auto plain = is_alone ? create_cpu_device({.num_threads = 2}) : nullptr;
    LoadedModel model(plain ? *plain : device_for_another(), source,
                      testing::with_feature(options));
    for (int64_t i = 0; i < kNumRequests; ++i) {
      Engine engine(model, {.overlap = false});
      (void)engine.add(request_of(i));
      while (engine.step([&](const Generated& generated) { alone_[i].add(generated); })) {
      }
    }
  }

  // Runs one schedule on one of the models. The seed decides everything.
  void run(LoadedModel& model, uint64_t seed, int aborts_in_percent) {
    Dice dice(seed);
    EngineOptions how{.overlap = dice.chance(50), .burst_steps = dice.chance(50) ? 16 : 1};
    if (dice.chance(60)) how.prefix_cache.emplace();
    Engine engine(model, how);
    std::map<SequenceId, int64_t> numbers;
    std::map<SequenceId, Answer> answers;
    std::vector<SequenceId> ids;
    std::set<SequenceId> aborted;
    const auto step = [&] {
      return engine.step(
          [&](const Generated& generated) { answers[generated.sequence].add(generated); });
    };
    for (int64_t i = dice.between(10, 40); i > 0; --i) {
      for (int64_t n = dice.chance(40) ? dice.between(1, 3) : 0; n > 0; --n) {
        const int64_t number = dice.between(0, kNumRequests - 1);
        Request request = request_of(number);
        request.priority = static_cast<int32_t>(dice.between(0, 1));
        ids.push_back(std::get<SequenceId>(engine.add(std::move(request))));
        numbers[ids.back()] = number;
      }
      step();
      if (!ids.empty() && dice.chance(aborts_in_percent)) {
        const SequenceId id = ids[static_cast<size_t>(dice.between(0, std::ssize(ids) - 1))];
        num_aborts_ += answers[id].finish ? 0 : 1;
        engine.abort(id);
        aborted.insert(id);
      }
      if (dice.chance(3)) {
        engine.sleep(SleepDepth::kKv);
        engine.wake();
      }
    }
    while (step()) {
    }
    EXPECT_EQ(engine.page_pool().num_free(), engine.page_pool().num_pages());
    if (const kv::WindowGroup* window = engine.window_group()) {
      EXPECT_EQ(window->pool().num_free(), window->pool().num_pages());
    }
    for (const auto& [id, number] : numbers) {
      const Answer& alone = alone_[number];
      EXPECT_TRUE(answers[id].begins(alone)) << "request " << number;
      if (aborted.contains(id)) continue;
      EXPECT_EQ(answers[id].tokens.size(), alone.tokens.size()) << "request " << number;
      EXPECT_EQ(answers[id].logprobs.size(), alone.logprobs.size()) << "request " << number;
      EXPECT_EQ(answers[id].finish, alone.finish) << "request " << number;
    }
    num_preemptions_ += engine.scheduler().num_preemptions();
    num_accepted_ += engine.draft_counts().num_accepted();
    num_mixed_drafting_ += engine.draft_counts().mixed_drafting_rows;
    for (const StepCount& count : engine.step_counts()) {
      if (count.key.q) uniform_qs_.insert(*count.key.q);
    }
    if (engine.prefix_cache() != nullptr) hit_tokens_ += engine.prefix_cache()->stats().hit_tokens;
  }

  // Runs schedules on a model with drafts, and expects at least `least` right drafts per schedule
  // on average.
  void expect_alike_with_drafts(LoadedModel& model, int64_t least) {
    const int64_t count = num_schedules() * 3 / 100;
    for (int64_t seed = 0; seed < count; ++seed) {
      SCOPED_TRACE(seed);
      run(model, static_cast<uint64_t>(2'000'000 + seed), 10);
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_GT(num_aborts_, count / 2);
    EXPECT_GT(num_preemptions_, count / 2);
    EXPECT_GT(hit_tokens_, 10 * count);
    EXPECT_GT(num_accepted_, least * count);
    EXPECT_GT(num_mixed_drafting_, 2 * count);
  }

  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<LoadedModel> drafting_model_;  // same model with look-up drafts
  std::unique_ptr<LoadedModel> two_models_;      // same model with a draft model
  // The options of a model whose steps choose how many drafts they have.
  LoadOptions choosing_options_;
  std::map<int64_t, Answer> alone_;  // answers by the request's number
  int64_t num_aborts_ = 0;
  int64_t num_preemptions_ = 0;
  int64_t hit_tokens_ = 0;
  int64_t num_accepted_ = 0;
  int64_t num_mixed_drafting_ = 0;  // rows of mixed steps that had drafts
  std::set<int> uniform_qs_;        // tokens per sequence of the uniform steps that ran
};
INSTANTIATE_TEST_SUITE_P(Devices, RandomEngineTest,
                         ::testing::Values("Cpu", "CpuShuffled", "CpuAsync", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(RandomEngineTest, EachRequestGetsWhatItGetsAlone) {
  const int64_t count = num_schedules() * 3 / 100;
  for (int64_t seed = 0; seed < count; ++seed) {
    SCOPED_TRACE(seed);
    run(*model_, static_cast<uint64_t>(seed), 10);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(num_aborts_, count / 2);
  EXPECT_GT(num_preemptions_, count / 2);
  EXPECT_GT(hit_tokens_, 10 * count);
}

// The requests that run alone have no drafts.
TEST_P(RandomEngineTest, WithDraftsEachRequestGetsWhatItGetsAloneWithoutAny) {
  expect_alike_with_drafts(*drafting_model_, 1);
}

TEST_P(RandomEngineTest, WithADraftModelEachRequestGetsWhatItGetsAloneWithoutAny) {
  expect_alike_with_drafts(*two_models_, 10);
}

// Steps choose by the times that they measure, so schedules go on differently from run to run;
// texts do not differ.
TEST_P(RandomEngineTest, WhereStepsChooseTheirDraftsEachRequestGetsWhatItGetsAloneWithoutAny) {
  LoadedModel model(device_for_another(), *choosing_options_.draft, choosing_options_);
  for (int64_t seed = 0; seed < num_schedules() * 3 / 100; ++seed) {
    SCOPED_TRACE(seed);
    run(model, static_cast<uint64_t>(3'000'000 + seed), 10);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_EQ(uniform_qs_, (std::set<int>{1, 2, 3, 5}));
}

// In the model of the requests that run alone, all layers have the same pages.
TEST_P(RandomEngineTest, WithPagesOfAWindowEachRequestGetsWhatItGetsWithoutThem) {
  const model::ModelSource source = source_of({{.window = 20}, {}, {.window = 18}});
  LoadOptions options = base_options();
  alone_.clear();
  answer_alone(source, options);
  options.window_pages = true;
  options.bursts = true;
  LoadedModel plain(device_for_another(), source, testing::with_feature(options));
  ASSERT_GT(plain.num_window_pages(), 0);
  options.limits.num_drafts = 4;
  LoadedModel drafting(device_for_another(), source, testing::with_feature(options));
  options.draft = source;
  LoadedModel two_models(device_for_another(), source, testing::with_feature(options));
  const int64_t count = num_schedules() * 18 / 1000;
  for (int64_t seed = 0; seed < count; ++seed) {
    SCOPED_TRACE(seed);
    LoadedModel* const models[] = {&plain, &drafting, &two_models};
    run(*models[seed % 3], static_cast<uint64_t>(4'000'000 + seed), 10);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(num_aborts_, count / 2);
  EXPECT_GT(num_preemptions_, 0);
  EXPECT_GT(hit_tokens_, 5 * count);
  EXPECT_GT(num_accepted_, count / 2);
}

TEST_P(RandomEngineTest, AbortsAtRandomMomentsLoseNoPage) {
  for (uint64_t seed = 0; num_aborts_ < num_schedules(); ++seed) {
    SCOPED_TRACE(seed);
    LoadedModel* const models[] = {model_.get(), drafting_model_.get(), two_models_.get()};
    run(*models[seed % 3], 1'000'000 + seed, 90);
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace encore::engine
