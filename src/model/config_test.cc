#include "model/config.h"

#include "base/json.h"
#include "model/testing/checkpoint_fixture.h"

namespace encore::model {
namespace {

ModelConfig parse(const std::string& config, const std::string& generation_config = "") {
  const json::value value = json::parse(config, "config.json");
  const json::Object object(value, "config.json");
  if (generation_config.empty()) return parse_config(object, nullptr);
  const json::value generation = json::parse(generation_config, "generation_config.json");
  const json::Object generation_object(generation, "generation_config.json");
  return parse_config(object, &generation_object);
}

// Returns a config's text with the keys that have no defaults, followed by `more`.
std::string sizes(const std::string& model_type, const std::string& more = "") {
  return R"({"model_type": ")" + model_type + R"(", "hidden_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 32, "intermediate_size": 256, "vocab_size": 1000)" +
         (more.empty() ? "" : ", " + more) + "}";
}

// Lists the window of each layer, from the first layer on. A layer without a window has nullopt.
using Windows = std::vector<std::optional<int64_t>>;
const Windows kNoWindows(2);
Windows windows(const ModelConfig& config) {
  Windows found;
  for (const LayerKind& layer : config.layers)
    found.push_back(layer.window);
  return found;
}

std::string parse_error(const std::string& config) {
  return error_of([&] { return parse(config); });
}

constexpr const char* kLlamaClassic = R"({
  "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu",
  "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "pretraining_tp": 1, "rms_norm_eps": 1e-05,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256})";

constexpr const char* kLlamaNew = R"({
  "architectures": ["LlamaForCausalLM"], "bos_token_id": 128000, "dtype": "bfloat16",
  "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
  "intermediate_size": 8192, "max_position_embeddings": 131072, "model_type": "llama",
  "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
  "pad_token_id": null, "rms_norm_eps": 1e-05,
  "rope_parameters": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                      "original_max_position_embeddings": 8192, "rope_theta": 500000.0,
                      "rope_type": "llama3"},
  "tie_word_embeddings": true, "transformers_version": "5.0.0", "vocab_size": 128256})";

TEST(Config, ReadsBothSpellingsAlike) {
  EXPECT_EQ(parse(kLlamaClassic), parse(kLlamaNew));
  EXPECT_EQ(parse(kLlamaClassic), preset("llama-3.2-1b"));
}

TEST(Config, ReadsQwenAsItsPreset) {
  const std::string config = R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
    "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
    "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
    "sliding_window": null, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "use_sliding_window": false, "vocab_size": 151936})";
  EXPECT_EQ(parse(config, R"({"bos_token_id": 151643, "eos_token_id": [151645, 151643]})"),
            preset("qwen3-0.6b"));
}

TEST(Config, TakesTheDefaultsOfItsModelType) {
  const ModelConfig llama = parse(sizes("llama"));
  EXPECT_EQ(llama.architecture, "LlamaForCausalLM");
  EXPECT_EQ(llama.num_kv_heads, 32);
  EXPECT_EQ(llama.head_dim, 4);
  EXPECT_EQ(llama.max_position_embeddings, 2048);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_EQ(llama.ropes, std::vector{Rope{}});
  EXPECT_EQ(llama.bos_token_id, 1);
  EXPECT_EQ(llama.eos_token_ids, std::vector<int32_t>{2});
  EXPECT_EQ(llama.dtype, DType::kBF16);
  EXPECT_EQ(llama.layers, std::vector<LayerKind>(2));
  EXPECT_FALSE(llama.tie_word_embeddings || llama.qkv_bias || llama.o_bias || llama.mlp_bias);

  const ModelConfig mistral = parse(sizes("mistral"));
  EXPECT_EQ(mistral.num_kv_heads, 8);
  EXPECT_EQ(windows(mistral), (Windows{4096, 4096}));
  EXPECT_EQ(mistral.max_position_embeddings, 131072);

  const ModelConfig qwen2 = parse(sizes("qwen2"));
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.o_bias || qwen2.qk_norm);
  EXPECT_EQ(windows(qwen2), kNoWindows);
  EXPECT_TRUE(qwen2.eos_token_ids.empty());
  EXPECT_EQ(qwen2.bos_token_id, std::nullopt);

  const ModelConfig qwen3 = parse(sizes("qwen3"));
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(qwen3.q_size(), 32 * 128);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
}

