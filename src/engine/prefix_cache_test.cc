// Tests that sequences that start with pages of other sequences get the same tokens as without
// them.
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "engine/testing/tiny_model.h"

namespace encore::engine {
namespace {

using testing::Tiny;

constexpr int64_t kPageSize = 16;

LoadOptions options(int64_t kv_tokens) {
  LoadOptions options;
  options.limits = {.max_num_tokens = 48, .max_batch_size = 4, .max_q = 1, .max_seq_len = 160};
  options.kv_tokens = kv_tokens;
  options.page_size = kPageSize;
  options.dtype = DType::kF32;  // so that a sequence's tokens do not depend on its bucket
  options.bursts = true;
  return options;
}

EngineOptions with_cache(EngineOptions options) {
  options.prefix_cache.emplace();
  return options;
}

std::vector<int32_t> random_tokens(std::mt19937& random, int64_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens)
    token = static_cast<int32_t>(random() % 1000);
  return tokens;
}

std::vector<int32_t> joined(std::vector<int32_t> first, const std::vector<int32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

int64_t num_computed(const Engine& engine) {
  int64_t tokens = 0;
  for (const StepCount& count : engine.step_counts())
    tokens += count.tokens;
  return tokens;
}

class PrefixCacheTest : public testing::DeviceTest {
 protected:
  using Tokens = std::map<SequenceId, std::vector<int32_t>>;
  using Turn = std::pair<int, int>;  // number of a chat, and of a turn in that chat
  using Chats = std::map<Turn, std::vector<int32_t>>;

  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped()) load(options(1024));
  }
  void load(const LoadOptions& options) {
    model_.reset();
    model_ = std::make_unique<LoadedModel>(*device_, testing::tiny_model(Tiny::kLlama),
                                           testing::with_feature(options));
  }

  static void finish(Engine& engine, Tokens& tokens) {
    while (engine.step([&](const Generated& generated) {
      tokens[generated.sequence].push_back(generated.token);
    })) {
    }
  }
  static std::vector<int32_t> generate(Engine& engine, std::vector<int32_t> prompt,
                                       int64_t max_tokens = 8) {
    Tokens tokens;
    const auto id =
        std::get<SequenceId>(engine.add({.prompt = std::move(prompt), .max_tokens = max_tokens}));
    finish(engine, tokens);
    return tokens[id];
  }

  // Runs five chats of three turns at the same time. A prompt consists of one of two beginnings, or
  // of all tokens of the chat's turn before, and of some more tokens. Some turns end with a stop
  // token.
  Chats chat(const EngineOptions& how, int64_t least_tokens = 9) {
    Engine engine(*model_, how);
    std::mt19937 random(5);
    const std::vector<int32_t> beginnings[] = {random_tokens(random, 40),
                                               random_tokens(random, 33)};
    Chats chats;
    std::map<SequenceId, Turn> turns;
    std::map<Turn, std::vector<int32_t>> prompts;
    const auto add = [&](Turn turn, const std::vector<int32_t>& before) {
      const int number = turn.first * 3 + turn.second;
      std::mt19937 own(number);
      Request request{.prompt = joined(before, random_tokens(own, 1 + number % 5)),
                      .max_tokens = least_tokens + number % 3 * 8};
      request.sampling.temperature = number % 2 == 0 ? 0.0F : 1.0F;
      request.sampling.seed = number;
      for (int i = 0; i < 8; ++i)
        request.stop_tokens.push_back(100 * i + number);
      prompts[turn] = request.prompt;
      turns[std::get<SequenceId>(engine.add(std::move(request)))] = turn;
    };
    for (int i = 0; i < 5; ++i)
      add({i, 0}, beginnings[i % 2]);
    while (engine.step([&](const Generated& generated) {
      const Turn turn = turns[generated.sequence];
      chats[turn].push_back(generated.token);
      if (generated.finish && turn.second < 2)
        add({turn.first, turn.second + 1}, joined(prompts[turn], chats[turn]));
    })) {
    }
    if (engine.prefix_cache() != nullptr) hit_tokens_ = engine.prefix_cache()->stats().hit_tokens;
    num_preemptions_ = engine.scheduler().num_preemptions();
    EXPECT_EQ(engine.page_pool().num_free(), engine.page_pool().num_pages());
    return chats;
  }

  std::unique_ptr<LoadedModel> model_;
  int64_t hit_tokens_ = 0;
  int64_t num_preemptions_ = 0;
};

TEST_P(PrefixCacheTest, SequencesGetTheSameTokensAsWithoutIt) {
  const Chats expected = chat({.overlap = false});
  EXPECT_EQ(expected.size(), 15U);
  for (const EngineOptions& way : {EngineOptions{.overlap = false}, EngineOptions{.overlap = true},
                                   EngineOptions{.overlap = true, .burst_steps = 16}}) {
    SCOPED_TRACE(fmt::format("overlap {}, bursts of {}", *way.overlap, way.burst_steps));
    EXPECT_EQ(chat(with_cache(way)), expected);
    EXPECT_GT(hit_tokens_, 300);
  }
}

TEST_P(PrefixCacheTest, SequencesGetTheSameTokensWherePagesAreShort) {
  const Chats expected = chat({.overlap = false}, 18);
  load(options(160));
  for (const EngineOptions& way : {EngineOptions{.overlap = false}, EngineOptions{.overlap = true},
                                   EngineOptions{.overlap = true, .burst_steps = 16}}) {
    EXPECT_EQ(chat(with_cache(way), 18), expected);
    EXPECT_GT(num_preemptions_, 0);
    EXPECT_GT(hit_tokens_, 100);
  }
}

