#include "engine/engine.h"

#include <algorithm>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "base/source_dir.h"
#include "base/testing/message_of.h"
#include "diagnose/probe.h"
#include "engine/testing/tiny_model.h"
#include "planning/cost_model.h"

namespace encore::engine {
namespace {

using testing::Tiny;

LoadOptions small_options() {
  LoadOptions options;
  options.limits = {.max_num_tokens = 32, .max_batch_size = 4, .max_q = 1, .max_seq_len = 128};
  options.kv_tokens = 512;
  return options;
}

class EngineTest : public ::testing::Test {
 protected:
  std::string rejection(Request request) {
    auto added = engine_.add(std::move(request));
    return std::holds_alternative<Rejection>(added) ? std::get<Rejection>(added).why : "";
  }
  std::vector<int32_t> generate(const Request& request) {
    std::vector<int32_t> tokens;
    (void)std::get<SequenceId>(engine_.add(request));
    while (engine_.step([&](const Generated& generated) { tokens.push_back(generated.token); })) {
    }
    return tokens;
  }

  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
  LoadedModel model_{*device_, testing::tiny_model(Tiny::kLlama),
                     testing::with_feature(small_options())};
  Engine engine_{model_};
};

TEST_F(EngineTest, RefusesBadRequestsWithAReasonAndServesTheRest) {
  EXPECT_NE(rejection({.prompt = {}}).find("empty"), std::string::npos);
  EXPECT_NE(rejection({.prompt = {1, 1000}}).find("vocabulary"), std::string::npos);
  EXPECT_NE(rejection({.prompt = {-1}}).find("vocabulary"), std::string::npos);
  EXPECT_NE(rejection({.prompt = {1}, .max_tokens = 0}).find("max_tokens"), std::string::npos);
  EXPECT_NE(rejection({.prompt = {1}, .max_tokens = 500}).find("128"), std::string::npos);
  EXPECT_NE(rejection({.prompt = {1}, .max_tokens = 128}).find("128"), std::string::npos);
  EXPECT_NE(
      rejection({.prompt = {1}, .max_tokens = std::numeric_limits<int64_t>::max()}).find("128"),
      std::string::npos);
  EXPECT_NE(rejection({.prompt = {1}, .sampling = {.top_p = 2}}).find("top_p"), std::string::npos);
  EXPECT_EQ(generate({.prompt = {1, 2, 3}, .max_tokens = 5}).size(), 5U);
}

TEST_F(EngineTest, RefusesWhatDoesNotFitTheKvPool) {
  LoadOptions options = small_options();
  options.kv_tokens = 64;
  LoadedModel model(*device_, testing::tiny_model(Tiny::kLlama), testing::with_feature(options));
  Engine engine(model);
  EXPECT_FALSE(engine.check({.prompt = {1}, .max_tokens = 63}));
  const auto refused = engine.check({.prompt = {1}, .max_tokens = 100});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->reason, RejectionReason::kTooManyPages);
}

TEST_F(EngineTest, SeveralEnginesTakeTurnsOnOneModel) {
  const Request first{.prompt = {5, 6, 7}, .max_tokens = 40};
  const Request second{.prompt = {8, 9}, .max_tokens = 40};
  const auto first_alone = generate(first);
  const auto second_alone = generate(second);
  Engine a(model_, {.overlap = false});
  Engine b(model_, {.overlap = false});
  // Each engine hands out all pages of the model's KV, without regard to the other engine. The
  // orders are random, so that the two sequences happen to get different pages.
  a.shuffle_pages(1);
  b.shuffle_pages(2);
  (void)a.add(first);
  (void)b.add(second);
  std::vector<int32_t> of_a;
  std::vector<int32_t> of_b;
  std::set<kv::Page> pages_of_a;
  const auto pages = [](const Engine& engine) {
    return engine.scheduler().running().empty() ? std::vector<kv::Page>{}
                                                : engine.scheduler().running()[0]->pages;
  };
  bool is_going_on = true;
  for (int turn = 0; is_going_on; ++turn) {
    // Engine `a` runs one or two steps at a time. So some of its launches follow a launch of engine
    // `b`, and some follow its own.
    is_going_on = false;
    for (int i = 0; i <= turn % 2; ++i)
      is_going_on |= a.step([&](const Generated& generated) { of_a.push_back(generated.token); });
    is_going_on |= b.step([&](const Generated& generated) { of_b.push_back(generated.token); });
    for (const kv::Page page : pages(a))
      pages_of_a.insert(page);
    for (const kv::Page page : pages(b))
      ASSERT_FALSE(pages_of_a.contains(page)) << "choose other seeds";
  }
  EXPECT_EQ(of_a, first_alone);
  EXPECT_EQ(of_b, second_alone);
}

TEST_F(EngineTest, StopsAtAStopTokenAndReportsIt) {
  const auto free_run = generate({.prompt = {5, 6}, .max_tokens = 20});
  const int32_t stop = free_run[3];
  const auto first = std::find(free_run.begin(), free_run.end(), stop);
  const auto stopped = generate({.prompt = {5, 6}, .max_tokens = 20, .stop_tokens = {stop}});
  EXPECT_EQ(stopped, std::vector<int32_t>(free_run.begin(), first + 1));
}

TEST_F(EngineTest, GivesTheSameTokensForALongPromptInChunksAsTokenByToken) {
  std::vector<int32_t> prompt(70);
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>(i * 37 % 1000);
  const auto with_steps_of = [&](int64_t max_num_tokens) {
    LoadOptions options = small_options();
    options.limits.max_num_tokens = max_num_tokens;
    options.limits.max_batch_size = 1;
    options.dtype = DType::kF32;
    LoadedModel model(*device_, testing::tiny_model(Tiny::kLlama), testing::with_feature(options));
    Engine engine(model);
    (void)engine.add({.prompt = prompt, .max_tokens = 8});
    std::vector<int32_t> tokens;
    int64_t num_steps = 0;
    while (engine.step([&](const Generated& generated) { tokens.push_back(generated.token); })) {
    }
    for (const StepCount& count : engine.step_counts())
      num_steps += count.steps;
    const auto size = static_cast<int64_t>(prompt.size());
    EXPECT_EQ(num_steps, (size + max_num_tokens - 1) / max_num_tokens + 7);
    return tokens;
  };
  const auto token_by_token = with_steps_of(1);
  EXPECT_EQ(with_steps_of(32), token_by_token);
  EXPECT_EQ(with_steps_of(70), token_by_token);
}

TEST_F(EngineTest, SamplesTheSameTokensFromTheSameSeed) {
  const auto run = [&](int64_t seed) {
    return generate(
        {.prompt = {9}, .max_tokens = 16, .sampling = {.temperature = 1, .seed = seed}});
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST_F(EngineTest, HandsEverySamplingParameterToTheSampler) {
  const auto run = [&](sample::SamplingParams sampling) {
    return generate({.prompt = {9}, .max_tokens = 16, .sampling = sampling});
  };
  const auto greedy = run({.temperature = 0});
  EXPECT_NE(run({.temperature = 3}), greedy);
  // Each of these parameters keeps only the most likely token.
  EXPECT_EQ(run({.temperature = 3, .top_k = 1}), greedy);
  EXPECT_EQ(run({.temperature = 3, .top_p = 1e-6F}), greedy);
  EXPECT_EQ(run({.temperature = 3, .min_p = 0.9999999F}), greedy);
}

TEST_F(EngineTest, TellsTheDeviceOfStopTokensAndNoOthers) {
  (void)engine_.add({.prompt = {1, 2}, .max_tokens = 3, .stop_tokens = {5}});
  engine_.step([](const Generated&) {});
  std::vector<int32_t> expected(kMaxStopTokens, -1);
  expected[0] = 5;
  const auto stops = model_.executor().loaded().inputs.host<int32_t>("stop_tokens");
  EXPECT_EQ(std::vector<int32_t>(stops.begin(), stops.begin() + kMaxStopTokens), expected);
}

TEST_F(EngineTest, DeliversNothingOfASequenceThatIsAbortedMeanwhile) {
  const auto a = std::get<SequenceId>(engine_.add({.prompt = {1}, .max_tokens = 9}));
  const auto b = std::get<SequenceId>(engine_.add({.prompt = {2}, .max_tokens = 9}));
  std::set<SequenceId> seen;
  while (engine_.step([&](const Generated& generated) {
    seen.insert(generated.sequence);
    engine_.abort(generated.sequence == a ? b : a);
  })) {
  }
  EXPECT_EQ(seen.size(), 1U);
}

TEST_F(EngineTest, KeepsMixedStepsWithinTheirLimit) {
  LoadOptions options = small_options();
  options.limits.max_mixed_tokens = 8;
  LoadedModel model(*device_, testing::tiny_model(Tiny::kLlama), testing::with_feature(options));
  Engine engine(model);
  (void)engine.add({.prompt = std::vector<int32_t>(20, 7), .max_tokens = 2});
  engine.step([](const Generated&) {});
  EXPECT_EQ(engine.last_plan().num_tokens(), 8);
}

TEST_F(EngineTest, AnAbortedSequenceGivesItsPagesBack) {
  for (int i = 0; i < 50; ++i) {
    const auto id = std::get<SequenceId>(engine_.add({.prompt = {1, 2}, .max_tokens = 100}));
    engine_.step([](const Generated&) {});
    engine_.abort(id);
    engine_.abort(id);
  }
  EXPECT_EQ(generate({.prompt = {1}, .max_tokens = 3}).size(), 3U);
}

TEST_F(EngineTest, SaysWhyDecodeStepsAreSlowWhereAKernelDoes) {
  const auto reasons = [](LoadedModel& model) {
    return model.executor().loaded().tables.slow_reasons(StepKey::uniform(1));
  };
  EXPECT_TRUE(reasons(model_).empty());
  const auto device = create_cpu_device({.num_threads = 1});
  testing::slow_down_attention(*device, "heads of 80");
  LoadedModel model(*device, testing::tiny_model(testing::Tiny::kLlama),
                    testing::with_feature(small_options()));
  EXPECT_EQ(reasons(model), std::set<std::string_view>{"heads of 80"});
}

TEST_F(EngineTest, CountsItsStepsByModeAndBucket) {
  generate({.prompt = {1, 2, 3}, .max_tokens = 5});
  int64_t steps = 0;
  int64_t tokens = 0;
  int64_t padding = 0;
  for (const StepCount& count : engine_.step_counts()) {
    steps += count.steps;
    tokens += count.tokens;
    padding += count.padding;
  }
  EXPECT_EQ(steps, 5);
  EXPECT_EQ(tokens, 3 + 4);  // prompt tokens, and the generated tokens except the last of five
  EXPECT_EQ(padding, 1);     // the prompt's 3 tokens are padded to 4
}

TEST_F(EngineTest, TellsWhereItsTimeGoes) {
  generate({.prompt = {1, 2, 3}, .max_tokens = 5});
  const HostTimes times = engine_.host_times();
  const auto spent = [&](HostWork work) {
    return times.by_work.at(static_cast<size_t>(work)).count();
  };
  for (const HostWork work :
       {HostWork::kPlan, HostWork::kPack, HostWork::kLaunch, HostWork::kCollect})
    EXPECT_GT(spent(work), 0) << kHostWorkNames.at(static_cast<size_t>(work));
  for (const HostWork work : {HostWork::kMask, HostWork::kDeliver})
    EXPECT_EQ(spent(work), 0) << kHostWorkNames.at(static_cast<size_t>(work));
  EXPECT_GT(times.gap.count(), 0);
  EXPECT_EQ(times.num_late_steps, 0);
}

TEST_F(EngineTest, AStepIsLateThatFindsTheOneBeforeItDone) {
  // A synchronous CPU device has run a step when the launch returns.
  Engine ahead(model_, {.overlap = true});
  (void)ahead.add({.prompt = {1, 2, 3}, .max_tokens = 5});
  while (ahead.step([](const Generated&) {})) {
  }
  EXPECT_EQ(ahead.host_times().num_late_steps, 4);
  EXPECT_EQ(ahead.host_times().gap.count(), 0);
}

// Returns the logits of the last prompt token of the bundled model, in f32.
std::vector<float> bundled_logits(const std::vector<std::string>& disabled_passes) {
  const auto device = create_cpu_device({.num_threads = 2});
  LoadOptions options = small_options();
  options.dtype = DType::kF32;
  options.compile.disabled = disabled_passes;
  LoadedModel model(*device, model::find_model(ENCORE_SOURCE_DIR "/models/stories"), options);
  Engine engine(model);
  (void)engine.add({.prompt = {5, 300, 12, 1000, 77}, .max_tokens = 2});
  engine.step([](const Generated&) {});
  engine.step([](const Generated&) {});
  std::vector<float> logits(model.config().vocab_size);
  diagnose::read_output(model.executor(), 1, logits.data(),
                        static_cast<int64_t>(logits.size() * sizeof(float)));
  return logits;
}

TEST(Passes, DoNotChangeWhatAModelComputes) {
  const auto plain = bundled_logits(
      {"remove_dead", "fuse_silu_mul", "fuse_add_rms_norm", "fuse_all_reduce_rms_norm",
       "fuse_rope_kv_write", "merge_linears", "fuse_linear_prologue", "fuse_linear_epilogue"});
  const auto optimized = bundled_logits({});
  for (size_t i = 0; i < plain.size(); ++i)
    EXPECT_NEAR(plain[i], optimized[i], 1e-4);
}

TEST_F(EngineTest, RecordsAsManyNodesAsItsTablesPredict) {
  const runtime::Coverage& coverage = model_.executor().coverage();
  const auto estimate = planning::estimate_recordings(model_.program(), coverage,
                                                      model_.executor().loaded().device.kernels());
  const runtime::RecordingStats& stats = model_.recording_stats();
  const planning::BucketCost total = estimate.total();
  EXPECT_EQ(estimate.full.size(), static_cast<size_t>(stats.full.recordings));
  EXPECT_EQ(total.recordings, stats.num_full() + stats.pieces.recordings);
  EXPECT_EQ(total.nodes, stats.full.nodes + stats.mixed.nodes + stats.pieces.nodes);
  EXPECT_LE(total.executables, total.recordings);
  const double least_bytes = planning::kLeastBytesPerExecutable * total.executables;
  EXPECT_GE(static_cast<double>(total.bytes), least_bytes);
  EXPECT_LE(static_cast<double>(total.bytes), least_bytes + planning::kBytesPerNode * total.nodes);
  EXPECT_GT(total.milliseconds(), 0);
}

// A kernel may say that it takes several nodes of a recording, as the kernels of experts do. The
// test gives the embedding a kernel of three nodes in place of one.
TEST_F(EngineTest, PredictsAsManyNodesOfALaunchAsItsKernelSays) {
  const runtime::Coverage& coverage = model_.executor().coverage();
  const auto nodes_of_full_steps = [&](const KernelTable& kernels) {
    std::vector<int> nodes;
    for (const planning::BucketCost& cost :
         planning::estimate_recordings(model_.program(), coverage, kernels).full)
      nodes.push_back(cost.nodes);
    return nodes;
  };
  KernelTable kernels = model_.executor().loaded().device.kernels();
  std::vector<int> expected = nodes_of_full_steps(kernels);
  for (int& nodes : expected)
    nodes += 2;
  const auto rows = kernels.rows();
  Kernel embedding = *std::ranges::find(rows, std::string_view("embedding"), &Kernel::op);
  embedding.num_nodes = [](const KernelArgs&) { return 3; };
  kernels.add_first(embedding);
  EXPECT_EQ(nodes_of_full_steps(kernels), expected);
}

TEST(LoadedModel, RefusesSequencesLongerThanTheModelWasMadeFor) {
  const auto device = create_cpu_device({.num_threads = 1});
  LoadOptions options = small_options();
  options.limits.max_seq_len = 5000;
  EXPECT_THROW(
      LoadedModel(*device, testing::tiny_model(Tiny::kLlama), testing::with_feature(options)),
      Error);
}

TEST(FindModel, ListsTheSyntheticModels) {
  const std::string message =
      message_of(ErrorKind::kUsage, [] { (void)model::find_model("synthetic:gpt-5"); });
  EXPECT_NE(message.find("llama-3.2-1b"), std::string::npos) << message;
}

}  // namespace
}  // namespace encore::engine
