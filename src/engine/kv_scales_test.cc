// Tests the scales of K and V: they change no number in 16 bits, and keep large values from
// saturating in 8 bits.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "diagnose/probe.h"
#include "engine/engine.h"
#include "model/testing/checkpoint_fixture.h"

namespace encore::engine {
namespace {

constexpr int64_t kVocabulary = 96;
constexpr const char* kConfig = R"({
  "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64,
  "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
  "intermediate_size": 96, "vocab_size": 96, "max_position_embeddings": 128,
  "rms_norm_eps": 1e-06, "torch_dtype": "bfloat16"
})";

// Writes a Qwen2 whose keys have biases up to 900, more than e4m3 holds. Its queries are so small
// that attention looks at several tokens.
void write_model(const TempDir& dir) {
  model::NamedShapes tensors = {{"model.embed_tokens.weight", {kVocabulary, 64}},
                                {"model.norm.weight", {64}},
                                {"lm_head.weight", {kVocabulary, 64}}};
  for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
    const auto add = [&](const char* name, Shape shape) {
      tensors.emplace_back(std::string(layer) + name, shape);
    };
    add("input_layernorm.weight", {64});
    add("post_attention_layernorm.weight", {64});
    for (const auto& [name, rows] : {std::pair{"q", 64}, {"k", 32}, {"v", 32}}) {
      add(fmt::format("self_attn.{}_proj.weight", name).c_str(), {rows, 64});
      add(fmt::format("self_attn.{}_proj.bias", name).c_str(), {rows});
    }
    add("self_attn.o_proj.weight", {64, 64});
    add("mlp.gate_proj.weight", {96, 64});
    add("mlp.up_proj.weight", {96, 64});
    add("mlp.down_proj.weight", {64, 96});
  }
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  const auto value = [&](size_t n, int64_t i) -> float {
    const std::string& name = tensors[n].first;
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (is("norm")) return 1;
    if (is("k_proj.bias")) return i % 3 == 0 ? 900.0F : -700.0F;
    return normal(random) * (is("q_proj") ? 3e-4F : is("embed") ? 1.0F : 0.12F);
  };
  (void)dir.write("config.json", kConfig);
  (void)dir.write("model.safetensors", model::safetensors_f32(tensors, value));
}

// Writes a Llama with layers of 64 columns and two heads of K and V. Its K and V are those of a
// plain model times a power of two for each head. Its queries and output projection divide by these
// powers, and its scales are these powers, so the caches hold the same numbers as those of the
// plain model.
void write_model_by_head(const TempDir& dir, const std::vector<float>& k_scales,
                         const std::vector<float>& v_scales) {
  constexpr int64_t kHeadSize = 16;
  model::NamedShapes tensors = {{"model.embed_tokens.weight", {kVocabulary, 64}},
                                {"model.norm.weight", {64}},
                                {"lm_head.weight", {kVocabulary, 64}}};
  const auto add = [&](const char* name, Shape shape) {
    tensors.emplace_back(std::string("model.layers.0.") + name, shape);
  };
  add("input_layernorm.weight", {64});
  add("post_attention_layernorm.weight", {64});
  add("self_attn.q_proj.weight", {64, 64});
  add("self_attn.k_proj.weight", {32, 64});
  add("self_attn.v_proj.weight", {32, 64});
  add("self_attn.o_proj.weight", {64, 64});
  add("self_attn.k_scale", {2, 1, 1});
  add("self_attn.v_scale", {2, 1, 1});
  add("mlp.gate_proj.weight", {96, 64});
  add("mlp.up_proj.weight", {96, 64});
  add("mlp.down_proj.weight", {64, 96});
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  const auto value = [&](size_t n, int64_t i) -> float {
    const std::string& name = tensors[n].first;
    const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (is("k_scale")) return k_scales.at(static_cast<size_t>(i));
    if (is("v_scale")) return v_scales.at(static_cast<size_t>(i));
    if (is("norm")) return 1;
    const float plain = normal(random) * (is("embed") ? 1.0F : 0.12F);
    const auto of_row =
        static_cast<size_t>(i / 64 / kHeadSize);  // head of K or V that the weight's row belongs to
    if (is("k_proj")) return plain * k_scales.at(of_row);
    if (is("q_proj")) return plain / k_scales.at(of_row / 2);
    if (is("v_proj")) return plain * v_scales.at(of_row);
    if (is("o_proj")) return plain / v_scales.at(static_cast<size_t>(i % 64 / kHeadSize / 2));
    return plain;
  };
  (void)dir.write("config.json", R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
  "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
  "intermediate_size": 96, "vocab_size": 96, "max_position_embeddings": 128,
  "rms_norm_eps": 1e-06, "torch_dtype": "float32"
})");
  (void)dir.write("model.safetensors", model::safetensors_f32(tensors, value));
}

std::vector<float> logits_of_prompt(const TempDir& dir, std::optional<DType> kv_dtype) {
  const auto device = create_cpu_device({.num_threads = 1});
  loader::LoadOptions options;
  options.limits = {.max_num_tokens = 64, .max_batch_size = 1, .max_q = 1, .max_seq_len = 128};
  options.graphs = runtime::Graphs::kNone;
  options.kv_dtype = kv_dtype;
  LoadedModel model(*device, model::find_model(dir.path().string()), options);
  Engine engine(model, {.overlap = false});
  Request request{.max_tokens = 1};
  for (int32_t i = 0; i < 48; ++i)
    request.prompt.push_back(i * 7 % kVocabulary);
  (void)engine.add(std::move(request));
  (void)engine.step([](const Generated&) {});
  std::vector<float> logits(kVocabulary);
  diagnose::read_output(model.executor(), 1, logits.data(), kVocabulary * 4);
  return logits;
}

double rms_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

TEST(KvScales, KeepKeysWithLargeBiasesFromSaturatingInEightBits) {
  const TempDir dir;
  write_model(dir);
  const std::vector<float> wide = logits_of_prompt(dir, std::nullopt);
  const std::vector<float> narrow = logits_of_prompt(dir, DType::kFP8);
  const double size = rms_difference(wide, std::vector<float>(wide.size()));
  EXPECT_LT(rms_difference(wide, narrow), 0.05 * size);
}

TEST(KvScales, OfHeadsGiveTheBitsOfKeysAndValuesThatNeedNone) {
  const TempDir plain;
  write_model_by_head(plain, {1, 1}, {1, 1});
  const TempDir by_head;
  write_model_by_head(by_head, {0x1p12F, 0.5F}, {0.25F, 0x1p10F});
  const std::vector<float> expected = logits_of_prompt(plain, DType::kFP8);
  EXPECT_EQ(logits_of_prompt(by_head, DType::kFP8), expected);
  EXPECT_NE(logits_of_prompt(plain, std::nullopt), expected) << "8 bits change something";
}

}  // namespace
}  // namespace encore::engine
