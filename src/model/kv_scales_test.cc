#include "model/kv_scales.h"

#include <cmath>

#include <gtest/gtest.h>

#include "model/testing/checkpoint_fixture.h"
#include "model/testing/small_config.h"

namespace encore::model {
namespace {

// The tiny Llama of one layer, with tensors of its attention added, each element of one `value`.
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

TEST(KvScales, KeepLargeBiasesWithinEightBits) {
  // Heads of 4: a turned pair is as long as sqrt(2) * 400, twice that is below 4 * 448.
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

// The factor of the weight with that value name; 0 for a weight that the graph lacks.
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
