// Tests several ranks together with bursts, with adapters and with a draft model. Each combination
// gives what one rank gives.
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "backend/fault.h"
#include "base/testing/message_of.h"
#include "engine/serving_loop.h"
#include "engine/testing/rank_model.h"

namespace encore::engine::lora {
namespace {

class TensorParallelBursts : public RankModelTest {
 protected:
  // Returns sequences of different lengths. They are more than a step has places, and a stop token
  // may end some of them.
  [[nodiscard]] static std::vector<Request> requests(const std::vector<int32_t>& stops = {}) {
    std::vector<Request> all;
    for (int i = 0; i < 9; ++i) {
      Request request = request_of("", i, 5 + 4 * i);
      request.max_tokens = 20 + 11 * (i % 4);
      if (i % 2 == 1) {
        request.sampling.temperature = 0.8F;
        request.sampling.seed = i;
      }
      request.stop_tokens = stops;
      all.push_back(std::move(request));
    }
    return all;
  }
  [[nodiscard]] static int64_t num_replays(LoadedModel& model) {
    return model.executor().loaded().recordings.stats().replays;
  }
};

TEST_F(TensorParallelBursts, GiveTheTokensOfSingleStepsInFewerReplays) {
  const auto alone = create_cpu_device({.num_threads = 2});
  const auto one = load(*alone, options_);
  const auto expected_of = [&](const std::vector<int32_t>& stops) {
    Engine engine(*one);
    return answers(engine, requests(stops));
  };
  const std::vector<int32_t> stops{expected_of({})[0].tokens[7]};
  const std::vector<Answer> expected = expected_of(stops);
  ASSERT_LE(expected[0].tokens.size(), 8U);
  for (const int num_ranks : {2, 4}) {
    const auto device = ranks_of_cpu(num_ranks);
    const auto model = load(*device, options_);
    std::array<int64_t, 2> replays{};
    for (const bool bursts : {false, true}) {
      const int64_t before = num_replays(*model);
      Engine engine(*model, {.burst_steps = bursts ? 16 : 1});
      const std::vector<Answer> given = answers(engine, requests(stops));
      replays.at(bursts ? 1 : 0) = num_replays(*model) - before;
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_LT(error_of(given[i], expected[i]), 1e-4) << num_ranks << " ranks, request " << i;
    }
    EXPECT_LT(replays[1], replays[0] - 10) << num_ranks << " ranks";
  }
}

// The host ends a burst with a mark, the step at which the burst ends. In this test it moves the
// mark while a step runs: after the ranks have agreed on the mark that counts for this step.
TEST_F(TensorParallelBursts, EndAtOneStepOnAllRanksWheneverTheHostEndsThem) {
  options_.scores_prompts = false;
  const auto run = [&](int num_ranks, int interval) {
    const auto device = ranks_of_cpu(num_ranks);
    runtime::TokenRing* ring = nullptr;
    int num_steps = 0;
    const BehindLogits ends(*device, [&] {
      if (++num_steps % interval == 0) ring->run_until(ring->published());
    });
    const auto model = load(*device, options_);
    ring = &model->executor().output().ring();
    BehindLogits::is_armed = true;
    Engine engine(*model, {.burst_steps = 32});
    std::vector<Request> all = requests();
    all.resize(4);
    return answers(engine, all);
  };
  const std::vector<Answer> expected = run(1, 1000);
  for (const int interval : {1, 3, 11}) {
    const std::vector<Answer> given = run(2, interval);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_LT(error_of(given[i], expected[i]), 1e-4) << interval << ", request " << i;
  }
}

TEST_F(TensorParallelBursts, AreInterruptedByAbortsAndByThoseWhoCome) {
  const auto run = [&](int num_ranks) {
    const auto device = ranks_of_cpu(num_ranks);
    const auto model = load(*device, options_);
    Engine engine(*model, {.burst_steps = 16});
    std::map<SequenceId, std::vector<int32_t>> tokens;
    std::vector<SequenceId> ids;
    const auto add = [&](int seed, int64_t max_tokens) {
      Request request = request_of("", seed, 9);
      request.max_tokens = max_tokens;
      ids.push_back(std::get<SequenceId>(engine.add(std::move(request))));
    };
    add(1, 100);
    add(2, 60);
    int num_calls = 0;
    while (engine.step([&](const Generated& g) { tokens[g.sequence].push_back(g.token); })) {
      ++num_calls;
      if (num_calls == 3) add(3, 70);
      if (num_calls == 6) engine.abort(ids[0]);
    }
    std::vector<std::vector<int32_t>> list;
    for (const SequenceId id : ids)
      list.push_back(tokens[id]);
    return list;
  };
  const auto expected = run(1);
  EXPECT_EQ(expected[1].size(), 60U);
  EXPECT_EQ(expected[2].size(), 70U);
  for (const int num_ranks : {2, 4}) {
    const auto given = run(num_ranks);
    EXPECT_EQ(given[1], expected[1]);
    EXPECT_EQ(given[2], expected[2]);
    const size_t both = std::min(given[0].size(), expected[0].size());
    EXPECT_TRUE(std::equal(given[0].begin(), given[0].begin() + static_cast<ptrdiff_t>(both),
                           expected[0].begin()));
  }
}

TEST_F(TensorParallelBursts, EndEveryRequestWhereARankFailsInside) {
  options_.scores_prompts = false;
  for (const bool of_first : {false, true}) {
    for (const bool stops : {false, true}) {
      SCOPED_TRACE(fmt::format("rank {} {}", of_first ? 0 : 1, stops ? "stops" : "fails"));
      const auto device = ranks_of_cpu(2, std::chrono::milliseconds(stops ? 1000 : 600000));
      const auto communicator = device->communicator();
      int num_steps = 0;
      const BehindLogits fails(of_first ? *device : *device->peers()[0], [&] {
        if (++num_steps != 20) return;
        if (!stops) fail(ErrorKind::kDevice, "injected");
        while (message_of(ErrorKind::kDevice, [&] { communicator->check(); }).empty())
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
      });
      const auto model = load(*device, options_);
      BehindLogits::is_armed = true;
      ServingOptions how;
      how.engine.burst_steps = 64;
      ServingLoop loop(*model, how);
      std::array<std::optional<Ending>, 3> endings;
      for (size_t i = 0; i < endings.size(); ++i) {
        Request request = request_of("", static_cast<int>(i), 4);
        request.max_tokens = 90;
        std::vector<Submission> one;
        one.push_back({std::move(request), [&endings, i](const Update& update) {
                         if (update.ending) endings[i] = *update.ending;
                       }});
        ASSERT_TRUE(std::holds_alternative<std::vector<RequestId>>(loop.submit(std::move(one))));
      }
      const std::string message = message_of(ErrorKind::kDevice, [&] { loop.run(); });
      EXPECT_NE(message.find(stops ? "done nothing for" : "injected"), std::string::npos)
          << message;
      for (const auto& ending : endings)
        EXPECT_TRUE(ending && ending->reason == EndReason::kError);
    }
  }
}

class TensorParallelAdapters : public RankModelTest {
 protected:
  TensorParallelAdapters() {
    add("a", LoraFiles::random(1, modules_of(kLlama, {"self_attn"})));
    add("b", LoraFiles::random(2, modules_of(kLlama, {"q_proj", "v_proj"}, 8)),
        R"({"r": 8, "lora_alpha": 4, "use_rslora": true, "target_modules": ["q_proj", "v_proj"]})");
    add("c", LoraFiles::random(3, modules_of(kLlama, {"self_attn", "mlp"})),
        R"({"r": 4, "lora_alpha": 6, "target_modules": "all-linear"})");
  }
  void add(const std::string& name, LoraFiles files, const std::string& config = "") {
    if (!config.empty()) files.config = config;
    options_.adapters.adapters.push_back({name, files.write(dir_, name)});
  }
  [[nodiscard]] static std::vector<Request> a_mix() {
    std::vector<Request> requests;
    const char* const adapters[] = {"", "a", "b", "c", "a", "", "c", "b"};
    for (int i = 0; i < 8; ++i) {
      requests.push_back(request_of(adapters[i], i / 2, 5 + i * 7));
      if (i % 3 == 2) requests.back().num_prompt_logprobs = 1;
      if (i % 3 == 1) {
        requests.back().sampling.temperature = 0.7F;
        requests.back().sampling.seed = i;
      }
    }
    return requests;
  }
  [[nodiscard]] std::vector<Answer> answers_of_one_rank(
      const std::vector<Request>& requests) const {
    const auto alone = create_cpu_device({.num_threads = 2});
    const auto model = load(*alone, options_);
    Engine engine(*model);
    return answers(engine, requests);
  }
  static void expect_equal(const std::vector<Answer>& given, const std::vector<Answer>& expected) {
    ASSERT_EQ(given.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_LT(error_of(given[i], expected[i]), 1e-4) << "request " << i;
  }
};

TEST_F(TensorParallelAdapters, GiveEachRequestWhatItGetsOnOneRank) {
  const std::vector<Answer> expected = answers_of_one_rank(a_mix());
  EXPECT_NE(expected[0].tokens, expected[1].tokens);
  for (const int num_ranks : {2, 4}) {
    for (const auto graphs : {runtime::Graphs::kNone, runtime::Graphs::kAuto}) {
      options_.graphs = graphs;
      const auto device = ranks_of_cpu(num_ranks);
      const auto model = load(*device, options_);
      for (const int64_t burst_steps : {1, 16}) {
        Engine engine(*model, {.burst_steps = burst_steps});
        expect_equal(answers(engine, a_mix()), expected);
      }
    }
  }
}

// These families merge projections and order them in their own way, and multiply the output of a
// layer by a factor.
TEST_F(TensorParallelAdapters, FollowTheRowsAndFactorsOfOtherFamilies) {
  for (const Family& family : {kPhi3, kGranite, kGlm4}) {
    SCOPED_TRACE(family.name);
    const TempDir dir;
    write_model(dir, family, base_tensors(family));
    LoraFiles files = LoraFiles::random(4, modules_of(family, {"self_attn", "mlp"}));
    files.config = R"({"r": 4, "lora_alpha": 6, "target_modules": "all-linear"})";
    LoadOptions options = lora_options();
    options.adapters.adapters.push_back({"a", files.write(dir, "a")});
    const auto run = [&](int num_ranks) {
      const auto device = ranks_of_cpu(num_ranks);
      LoadedModel model(*device, model::find_model(dir.path().string()), options);
      Engine engine(model);
      return answers(engine, {request_of("a", 1, 30), request_of("", 2, 12)});
    };
    expect_equal(run(2), run(1));
  }
}

TEST_F(TensorParallelAdapters, ComeAndGoWhileSequencesRun) {
  const auto whole = options_.adapters.adapters;
  const std::vector<Answer> expected =
      answers_of_one_rank({request_of("a", 1, 30), request_of("b", 1, 30), request_of("c", 1, 30)});
  options_.adapters.adapters = {whole[0]};
  options_.adapters.num_slots = 2;
  for (const int num_ranks : {2, 4}) {
    const auto device = ranks_of_cpu(num_ranks);
    const auto model = load(*device, options_);
    Engine engine(*model);
    loader::Adapters& adapters = *model->adapters();
    std::map<SequenceId, Answer> given;
    const auto take = [&](const Generated& g) { given[g.sequence].add(g); };
    const auto first = std::get<SequenceId>(engine.add(request_of("a", 1, 30)));
    engine.step(take);
    adapters.load("x", whole[1].path);
    const auto second = std::get<SequenceId>(engine.add(request_of("x", 1, 30)));
    engine.step(take);
    adapters.unload("x");
    adapters.load("y", whole[2].path);
    const auto third = std::get<SequenceId>(engine.add(request_of("y", 1, 30)));
    engine.step(take);
    engine.sleep(SleepDepth::kKvAndWeights);
    engine.wake();
    while (engine.step(take)) {
    }
    expect_equal({given[first], given[second], given[third]}, expected);
    EXPECT_EQ(adapters.stats().num_reads, 3) << "each file is read once for all ranks";
  }
}

TEST_F(TensorParallelAdapters, EndOnlyTheirOwnRequestsWhereOneRankCannotLoadThem) {
  const std::vector<Answer> expected =
      answers_of_one_rank({request_of("a", 1, 30), request_of("", 2, 20), request_of("b", 3, 20)});
  options_.adapters.num_slots = 2;
  options_.adapters.adapters.resize(2);
  options_.adapters.projections = {"q_proj", "o_proj", "gate_proj", "down_proj"};
  for (const bool of_first : {false, true}) {
    const auto device = ranks_of_cpu(2);
    const auto model = load(*device, options_);
    Engine engine(*model);
    loader::Adapters& adapters = *model->adapters();
    adapters.load("c", dir_.path() / "c");
    std::vector<Answer> given;
    {
      // Only "c" needs a new adapter slot, as "a" and "b" are in slots already. A load copies one
      // weight of the adapter after the other, first all weights of rank 0, then those of rank 1.
      // So copy `num_slotted` is the first one of rank 1.
      const ir::Graph& graph = model->program().graph;
      const auto weights = graph.values_of_kind(ir::ValueKind::kWeight);
      const auto num_slotted = std::ranges::count_if(
          weights, [&](ir::ValueId id) { return graph.value(id).recipe.has_slots; });
      std::atomic<int> num_copies = 0;
      const fault::Injection injection([&](std::string_view call) {
        if (call == "copy" && num_copies++ == (of_first ? 0 : num_slotted))
          fail(ErrorKind::kMemory, "injected");
      });
      given = answers(engine, {request_of("a", 1, 30), request_of("c", 1, 30),
                               request_of("", 2, 20), request_of("b", 3, 20)});
    }
    EXPECT_NE(given[1].problem.find("injected"), std::string::npos) << given[1].problem;
    EXPECT_TRUE(given[1].tokens.empty());
    expect_equal({given[0], given[2], given[3]}, expected);
    const std::vector<Answer> again = answers(engine, {request_of("c", 1, 30)});
    EXPECT_TRUE(again[0].problem.empty());
    EXPECT_FALSE(again[0].tokens.empty());
  }
}

class TensorParallelDraftModel : public RankModelTest {};

// One draft model is the model itself, which is right wherever a text goes on. The other has
// different weights.
TEST_F(TensorParallelDraftModel, ChangesNoTokenAndIsRightAsOftenAsOnOneRank) {
  std::vector<Request> requests;
  for (int i = 0; i < 8; ++i) {
    Request request = request_of("", i, 5 + 6 * i);
    request.max_tokens = 20 + i;
    if (i % 2 == 1) {
      request.sampling.temperature = 0.8F;
      request.sampling.seed = i;
    }
    if (i == 6) request.sampling.repetition_penalty = 1.2F;
    requests.push_back(std::move(request));
  }
  const auto run = [&](int num_ranks, int64_t* num_accepted) {
    const auto device = ranks_of_cpu(num_ranks);
    const auto model = load(*device, options_);
    Engine engine(*model);
    std::vector<Answer> given = answers(engine, requests);
    if (num_accepted != nullptr) *num_accepted = engine.draft_counts().num_accepted();
    return given;
  };
  const std::vector<Answer> expected = run(1, nullptr);
  model::ModelSource other{source().config, std::nullopt};
  other.config.hidden_size = 48;
  other.config.num_heads = 3;  // no number of ranks divides it
  other.config.num_kv_heads = 1;
  options_.limits.num_drafts = 3;
  for (const bool is_right : {true, false}) {
    options_.draft = is_right ? source() : other;
    int64_t of_one = 0;
    (void)run(1, &of_one);
    EXPECT_GE(of_one, is_right ? 50 : 0);
    for (const int num_ranks : {2, 4}) {
      int64_t num_accepted = 0;
      const std::vector<Answer> given = run(num_ranks, &num_accepted);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_LT(error_of(given[i], expected[i]), 1e-4) << num_ranks << " ranks, request " << i;
      EXPECT_EQ(num_accepted, of_one) << num_ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace encore::engine::lora
