// Tests that a model on several ranks gives what it gives on one rank, and that it ends with one
// clear error when a rank does.
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "backend/fault.h"
#include "base/testing/message_of.h"
#include "engine/serving_loop.h"
#include "engine/testing/tiny_model.h"
#include "model/testing/checkpoint_fixture.h"

namespace encore::engine {
namespace {

using testing::Tiny;
using Tokens = std::vector<int32_t>;

constexpr int64_t kVocabulary = 96;

// The models that are split over ranks: Llama with biases, Qwen2, Qwen3 (norms per head, tied
// embeddings), Qwen3 with a layer of experts, and OLMo 2 (norms over all heads).
enum class Ranked { kLlama, kQwen2, kQwen3, kExperts, kOlmo2 };

// Writes a checkpoint of two layers in f32, with D = 64, H = 4, K = 2, C = 16 and F = 96.
struct RankedCheckpoint {
  explicit RankedCheckpoint(Ranked kind) {
    const bool has_experts = kind == Ranked::kExperts;
    const bool is_qwen3 = kind == Ranked::kQwen3 || has_experts;
    const bool has_biases = kind == Ranked::kQwen2;
    const bool is_olmo2 = kind == Ranked::kOlmo2;
    model::NamedShapes tensors{{"model.embed_tokens.weight", {kVocabulary, 64}},
                               {"model.norm.weight", {64}}};
    if (!is_qwen3) tensors.push_back({"lm_head.weight", {kVocabulary, 64}});
    for (const int layer : {0, 1}) {
      const auto add = [&](const std::string& name, Shape shape) {
        tensors.push_back({fmt::format("model.layers.{}.{}", layer, name), std::move(shape)});
      };
      if (is_olmo2) {
        add("post_feedforward_layernorm.weight", {64});
        add("self_attn.q_norm.weight", {64});
        add("self_attn.k_norm.weight", {32});
      } else {
        add("input_layernorm.weight", {64});
      }
      add("post_attention_layernorm.weight", {64});
      add("self_attn.q_proj.weight", {64, 64});
      add("self_attn.k_proj.weight", {32, 64});
      add("self_attn.v_proj.weight", {32, 64});
      add("self_attn.o_proj.weight", {64, 64});
      for (int expert = 0; expert < (has_experts && layer == 1 ? 4 : 1); ++expert) {
        std::string block = "mlp.";
        if (has_experts && layer == 1) block = fmt::format("mlp.experts.{}.", expert);
        add(block + "gate_proj.weight", {96, 64});
        add(block + "up_proj.weight", {96, 64});
        add(block + "down_proj.weight", {64, 96});
      }
      if (has_experts && layer == 1) add("mlp.gate.weight", {4, 64});
      if (has_biases) {
        add("self_attn.q_proj.bias", {64});
        add("self_attn.k_proj.bias", {32});
        add("self_attn.v_proj.bias", {32});
      }
      if (kind == Ranked::kLlama) add("self_attn.o_proj.bias", {64});
      if (kind == Ranked::kLlama) {
        add("self_attn.q_proj.bias", {64});
        add("self_attn.k_proj.bias", {32});
        add("self_attn.v_proj.bias", {32});
      }
      if (is_qwen3) {
        add("self_attn.q_norm.weight", {16});
        add("self_attn.k_norm.weight", {16});
      }
    }
    std::mt19937 random(17);
    std::normal_distribution<float> normal;
    const auto value = [&](size_t n, int64_t) {
      const bool is_norm = tensors[n].first.find("norm") != std::string::npos;
      return is_norm ? 1 + 0.1F * normal(random) : 0.2F * normal(random);
    };
    const char* const type = is_olmo2      ? "olmo2"
                             : has_experts ? "qwen3_moe"
                             : is_qwen3    ? "qwen3"
                             : has_biases  ? "qwen2"
                                           : "llama";
    const char* const experts =
        has_experts ? R"("num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96,
          "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [0],)"
                    : "";
    const char* const architecture = is_olmo2      ? "Olmo2ForCausalLM"
                                     : has_experts ? "Qwen3MoeForCausalLM"
                                     : is_qwen3    ? "Qwen3ForCausalLM"
                                     : has_biases  ? "Qwen2ForCausalLM"
                                                   : "LlamaForCausalLM";
    (void)dir.write("model.safetensors", model::safetensors_f32(tensors, value));
    (void)dir.write("config.json",
                    fmt::format(R"({{"architectures": ["{}"], "model_type": "{}",
      "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 96, "vocab_size": {},
      "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": {},
      "attention_bias": {}, {} "torch_dtype": "float32"}})",
                                architecture, type, kVocabulary, is_qwen3 ? "true" : "false",
                                kind == Ranked::kLlama ? "true" : "false", experts));
  }
  [[nodiscard]] model::ModelSource source() const { return model::find_model(dir.path().string()); }

  TempDir dir;
};

