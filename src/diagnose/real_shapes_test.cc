// Compares the three ways to run a step at the shapes that are served: heads of size 128, and 4 and
// 7 query heads for each KV head. One batch has very uneven lengths; it runs its prompts in chunks
// and then one token a step. On a GPU, the model has the widths of Llama 3.1 8B and Qwen2.5 7B, and
// its kernels are tuned. On the CPU, where that would take hours, layers are narrow and prompts
// short.
#include "backend/tuning.h"
#include "diagnose/testing/three_ways.h"

namespace encore::diagnose {
namespace {

using runtime::Graphs;
using testing::append;
using testing::Bits;
using testing::random_prompt;
using testing::same;
using testing::Trial;

constexpr int kUniformSteps = 12;

class RealShapesTest : public engine::testing::DeviceTest {
 protected:
  [[nodiscard]] bool is_large() const { return device_->kind() == DeviceKind::kCuda; }

  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) device_->tuner().configure({Tune::kOn, std::nullopt});
  }

  [[nodiscard]] Trial trial(int64_t group) const {
    model::ModelConfig config =
        engine::testing::tiny_model(group == 7 ? engine::testing::Tiny::kQwen2
                                               : engine::testing::Tiny::kLlama)
            .config;
    config.head_dim = 128;
    config.num_kv_heads = !is_large() ? 1 : group == 7 ? 4 : 8;
    config.num_heads = group * config.num_kv_heads;
    config.hidden_size = is_large() ? config.q_size() : 64;
    config.intermediate_size = !is_large() ? 96 : group == 7 ? 18944 : 14336;
    config.max_position_embeddings = 32768;
    Trial trial{.config = config, .dtype = DType::kBF16};
    trial.limits = {.max_num_tokens = is_large() ? 2048 : 32,
                    .max_batch_size = 8,
                    .max_q = 1,
                    .max_seq_len = is_large() ? 20480 : 256};
    trial.kv_tokens = is_large() ? 27 * 1024 : 512;
    trial.sequences = {1, 2, 6, 8};  // no 4, so steps of four sequences are padded to 6
    trial.tokens =
        is_large() ? std::vector<int64_t>{64, 512, 1024, 2048} : std::vector<int64_t>{8, 20, 32};
    return trial;
  }

  // Returns the bits of all steps. The last steps are uniform and have all sequences.
  [[nodiscard]] Bits trace(const Trial& trial) const {
    const std::vector<int64_t> lengths = is_large() ? std::vector<int64_t>{1, 700, 5000, 20000}
                                                    : std::vector<int64_t>{1, 7, 50, 200};
    std::mt19937 random(7);
    testing::ThreeWays run(*device_, trial);
    int64_t total = 0;
    for (const int64_t length : lengths)
      total += length;
    const int64_t num_mixed = total / trial.limits.max_num_tokens + 3;
    for (const int64_t length : lengths)
      run.add(random_prompt(random, length), num_mixed + kUniformSteps);
    Bits bits;
    int num_uniform = 0;
    while (num_uniform < kUniformSteps) {
      const auto step = run.step();
      if (step.empty()) break;
      append(bits, step);
      const auto& plan = run.engine().last_plan();
      num_uniform += plan.rows.size() == lengths.size() && plan.uniform_q(1) == 1 ? 1 : 0;
    }
    EXPECT_EQ(num_uniform, kUniformSteps);
    return bits;
  }
};

TEST_P(RealShapesTest, AgreeBitForBitWhateverLiesInUnusedMemory) {
  for (const int64_t group : {4, 7}) {
    SCOPED_TRACE(group);
    Trial run = trial(group);
    run.graphs = Graphs::kNone;
    const Bits eager = trace(run);
    for (const Graphs graphs : {Graphs::kPiecewise, Graphs::kAuto}) {
      for (const Poison poison : {Poison::kNaN, Poison::kLarge}) {
        run.graphs = graphs;
        run.poison = poison;
        EXPECT_TRUE(same(eager, trace(run))) << static_cast<int>(graphs);
      }
    }
  }
}

TEST_P(RealShapesTest, AgreeBitForBitWithKvInFp8) {
  Trial run = trial(4);
  run.kv_dtype = DType::kFP8;
  run.graphs = Graphs::kNone;
  const Bits eager = trace(run);
  run.poison = Poison::kNaN;
  for (const Graphs graphs : {Graphs::kFullAndPiecewise, Graphs::kAuto}) {
    run.graphs = graphs;
    EXPECT_TRUE(same(eager, trace(run))) << static_cast<int>(graphs);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RealShapesTest, ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::diagnose
