// Sequences with adapters: each gets what the model with that adapter's weights merged in gives, beside
// whomever it runs, and sequences without one get what the model gives.
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "engine/serving_loop.h"
#include "engine/testing/tiny_model.h"
#include "model/testing/lora_files.h"

namespace encore::engine::lora {
namespace {

using model::LoraFiles;
using model::LoraModule;
using model::TypedTensor;

constexpr int64_t kHidden = 64;
constexpr int64_t kInner = 96;
constexpr int64_t kVocabulary = 80;
constexpr int64_t kPageSize = 16;
constexpr int kLayers = 2;

// A family of models whose projections lie in a checkpoint as `modules` says.
struct Family {
  const char* name;
  const char* config;  // its own keys
  bool is_merged = false;
};
const Family kLlama{"llama", R"("architectures": ["LlamaForCausalLM"], "model_type": "llama")"};
const Family kPhi3{"phi3",
                   R"("architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "pad_token_id": 0,
                      "partial_rotary_factor": 0.5)",
                   true};
const Family kGranite{"granite",
                      R"("architectures": ["GraniteForCausalLM"], "model_type": "granite",
                         "residual_multiplier": 0.5, "attention_multiplier": 0.2,
                         "embedding_multiplier": 2.0, "logits_scaling": 3.0)"};
const Family kGlm4{"glm4",
                   R"("architectures": ["Glm4ForCausalLM"], "model_type": "glm4",
                      "partial_rotary_factor": 0.5, "attention_bias": false)"};

struct Shape2 {
  const char* name;
  int64_t num_out;
  int64_t num_in;
};
std::vector<Shape2> projections_of(const Family& family) {
  std::vector<Shape2> all;
  if (family.is_merged) {
    all = {{"self_attn.qkv_proj", 128, kHidden}, {"mlp.gate_up_proj", 2 * kInner, kHidden}};
  } else {
    all = {{"self_attn.q_proj", 64, kHidden},
           {"self_attn.k_proj", 32, kHidden},
           {"self_attn.v_proj", 32, kHidden},
           {"mlp.gate_proj", kInner, kHidden},
           {"mlp.up_proj", kInner, kHidden}};
    if (std::string_view(family.name) == "glm4") {
      all.resize(3);
      all.push_back({"mlp.gate_up_proj", 2 * kInner, kHidden});
    }
  }
  all.push_back({"self_attn.o_proj", kHidden, 64});
  all.push_back({"mlp.down_proj", kHidden, kInner});
  return all;
}

std::string module_name(int layer, const Shape2& projection) {
  return fmt::format("model.layers.{}.{}", layer, projection.name);
}

// All modules whose name has one of these words.
std::vector<LoraModule> modules_of(const Family& family, const std::vector<std::string>& words,
                                   int64_t rank = 4) {
  std::vector<LoraModule> modules;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Shape2& projection : projections_of(family)) {
      for (const std::string& word : words) {
        if (std::string_view(projection.name).find(word) == std::string_view::npos) continue;
        modules.push_back(
            {module_name(layer, projection), projection.num_in, projection.num_out, rank});
        break;
      }
    }
  }
  return modules;
}

std::vector<TypedTensor> base_tensors(const Family& family) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<TypedTensor> tensors;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns, float stddev) {
    TypedTensor tensor{name, DType::kF32, {rows, columns}, {}};
    for (int64_t i = 0; i < rows * columns; ++i)
      tensor.values.push_back(stddev * normal(random));
    tensors.push_back(std::move(tensor));
  };
  matrix("model.embed_tokens.weight", kVocabulary, kHidden, 1);
  matrix("lm_head.weight", kVocabulary, kHidden, 0.2F);
  tensors.push_back({"model.norm.weight", DType::kF32, {kHidden}, {1}});
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    for (const char* norm : {"input_layernorm", "post_attention_layernorm",
                             "post_self_attn_layernorm", "post_mlp_layernorm"})
      tensors.push_back({prefix + norm + ".weight", DType::kF32, {kHidden}, {1}});
    for (const Shape2& projection : projections_of(family))
      matrix(module_name(layer, projection) + ".weight", projection.num_out, projection.num_in,
             0.12F);
  }
  return tensors;
}