TEST_P(PrefixCacheTest, ASharedPrefixIsComputedOnce) {
  constexpr int64_t kPrefix = 100;
  constexpr int64_t kOwn = 9;
  constexpr int64_t kRequests = 7;
  for (const bool overlap : {false, true}) {
    Engine engine(*model_, with_cache({.overlap = overlap}));
    std::mt19937 random(3);
    const std::vector<int32_t> prefix = random_tokens(random, kPrefix);
    Tokens tokens;
    for (int64_t i = 0; i < kRequests; ++i) {
      (void)engine.add({.prompt = joined(prefix, random_tokens(random, kOwn)), .max_tokens = 1});
    }
    finish(engine, tokens);
    EXPECT_EQ(std::ssize(tokens), kRequests);
    const int64_t shared = kPrefix / kPageSize * kPageSize;
    EXPECT_EQ(num_computed(engine), shared + kRequests * (kPrefix - shared + kOwn));
    EXPECT_EQ(engine.prefix_cache()->stats().hit_tokens, (kRequests - 1) * shared);
  }
}

TEST_P(PrefixCacheTest, ASecondTurnComputesWhatIsNewAlone) {
  Engine engine(*model_, with_cache({.overlap = true}));
  std::mt19937 random(9);
  std::vector<int32_t> prompt = random_tokens(random, 30);
  prompt = joined(prompt, generate(engine, prompt, 40));
  const int64_t before = num_computed(engine);
  int64_t num_cached = -1;
  (void)engine.add({.prompt = joined(prompt, {1, 2, 3}), .max_tokens = 1});
  while (engine.step([&](const Generated& generated) { num_cached = generated.num_cached; })) {
  }
  // The first turn computed 69 tokens: 30 of its prompt and 39 generated ones, as the last of 40 is
  // not computed. They fill four pages of 16 tokens, and the second prompt has 70 + 3 tokens.
  EXPECT_EQ(num_cached, 64);
  EXPECT_EQ(num_computed(engine) - before, 73 - 64);
}

TEST_P(PrefixCacheTest, APromptThatIsAllThereComputesItsLastPageForLogits) {
  Engine engine(*model_, with_cache({.overlap = false}));
  std::mt19937 random(4);
  const std::vector<int32_t> prompt = random_tokens(random, 3 * kPageSize);
  const std::vector<int32_t> first = generate(engine, prompt);
  EXPECT_EQ(generate(engine, prompt), first);
  EXPECT_EQ(engine.prefix_cache()->stats().hit_tokens, 2 * kPageSize);
}

TEST_P(PrefixCacheTest, TenantsWithDifferentSaltsShareNothing) {
  Engine engine(*model_, with_cache({.overlap = false}));
  const std::vector<int32_t> prompt(50, 3);
  Tokens tokens;
  for (const char* const salt : {"a", "b", "a"}) {
    (void)engine.add({.prompt = prompt, .max_tokens = 2, .cache_salt = salt});
    finish(engine, tokens);
  }
  EXPECT_EQ(engine.prefix_cache()->stats().hit_tokens, 3 * kPageSize);
}

// A sleep drops K and V of the pages that no sequence uses.
TEST_P(PrefixCacheTest, SleepKeepsPagesInUseAndForgetsTheOthers) {
  std::mt19937 random(6);
  const std::vector<int32_t> used = random_tokens(random, 60);
  const std::vector<int32_t> idle = random_tokens(random, 60);
  const auto run = [&](bool sleeps) {
    std::vector<kv::CacheEvent> events;
    EngineOptions how = with_cache({.overlap = true});
    how.prefix_cache->on_event = [&](const kv::CacheEvent& event) { events.push_back(event); };
    Engine engine(*model_, how);
    Tokens tokens;
    tokens[100] = generate(engine, idle);
    (void)engine.add({.prompt = used, .max_tokens = 60});
    const auto keep = [&](const Generated& generated) {
      tokens[generated.sequence].push_back(generated.token);
    };
    for (int i = 0; i < 6; ++i)
      engine.step(keep);
    if (sleeps) {
      EXPECT_EQ(engine.prefix_cache()->num_stored(), 4 + 3);
      events.clear();
      engine.sleep(SleepDepth::kKv);
      EXPECT_EQ(engine.prefix_cache()->num_stored(), 3);
      EXPECT_EQ(events.size(), 1U);
      EXPECT_EQ(events.at(0).kind, kv::CacheEvent::Kind::kRemoved);
      EXPECT_EQ(events.at(0).hashes.size(), 4U);
      engine.wake();
    }
    (void)engine.add({.prompt = used, .max_tokens = 20});
    (void)engine.add({.prompt = idle, .max_tokens = 20});
    finish(engine, tokens);
    EXPECT_EQ(engine.prefix_cache()->stats().hit_tokens, sleeps ? 48 : 96);
    return tokens;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_P(PrefixCacheTest, AbortsAtAnyMomentLoseNoPage) {
  Engine engine(*model_, with_cache({.overlap = true}));
  std::mt19937 random(8);
  const std::vector<int32_t> prefix = random_tokens(random, 40);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 100; ++i) {
    ids.push_back(std::get<SequenceId>(engine.add(
        {.prompt = joined(prefix, random_tokens(random, 1 + i % 30)), .max_tokens = 20})));
    for (uint64_t steps = random() % 4; steps > 0; --steps)
      engine.step([](const Generated&) {});
    engine.abort(ids[random() % ids.size()]);
  }
  for (const SequenceId id : ids)
    engine.abort(id);
  while (engine.step([](const Generated&) {})) {
  }
  EXPECT_EQ(engine.page_pool().num_free(), engine.page_pool().num_pages());
  EXPECT_EQ(engine.page_pool().num_idle(), engine.prefix_cache()->num_stored());
}

INSTANTIATE_TEST_SUITE_P(Devices, PrefixCacheTest, ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::engine
