// Tests that the bits of a token depend only on the tokens before it and on its request. They are
// the same when the request runs alone or beside others, when its prompt runs whole or in chunks,
// and when its pages come from the cache or are computed again.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "backend/device.h"
#include "backend/expand.h"
#include "backend/tuning.h"
#include "base/rounding.h"
#include "engine/testing/tiny_model.h"
#include "model/config.h"
#include "planning/no_memory.h"
#include "runtime/lower.h"

namespace encore::engine {
namespace {

using testing::Tiny;

constexpr int64_t kPageSize = 16;
constexpr int kTop = 5;  // likeliest tokens whose log probabilities are compared

// The answer of a sequence: its tokens, and the log probabilities of these tokens and of the
// likeliest ones.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
};

// Describes the first place where the bits of the answers differ. Returns "" where they are equal.
std::string first_difference(const std::vector<Answer>& got, const std::vector<Answer>& want) {
  if (got.size() != want.size()) return fmt::format("{} answers for {}", got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (got[i].tokens.size() != want[i].tokens.size() ||
        got[i].logprobs.size() != want[i].logprobs.size())
      return fmt::format("sequence {}: {} tokens for {}", i, got[i].tokens.size(),
                         want[i].tokens.size());
    for (size_t t = 0; t < want[i].logprobs.size(); ++t) {
      const float a = got[i].logprobs[t];
      const float b = want[i].logprobs[t];
      const size_t token = t / (1 + kTop);
      if (std::memcmp(&a, &b, sizeof(a)) != 0 || got[i].tokens[token] != want[i].tokens[token])
        return fmt::format("sequence {}, token {} of {}, log probability {}: {} for {}", i, token,
                           want[i].tokens.size(), t % (1 + kTop), a, b);
    }
  }
  return {};
}

class BatchInvariantTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) device_->tuner().configure({Tune::kOn, std::nullopt});
  }

  // Returns the length of the longest prompt. On a GPU it is so long that attention would split the
  // keys of a sequence among several blocks, if batch invariance did not forbid that.
  [[nodiscard]] int64_t longest_prompt() const {
    return device_->kind() == DeviceKind::kCuda ? 3000 : 120;
  }

  void load(int64_t max_num_tokens, int64_t max_batch_size, int64_t kv_tokens,
            DType kv_dtype = DType::kBF16) {
    model_.reset();
    LoadOptions options;
    options.limits = {.max_num_tokens = max_num_tokens,
                      .max_batch_size = max_batch_size,
                      .max_q = 1,
                      .max_seq_len = longest_prompt() + 64};
    options.page_size = kPageSize;
    options.kv_tokens = kv_tokens;
    options.dtype = DType::kBF16;
    options.kv_dtype = kv_dtype;
    options.compile.batch_invariant = true;
    model_ = std::make_unique<LoadedModel>(*device_, testing::tiny_model(kind_),
                                           testing::with_feature(options));
  }

  // Returns requests with prompts of 1 token up to the longest, and with samplers of every kind.
  // Each prompt of the second half of the requests begins as a prompt of the first half does.
  [[nodiscard]] std::vector<Request> requests() const {
    std::mt19937 random(29);
    std::vector<Request> requests;
    for (int i = 0; i < 10; ++i) {
      Request request;
      const int64_t length = 1 + longest_prompt() * (i % 5) * (i % 5) / 16;
      for (int64_t t = 0; t < std::min(length, longest_prompt()); ++t) {
        const bool shared = i >= 5 && t < std::ssize(requests[i - 5].prompt) / 2;
        request.prompt.push_back(shared ? requests[i - 5].prompt[t]
                                        : static_cast<int32_t>(random() % 1000));
      }
      request.max_tokens = 20 + 4 * i;
      request.sampling.temperature = i % 2 == 0 ? 0.0F : 1.0F;
      request.sampling.seed = i;
      request.sampling.num_logprobs = kTop;
      requests.push_back(std::move(request));
    }
    return requests;
  }

  std::vector<Answer> answer(const std::vector<Request>& requests, const EngineOptions& how = {}) {
    Engine engine(*model_, how);
    std::map<SequenceId, Answer> answers;
    for (const Request& request : requests) {
      const auto added = engine.add(request);
      EXPECT_TRUE(std::holds_alternative<SequenceId>(added)) << std::get<Rejection>(added).why;
      answers[std::get<SequenceId>(added)];
    }
    while (engine.step([&](const Generated& generated) {
      Answer& answer = answers[generated.sequence];
      answer.tokens.push_back(generated.token);
      num_cached_ += generated.num_cached;
      answer.logprobs.push_back(generated.logprobs->logprob);
      for (int i = 0; i < kTop; ++i)
        answer.logprobs.push_back(generated.logprobs->top[i].logprob);
    })) {
    }
    num_preemptions_ = engine.scheduler().num_preemptions();
    std::vector<Answer> list;
    for (auto& [id, answer] : answers)
      list.push_back(std::move(answer));
    return list;
  }
  // Answers each request by itself, with its prompt in one step.
  std::vector<Answer> answer_alone(DType kv_dtype = DType::kBF16) {
    load(longest_prompt() + 1, 1, longest_prompt() + 64, kv_dtype);
    std::vector<Answer> answers;
    for (const Request& request : requests())
      answers.push_back(answer({request}).front());
    return answers;
  }

  Tiny kind_ = Tiny::kQwen2;
  std::unique_ptr<LoadedModel> model_;
  int64_t num_cached_ = 0;
  int64_t num_preemptions_ = 0;
};