// The tensors with scale * B A of an adapter's modules added.
std::vector<TypedTensor> merged_tensors(const Family& family, const LoraFiles& adapter,
                                        const std::function<double(const std::string&)>& scale) {
  std::vector<TypedTensor> tensors = base_tensors(family);
  for (size_t i = 0; i < adapter.tensors.size(); i += 2) {
    const TypedTensor& a = adapter.tensors[i];
    const TypedTensor& b = adapter.tensors[i + 1];
    const std::string prefix = "base_model.model.";
    const std::string module =
        a.name.substr(prefix.size(), a.name.rfind(".lora_A") - prefix.size());
    const auto weight = std::ranges::find(tensors, module + ".weight", &TypedTensor::name);
    ENCORE_CHECK(weight != tensors.end());
    const int64_t columns = a.shape[1];
    const int64_t rank = a.shape[0];
    for (int64_t o = 0; o < b.shape[0]; ++o) {
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < rank; ++k)
          sum += static_cast<double>(b.values[static_cast<size_t>(o * rank + k)]) *
                 a.values[static_cast<size_t>(k * columns + c)];
        weight->values[static_cast<size_t>(o * columns + c)] +=
            static_cast<float>(scale(module) * sum);
      }
    }
  }
  return tensors;
}

void write_model(const TempDir& dir, const Family& family,
                 const std::vector<TypedTensor>& tensors) {
  (void)dir.write("config.json", fmt::format(R"({{{}, "hidden_size": {}, "num_hidden_layers": {},
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": {},
      "vocab_size": {}, "max_position_embeddings": 256, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
      "torch_dtype": "float32", "hidden_act": "silu", "tie_word_embeddings": false}})",
                                             family.config, kHidden, kLayers, kInner, kVocabulary));
  (void)dir.write("model.safetensors", safetensors(tensors));
}

LoadOptions lora_options() {
  LoadOptions options;
  options.limits = {.max_num_tokens = 48, .max_batch_size = 6, .max_q = 1, .max_seq_len = 160};
  options.kv_tokens = 1024;
  options.page_size = kPageSize;
  options.scores_prompts = true;
  options.bursts = true;
  return options;
}

std::vector<int32_t> prompt_of(int seed, int64_t length) {
  std::mt19937 random(seed);
  std::vector<int32_t> prompt(static_cast<size_t>(length));
  for (int32_t& token : prompt)
    token = static_cast<int32_t>(random() % kVocabulary);
  return prompt;
}

// The tokens of a sequence and, as bits, the log probabilities of all it was asked for.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  int64_t num_cached = 0;

  friend bool operator==(const Answer& a, const Answer& b) {
    return a.tokens == b.tokens && a.logprobs.size() == b.logprobs.size() &&
           std::memcmp(a.logprobs.data(), b.logprobs.data(), a.logprobs.size() * sizeof(float)) ==
               0;
  }
};

Request request_of(const std::string& adapter, int seed, int64_t length = 20) {
  Request request{.prompt = prompt_of(seed, length), .max_tokens = 12, .adapter = adapter};
  request.sampling.num_logprobs = 2;
  return request;
}

std::vector<Answer> answers(Engine& engine, const std::vector<Request>& requests) {
  std::map<SequenceId, Answer> given;
  for (const Request& request : requests) {
    const auto added = engine.add(request);
    given[std::get<SequenceId>(added)];
  }
  while (engine.step([&](const Generated& generated) {
    Answer& answer = given[generated.sequence];
    if (answer.tokens.empty()) answer.num_cached = generated.num_cached;
    answer.tokens.push_back(generated.token);
    for (const LogprobRow& row : generated.prompt_logprobs)
      answer.logprobs.push_back(row.logprob);
    if (generated.logprobs) answer.logprobs.push_back(generated.logprobs->logprob);
  })) {
  }
  std::vector<Answer> list;
  for (auto& [id, answer] : given)
    list.push_back(std::move(answer));
  return list;
}

double error_of(const Answer& found, const Answer& expected) {
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.logprobs.size(), expected.logprobs.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(found.logprobs.size(), expected.logprobs.size()); ++i)
    worst = std::max<double>(worst, std::fabs(found.logprobs[i] - expected.logprobs[i]));
  return worst;
}

