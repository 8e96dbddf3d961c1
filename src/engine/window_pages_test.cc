// Tests layers with a window that have pages of their own, with every feature that depends on
// pages. Requests get the same as where all layers share pages.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

using Texts = std::map<SequenceId, std::vector<int32_t>>;

constexpr int64_t kWindow = 20;
constexpr int64_t kLongest = 192;

class WindowPagesEngineTest : public testing::DeviceTest {
 protected:
  // Returns a model whose first and last layers have windows of different sizes.
  static model::ModelSource source() {
    model::ModelSource source = testing::tiny_model(testing::Tiny::kQwen3);
    source.config.layers = {{.window = kWindow}, {}, {.window = kWindow - 3}};
    return source;
  }
  LoadOptions options() const {
    LoadOptions options;
    options.limits = {
        .max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = kLongest};
    options.page_size = 16;
    options.dtype = DType::kF32;
    options.compile.batch_invariant = device_->kind() == DeviceKind::kCuda;
    return testing::with_feature(options);
  }

  // Returns the texts of requests. Some begin alike, and one of these comes after the others have
  // ended.
  static Texts texts(LoadedModel& model, const EngineOptions& how, int64_t* hit_tokens = nullptr) {
    Engine engine(model, how);
    Texts texts;
    const auto add = [&](int64_t beginning, int32_t more) {
      std::vector<int32_t> prompt;
      for (int64_t i = 0; i < beginning; ++i)
        prompt.push_back(static_cast<int32_t>(i * i % 97));
      prompt.push_back(more);
      const Request request{.prompt = prompt, .max_tokens = 70};
      ASSERT_TRUE(std::holds_alternative<SequenceId>(engine.add(request)));
    };
    const auto run = [&] {
      while (engine.step([&](const Generated& generated) {
        texts[generated.sequence].push_back(generated.token);
      })) {
      }
    };
    add(100, 1);
    add(100, 2);
    add(30, 3);
    add(4, 4);
    add(77, 5);
    run();
    add(100, 6);
    add(55, 7);
    run();
    if (hit_tokens != nullptr) *hit_tokens = engine.prefix_cache()->stats().hit_tokens;
    EXPECT_EQ(engine.page_pool().num_free(), model.num_pages());
    if (engine.window_group() != nullptr) {
      EXPECT_EQ(engine.window_group()->pool().num_free(), model.num_window_pages());
    }
    return texts;
  }