TEST(Config, TellsNullFromAbsence) {
  EXPECT_EQ(windows(parse(sizes("mistral", R"("sliding_window": null)"))), kNoWindows);
  EXPECT_EQ(parse(sizes("mistral", R"("num_key_value_heads": null)")).num_kv_heads, 32);
  EXPECT_TRUE(parse(sizes("llama", R"("eos_token_id": null)")).eos_token_ids.empty());
  EXPECT_EQ(parse(sizes("llama", R"("head_dim": null, "rope_scaling": null)")).head_dim, 4);
}

TEST(Config, ReadsBiasesOfEachModelType) {
  const ModelConfig llama = parse(sizes("llama", R"("attention_bias": true, "mlp_bias": true)"));
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.mlp_bias);
  const ModelConfig qwen3 = parse(sizes("qwen3", R"("attention_bias": true)"));
  EXPECT_TRUE(qwen3.qkv_bias && qwen3.o_bias);
}

TEST(Config, SlidesForQwenOnlyWhenSwitchedOnForSomeLayer) {
  const std::string on = R"("use_sliding_window": true, "sliding_window": 64)";
  // max_window_layers is 28 by default, so the two layers of this config have no window.
  EXPECT_EQ(windows(parse(sizes("qwen2", on))), kNoWindows);
  EXPECT_EQ(windows(parse(sizes("qwen2", on + R"(, "max_window_layers": 1)"))),
            (Windows{std::nullopt, 64}));
  EXPECT_EQ(windows(parse(sizes(
                "qwen3", on + R"(, "layer_types": ["sliding_attention", "full_attention"])"))),
            (Windows{64, std::nullopt}));
}

TEST(Config, RefusesTypesOfLayersThatItDoesNotKnowOrCannotCount) {
  const std::string on = R"("use_sliding_window": true, "sliding_window": 64, "layer_types": )";
  EXPECT_EQ(parse_error(sizes("qwen3", on + R"(["full_attention"])")),
            "model: config.json: key 'layer_types' must name 2 layers, not 1");
  EXPECT_EQ(parse_error(sizes("qwen3", on + R"(["full_attention", "linear_attention"])")),
            "unsupported: config.json: layers of type \"linear_attention\" are not supported; "
            "supported: full_attention, sliding_attention");
}

TEST(Config, LeavesOutEndTokensThatNoModelOfTheVocabularyCanChoose) {
  const ModelConfig plain = parse(sizes("llama"));
  const auto last = static_cast<int32_t>(plain.vocab_size - 1);
  const std::string ids =
      fmt::format(R"({{"eos_token_id": [1000000000, {}, {}]}})", last, last + 1);
  EXPECT_EQ(parse(sizes("llama"), ids).eos_token_ids, std::vector{last});
}