class LoraTest : public testing::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    write_model(dir_, kLlama, base_tensors(kLlama));
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
  [[nodiscard]] std::unique_ptr<LoadedModel> load(const LoadOptions& options) const {
    return std::make_unique<LoadedModel>(*device_, model::find_model(dir_.path().string()),
                                         options);
  }
  [[nodiscard]] std::unique_ptr<LoadedModel> load() const { return load(options_); }

  TempDir dir_;
  LoadOptions options_ = lora_options();
};

// Requests of all adapters and of none, of different lengths.
std::vector<Request> a_mix() {
  std::vector<Request> requests;
  const char* const adapters[] = {"", "a", "b", "c", "a", ""};
  for (int i = 0; i < 6; ++i)
    requests.push_back(request_of(adapters[i], i / 2, 5 + i * 13));
  return requests;
}

TEST_P(LoraTest, AMixOfAdaptersGivesEachWhatItGetsAlone) {
  const auto model = load();
  for (const EngineOptions& way : {EngineOptions{.overlap = false}, EngineOptions{.overlap = true},
                                   EngineOptions{.overlap = true, .burst_steps = 16}}) {
    Engine engine(*model, way);
    const std::vector<Request> requests = a_mix();
    const std::vector<Answer> together = answers(engine, requests);
    for (size_t i = 0; i < requests.size(); ++i)
      EXPECT_LT(error_of(together[i], answers(engine, {requests[i]})[0]), 1e-5) << "request " << i;
  }
}