  // Expects the same texts with these options whether or not layers with a window have pages of
  // their own.
  void expect_alike(LoadOptions options) {
    options.window_pages = false;
    LoadedModel one_group(device_for_another(), source(), options);
    EXPECT_FALSE(one_group.window_rule().has_value());
    const Texts expected = texts(one_group, {.overlap = false});
    options.window_pages = true;
    LoadedModel two_groups(device_for_another(), source(), options);
    ASSERT_TRUE(two_groups.window_rule().has_value());
    EXPECT_EQ(two_groups.window_rule()->window, kWindow);
    EXPECT_EQ(two_groups.executor().loaded().kv.num_groups(), 2U);
    EXPECT_EQ(texts(two_groups, {.overlap = false}), expected);
    EXPECT_EQ(texts(two_groups, {.overlap = true}), expected);
    int64_t hit_tokens = 0;
    EXPECT_EQ(texts(two_groups, {.prefix_cache = kv::PrefixCacheOptions{}}, &hit_tokens), expected);
    EXPECT_GT(hit_tokens, 100);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, WindowPagesEngineTest,
                         ::testing::Values("CpuShuffled", "CpuAsync", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(WindowPagesEngineTest, ChangeNoToken) {
  expect_alike(options());
}

TEST_P(WindowPagesEngineTest, ChangeNoTokenInPiecesOrStepByStep) {
  for (const runtime::Graphs graphs : {runtime::Graphs::kNone, runtime::Graphs::kPiecewise}) {
    LoadOptions some = options();
    some.graphs = graphs;
    expect_alike(some);
  }
}

TEST_P(WindowPagesEngineTest, ChangeNoTokenWithKvInFp8) {
  LoadOptions some = options();
  some.kv_dtype = DType::kFP8;
  expect_alike(some);
}

TEST_P(WindowPagesEngineTest, ChangeNoTokenWithDrafts) {
  LoadOptions some = options();
  some.limits.num_drafts = 3;
  expect_alike(some);
}

TEST_P(WindowPagesEngineTest, ChangeNoTokenWithADraftModelThatSharesThem) {
  LoadOptions some = options();
  some.limits.num_drafts = 3;
  some.draft = source();
  expect_alike(some);
}

TEST_P(WindowPagesEngineTest, ChangeNoTokenWithADraftModelWhoseWindowsAreLonger) {
  LoadOptions some = options();
  some.limits.num_drafts = 3;
  some.draft = source();
  for (model::LayerKind& layer : some.draft->config.layers)
    layer.window = kWindow + 20;
  expect_alike(some);
}

// Wrong drafts change no token, so the test counts the right drafts.
TEST_P(WindowPagesEngineTest, LetADraftModelGuessWhatItGuessesWithoutThem) {
  LoadOptions some = options();
  some.limits.num_drafts = 3;
  some.draft = source();
  std::vector<std::vector<bool>> drafted;
  for (const bool window_pages : {false, true}) {
    some.window_pages = window_pages;
    LoadedModel model(device_for_another(), source(), some);
    Engine engine(model, {});
    ASSERT_TRUE(std::holds_alternative<SequenceId>(
        engine.add({.prompt = std::vector<int32_t>(50, 5), .max_tokens = 100})));
    std::vector<bool>& was_drafted = drafted.emplace_back();
    while (engine.step([&](const Generated& token) { was_drafted.push_back(token.was_drafted); })) {
    }
  }
  EXPECT_GT(std::ranges::count(drafted[0], true), 50) << "the draft model is the model";
  EXPECT_EQ(drafted[0], drafted[1]);
}

TEST_P(WindowPagesEngineTest, ChangeNoTokenInBursts) {
  LoadOptions some = options();
  some.bursts = true;
  some.window_pages = false;
  LoadedModel one_group(device_for_another(), source(), some);
  const Texts expected = texts(one_group, {.overlap = false});
  some.window_pages = true;
  LoadedModel two_groups(device_for_another(), source(), some);
  EXPECT_EQ(texts(two_groups, {.burst_steps = 16}), expected);
}

TEST_P(WindowPagesEngineTest, ChangeNoTokenWhereEveryLayerHasAWindow) {
  model::ModelSource all = source();
  for (model::LayerKind& layer : all.config.layers)
    layer.window = kWindow;
  LoadOptions some = options();
  LoadedModel one_group(device_for_another(), all, some);
  const Texts expected = texts(one_group, {.overlap = false});
  some.window_pages = true;
  LoadedModel two_groups(device_for_another(), all, some);
  EXPECT_EQ(texts(two_groups, {}), expected);
}

// The model goes to sleep in the midst of texts. The pages of both groups are kept on the host.
TEST_P(WindowPagesEngineTest, AreKeptInSleep) {
  LoadOptions some = options();
  some.window_pages = true;
  LoadedModel model(device_for_another(), source(), some);
  const auto run = [&](bool sleeps) {
    Engine engine(model, {.prefix_cache = kv::PrefixCacheOptions{}});
    std::vector<int32_t> text;
    EXPECT_TRUE(std::holds_alternative<SequenceId>(
        engine.add({.prompt = std::vector<int32_t>(90, 5), .max_tokens = 60})));
    int64_t num_steps = 0;
    while (engine.step([&](const Generated& generated) { text.push_back(generated.token); })) {
      if (!sleeps || ++num_steps % 7 != 0) continue;
      engine.sleep(SleepDepth::kKv);
      EXPECT_EQ(model.executor().loaded().kv.mapped_bytes(), 0);
      engine.wake();
    }
    return text;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(WindowPagesOfRanks, ChangeNoToken) {
  LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = kLongest};
  options.page_size = 16;
  options.dtype = DType::kF32;
  model::ModelSource source = testing::tiny_model(testing::Tiny::kQwen3);
  source.config.layers = {{.window = kWindow}, {}};
  std::vector<std::vector<int32_t>> texts;
  for (const bool window_pages : {false, true}) {
    const auto device = create_cpu_device({.num_threads = 2, .num_ranks = 2});
    options.window_pages = window_pages;
    LoadedModel model(*device, source, options);
    Engine engine(model, {.prefix_cache = kv::PrefixCacheOptions{}});
    for (int32_t id = 1; id <= 3; ++id) {
      const auto length = static_cast<size_t>(30 * id);
      (void)engine.add({.prompt = std::vector<int32_t>(length, id), .max_tokens = 40});
    }
    std::vector<int32_t>& text = texts.emplace_back();
    while (engine.step([&](const Generated& generated) { text.push_back(generated.token); })) {
    }
  }
  EXPECT_EQ(texts[0].size(), 120U);
  EXPECT_EQ(texts[0], texts[1]);
}

}  // namespace
}  // namespace encore::engine