LoadOptions ranked_options(runtime::Graphs graphs) {
  LoadOptions options;
  options.limits = {.max_num_tokens = 24, .max_batch_size = 4, .max_q = 1, .max_seq_len = 64};
  options.kv_tokens = 256;
  options.page_size = 16;
  options.dtype = DType::kF32;
  options.graphs = graphs;
  options.sequences = runtime::Ladder({1, 2, 4});
  options.tokens = runtime::Ladder({8, 24});
  options.scores_prompts = true;
  options.masks_tokens = true;
  return options;
}

// A grammar that allows even and odd tokens by turns, beginning with an even one.
class EveryOther final : public sample::TokenGrammar {
 public:
  [[nodiscard]] std::unique_ptr<sample::TokenMatcher> start() const override {
    return std::make_unique<Matcher>();
  }

 private:
  class Matcher final : public sample::TokenMatcher {
   public:
    void fill(std::span<uint32_t> mask) override {
      std::ranges::fill(mask, is_even_ ? 0x55555555U : 0xaaaaaaaaU);
    }
    bool accept(int32_t token) override {
      if ((token % 2 == 0) != is_even_) return false;
      is_even_ = !is_even_;
      return true;
    }
    [[nodiscard]] bool has_ended() const override { return false; }

   private:
    bool is_even_ = true;
  };
};

// Returns more requests than a step has places, so that they come and go. They are greedy or
// sampled, and have penalties, biases, a grammar, or log probabilities of generated tokens and of a
// prompt.
std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  std::mt19937 random(3);
  for (int i = 0; i < 10; ++i) {
    Request request;
    for (int t = 0; t < 3 + 7 * (i % 4); ++t)
      request.prompt.push_back(static_cast<int32_t>(random() % kVocabulary));
    request.max_tokens = 6 + i;
    request.sampling.num_logprobs = 2;
    if (i % 3 == 1) {
      request.sampling.temperature = 0.8F;
      request.sampling.top_p = 0.9F;
      request.sampling.seed = 40 + i;
    }
    if (i == 2) request.sampling.repetition_penalty = 1.3F;
    if (i == 3) request.token_bias = {{5, 3.0F}, {7, -3.0F}};
    if (i == 5) request.grammar = std::make_shared<EveryOther>();
    if (i == 6) request.num_prompt_logprobs = 1;
    requests.push_back(std::move(request));
  }
  return requests;
}

struct Generation {
  std::map<SequenceId, Tokens> tokens;
  // Log probabilities of prompts and of generated tokens.
  std::map<SequenceId, std::vector<float>> logprobs;
};

// Runs the requests to their ends. `between` is called between two steps.
Generation generate_all(
    LoadedModel& model, EngineOptions options = {},
    const std::function<void(Engine& engine)>& between = [](Engine&) {}) {
  Engine engine(model, std::move(options));
  for (Request& request : mixed_requests())
    EXPECT_TRUE(std::holds_alternative<SequenceId>(engine.add(std::move(request))));
  Generation all;
  while (engine.step([&](const Generated& generated) {
    all.tokens[generated.sequence].push_back(generated.token);
    std::vector<float>& logprobs = all.logprobs[generated.sequence];
    for (const LogprobRow& row : generated.prompt_logprobs)
      logprobs.push_back(row.logprob);
    logprobs.push_back(generated.logprobs->logprob);
  })) {
    between(engine);
  }
  return all;
}

class TensorParallel : public ::testing::TestWithParam<Ranked> {};

