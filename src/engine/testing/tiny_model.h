// Provides tests with small models with random weights, and with devices to run them on.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/testing/thorough.h"
#include "engine/engine.h"
#include "engine/testing/async_device.h"

namespace encore::engine {

using loader::LoadOptions;

namespace testing {

// The kinds of tiny models: Llama with grouped queries, Qwen3 (norms per head, tied embeddings),
// Qwen2 (biases), and Qwen3-MoE (experts in both layers). Each has two layers.
enum class Tiny { kLlama, kQwen3, kQwen2, kQwen3Moe };

inline model::ModelSource tiny_model(Tiny kind) {
  model::ModelConfig config;
  config.architecture = kind == Tiny::kQwen3      ? "Qwen3ForCausalLM"
                        : kind == Tiny::kQwen2    ? "Qwen2ForCausalLM"
                        : kind == Tiny::kQwen3Moe ? "Qwen3MoeForCausalLM"
                                                  : "LlamaForCausalLM";
  config.model_type = "tiny";
  config.layers.resize(2);
  config.hidden_size = 128;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 64;
  config.intermediate_size = 320;
  config.vocab_size = 1000;
  config.max_position_embeddings = 4096;
  config.qk_norm = kind == Tiny::kQwen3 || kind == Tiny::kQwen3Moe;
  config.tie_word_embeddings = kind == Tiny::kQwen3;
  config.qkv_bias = kind == Tiny::kQwen2;
  if (kind == Tiny::kQwen3Moe) {
    for (model::LayerKind& layer : config.layers)
      layer.mlp = model::MlpKind::kExperts;
    config.experts = model::Experts{.num_experts = 16,
                                    .num_experts_per_tok = 3,
                                    .intermediate_size = 96,
                                    .norm_topk_prob = true};
  }
  return {config, std::nullopt};
}

// Returns the name of the feature that all of these models have in this run of the tests (./dev
// test --with FEATURE). Empty: there is none.
inline std::string_view common_feature() {
  const char* const feature = std::getenv("ENCORE_TEST_WITH");
  return feature == nullptr ? "" : feature;
}

// Returns the options with common_feature() added, where they do not exclude it. The feature
// "ranks=2" is an option of the device, so DeviceTest adds it.
inline LoadOptions with_feature(LoadOptions options) {
  constexpr int64_t kDrafts = 3;
  runtime::Limits& limits = options.limits;
  if (common_feature() == "speculation" && limits.max_q == 1) {
    limits.num_drafts = std::max(limits.num_drafts, kDrafts);
    limits.max_num_tokens = std::max(limits.max_num_tokens, limits.max_batch_size * (1 + kDrafts));
  }
  if (common_feature() == "fp8") options.formats.quantize = true;
  if (common_feature() == "adapter") {
    options.adapters.num_slots = 1;
    options.adapters.fills_slots = true;
  }
  return options;
}

// Makes the device's attention kernel declare that its decode steps are slow, with `why` as the
// reason.
inline void slow_down_attention(Device& device, std::string_view why) {
  const auto rows = device.kernels().rows();
  const auto attention = std::ranges::find(rows, "attention", &Kernel::op);
  ASSERT_NE(attention, rows.end());
  Kernel slow = *attention;
  slow.slow = why;
  device.kernels().add_first(slow);
}

// A test that runs on the device that its parameter names: "Cpu", "CpuShuffled" (launches run in
// random legal order), "CpuAsync" (streams run beside the host) or "Cuda" (skipped without a GPU).
// A quick run skips "Cpu" where the same test runs on "CpuShuffled", whose orders include the order
// of "Cpu".
class DeviceTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    if (name == "Cpu" && !is_thorough() && runs_shuffled()) GTEST_SKIP() << "CpuShuffled runs it";
    if (name == "Cuda") {
      try {
        device_ = create_cuda_device();
      } catch (const Error& error) {
        GTEST_SKIP() << error.what();
      }
    } else if (name == "CpuAsync") {
      device_ = std::make_unique<AsyncDevice>();
    } else {
      device_ = create_cpu_device(cpu_options());
    }
  }
  // Returns a device for one more model. Ranks compute one model at a time, so with several ranks
  // it is another device.
  Device& device_for_another() {
    if (device_->peers().empty()) return *device_;
    return *others_.emplace_back(create_cpu_device(cpu_options()));
  }

  std::unique_ptr<Device> device_;

 private:
  static CpuOptions cpu_options() {
    CpuOptions options{.num_threads = 2};
    if (std::string_view(GetParam()) == "CpuShuffled") options.shuffle_seed = 1234;
    if (common_feature() == "ranks=2") options.num_ranks = 2;
    return options;
  }
  // Returns whether this test is instantiated for "CpuShuffled", too.
  static bool runs_shuffled() {
    const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
    const std::string twin = std::string(all.current_test_info()->name()) + "Shuffled";
    const ::testing::TestSuite& suite = *all.current_test_suite();
    for (int i = 0; i < suite.total_test_count(); ++i) {
      if (suite.GetTestInfo(i)->name() == twin) return true;
    }
    return false;
  }

  std::vector<std::unique_ptr<Device>> others_;
};

}  // namespace testing
}  // namespace encore::engine