TEST(Config, PrefersTheGenerationConfigsSpecialTokens) {
  const std::string config = sizes("llama", R"("bos_token_id": 5, "eos_token_id": 6)");
  EXPECT_EQ(parse(config, "{}").eos_token_ids, std::vector<int32_t>{6});
  const ModelConfig model = parse(config, R"({"eos_token_id": [7, 8], "do_sample": true})");
  EXPECT_EQ(model.eos_token_ids, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(model.bos_token_id, 5);
}

TEST(Config, ReadsRopeScalingUnderEitherNameOfItsType) {
  const Rope rope =
      parse(
          sizes("llama", R"("rope_theta": 5000, "rope_scaling": {"type": "linear", "factor": 2})"))
          .ropes.at(0);
  EXPECT_EQ(rope, (Rope{.theta = 5000, .scaling = RopeScaling::kLinear, .factor = 2}));
  EXPECT_EQ(
      parse(sizes("llama", R"("rope_parameters": {"rope_type": "default", "rope_theta": 7.5})"))
          .ropes.at(0),
      Rope{.theta = 7.5});
  EXPECT_EQ(parse(sizes("llama", R"("rope_scaling": {"rope_type": "llama3", "factor": 8,
                                    "low_freq_factor": 1, "high_freq_factor": 4})"))
                .ropes.at(0)
                .original_max_position_embeddings,
            2048);
}

TEST(Config, RefusesWhatEncoreDoesNotDo) {
  EXPECT_EQ(
      parse_error(sizes("mamba")),
      "unsupported: config.json: model_type \"mamba\" is not supported; supported: llama, "
      "mistral, ministral, mixtral, qwen2, qwen3, qwen3_moe, qwen3_vl_text, gemma2, gemma3_text, "
      "phi3, smollm3, "
      "olmo2, glm4, glm4_moe, granite, seed_oss");
  EXPECT_EQ(
      parse_error(sizes("llama", R"("rope_scaling": {"type": "proportional", "factor": 4.0})")),
      "unsupported: config.json: 'rope_scaling': rope_type \"proportional\" is not supported; "
      "supported: default, linear, llama3, yarn, dynamic, longrope");
  EXPECT_EQ(parse_error(sizes("llama", R"("hidden_act": "relu")")),
            "unsupported: config.json: hidden_act \"relu\" is not supported; supported: silu, "
            "gelu_pytorch_tanh");
  EXPECT_EQ(parse_error(sizes("llama", R"("architectures": ["LlamaForSequenceClassification"])")),
            "unsupported: config.json: architecture \"LlamaForSequenceClassification\" is not "
            "supported; for model_type 'llama': LlamaForCausalLM");
  EXPECT_EQ(
      parse_error(sizes("llama", R"("quantization_config": {"quant_method": "awq"})")),
      "unsupported: config.json: 'quantization_config': quant_method \"awq\" is not supported; "
      "supported: compressed-tensors, fp8, fbgemm_fp8 and modelopt, of weights in FP8; or take "
      "the checkpoint before it was quantized");
}

TEST(Config, TakesAQuantizationOfKAndVAlone) {
  const char* const kScheme = R"("quantization_config": {"quant_method": "compressed-tensors",
    "kv_cache_scheme": {"num_bits": 8, "type": "float"}, "config_groups": )";
  EXPECT_EQ(parse_error(sizes("llama", std::string(kScheme) + "{}}")), "");
  EXPECT_NE(parse_error(sizes("llama", std::string(kScheme) + R"({"group_0": {}}})")), "");
}

std::vector<float> frequencies_of(std::string_view name) {
  const ModelConfig model = preset(name).value();
  return inv_freq(model.ropes.at(0), model.head_dim, model.max_position_embeddings);
}

TEST(InvFreq, MatchesTheReferenceUnderEveryScaling) {
  const auto expect = [](const std::vector<float>& found,
                         std::initializer_list<std::pair<int, float>> golden) {
    for (const auto& [i, value] : golden)
      EXPECT_FLOAT_EQ(found[static_cast<size_t>(i)], value) << i;
  };
  const std::vector<float> llama_1b = frequencies_of("llama-3.2-1b");
  ASSERT_EQ(llama_1b.size(), 32U);
  expect(llama_1b, {{0, 1.0F},
                    {1, 0.663601279F},
                    {8, 0.0376060307F},
                    {13, 0.00483942125F},
                    {16, 0.000429556705F},
                    {19, 1.29147675e-05F},
                    {22, 3.77405445e-06F},
                    {31, 9.41830649e-08F}});
  expect(frequencies_of("llama-3.1-8b"), {{1, 0.814617217F},
                                          {29, 0.00216657063F},
                                          {32, 0.000524846022F},
                                          {35, 9.55621217e-05F},
                                          {38, 5.16590699e-05F},
                                          {63, 3.06892588e-07F}});
  expect(frequencies_of("qwen3-8b"),
         {{1, 0.805842221F}, {16, 0.0316227786F}, {32, 0.00100000005F}, {63, 1.24093776e-06F}});
  const Rope linear{.theta = 1e6, .scaling = RopeScaling::kLinear, .factor = 4};
  expect(inv_freq(linear, 128, 4096),
         {{0, 0.25F}, {1, 0.805842221F / 4}, {63, 1.24093776e-06F / 4}});
}

TEST(Preset, HasSoundNumbersUnderEveryName) {
  for (const std::string_view name : preset_names()) {
    const ModelConfig model = preset(name).value();
    EXPECT_EQ(model.num_heads % model.num_kv_heads, 0) << name;
    EXPECT_EQ(model.ropes.size(), 1U) << name;
    EXPECT_FALSE(model.eos_token_ids.empty()) << name;
    EXPECT_TRUE(model.bos_token_id) << name;
  }
  EXPECT_EQ(preset("gpt-2"), std::nullopt);
}

}  // namespace
}  // namespace encore::model