TEST_P(BatchInvariantTest, ASequenceGetsTheSameBitsAloneAndInACrowdWhosePromptsComeInChunks) {
  const std::vector<Answer> alone = answer_alone();
  const int64_t kv_tokens = 10 * (longest_prompt() + 64);
  for (const int64_t chunk : {longest_prompt() / 9, longest_prompt() / 2}) {
    for (const int64_t batch : {3, 10}) {
      SCOPED_TRACE(fmt::format("chunks of {}, {} sequences", chunk, batch));
      load(chunk, batch, kv_tokens);
      EXPECT_EQ(first_difference(answer(requests()), alone), "");
    }
  }
}

TEST_P(BatchInvariantTest, PagesFromTheCacheHoldTheSameBitsAsThoseComputedAgain) {
  const std::vector<Answer> alone = answer_alone();
  load(longest_prompt() / 4, 4, 10 * (longest_prompt() + 64));
  EXPECT_EQ(
      first_difference(
          answer(requests(), {.prefix_cache = kv::PrefixCacheOptions{.model = "tiny"}}), alone),
      "");
  EXPECT_GT(num_cached_, 0);
}

TEST_P(BatchInvariantTest, ASequenceThatLosesItsPagesGoesOnWithTheSameBits) {
  std::vector<Answer> alone = answer_alone();
  std::reverse(alone.begin(), alone.end());
  std::vector<Request> longest_first = requests();
  std::reverse(longest_first.begin(), longest_first.end());
  // The pool has room for the first two prompts, but not for all tokens that they generate.
  int64_t kv_tokens = 4 * kPageSize;
  for (int i = 0; i < 2; ++i) {
    const int64_t length = std::ssize(longest_first[i].prompt);
    kv_tokens += round_up(length, kPageSize);
  }
  load(longest_prompt() / 2, 10, kv_tokens);
  EXPECT_EQ(first_difference(answer(longest_first), alone), "");
  EXPECT_GT(num_preemptions_, 0);
}

TEST_P(BatchInvariantTest, KvInFp8IsNoException) {
  const std::vector<Answer> alone = answer_alone(DType::kFP8);
  load(longest_prompt() / 9, 10, 10 * (longest_prompt() + 64), DType::kFP8);
  EXPECT_EQ(first_difference(answer(requests()), alone), "");
}

TEST_P(BatchInvariantTest, ExpertsAreNoException) {
  kind_ = Tiny::kQwen3Moe;
  const std::vector<Answer> alone = answer_alone();
  load(longest_prompt() / 9, 10, 10 * (longest_prompt() + 64));
  EXPECT_EQ(first_difference(answer(requests()), alone), "");
}

// Returns the names of the kernels that a step runs, with a line for each node. The text names the
// skinny GEMM in place of the plain GEMM, too. Another test checks that the two give the same bits.
std::string kernels_of(const passes::Program& program, const KernelTable& kernels,
                       const StepKey& step) {
  const planning::NoMemory addresses(program);
  std::string text;
  for (const ir::Node& node : program.graph.nodes()) {
    if (node.op->is_view) continue;
    text += node.op->name;
    for (const OpLaunch& launch :
         expand(kernels, node.op->name, runtime::make_args(program, node, step, addresses))) {
      const std::string_view name = launch.kernel->name;
      text += fmt::format(" {}", name == "linear.gemm"         ? "linear.skinny_gemm"
                                 : name == "fused_linear.gemm" ? "fused_linear.skinny_gemm"
                                                               : name);
    }
    text += '\n';
  }
  return text;
}

TEST(BatchInvariant, AnOpRunsOnOneKernelWhateverTheStepOnDevicesThatNeedNotBeHere) {
  const std::optional<KernelTable> tables[] = {cpu_kernels(), cuda_kernels()};
  for (const std::string_view name : model::preset_names()) {
    const model::ModelConfig config = *model::preset(name);
    LoadOptions options;
    options.limits = {
        .max_num_tokens = 8192, .max_batch_size = 4096, .max_q = 9, .max_seq_len = 4096};
    options.compile.batch_invariant = true;
    const passes::Program program =
        compile_model({config, std::nullopt}, options, /*num_pages=*/64);
    for (const auto& table : tables) {
      if (!table) continue;  // the build does not have these kernels
      const std::string alone = kernels_of(program, *table, StepKey::uniform(1));
      for (const StepKey& step :
           {StepKey::uniform(4), StepKey::uniform(33), StepKey::uniform(1024),
            StepKey::uniform(64, 9), StepKey::mixed(16, 1), StepKey::mixed(257, 8),
            StepKey::uniform(4096), StepKey::mixed(8192, 4096)})
        EXPECT_EQ(kernels_of(program, *table, step), alone) << name << step.tokens;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, BatchInvariantTest,
                         ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::engine
