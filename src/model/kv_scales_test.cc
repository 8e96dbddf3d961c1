#include "model/kv_scales.h"

#include <cmath>

#include <gtest/gtest.h>

#include "model/format/weight_formats.h"
#include "model/testing/checkpoint_fixture.h"
#include "model/testing/small_config.h"
#include "model/testing/typed_tensors.h"

namespace encore::model {
namespace {

// Describes a tensor of attention that is added to the tiny Llama of one layer. All its elements
// are `value`.
struct Added {
  std::string name;  // behind "self_attn."
  Shape shape;
  float value;
};

std::vector<KvScale> scales_with(const std::vector<Added>& added) {
  NamedShapes tensors = tiny_llama_tensors();
  const size_t num_own = tensors.size();
  for (const Added& one : added)
    tensors.emplace_back("model.layers.0.self_attn." + one.name, one.shape);
  const TempDir dir;
  (void)dir.write("config.json", kTinyLlamaConfig);
  (void)dir.write("model.safetensors", safetensors_f32(tensors, [&](size_t n, int64_t) {
                    return n < num_own ? 1.0F : added[n - num_own].value;
                  }));
  return read_kv_scales(Checkpoint(dir.path()));
}

TEST(KvScales, AreOneWithoutScalesOrBiases) {
  const auto scales = scales_with({});
  ASSERT_EQ(scales.size(), 1U);
  EXPECT_EQ(scales[0].k, 1);
  EXPECT_EQ(scales[0].v, 1);
}

TEST(KvScales, AreTheCheckpointsRoundedUpToAPowerOfTwo) {
  const auto scales = scales_with({{"k_scale", {}, 0.3F}, {"v_scale", {1}, 4}});
  EXPECT_EQ(scales[0].k, 0.5);
  EXPECT_EQ(scales[0].v, 4);
}

TEST(KvScales, AreFoundUnderTheNamesThatQuantizersGiveThem) {
  for (const char* name : {"k_scale", "k_proj.k_scale", "k_proj.output_scale", "kv_scale"})
    EXPECT_EQ(scales_with({{name, {1}, 8}})[0].k, 8) << name;
  for (const char* name : {"v_scale", "v_proj.v_scale", "v_proj.output_scale", "kv_scale"})
    EXPECT_EQ(scales_with({{name, {1}, 8}})[0].v, 8) << name;
}

// Covers vllm-project/vllm issues 25047 and 41343: a scheme declares scales whose tensors are
// absent or have other names.
TEST(KvScales, AreMissedWhereAConfigurationDeclaresThem) {
  const auto missing = [](const std::string& quantization, const char* scale) {
    const TempDir dir;
    NamedShapes tensors = tiny_llama_tensors();
    if (scale != nullptr)
      tensors.emplace_back("model.layers.0.self_attn." + std::string(scale), Shape{});
    std::string config = kTinyLlamaConfig;
    replace(config, "\"vocab_size\"",
            "\"quantization_config\": " + quantization + ", \"vocab_size\"");
    (void)dir.write("config.json", config);
    (void)dir.write("model.safetensors",
                    safetensors_f32(tensors, [](size_t, int64_t) { return 1.0F; }));
    return missing_kv_scales(Checkpoint(dir.path())).value_or("");
  };
  const std::string declared =
      R"({"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": {"num_bits": 8, "type": "float"}})";
  EXPECT_NE(missing(declared, nullptr).find("'kv_cache_scheme' says"), std::string::npos);
  EXPECT_NE(missing(declared, "k_scales"), "");
  EXPECT_EQ(missing(declared, "k_proj.k_scale"), "");
  EXPECT_EQ(missing(R"({"quant_method": "fbgemm_fp8"})", nullptr), "");
}

TEST(KvScales, KeepLargeBiasesWithinEightBits) {
  // A rotated pair of K's bias has the length sqrt(2) * 400 = 566. Twice that, 1131, divided by the
  // largest number of 8 bits, 448, is 2.5, which is rounded up to the power of two 4. V is not
  // rotated: for its bias, 2 * 300 / 448 = 1.3 is rounded up to 2.
  const auto scales = scales_with({{"k_proj.bias", {4}, 400}, {"v_proj.bias", {4}, 300}});
  EXPECT_EQ(scales[0].k, 4);
  EXPECT_EQ(scales[0].v, 2);
  EXPECT_EQ(scales_with({{"k_proj.bias", {4}, 400}, {"k_scale", {}, 1}})[0].k, 1);
  EXPECT_EQ(scales_with({{"k_proj.bias", {4}, 0.5F}})[0].k, 1);
}

TEST(KvScales, AreRefusedUnlessPositiveNumbers) {
  for (const float value : {0.0F, -1.0F, INFINITY, NAN}) {
    const std::string error = error_of([&] { return scales_with({{"v_scale", {}, value}}); });
    EXPECT_NE(error.find("'model.layers.0.self_attn.v_scale' must be one positive number"),
              std::string::npos)
        << error;
  }
  EXPECT_NE(error_of([] { return scales_with({{"k_scale", {2}, 1}}); }), "");
}

// The tiny Llama has one head of K and V, so two scales do not fit it. The small model below has
// two such heads.
TEST(KvScales, OfHeadsAreTheLargestAndSharesOfIt) {
  const TempDir dir;
  NamedShapes tensors = tiny_llama_tensors();
  const size_t num_own = tensors.size();
  std::string config = kTinyLlamaConfig;
  replace(config, "\"num_key_value_heads\": 1", "\"num_key_value_heads\": 2");
  tensors.emplace_back("model.layers.0.self_attn.k_scale", Shape{2, 1, 1});
  tensors.emplace_back("model.layers.0.self_attn.v_scale", Shape{2, 1, 1});
  (void)dir.write("config.json", config);
  (void)dir.write("model.safetensors", safetensors_f32(tensors, [&](size_t n, int64_t i) {
                    return n < num_own ? 1.0F : n == num_own ? (i == 0 ? 0.3F : 3.0F) : 0.25F;
                  }));
  std::vector<KvScale> scales = read_kv_scales(Checkpoint(dir.path()));
  EXPECT_EQ(scales[0].k, 4);
  EXPECT_EQ(scales[0].k_shares, (std::vector<double>{0.125, 1}));
  EXPECT_EQ(scales[0].v, 0.25);
  EXPECT_TRUE(scales[0].v_shares.empty()) << "heads that are alike have one scale";
  drop_shares(scales);
  EXPECT_EQ(scales[0].k, 4);
  EXPECT_TRUE(scales[0].k_shares.empty());
}

// Returns the factor of the weight with that value name, or 0 if the graph lacks the weight.
double factor_of(const ir::Graph& graph, const std::string& name) {
  const auto weight = graph.find_value("model.layers.1.self_attn." + name);
  return weight ? graph.value(*weight).recipe.pieces.at(0).factor : 0;
}

ir::Graph scaled_graph(const ModelConfig& config) {
  GraphOptions options{.kv_dtype = DType::kFP8, .num_pages = 8, .max_seq_len = 64};
  options.kv_scales = {{1, 1}, {4, 0.5}};
  return build_graph(config, options);
}

TEST(KvScales, GoIntoTheWeightsAroundTheCacheAndIntoAttention) {
  ModelConfig config = small_config("Qwen2ForCausalLM", 2);
  config.qkv_bias = true;
  const ir::Graph graph = scaled_graph(config);
  EXPECT_EQ(factor_of(graph, "q_proj.weight"), 1);
  EXPECT_EQ(factor_of(graph, "k_proj.weight"), 0.25);
  EXPECT_EQ(factor_of(graph, "k_proj.bias"), 0.25);
  EXPECT_EQ(factor_of(graph, "v_proj.weight"), 2);
  EXPECT_EQ(factor_of(graph, "v_proj.bias"), 2);
  EXPECT_EQ(factor_of(graph, "o_proj.weight"), 0.5);
  std::vector<double> of_attention;
  for (const ir::Node& node : graph.nodes())
    if (node.op->name == "attention") of_attention.push_back(node.attrs.get_double("scale"));
  EXPECT_EQ(of_attention, (std::vector<double>{0.25, 1}));
}

TEST(KvScales, GoIntoTheNormOfKeysWhereThereIsOne) {
  ModelConfig config = small_config("Qwen3ForCausalLM", 2);
  config.qk_norm = true;
  const ir::Graph graph = scaled_graph(config);
  EXPECT_EQ(factor_of(graph, "k_norm.weight"), 0.25);
  EXPECT_EQ(factor_of(graph, "k_proj.weight"), 1);
  EXPECT_EQ(factor_of(graph, "v_proj.weight"), 2);
}

// Returns the rows and factors of the pieces of a weight of layer 0.
std::vector<std::pair<int64_t, double>> row_factors(const ir::Graph& graph,
                                                    const std::string& name) {
  std::vector<std::pair<int64_t, double>> result;
  const auto weight = graph.find_value("model.layers.0.self_attn." + name);
  for (const ir::WeightPiece& piece : graph.value(*weight).recipe.pieces)
    result.emplace_back(piece.rows ? piece.rows->last - piece.rows->first : 0, piece.factor);
  return result;
}

GraphOptions options_with_shares() {
  GraphOptions options{.kv_dtype = DType::kFP8, .num_pages = 8, .max_seq_len = 64};
  options.kv_scales = {{.k = 4, .v = 2, .k_shares = {1, 0.25}, .v_shares = {0.5, 1}}};
  return options;
}

using RowFactors = std::vector<std::pair<int64_t, double>>;

// The model has two heads of K and V, with 16 rows each, and four heads of queries.
TEST(KvScales, OfHeadsGoIntoRowsAndIntoColumnsOfTheOutput) {
  ModelConfig config = small_config("Qwen2ForCausalLM", 1);
  config.qkv_bias = true;
  const GraphOptions options = options_with_shares();
  const ir::Graph graph = build_graph(config, options);
  EXPECT_EQ(row_factors(graph, "k_proj.weight"), (RowFactors{{16, 0.25}, {16, 1}}));
  EXPECT_EQ(row_factors(graph, "k_proj.bias"), (RowFactors{{16, 0.25}, {16, 1}}));
  EXPECT_EQ(row_factors(graph, "q_proj.weight"), (RowFactors{{32, 1}, {32, 0.25}}));
  EXPECT_EQ(row_factors(graph, "q_proj.bias"), (RowFactors{{32, 1}, {32, 0.25}}));
  EXPECT_EQ(row_factors(graph, "v_proj.weight"), (RowFactors{{16, 1}, {16, 0.5}}));
  const auto& output = graph.value(*graph.find_value("model.layers.0.self_attn.o_proj.weight"));
  EXPECT_EQ(output.recipe.pieces.at(0).transform, (ir::WeightTransform{"scale_columns", {-1, 0}}));
  EXPECT_EQ(output.recipe.pieces.at(0).factor, 2);
  // The graph that scores prompts finds the weight by its recipe too.
  const ir::Graph scores = build_score_graph(config, options, 16);
  const auto& shared = scores.value(*scores.find_value("model.layers.0.self_attn.o_proj.weight"));
  EXPECT_EQ(shared.recipe, output.recipe);
}

TEST(KvScales, OfHeadsAreTheLargestWhereAWeightCannotTakeShares) {
  ModelConfig config = small_config("Qwen3ForCausalLM", 1);
  config.qk_norm = true;
  config.quantization = quantized_at_load();
  const WeightFormats formats(config, {}, nullptr);
  GraphOptions options = options_with_shares();
  options.formats = &formats;
  const ir::Graph graph = build_graph(config, options);
  EXPECT_EQ(row_factors(graph, "k_norm.weight"), (RowFactors{{0, 0.25}}));
  EXPECT_EQ(row_factors(graph, "q_proj.scale"), (RowFactors{{0, 1}}));
  EXPECT_EQ(row_factors(graph, "v_proj.scale"), (RowFactors{{0, 0.5}}));
  EXPECT_EQ(row_factors(graph, "o_proj.scale"), (RowFactors{{0, 2}}));
}

// The input of the output projection is divided by V's scale, so its static scale must be too.
TEST(KvScales, DivideTheStaticScaleOfWhatTheOutputTakes) {
  const std::string o = "model.layers.0.self_attn.o_proj";
  ModelConfig config = small_config("LlamaForCausalLM", 1);
  TempDir dir;
  std::vector<TypedTensor> tensors;
  for (const auto& [name, rows, columns] : {std::tuple{"self_attn.q_proj", 64, 64},
                                            {"self_attn.k_proj", 32, 64},
                                            {"self_attn.v_proj", 32, 64},
                                            {"self_attn.o_proj", 64, 64},
                                            {"mlp.gate_proj", 96, 64},
                                            {"mlp.up_proj", 96, 64},
                                            {"mlp.down_proj", 64, 96}}) {
    const std::string module = std::string("model.layers.0.") + name;
    tensors.push_back({module + ".weight", DType::kFP8, {rows, columns}, {1}});
    tensors.push_back({module + ".weight_scale", DType::kF32, {}, {1}});
    tensors.push_back({module + ".input_scale", DType::kF32, {}, {0.5F}});
  }
  std::string text = kTinyLlamaConfig;
  replace(
      text, "\"vocab_size\"",
      R"("quantization_config": {"quant_method": "fp8", "activation_scheme": "static"}, "vocab_size")");
  (void)dir.write("config.json", text);
  (void)dir.write("model.safetensors", safetensors(tensors));
  const Checkpoint checkpoint(dir.path());
  config.quantization = checkpoint.config().quantization;
  const WeightFormats formats(config, {.activations = Activations::kStatic}, &checkpoint);
  GraphOptions options = options_with_shares();
  options.formats = &formats;
  const ir::Graph graph = build_graph(config, options);
  int num_products = 0;
  for (const ir::Node& node : graph.nodes()) {
    if (node.attrs.find("x_scale") == nullptr) continue;
    ++num_products;
    const bool is_output = node.inputs["weight"] == *graph.find_value(o + ".weight");
    EXPECT_EQ(node.attrs.get_double("x_scale"), is_output ? 0.25 : 0.5);
  }
  EXPECT_EQ(num_products, 7);
  EXPECT_EQ(row_factors(graph, "v_proj.scale"), (RowFactors{{0, 0.5}})) << "one for all heads";
}

TEST(KvScales, AreAnErrorWhereAWeightThatTakesThemIsMissing) {
  ir::Graph graph("of_other_names");
  const std::vector<KvScale> ones = {{1, 1}};
  scale_kv_weights(graph, ones);
  const std::vector<KvScale> scales = {{1, 1}, {1, 2}};
  const std::string error = error_of([&] { scale_kv_weights(graph, scales); });
  EXPECT_NE(error.find("'model.layers.1.self_attn.v_proj.weight'"), std::string::npos) << error;
}

}  // namespace
}  // namespace encore::model