// As on the CPU, whatever the size of the step.
TEST_P(LoraTest, AMixOfAdaptersGivesEachTheBitsThatItGetsAlone) {
  options_.compile.batch_invariant = true;
  const auto model = load();
  Engine engine(*model);
  const std::vector<Request> requests = a_mix();
  const std::vector<Answer> together = answers(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_TRUE(together[i] == answers(engine, {requests[i]})[0]) << "request " << i;
}

TEST_P(LoraTest, ABaseSequenceHasTheBitsOfAModelWithoutAdapters) {
  for (const bool has_mlp : {false, true}) {
    // On a GPU, gate and up of a few rows are another kernel where they have room for adapters.
    if (has_mlp && device_->kind() != DeviceKind::kCpu) continue;
    LoadOptions options = options_;
    if (!has_mlp) options.adapters.adapters.pop_back();
    const auto with = load(options);
    const auto without = load(lora_options());
    const std::vector<Request> base = {request_of("", 5), request_of("", 6, 50)};
    std::vector<Request> mixed = base;
    for (int i = 0; i < 4; ++i)
      mixed.push_back(request_of(i % 2 == 0 ? "a" : "b", i));
    Engine engine(*with);
    Engine plain(*without);
    std::vector<Request> as_many = mixed;
    for (Request& request : as_many)
      request.adapter.clear();
    const std::vector<Answer> beside = answers(engine, mixed);
    const std::vector<Answer> expected = answers(plain, as_many);
    for (size_t i = 0; i < base.size(); ++i)
      EXPECT_TRUE(beside[i] == expected[i]) << "request " << i;
    EXPECT_FALSE(beside[2] == expected[2]);
  }
}

TEST_P(LoraTest, AnAdaptersScaleIsThatOfItsConfiguration) {
  const auto model = load();
  Engine engine(*model);
  const struct {
    const char* name;
    LoraFiles files;
    double scale;
  } cases[] = {
      {"a", LoraFiles::random(1, modules_of(kLlama, {"self_attn"})), 2},
      {"b", LoraFiles::random(2, modules_of(kLlama, {"q_proj", "v_proj"}, 8)), 4 / std::sqrt(8.0)},
      {"c", LoraFiles::random(3, modules_of(kLlama, {"self_attn", "mlp"})), 1.5},
  };
  for (const auto& c : cases) {
    const TempDir merged;
    write_model(merged, kLlama,
                merged_tensors(kLlama, c.files, [&](const auto&) { return c.scale; }));
    LoadedModel reference_model(*device_, model::find_model(merged.path().string()),
                                lora_options());
    Engine reference(reference_model);
    Request asked = request_of(c.name, 9, 40);
    asked.num_prompt_logprobs = 0;
    Request expected = asked;
    expected.adapter.clear();
    EXPECT_LT(error_of(answers(engine, {asked})[0], answers(reference, {expected})[0]), 2e-4)
        << c.name;
    EXPECT_FALSE(answers(engine, {asked})[0] == answers(engine, {expected})[0]) << "no effect";
  }
}

// Rows of q and k in another order, several projections in one tensor, factors on the way.
TEST_P(LoraTest, RowsOfBFollowThoseOfTheWeight) {
  for (const Family& family : {kPhi3, kGranite, kGlm4}) {
    SCOPED_TRACE(family.name);
    const TempDir base;
    write_model(base, family, base_tensors(family));
    const LoraFiles files = [&] {
      LoraFiles made = LoraFiles::random(4, modules_of(family, {"self_attn", "mlp"}));
      made.config = R"({"r": 4, "lora_alpha": 8, "target_modules": "all-linear"})";
      return made;
    }();
    const TempDir merged;
    write_model(merged, family, merged_tensors(family, files, [](const auto&) { return 2.0; }));
    LoadOptions options = lora_options();
    options.adapters.adapters = {{"x", files.write(base, "x")}};
    LoadedModel model(*device_, model::find_model(base.path().string()), options);
    LoadedModel reference_model(*device_, model::find_model(merged.path().string()),
                                lora_options());
    Engine engine(model);
    Engine reference(reference_model);
    Request asked = request_of("x", 9, 40);
    asked.num_prompt_logprobs = 0;
    Request expected = asked;
    expected.adapter.clear();
    EXPECT_LT(error_of(answers(engine, {asked})[0], answers(reference, {expected})[0]), 2e-4);
  }
}

TEST_P(LoraTest, KvInFp8ScalesWhatAdaptersAddAsWell) {
  std::vector<TypedTensor> tensors = base_tensors(kLlama);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const auto& [name, scale] : {std::pair{"k_scale", 4.0F}, std::pair{"v_scale", 0.25F}})
      tensors.push_back(
          {fmt::format("model.layers.{}.self_attn.{}", layer, name), DType::kF32, {1}, {scale}});
  }
  write_model(dir_, kLlama, tensors);
  options_.kv_dtype = DType::kFP8;
  const auto model = load();
  options_.kv_dtype = std::nullopt;
  const auto exact_model = load();
  Engine engine(*model);
  Engine exact(*exact_model);
  Request request = request_of("a", 9, 40);
  request.max_tokens = 1;
  request.num_prompt_logprobs = 0;
  EXPECT_LT(error_of(answers(engine, {request})[0], answers(exact, {request})[0]), 0.3);
}

TEST_P(LoraTest, AdaptersShareNoPagesOfThePrefixCache) {
  const auto model = load();
  EngineOptions how;
  how.prefix_cache.emplace();
  Engine engine(*model, how);
  Engine uncached(*model);
  for (const char* adapter : {"a", "", "b", "c"}) {
    const Request request = request_of(adapter, 7, 70);
    const Answer first = answers(engine, {request})[0];
    EXPECT_EQ(first.num_cached, 0) << "took pages of another adapter: " << adapter;
    const Answer again = answers(engine, {request})[0];
    EXPECT_EQ(again.num_cached, 64) << adapter;
    const Answer expected = answers(uncached, {request})[0];
    EXPECT_LT(error_of(first, expected), 1e-5);
    EXPECT_LT(error_of(again, expected), 1e-4);
  }
}

TEST_P(LoraTest, AdaptersAreThereAfterASleepThatGaveWeightsBack) {
  const auto model = load();
  Engine engine(*model);
  const std::vector<Answer> before = answers(engine, a_mix());
  engine.sleep(SleepDepth::kKvAndWeights);
  engine.wake();
  EXPECT_TRUE(answers(engine, a_mix()) == before);
  engine.sleep(SleepDepth::kKvAndWeights);
  (void)LoraFiles::random(77, modules_of(kLlama, {"self_attn"})).write(dir_, "a");
  EXPECT_NE(message_of(ErrorKind::kModel, [&] { engine.wake(); }).find("changed on disk"),
            std::string::npos);
}