TEST_P(TensorParallel, GivesTheTokensOfOneRank) {
  const RankedCheckpoint checkpoint(GetParam());
  const auto alone = create_cpu_device({.num_threads = 2});
  LoadedModel one(*alone, checkpoint.source(), ranked_options(runtime::Graphs::kNone));
  const Generation expected = generate_all(one);
  ASSERT_EQ(expected.tokens.size(), 10U);
  for (const int ranks : {2, 4}) {
    for (const auto graphs : {runtime::Graphs::kNone, runtime::Graphs::kFullAndPiecewise}) {
      const auto device = create_cpu_device({.num_threads = 2, .num_ranks = ranks});
      LoadedModel model(*device, checkpoint.source(), ranked_options(graphs));
      const Generation got = generate_all(model);
      EXPECT_EQ(got.tokens, expected.tokens) << ranks << " ranks";
      for (const auto& [id, logprobs] : expected.logprobs) {
        ASSERT_EQ(got.logprobs.at(id).size(), logprobs.size());
        for (size_t i = 0; i < logprobs.size(); ++i)
          EXPECT_NEAR(got.logprobs.at(id)[i], logprobs[i], 1e-4) << id << " " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallel,
                         ::testing::Values(Ranked::kLlama, Ranked::kQwen2, Ranked::kQwen3,
                                           Ranked::kExperts, Ranked::kOlmo2));

// Returns a model with random weights that two and three ranks divide, with 48 and 32 tokens of the
// vocabulary each.
model::ModelSource divisible_model() {
  model::ModelSource source = testing::tiny_model(Tiny::kLlama);
  source.config.num_heads = 6;
  source.config.num_kv_heads = 6;
  source.config.head_dim = 16;
  source.config.hidden_size = 96;
  source.config.intermediate_size = 96;
  source.config.vocab_size = kVocabulary;
  return source;
}

// Returns requests with every way to choose a token: ways that merge candidates of the ranks, and
// ways that need all logits.
std::vector<Request> choosing_requests() {
  const SamplingParams params[] = {
      {},
      {.temperature = 0.8F},
      {.temperature = 1.3F, .top_k = 5},
      {.temperature = 1, .top_k = 1},
      {.temperature = 1, .top_k = 40},  // more than the 32 tokens that each of three ranks has
      {.temperature = 1, .top_k = 64},
      {.temperature = 1, .top_k = 80},
      {.temperature = 1, .top_p = 0.8F},
      {.temperature = 1, .min_p = 0.3F},
      {.temperature = 1, .typical_p = 0.7F},
      {.temperature = 0.9F, .top_k = 20, .top_p = 0.9F},
      {.temperature = 0.7F, .top_k = 7, .repetition_penalty = 1.5F},
      {.repetition_penalty = 1.2F, .presence_penalty = 0.5F}};
  std::vector<Request> requests;
  for (const SamplingParams& choice : params) {
    const auto i = static_cast<int32_t>(requests.size());
    Request request{.max_tokens = 12};
    for (int32_t t = 0; t < 2 + i; ++t)
      request.prompt.push_back((7 * i + 5 * t) % static_cast<int32_t>(kVocabulary));
    request.sampling = choice;
    request.sampling.seed = 90 + i;
    if (i % 4 == 2) request.grammar = std::make_shared<EveryOther>();
    if (i % 5 == 1) request.token_bias = {{90, 2.0F}, {3, -2.0F}};
    requests.push_back(std::move(request));
  }
  return requests;
}

std::map<SequenceId, Tokens> choose_all(int num_ranks, const LoadOptions& options) {
  const auto device = create_cpu_device({.num_threads = 2, .num_ranks = num_ranks});
  LoadedModel model(*device, divisible_model(), options);
  Engine engine(model);
  for (Request& request : choosing_requests())
    EXPECT_TRUE(std::holds_alternative<SequenceId>(engine.add(std::move(request))));
  std::map<SequenceId, Tokens> tokens;
  while (engine.step([&](const Generated& g) { tokens[g.sequence].push_back(g.token); })) {
  }
  return tokens;
}

TEST(TensorParallelSampling, MergesCandidatesToTheTokensOfOneRank) {
  for (const int64_t num_drafts : {0, 3}) {
    LoadOptions options = ranked_options(runtime::Graphs::kAuto);
    options.limits.num_drafts = num_drafts;
    const auto expected = choose_all(1, options);
    ASSERT_EQ(expected.size(), choosing_requests().size());
    for (const int ranks : {2, 3})
      EXPECT_EQ(choose_all(ranks, options), expected) << ranks << " ranks, " << num_drafts;
  }
}

TEST(TensorParallelSampling, NeedsPartsOfWholeBlocksOfNoise) {
  // Each of two ranks has 46 tokens of the vocabulary. Sampling noise comes in blocks of four
  // tokens, and 46 is no multiple of four, so the ranks cannot sample their parts and gather all
  // logits of every row instead.
  const auto choose = [](int ranks) {
    model::ModelSource source = divisible_model();
    source.config.vocab_size = 92;
    const auto device = create_cpu_device({.num_threads = 2, .num_ranks = ranks});
    LoadedModel model(*device, source, ranked_options(runtime::Graphs::kNone));
    EXPECT_EQ(model.program().graph.find_value("candidates").has_value(), false);
    Engine engine(model);
    (void)engine.add({.prompt = {1, 2}, .max_tokens = 9, .sampling = {.temperature = 1}});
    Tokens tokens;
    while (engine.step([&](const Generated& g) { tokens.push_back(g.token); })) {
    }
    return tokens;
  };
  EXPECT_EQ(choose(2), choose(1));
}

// Rejection sampling compares whole distributions, so it needs all logits of a row.
TEST(TensorParallelSampling, GathersAllLogitsWhereDraftsAreRejected) {
  LoadOptions options = ranked_options(runtime::Graphs::kAuto);
  options.limits.num_drafts = 3;
  options.acceptance = model::Acceptance::kRejection;
  {
    const auto device = create_cpu_device({.num_threads = 2, .num_ranks = 2});
    const LoadedModel model(*device, divisible_model(), options);
    EXPECT_FALSE(model.program().graph.find_value("candidates").has_value());
  }
  EXPECT_EQ(choose_all(2, options), choose_all(1, options));
}

TEST(TensorParallelSynthetic, HasSlicesOfTheWeightsOfOneRank) {
  const auto weights_of = [](int ranks) {
    const auto device = create_cpu_device({.num_threads = 2, .num_ranks = ranks});
    LoadOptions options = ranked_options(runtime::Graphs::kNone);
    options.formats = {.quantize = true, .activations = model::Activations::k16Bit};
    LoadedModel model(*device, divisible_model(), options);
    return generate_all(model).tokens;
  };
  const auto expected = weights_of(1);
  EXPECT_EQ(weights_of(2), expected);
  EXPECT_EQ(weights_of(3), expected);
}

TEST(TensorParallelFp8, CutsCodesAndScalesAsTheyAreOnOneRank) {
  const RankedCheckpoint checkpoint(Ranked::kLlama);
  LoadOptions options = ranked_options(runtime::Graphs::kAuto);
  options.formats = {.quantize = true, .activations = model::Activations::k16Bit};
  const auto alone = create_cpu_device({.num_threads = 2});
  LoadedModel one(*alone, checkpoint.source(), options);
  const auto device = create_cpu_device({.num_threads = 2, .num_ranks = 2});
  LoadedModel two(*device, checkpoint.source(), options);
  EXPECT_EQ(generate_all(two).tokens, generate_all(one).tokens);
}

TEST(TensorParallelShuffled, GivesTheSameTokensInAnyOrderThatIsLegal) {
  const RankedCheckpoint checkpoint(Ranked::kLlama);
  const auto alone = create_cpu_device({.num_threads = 2});
  LoadedModel one(*alone, checkpoint.source(), ranked_options(runtime::Graphs::kNone));
  const auto device = create_cpu_device({.num_threads = 2, .shuffle_seed = 5, .num_ranks = 2});
  LoadedModel two(*device, checkpoint.source(), ranked_options(runtime::Graphs::kAuto));
  EXPECT_EQ(generate_all(two).tokens, generate_all(one).tokens);
}

TEST(TensorParallelSleep, GivesMemoryBackOnAllRanksAndChangesNoToken) {
  const RankedCheckpoint checkpoint(Ranked::kLlama);
  const auto device = create_cpu_device({.num_threads = 2, .num_ranks = 2});
  LoadedModel model(*device, checkpoint.source(), ranked_options(runtime::Graphs::kAuto));
  const Generation expected = generate_all(model);
  int num_steps = 0;
  const Generation got = generate_all(model, {}, [&](Engine& engine) {
    if (++num_steps % 3 != 0) return;
    engine.sleep(num_steps % 2 == 0 ? SleepDepth::kKv : SleepDepth::kKvAndWeights);
    EXPECT_TRUE(model.asleep());
    engine.wake();
  });
  EXPECT_GT(num_steps, 10);
  EXPECT_EQ(got.tokens, expected.tokens);
}

TEST(TensorParallelSleep, IsTakenBackWhereOneRankCannotWake) {
  const RankedCheckpoint checkpoint(Ranked::kLlama);
  const auto device = create_cpu_device({.num_threads = 2, .num_ranks = 2});
  LoadedModel model(*device, checkpoint.source(), ranked_options(runtime::Graphs::kNone));
  const Generation expected = generate_all(model);
  for (const bool of_first : {false, true}) {
    model.sleep(SleepDepth::kKvAndWeights, {});
    const std::thread::id first = std::this_thread::get_id();
    {
      const fault::Injection injection([&](std::string_view call) {
        if (call == "map" && (std::this_thread::get_id() == first) == of_first)
          fail(ErrorKind::kMemory, "injected");
      });
      const std::string message = message_of(ErrorKind::kMemory, [&] { model.wake(); });
      EXPECT_NE(message.find(of_first ? "(rank 0: injected)" : "(rank 1: injected)"),
                std::string::npos)
          << message;
    }
    EXPECT_TRUE(model.asleep());
    model.wake();
    EXPECT_FALSE(model.asleep());
    EXPECT_EQ(generate_all(model).tokens, expected.tokens);
  }
}

TEST(TensorParallelDrafts, AreThoseOfOneRank) {
  const RankedCheckpoint checkpoint(Ranked::kQwen3);
  LoadOptions options = ranked_options(runtime::Graphs::kAuto);
  options.limits.num_drafts = 3;
  const auto alone = create_cpu_device({.num_threads = 2});
  LoadedModel one(*alone, checkpoint.source(), options);
  const Generation expected = generate_all(one);
  for (const int ranks : {2, 4}) {
    const auto device = create_cpu_device({.num_threads = 2, .num_ranks = ranks});
    LoadedModel model(*device, checkpoint.source(), options);
    EXPECT_EQ(generate_all(model).tokens, expected.tokens) << ranks << " ranks";
  }
}

TEST(TensorParallelPrefixCache, SharesPagesOnAllRanks) {
  const RankedCheckpoint checkpoint(Ranked::kLlama);
  const auto run = [&](int ranks) {
    const auto device = create_cpu_device({.num_threads = 2, .num_ranks = ranks});
    LoadedModel model(*device, checkpoint.source(), ranked_options(runtime::Graphs::kAuto));
    Engine engine(model, {.prefix_cache = kv::PrefixCacheOptions{}});
    std::map<SequenceId, Tokens> tokens;
    for (int i = 0; i < 6; ++i) {
      Request request{.max_tokens = 8};
      for (int32_t t = 0; t < 36; ++t)
        request.prompt.push_back(t % 90);
      request.prompt.push_back(i % 3);
      (void)engine.add(std::move(request));
      while (engine.step([&](const Generated& g) { tokens[g.sequence].push_back(g.token); })) {
      }
    }
    EXPECT_EQ(engine.prefix_cache()->stats().hit_tokens, 5 * 32) << ranks << " ranks";
    return tokens;
  };
  const auto expected = run(1);
  EXPECT_EQ(run(2), expected);
  EXPECT_EQ(run(4), expected);
}

TEST(TensorParallelRecordings, ExchangeThroughBuffersThatDifferFromTheirNeighbours) {
  const RankedCheckpoint checkpoint(Ranked::kLlama);
  const auto device = create_cpu_device({.num_threads = 2, .num_ranks = 2});
  LoadedModel model(*device, checkpoint.source(), ranked_options(runtime::Graphs::kAuto));
  // There are eight exchanges: one of the embedding, two in each of the two layers, one of the
  // logits, one of the largest logit, and one of the candidates. They use two buffers by turns.
  std::vector<int> buffers;
  runtime::Tables& tables = model.executor().loaded().tables;
  for (int segment = 0; segment < tables.num_segments(); ++segment) {
    for (const runtime::Launch& launch : tables.at(segment, StepKey::uniform(2))) {
      if (launch.op.starts_with("all_") || launch.op == "gather_logits")
        buffers.push_back(launch.args.exchange_buffer);
    }
  }
  EXPECT_EQ(buffers, (std::vector{0, 1, 0, 1, 0, 1, 0, 1}));
}

TEST(TensorParallelMemory, KeepsTheHeadsOfKAndVThatARankHas) {
  for (const int ranks : {1, 2, 4}) {
    const auto device = create_cpu_device({.num_threads = 2, .num_ranks = ranks});
    LoadedModel model(*device, testing::tiny_model(Tiny::kLlama),
                      ranked_options(runtime::Graphs::kNone));
    const ir::Graph& graph = model.program().graph;
    const ir::Type& cache = graph.value(graph.find_value("k_cache.0").value()).type;
    EXPECT_EQ(cache.dims[1].value, ranks == 1 ? 2 : 1) << ranks << " ranks";
    EXPECT_EQ(model.rank(), (Rank{0, ranks}));
    EXPECT_EQ(model.config().num_kv_heads, 2);
  }
}

TEST(TensorParallelRefusals, NameTheNumbersOfRanksThatDivideTheModel) {
  const auto device = create_cpu_device({.num_threads = 2, .num_ranks = 3});
  const std::string message = message_of(ErrorKind::kUsage, [&] {
    const LoadedModel model(*device, testing::tiny_model(Tiny::kLlama),
                            ranked_options(runtime::Graphs::kNone));
  });
  EXPECT_NE(message.find("take 1, 2, 4"), std::string::npos) << message;
}

TEST(TensorParallelRefusals, NameTheRemedyForTwoModelsOnOneDevice) {
  const auto device = create_cpu_device({.num_threads = 2, .num_ranks = 2});
  const RankedCheckpoint checkpoint(Ranked::kLlama);
  const auto load = [&](Device& on) {
    return std::make_unique<LoadedModel>(on, checkpoint.source(),
                                         ranked_options(runtime::Graphs::kNone));
  };
  const auto model = load(*device);
  const Generation expected = generate_all(*model);
  const std::string message = message_of(ErrorKind::kUsage, [&] { (void)load(*device); });
  EXPECT_NE(message.find("create a device of its own for this one"), std::string::npos) << message;
  // The first model goes on, while another runs on its own device. After that model has ended, its
  // device is free for the next.
  const auto other = create_cpu_device({.num_threads = 2, .num_ranks = 2});
  EXPECT_EQ(generate_all(*load(*other)).tokens, expected.tokens);
  EXPECT_EQ(generate_all(*model).tokens, expected.tokens);
  EXPECT_EQ(generate_all(*load(*other)).tokens, expected.tokens);
}

TEST(TensorParallelRefusals, SayWhichFileARankCouldNotRead) {
  const RankedCheckpoint checkpoint(Ranked::kQwen3);
  const model::ModelSource source = checkpoint.source();
  std::filesystem::resize_file(checkpoint.dir.path() / "model.safetensors", 4096);
  const auto device = create_cpu_device({.num_threads = 2, .num_ranks = 2});
  const std::string message = message_of(ErrorKind::kModel, [&] {
    const LoadedModel model(*device, source, ranked_options(runtime::Graphs::kNone));
  });
  EXPECT_NE(message.find("model.safetensors"), std::string::npos) << message;
}

// A fault to plant. At launch number `launch` one rank fails, or, if `stops` is set, does not
// return from the launch until the other ranks have noticed.
struct Plant {
  bool stops = false;
  bool of_first = false;  // the rank is rank 0, on the test's thread
  int launch = 0;
};

using Clock = std::chrono::steady_clock;

// Runs requests on a ServingLoop until the fault `plant` happens and ends them. Returns the message
// of their endings. `took`: the time from the fault's launch to the last ending.
std::string run_into(const Plant& plant, std::unique_ptr<Device> device,
                     Clock::duration* took = nullptr) {
  const std::thread::id first = std::this_thread::get_id();
  std::mutex mutex;
  std::optional<std::thread::id> victim;
  int launches = 0;
  std::atomic<bool> is_armed = false;  // set once the model is loaded
  std::atomic<Clock::time_point> planted{};
  const fault::Injection injection([&](std::string_view call) {
    if (call != "launch" || !is_armed) return;
    const std::thread::id own = std::this_thread::get_id();
    {
      const std::lock_guard lock(mutex);
      if ((own == first) != plant.of_first) return;
      if (!victim) victim = own;
      if (own != *victim || launches++ != plant.launch) return;
    }
    planted = Clock::now();
    if (!plant.stops) fail(ErrorKind::kDevice, "injected");
    while (message_of(ErrorKind::kDevice, [&] { device->communicator()->check(); }).empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });

  model::ModelSource source = testing::tiny_model(Tiny::kLlama);
  source.config.hidden_size = 64;
  source.config.head_dim = 16;
  source.config.intermediate_size = 64;
  LoadOptions options = ranked_options(runtime::Graphs::kNone);
  options.scores_prompts = false;
  options.masks_tokens = false;
  LoadedModel model(*device, source, options);
  is_armed = true;

  ServingLoop loop(model);
  std::array<std::optional<Ending>, 3> endings;
  for (size_t i = 0; i < endings.size(); ++i) {
    std::vector<Submission> one;
    one.push_back({{.prompt = {1, 2, static_cast<int32_t>(i)}, .max_tokens = 60},
                   [&endings, i](const Update& update) {
                     if (update.ending) endings[i] = *update.ending;
                   }});
    EXPECT_TRUE(std::holds_alternative<std::vector<RequestId>>(loop.submit(std::move(one))));
  }
  const std::string message = message_of(ErrorKind::kDevice, [&] { loop.run(); });
  EXPECT_NE(message, "") << "launch " << plant.launch;
  if (took != nullptr) *took = Clock::now() - planted.load();
  for (const auto& ending : endings) {
    EXPECT_TRUE(ending && ending->reason == EndReason::kError);
    EXPECT_EQ(ending ? ending->message : "", message);
  }
  const std::optional<Refusal> closed = loop.closed();
  EXPECT_TRUE(closed && closed->why.find(message) != std::string::npos);
  return message;
}

// Returns a device whose ranks have a short timeout for collectives if `plant` stops a rank, and a
// very long one if a rank fails.
std::unique_ptr<Device> ranks_of_cpu(int num_ranks, const Plant& plant) {
  const auto timeout = std::chrono::milliseconds(plant.stops ? 1000 : 600000);
  return create_cpu_device({.num_threads = 2, .num_ranks = num_ranks, .rank_timeout = timeout});
}

// ENCORE_RANK_FAULTS sets the number of device errors and of launches that stop. Each fault must
// then end all requests within its deadline and one more second. Without the variable there are
// fewer faults, and their time is not checked.
TEST(TensorParallelFailure, EndsEveryRequestWhereverARankFailsOrStops) {
  const char* const wanted = std::getenv("ENCORE_RANK_FAULTS");
  const int num_errors = wanted != nullptr ? std::stoi(wanted) : 20;
  const int num_stops = wanted != nullptr ? num_errors : 5;
  std::mt19937 random(11);
  for (int i = 0; i < num_errors + num_stops; ++i) {
    const Plant plant{.stops = i >= num_errors,
                      .of_first = i % 4 == 3,
                      .launch = static_cast<int>(random() % 600)};
    const int num_ranks = i % 3 == 0 ? 4 : 2;
    SCOPED_TRACE(fmt::format("{} ranks, launch {}{}{}", num_ranks, plant.launch,
                             plant.stops ? ", stops" : "", plant.of_first ? ", rank 0" : ""));
    Clock::duration took{};
    const std::string message = run_into(plant, ranks_of_cpu(num_ranks, plant), &took);
    const auto deadline = std::chrono::seconds(plant.stops ? 1 : 0);
    if (wanted != nullptr) {
      EXPECT_LE(took, deadline + std::chrono::seconds(1));
    }
    EXPECT_NE(message.find(plant.stops ? "done nothing for 1 s" : "injected"), std::string::npos)
        << message;
    // The message names a rank, and the place where the other ranks were: an op and its layer.
    if (plant.of_first && !plant.stops) continue;
    EXPECT_NE(message.find(plant.of_first ? "rank 0 of" : "rank "), std::string::npos) << message;
    EXPECT_TRUE(message.find("op 'all_") != std::string::npos ||
                message.find("op 'gather_logits'") != std::string::npos)
        << message;
    EXPECT_TRUE(message.find("of model.") != std::string::npos ||
                message.find("of lm_head") != std::string::npos)
        << message;
  }
}

TEST(TensorParallelFailure, StopsTheStartWhereARankHasNoMemoryForItsPages) {
  const RankedCheckpoint checkpoint(Ranked::kLlama);
  const std::thread::id first = std::this_thread::get_id();
  std::atomic<int> num_maps = 0;
  std::atomic<int> failing_map = 0;
  const fault::Injection injection([&](std::string_view call) {
    if (call != "map" || std::this_thread::get_id() == first) return;
    if (++num_maps == failing_map) fail(ErrorKind::kMemory, "injected");
  });
  const auto load = [&] {
    const auto device = create_cpu_device({.num_threads = 2, .num_ranks = 2});
    const LoadedModel model(*device, checkpoint.source(), ranked_options(runtime::Graphs::kNone));
  };
  load();
  failing_map = num_maps.exchange(0);  // the last mapping fails
  const std::string message = message_of(ErrorKind::kMemory, load);
  EXPECT_NE(message.find("rank 1 of 2 failed"), std::string::npos) << message;
  EXPECT_NE(message.find("the others were at the end of loading"), std::string::npos) << message;
}

// Returns two GPUs as ranks, or null and the reason why there are none.
std::unique_ptr<Device> two_gpus(std::string& reason, std::chrono::milliseconds wait_timeout) {
  try {
    return create_cuda_ranks({.first = std::nullopt, .num_ranks = 2, .wait_timeout = wait_timeout});
  } catch (const Error& error) {
    reason = error.what();
    return nullptr;
  }
}

TEST(TensorParallelCuda, GivesTheTokensOfOneGpu) {
  std::string reason;
  if (two_gpus(reason, std::chrono::seconds(30)) == nullptr) GTEST_SKIP() << reason;
  for (const Ranked kind : {Ranked::kLlama, Ranked::kQwen3, Ranked::kExperts, Ranked::kOlmo2}) {
    const RankedCheckpoint checkpoint(kind);
    const auto alone = create_cuda_device();
    LoadedModel one(*alone, checkpoint.source(), ranked_options(runtime::Graphs::kNone));
    const Generation expected = generate_all(one);
    for (const auto graphs :
         {runtime::Graphs::kNone, runtime::Graphs::kPiecewise, runtime::Graphs::kAuto}) {
      const auto device = two_gpus(reason, std::chrono::seconds(30));
      LoadedModel model(*device, checkpoint.source(), ranked_options(graphs));
      EXPECT_EQ(generate_all(model).tokens, expected.tokens) << static_cast<int>(graphs);
      int num_steps = 0;
      const auto slept = generate_all(model, {}, [&](Engine& engine) {
        if (++num_steps % 4 != 0) return;
        engine.sleep(SleepDepth::kKvAndWeights);
        engine.wake();
      });
      EXPECT_EQ(slept.tokens, expected.tokens);
    }
  }
}

TEST(TensorParallelCuda, EndsEveryRequestWhereverARankFailsOrStops) {
  std::string reason;
  if (two_gpus(reason, std::chrono::seconds(30)) == nullptr) GTEST_SKIP() << reason;
  std::mt19937 random(11);
  for (int i = 0; i < 20; ++i) {
    const Plant plant{.stops = i % 2 == 1, .launch = static_cast<int>(random() % 600)};
    SCOPED_TRACE(fmt::format("launch {}{}", plant.launch, plant.stops ? ", stops" : ""));
    const std::string message =
        run_into(plant, two_gpus(reason, std::chrono::milliseconds(plant.stops ? 500 : 60000)));
    EXPECT_NE(
        message.find(plant.stops ? "rank 1 of 2 failed: it has not come to op 'all_" : "injected"),
        std::string::npos)
        << message;
  }
}

TEST(TensorParallelFailure, LeavesAThreadBehindThatNeverComesBack) {
  std::atomic<bool> is_armed = false;
  std::atomic<bool> is_released = false;
  const std::thread::id first = std::this_thread::get_id();
  const fault::Injection injection([&](std::string_view call) {
    if (is_armed && call == "launch" && std::this_thread::get_id() != first)
      is_released.wait(false);
  });
  std::weak_ptr<Device> peer;
  {
    const auto device = create_cpu_device(
        {.num_threads = 2, .num_ranks = 2, .rank_timeout = std::chrono::milliseconds(2000)});
    peer = device->peers()[0];
    LoadedModel model(*device, testing::tiny_model(Tiny::kLlama),
                      ranked_options(runtime::Graphs::kNone));
    is_armed = true;
    Engine engine(model);
    (void)engine.add({.prompt = {1, 2, 3}, .max_tokens = 4});
    const std::string message =
        message_of(ErrorKind::kDevice, [&] { engine.step([](const Generated&) {}); });
    EXPECT_NE(message.find("rank 1 of 2 failed"), std::string::npos) << message;
  }
  EXPECT_FALSE(peer.expired());
  is_released = true;
  is_released.notify_all();
  while (!peer.expired())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace
}  // namespace encore::engine
