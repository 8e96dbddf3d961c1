// Tests how config.json of each family is read. tools/parity.py shows that whole models of these
// families compute the same as their references.
#include "model/families.h"

#include <cmath>

#include <gtest/gtest.h>

#include "model/testing/checkpoint_fixture.h"

namespace encore::model {
namespace {

ModelConfig parse_family(const std::string& model_type, const std::string& more = "") {
  const json::value value = json::parse(R"({"model_type": ")" + model_type +
                                            R"(", "hidden_size": 128, "num_hidden_layers": 4,
          "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 1000)" +
                                            (more.empty() ? "" : ", " + more) + "}",
                                        "config.json");
  return parse_config(json::Object(value, "config.json"), nullptr);
}

std::string family_error(const std::string& model_type, const std::string& more) {
  return error_of([&] { return parse_family(model_type, more); });
}

using LayerWindows = std::vector<std::optional<int64_t>>;
LayerWindows layer_windows(const ModelConfig& config) {
  LayerWindows found;
  for (const LayerKind& layer : config.layers)
    found.push_back(layer.window);
  return found;
}

TEST(Families, Gemma2HasCapsOffsetsAndAWindowInEverySecondLayer) {
  const ModelConfig c = parse_family("gemma2", R"("query_pre_attn_scalar": 64)");
  EXPECT_EQ(c.architecture, "Gemma2ForCausalLM");
  EXPECT_EQ(layer_windows(c), (LayerWindows{4096, std::nullopt, 4096, std::nullopt}));
  EXPECT_EQ(c.norm_offset, 1);
  EXPECT_EQ(c.activation, Activation::kGeluTanh);
  EXPECT_EQ(c.attention_scale, 1.0 / 8);
  EXPECT_EQ(c.attention_softcap, 50);
  EXPECT_EQ(c.logits_softcap, 30);
  EXPECT_EQ(c.embedding_scale, std::sqrt(128.0));
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_FALSE(c.qk_norm);
  EXPECT_EQ(parse_family("gemma2", R"("attn_logit_softcapping": null)").attention_softcap,
            std::nullopt);
}

TEST(Families, Gemma3TurnsLayersWithAWindowByABaseOfTheirOwn) {
  for (const std::string ropes : {R"("rope_theta": 500000, "rope_local_base_freq": 20000,
           "rope_scaling": {"rope_type": "linear", "factor": 8})",
                                  R"("rope_parameters": {
           "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 500000},
           "sliding_attention": {"rope_type": "default", "rope_theta": 20000}})"}) {
    const ModelConfig c = parse_family(
        "gemma3_text", ropes + R"(, "sliding_window_pattern": 2, "sliding_window": 9)");
    EXPECT_EQ(layer_windows(c), (LayerWindows{9, std::nullopt, 9, std::nullopt}));
    ASSERT_EQ(c.ropes.size(), 2U);
    EXPECT_EQ(c.ropes[0], (Rope{.theta = 500000, .scaling = RopeScaling::kLinear, .factor = 8}));
    EXPECT_EQ(c.ropes[1], Rope{.theta = 20000});
    EXPECT_EQ(c.layers[0].rope, 1U);
    EXPECT_EQ(c.layers[1].rope, 0U);
    EXPECT_TRUE(c.qk_norm);
    EXPECT_EQ(c.attention_softcap, std::nullopt);
  }
}

TEST(Families, TextModelsAreReadOutOfModelsOfSeveralKindsOfInput) {
  const json::value value = json::parse(R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
    "eos_token_id": [1, 106], "torch_dtype": "float16", "vision_config": {},
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
                    "num_hidden_layers": 34, "sliding_window": 1024}})",
                                        "config.json");
  const ModelConfig c = parse_config(json::Object(value, "config.json"), nullptr);
  EXPECT_EQ(c.architecture, "Gemma3ForCausalLM");
  EXPECT_EQ(c.num_layers(), 34);
  EXPECT_EQ(c.num_heads, 8);
  EXPECT_EQ(c.vocab_size, 262208);
  EXPECT_EQ(c.eos_token_ids, (std::vector<int32_t>{1, 106}));
  EXPECT_EQ(c.dtype, DType::kF16);
  EXPECT_EQ(c.layers[5].window, std::nullopt);
  EXPECT_EQ(c.layers[6].window, 1024);
}