// A sequence keeps the adapter that it began with, also while its name is taken by another.
TEST_P(LoraTest, AdaptersAreLoadedAndUnloadedWhileSequencesRun) {
  const auto reference = load();
  Engine apart(*reference);
  const std::vector<Answer> expected =
      answers(apart, {request_of("a", 1, 30), request_of("b", 1, 30), request_of("c", 1, 30)});
  const loader::AdapterOptions all = options_.adapters;
  options_.adapters.adapters = {all.adapters[0]};
  options_.adapters.num_slots = 2;
  const auto model = load();
  EngineOptions how;
  how.prefix_cache.emplace();
  Engine engine(*model, how);
  loader::Adapters& adapters = *model->adapters();
  const auto path_of = [&](int i) { return all.adapters[static_cast<size_t>(i)].path; };

  std::map<SequenceId, Answer> given;
  const auto take = [&](const Generated& generated) {
    Answer& answer = given[generated.sequence];
    answer.tokens.push_back(generated.token);
    if (generated.logprobs) answer.logprobs.push_back(generated.logprobs->logprob);
  };
  const auto first = std::get<SequenceId>(engine.add(request_of("a", 1, 30)));
  for (int i = 0; i < 4; ++i)
    engine.step(take);
  EXPECT_NE(message_of(ErrorKind::kUsage, [&] { adapters.load("a", path_of(1)); }).find("already"),
            std::string::npos);
  adapters.load("a", path_of(1), true);  // b's files
  const auto second = std::get<SequenceId>(engine.add(request_of("a", 1, 30)));
  engine.step(take);
  engine.sleep(SleepDepth::kKvAndWeights);
  engine.wake();
  EXPECT_NE(message_of(ErrorKind::kUsage, [&] { adapters.load("c", path_of(2)); }).find("2 slots"),
            std::string::npos);
  adapters.unload("a");
  EXPECT_TRUE(std::holds_alternative<Rejection>(engine.add(request_of("a", 1, 30))));
  while (engine.step(take)) {
  }
  adapters.load("a", path_of(2));  // c's files, in a slot that one of the two had
  const auto third = std::get<SequenceId>(engine.add(request_of("a", 1, 30)));
  while (engine.step(take)) {
  }
  EXPECT_LT(error_of(given[first], expected[0]), 1e-5);
  EXPECT_LT(error_of(given[second], expected[1]), 1e-5);
  EXPECT_LT(error_of(given[third], expected[2]), 1e-5);
  EXPECT_NE(message_of(ErrorKind::kUsage, [&] { adapters.unload("b"); }), "");
  engine.sleep(SleepDepth::kKvAndWeights);
  EXPECT_NE(message_of(ErrorKind::kUsage, [&] { adapters.load("b", path_of(1)); }).find("sleeps"),
            std::string::npos);
  engine.wake();
  adapters.load("b", path_of(1));
}

// A request takes the pages of the adapter that it was hashed for, too.
TEST_P(LoraTest, ARequestThatWaitsKeepsTheAdapterThatItsNameHadWhenItCame) {
  options_.adapters.num_slots = 4;
  const auto model = load();
  Engine apart(*model);
  const std::vector<Answer> expected =
      answers(apart, {request_of("a", 1, 40), request_of("b", 1, 40)});
  ServingOptions options;
  options.engine.prefix_cache.emplace();
  ServingLoop loop(*model, options);
  std::vector<int32_t> tokens[3];
  const auto submit = [&](size_t i) {
    std::vector<Submission> one;
    one.push_back({request_of("a", 1, 40), [&tokens, i](const Update& update) {
                     tokens[i].insert(tokens[i].end(), update.tokens.begin(), update.tokens.end());
                   }});
    ASSERT_TRUE(std::holds_alternative<std::vector<RequestId>>(loop.submit(std::move(one))));
  };
  submit(0);
  EXPECT_FALSE(loop.load_adapter("a", options_.adapters.adapters[1].path.string(), true));
  submit(1);
  EXPECT_FALSE(loop.unload_adapter("b"));
  EXPECT_TRUE(loop.unload_adapter("b"));
  EXPECT_TRUE(loop.load_adapter("a", options_.adapters.adapters[1].path.string(), false));
  submit(2);
  loop.drain();
  loop.run();
  EXPECT_EQ(tokens[0], expected[0].tokens);
  EXPECT_EQ(tokens[1], expected[1].tokens);
  EXPECT_EQ(tokens[2], expected[1].tokens);
}

