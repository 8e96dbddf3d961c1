// Tests a model with experts together with a second feature (drafts, bursts, adapters), which must
// change no bit of what requests get.
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

class ExpertPairs : public testing::DeviceTest {
 protected:
  static constexpr int64_t kRequests = 16;
  static constexpr int32_t kWords = 24;  // the vocabulary is so small that drafts are often right

  // The tokens that a request got, and their log probabilities.
  struct Answer {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs;

    friend bool operator==(const Answer&, const Answer&) = default;
  };

  static model::ModelSource experts() {
    model::ModelSource source = testing::tiny_model(testing::Tiny::kQwen3Moe);
    source.config.vocab_size = kWords;
    return source;
  }
  // All numbers are floats, and sums on a GPU do not depend on the step, so a sequence's bits
  // depend on that sequence alone.
  [[nodiscard]] LoadOptions options() const {
    LoadOptions options;
    options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 96};
    options.page_size = 16;
    options.dtype = DType::kF32;
    options.compile.batch_invariant = device_->kind() == DeviceKind::kCuda;
    return options;
  }
  std::unique_ptr<LoadedModel> load(const LoadOptions& options) {
    return std::make_unique<LoadedModel>(device_for_another(), experts(), options);
  }

  // Returns request `number`. Requests use no adapter and each of the model's adapters by turns.
  static Request request(int64_t number, int64_t num_adapters) {
    std::mt19937_64 random(static_cast<uint64_t>(number));
    Request request{.max_tokens = 12 + number};
    for (int64_t i = 0; i < 5 + 3 * number; ++i)
      request.prompt.push_back(static_cast<int32_t>(random() % kWords));
    request.sampling = {.temperature = number % 3 == 0 ? 0.0F : 0.8F, .seed = number};
    request.sampling.num_logprobs = 0;
    const int64_t turn = number % (num_adapters + 1);
    if (turn > 0) request.adapter = fmt::format("random-{}", turn - 1);
    return request;
  }
  static std::map<int64_t, Answer> answers(LoadedModel& model, int64_t first, int64_t last,
                                           const EngineOptions& how = {}) {
    Engine engine(model, how);
    const int64_t num_adapters = model.adapters() == nullptr ? 0 : model.adapters()->num_slots();
    std::map<SequenceId, int64_t> numbers;
    for (int64_t number = first; number < last; ++number)
      numbers[std::get<SequenceId>(engine.add(request(number, num_adapters)))] = number;
    std::map<int64_t, Answer> answers;
    while (engine.step([&](const Generated& generated) {
      Answer& answer = answers[numbers.at(generated.sequence)];
      answer.tokens.push_back(generated.token);
      if (generated.logprobs) answer.logprobs.push_back(generated.logprobs->logprob);
    })) {
    }
    EXPECT_EQ(std::ssize(answers), last - first);
    EXPECT_EQ(engine.draft_counts().tokens > 0, model.limits().num_drafts > 0);
    return answers;
  }
};

TEST_P(ExpertPairs, DraftsAndBurstsChangeNoBitOfWhatExpertsGive) {
  const auto plain = load(options());
  const auto expected = answers(*plain, 0, kRequests);
  for (const bool has_model : {false, true}) {
    LoadOptions drafting = options();
    drafting.limits.num_drafts = 3;
    drafting.bursts = true;
    if (has_model) drafting.draft = experts();
    const auto model = load(drafting);
    EXPECT_EQ(answers(*model, 0, kRequests), expected) << has_model;
    EXPECT_EQ(answers(*model, 0, kRequests, {.burst_steps = 16}), expected) << has_model;
  }
}

TEST_P(ExpertPairs, AMixOfAdaptersGivesEachTheBitsThatItGetsAlone) {
  LoadOptions adapting = options();
  adapting.adapters = {.num_slots = 2, .max_rank = 4, .fills_slots = true};
  const auto model = load(adapting);
  const auto together = answers(*model, 0, kRequests);
  for (int64_t number = 0; number < kRequests; ++number)
    EXPECT_EQ(answers(*model, number, number + 1).at(number), together.at(number)) << number;
  const auto plain = load(options());
  const auto without = answers(*plain, 0, kRequests);
  EXPECT_EQ(together.at(3), without.at(3)) << "its adapter is none";
  EXPECT_NE(together.at(4), without.at(4)) << "its adapter changes nothing";
  adapting.limits.num_drafts = 3;
  const auto drafting = load(adapting);
  EXPECT_EQ(answers(*drafting, 0, kRequests), together);
}

INSTANTIATE_TEST_SUITE_P(Devices, ExpertPairs, ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::engine
