// Tests how much memory is planned for layers with a window that have pages of their own.
#include <gtest/gtest.h>

#include "loader/loaded_model.h"
#include "model/testing/small_config.h"
#include "runtime/kv_memory.h"

namespace encore::loader {
namespace {

// Returns the shapes of Gemma 3 27B. Every sixth of its 62 layers keeps all tokens, and the other
// layers see a window of 1,024 tokens.
model::ModelConfig gemma_27b() {
  model::ModelConfig config = model::small_config("Gemma3ForCausalLM", 62);
  config.num_heads = 32;
  config.num_kv_heads = 16;
  config.head_dim = 128;
  config.max_position_embeddings = 131072;
  config.qk_norm = true;
  config.ropes.push_back({.theta = 1e6});
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if ((i + 1) % 6 != 0) config.layers[i].window = 1024;
  }
  return config;
}

LoadOptions options_of(bool window_pages) {
  LoadOptions options;
  options.limits = {.max_num_tokens = 2048, .max_batch_size = 1, .max_q = 1, .max_seq_len = 32768};
  options.window_pages = window_pages;
  return options;
}

TEST(WindowPagesMemory, OfGemma27BAt32kIsAQuarterOfOneGroupsAtMost) {
  const auto estimate = [](bool window_pages, int64_t num_sequences) {
    return static_cast<double>(kv_bytes(gemma_27b(), options_of(window_pages), num_sequences));
  };
  EXPECT_EQ(estimate(false, 1), 62.0 * 32768 * 2 * 16 * 128 * 2);
  EXPECT_LE(estimate(true, 1), 0.25 * estimate(false, 1));
  EXPECT_LE(estimate(true, 64), 0.20 * estimate(false, 64));
}

TEST(WindowPagesMemory, IsMappedAsItIsEstimated) {
  const int64_t num_pages = 32768 / 32;
  const auto device = create_cpu_device({.num_threads = 1});
  for (const bool window_pages : {false, true}) {
    const LoadOptions options = options_of(window_pages);
    const passes::Program program = compile_model({gemma_27b(), std::nullopt}, options, num_pages);
    const runtime::KvMemory kv(*device, program.graph);
    ASSERT_EQ(kv.num_groups(), window_pages ? 2U : 1U);
    runtime::GroupRows rows{num_pages};
    if (const auto rule = window_rule(gemma_27b(), options))
      rows.push_back(rule->pages_beside(num_pages, num_pages, 1));
    EXPECT_EQ(kv.bytes_for(rows), kv_bytes(gemma_27b(), options, 1));
  }
}

// Layers have no pages of their own where no sequence is longer than the window, and where the
// model has no window.
TEST(WindowPagesMemory, NeedsAWindowThatSequencesOutgrow) {
  LoadOptions options = options_of(true);
  EXPECT_EQ(window_rule(gemma_27b(), options)->window, 1024);
  options.limits.max_seq_len = 1024;
  EXPECT_FALSE(window_rule(gemma_27b(), options).has_value());
  EXPECT_FALSE(window_rule(gemma_27b(), options_of(false)).has_value());
  EXPECT_FALSE(window_rule(model::small_config("LlamaForCausalLM", 2), options_of(true)));
}

}  // namespace
}  // namespace encore::loader