TEST_P(LoraTest, ARequestOfAnAdapterThatThereIsNotIsRejected) {
  const auto model = load();
  Engine engine(*model);
  const auto added = engine.add(request_of("d", 1));
  ASSERT_TRUE(std::holds_alternative<Rejection>(added));
  EXPECT_NE(std::get<Rejection>(added).why.find("no adapter \"d\""), std::string::npos);
  const auto without = load(lora_options());
  Engine plain(*without);
  EXPECT_TRUE(std::holds_alternative<Rejection>(plain.add(request_of("a", 1))));
}

class LoraRefusalTest : public ::testing::Test {
 protected:
  LoraRefusalTest() { write_model(dir_, kLlama, base_tensors(kLlama)); }
  // Why the model is not loaded with the adapter.
  std::string problem(ErrorKind kind, const LoraFiles& files) {
    LoadOptions options = lora_options();
    options.adapters.adapters = {{"x", files.write(dir_, "x")}};
    return message_of(
        kind, [&] { LoadedModel(*device_, model::find_model(dir_.path().string()), options); });
  }
  TempDir dir_;
  std::unique_ptr<Device> device_ = create_cpu_device({.num_threads = 1});
};

TEST_F(LoraRefusalTest, NamesModulesThatTheModelHasNotOrOfOtherSizes) {
  LoraFiles files = LoraFiles::random(1, modules_of(kLlama, {"self_attn"}));
  files.tensors[0].shape = {4, 32};
  files.tensors[0].values.resize(128);
  EXPECT_NE(problem(ErrorKind::kModel, files).find("q_proj"), std::string::npos);
  std::vector<LoraModule> modules = modules_of(kLlama, {"self_attn"});
  modules.push_back({"model.layers.7.self_attn.q_proj", 64, 64, 4});
  EXPECT_NE(problem(ErrorKind::kUnsupported, LoraFiles::random(1, modules)).find("layers.7"),
            std::string::npos);
  modules.back().name = "lm_head";
  EXPECT_NE(problem(ErrorKind::kUnsupported, LoraFiles::random(1, modules)).find("lm_head"),
            std::string::npos);
  modules.back().name = "model.layers.0.mlp.experts.0.down_proj";
  EXPECT_NE(problem(ErrorKind::kUnsupported, LoraFiles::random(1, modules)).find("experts"),
            std::string::npos);
}

TEST_F(LoraRefusalTest, NamesATargetWithoutTensorsInOneLayer) {
  std::vector<LoraModule> modules = modules_of(kLlama, {"self_attn"});
  modules.pop_back();
  EXPECT_NE(
      problem(ErrorKind::kModel, LoraFiles::random(1, modules)).find("layers.1.self_attn.o_proj"),
      std::string::npos);
}

TEST_F(LoraRefusalTest, NamesATensorWithANumberThatIsNotFinite) {
  for (const float number : {NAN, INFINITY, -INFINITY}) {
    LoraFiles files = LoraFiles::random(1, modules_of(kLlama, {"self_attn"}));
    files.tensors[3].values[5] = number;
    EXPECT_NE(problem(ErrorKind::kModel, files).find("no finite number"), std::string::npos);
  }
}

TEST_F(LoraRefusalTest, TwoAdaptersHaveTwoNames) {
  const std::string path = LoraFiles::random(1, modules_of(kLlama, {"self_attn"})).write(dir_, "x");
  LoadOptions options = lora_options();
  options.adapters.adapters = {{"x", path}, {"x", path}};
  EXPECT_NE(
      message_of(ErrorKind::kUsage,
                 [&] { LoadedModel(*device_, model::find_model(dir_.path().string()), options); })
          .find("two adapters"),
      std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Devices, LoraTest, ::testing::Values("Cpu", "CpuShuffled", "Cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::engine::lora