TEST(Families, Phi3TurnsPartOfAHeadByLongrope) {
  const std::string longrope = R"("partial_rotary_factor": 0.75, "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096, "sliding_window": 262144, "rope_scaling": {
    "type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    "long_factor": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]})";
  const ModelConfig c = parse_family("phi3", longrope);
  EXPECT_TRUE(c.merged_qkv && c.merged_gate_up);
  EXPECT_EQ(c.layers[3].window, 262144);
  EXPECT_EQ(c.ropes[0].rotary_dim, 24);
  EXPECT_EQ(c.ropes[0].scaling, RopeScaling::kLongrope);
  EXPECT_EQ(c.ropes[0].original_max_position_embeddings, 4096);
  EXPECT_NEAR(c.ropes[0].attention_factor, 1.1902380714238083, 1e-12);
  EXPECT_EQ(c.ropes[0].long_factor.back(), 12);
  EXPECT_EQ(parse_family("phi3").layers[0].window, std::nullopt);
  EXPECT_NE(family_error("phi3", R"("partial_rotary_factor": 1e30)"), "");
  // With a factor of 0.1, RoPE would rotate 3 of a head's 32 elements, which is an odd number.
  EXPECT_NE(family_error("phi3", R"("partial_rotary_factor": 0.1)"), "");
  EXPECT_EQ(family_error("phi3", R"("rope_scaling": {"type": "su", "short_factor": [1],
                                     "long_factor": [1]})"),
            "model: config.json: 'rope_scaling': key 'short_factor' must have 16 numbers, one of "
            "each pair, not 1");
}

TEST(Families, SmolLm3LeavesOutRotationsAndMaySlideThere) {
  const ModelConfig c = parse_family("smollm3", R"("num_key_value_heads": 4)");
  EXPECT_TRUE(c.layers[2].rope.has_value());
  EXPECT_FALSE(c.layers[3].rope.has_value());
  EXPECT_EQ(layer_windows(c), LayerWindows(4));
  const ModelConfig listed =
      parse_family("smollm3", R"("no_rope_layers": [0, 1, 1, 0], "use_sliding_window": true,
                                 "sliding_window": 7)");
  EXPECT_FALSE(listed.layers[0].rope.has_value());
  EXPECT_TRUE(listed.layers[1].rope.has_value());
  EXPECT_EQ(layer_windows(listed), (LayerWindows{7, std::nullopt, std::nullopt, 7}));
  EXPECT_NE(family_error("smollm3", R"("no_rope_layers": [0, 1])"), "");
}

TEST(Families, GraniteAndGlm4HaveTheirScalesAndOrders) {
  const ModelConfig granite =
      parse_family("granite", R"("embedding_multiplier": 12, "attention_multiplier": 0.015625,
                    "residual_multiplier": 0.22, "logits_scaling": 8)");
  EXPECT_EQ(granite.embedding_scale, 12);
  EXPECT_EQ(granite.attention_scale, 0.015625);
  EXPECT_EQ(granite.residual_scale, 0.22);
  EXPECT_EQ(granite.logits_scale, 0.125);
  const ModelConfig glm4 = parse_family("glm4");
  EXPECT_EQ(glm4.ropes[0].rotary_dim, 64);
  EXPECT_TRUE(glm4.ropes[0].interleaved && glm4.merged_gate_up && glm4.qkv_bias);
  EXPECT_FALSE(glm4.merged_qkv || glm4.o_bias);
}

std::string mlp_kinds(const ModelConfig& config) {
  std::string kinds;
  for (const LayerKind& layer : config.layers)
    kinds += layer.mlp == MlpKind::kExperts ? 'E' : 'D';
  return kinds;
}

TEST(Families, Qwen3MoeHasDenseLayersAmongExperts) {
  const ModelConfig c = parse_family(
      "qwen3_moe", R"("num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48)");
  EXPECT_EQ(c.architecture, "Qwen3MoeForCausalLM");
  EXPECT_EQ(mlp_kinds(c), "EEEE");
  EXPECT_EQ(c.experts,
            (Experts{.num_experts = 8, .num_experts_per_tok = 3, .intermediate_size = 48}));
  EXPECT_TRUE(c.qk_norm);
  EXPECT_EQ(layer_windows(c), LayerWindows(4));
  // Absent keys take the reference implementation's defaults, which differ from the values in
  // published checkpoints.
  const ModelConfig silent = parse_family("qwen3_moe", "");
  EXPECT_EQ(silent.experts,
            (Experts{.num_experts = 128, .num_experts_per_tok = 8, .intermediate_size = 768}));
  const ModelConfig sparse = parse_family(
      "qwen3_moe", R"("decoder_sparse_step": 2, "norm_topk_prob": true, "mlp_only_layers": [3])");
  EXPECT_EQ(mlp_kinds(sparse), "DEDD");
  EXPECT_TRUE(sparse.experts->norm_topk_prob);
  const ModelConfig slides =
      parse_family("qwen3_moe", R"("use_sliding_window": true, "sliding_window": 9)");
  EXPECT_EQ(layer_windows(slides), (LayerWindows{9, 9, 9, 9}));
  const ModelConfig dense = parse_family("qwen3_moe", R"("num_experts": 0)");
  EXPECT_EQ(mlp_kinds(dense), "DDDD");
  EXPECT_FALSE(dense.experts.has_value());
  EXPECT_NE(family_error("qwen3_moe", R"("num_experts": 4, "num_experts_per_tok": 5)"), "");
  EXPECT_NE(family_error("qwen3_moe", R"("mlp_only_layers": ["0"])"), "");
}

TEST(Families, MixtralAndGlm45HaveRoutersOfTheirOwn) {
  const ModelConfig mixtral =
      parse_family("mixtral", R"("num_local_experts": 4, "num_key_value_heads": 4)");
  EXPECT_EQ(mlp_kinds(mixtral), "EEEE");
  EXPECT_EQ(mixtral.experts, (Experts{.num_experts = 4,
                                      .num_experts_per_tok = 2,
                                      .intermediate_size = 256,
                                      .norm_topk_prob = true,
                                      .names = {"block_sparse_moe", "w1", "w3", "w2"}}));
  EXPECT_EQ(layer_windows(mixtral), LayerWindows(4));
  EXPECT_EQ(mixtral.ropes[0].theta, 1e6);
  const ModelConfig glm =
      parse_family("glm4_moe", R"("num_key_value_heads": 4, "n_routed_experts": 12, "n_group": 3,
      "topk_group": 2, "num_experts_per_tok": 5, "moe_intermediate_size": 40, "n_shared_experts": 2,
      "routed_scaling_factor": 2.5, "first_k_dense_replace": 2)");
  EXPECT_EQ(mlp_kinds(glm), "DDEE");
  EXPECT_EQ(glm.experts, (Experts{.num_experts = 12,
                                  .num_experts_per_tok = 5,
                                  .intermediate_size = 40,
                                  .norm_topk_prob = true,
                                  .sigmoid = true,
                                  .correction_bias = true,
                                  .groups = 3,
                                  .groups_kept = 2,
                                  .scaling_factor = 2.5,
                                  .shared_size = 80}));
  EXPECT_FALSE(glm.qk_norm || glm.qkv_bias);
  EXPECT_TRUE(parse_family("glm4_moe", R"("num_key_value_heads": 4, "use_qk_norm": true)").qk_norm);
  for (const char* groups : {R"("n_group": 5)", R"("n_group": 3, "topk_group": 1)"}) {
    const std::string error = family_error(
        "glm4_moe", std::string(R"("num_key_value_heads": 4, "n_routed_experts": 12, )") + groups);
    EXPECT_NE(error.find("experts per token"), std::string::npos) << error;
  }
}

TEST(Families, StretchSequencesByDynamicRope) {
  const ModelConfig c = parse_family("llama", R"("max_position_embeddings": 4096,
    "rope_scaling": {"type": "dynamic", "factor": 2.5})");
  EXPECT_EQ(longest_sequence(c), 10240);
  EXPECT_EQ(longest_sequence(parse_family("mistral", R"("num_key_value_heads": 4)")), 131072);
}

}  // namespace
}  // namespace encore::model
