#include "model/graph.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "listing/listing.h"
#include "model/format/weight_formats.h"
#include "model/testing/small_config.h"
#include "model/trace.h"
#include "ops/ops.h"

namespace encore::model {
namespace {

ModelConfig qwen3() {
  ModelConfig config = small_config("Qwen3ForCausalLM", 1);
  config.qk_norm = true;
  config.tie_word_embeddings = true;
  return config;
}

constexpr GraphOptions kOptions{.num_pages = 8, .page_size = 16, .max_seq_len = 64};

TEST(BuildGraph, MakesVerifiedGraphsOfEveryPresetInEveryDtype) {
  for (const std::string_view name : preset_names()) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      GraphOptions options = kOptions;
      options.dtype = dtype;
      const ModelConfig config = *preset(name);
      EXPECT_NO_THROW(ir::verify(build_graph(config, options))) << name;
    }
  }
}

TEST(BuildGraph, KeepsKvInTheDtypeAskedForAndComputesInTheModels) {
  GraphOptions options = kOptions;
  options.kv_dtype = DType::kFP8;
  const ir::Graph graph = build_graph(small_config("LlamaForCausalLM", 1), options);
  EXPECT_NO_THROW(ir::verify(graph));
  for (const ir::ValueId state : graph.values_of_kind(ir::ValueKind::kState))
    EXPECT_EQ(graph.value(state).type.dtype, DType::kFP8) << graph.value(state).name;
  for (const ir::Node& node : graph.nodes()) {
    if (node.op->name != "attention") continue;
    EXPECT_EQ(graph.value(node.outputs["o"]).type.dtype, DType::kBF16);
  }
  EXPECT_EQ(listing::print(listing::parse(listing::print(graph), ops::standard())),
            listing::print(graph));
}

TEST(BuildGraph, TakesTheInputsOfTheTableAndNoOthers) {
  GraphOptions options = kOptions;
  options.lora = LoraShape{.num_slots = 1, .max_rank = 8, .projections = {"q_proj"}};
  options.num_window_pages = 4;
  ModelConfig config = small_config("LlamaForCausalLM", 1);
  config.layers[0].window = 2;
  const ir::Graph graph = build_graph(config, options);
  std::map<std::string, std::string> of_graph;
  for (const ir::ValueId input : graph.values_of_kind(ir::ValueKind::kInput))
    of_graph[graph.value(input).name] = graph.value(input).type.to_string();
  std::map<std::string, std::string> of_table;
  for (const StepInput& input : kStepInputs)
    of_table[std::string(input.name)] = input.type().to_string();
  EXPECT_EQ(of_graph, of_table);
}

TEST(BuildGraph, GivesLogitsOfEveryTokenWhenAskedAndSamplesNothing) {
  GraphOptions options = kOptions;
  options.logits = LogitsRows::kAll;
  const ir::Graph graph = build_graph(small_config("LlamaForCausalLM", 1), options);
  ASSERT_EQ(graph.outputs().size(), 1U);
  EXPECT_EQ(graph.value(graph.outputs()[0]).type.to_string(), "f32[T,100]");
  EXPECT_FALSE(graph.find_value("temperature").has_value());
}

// In the last layer, only rows with logits are computed behind attention.
TEST(BuildGraph, LeavesTheRowsWithoutLogitsBehindTheLastAttention) {
  const ModelConfig config = small_config("LlamaForCausalLM", 3);
  const auto rows_by_op = [&](LogitsRows logits) {
    GraphOptions options = kOptions;
    options.logits = logits;
    const ir::Graph graph = build_graph(config, options);
    std::map<std::string, std::map<ir::Symbol, int>> rows;
    for (const ir::Node& node : graph.nodes())
      ++rows[node.op->name][graph.value(*node.outputs.begin()).type.rows()];
    return rows;
  };
  using Rows = std::map<ir::Symbol, int>;
  constexpr auto kTokens = ir::Symbol::kTokens;
  constexpr auto kSequences = ir::Symbol::kSequences;
  auto rows = rows_by_op(LogitsRows::kLast);
  EXPECT_EQ(rows["attention"], (Rows{{kTokens, 3}}));
  EXPECT_EQ(rows["linear"], (Rows{{kTokens, 3 * 7 - 4}, {kSequences, 4 + 1}}));
  EXPECT_EQ(rows["rms_norm"], (Rows{{kTokens, 3 * 2 - 1}, {kSequences, 2}}));
  rows = rows_by_op(LogitsRows::kAll);
  EXPECT_EQ(rows["linear"], (Rows{{kTokens, 3 * 7 + 1}}));
}

// Returns the nodes of an op, in the graph's order.
std::vector<const ir::Node*> nodes_of(const ir::Graph& graph, std::string_view op) {
  std::vector<const ir::Node*> found;
  for (const ir::Node& node : graph.nodes()) {
    if (node.op->name == op) found.push_back(&node);
  }
  return found;
}

// The pages of the model's window hold enough tokens for the first layer of the draft model, and
// too few for the second.
TEST(BuildGraph, ADraftModelsLayersHaveThePagesOfWindowsThatHoldWhatTheySee) {
  GraphOptions options = kOptions;
  options.num_drafts = 2;
  options.num_window_pages = 4;
  ModelConfig config = small_config("LlamaForCausalLM", 2);
  config.layers[0].window = 20;
  ModelConfig draft = small_config("LlamaForCausalLM", 3);
  draft.layers[0].window = 20;
  draft.layers[1].window = 21;
  options.draft = DraftModel{draft};
  const ir::Graph graph = build_graph(config, options);
  EXPECT_NO_THROW(ir::verify(graph));
  std::map<std::string, int> groups;
  for (const ir::ValueId state : graph.values_of_kind(ir::ValueKind::kState))
    groups[graph.value(state).name] = graph.value(state).group;
  const std::map<std::string, int> expected = {{"k_cache.0", 1},       {"v_cache.0", 1},
                                               {"k_cache.1", 0},       {"v_cache.1", 0},
                                               {"draft.k_cache.0", 1}, {"draft.v_cache.0", 1},
                                               {"draft.k_cache.1", 0}, {"draft.v_cache.1", 0},
                                               {"draft.k_cache.2", 0}, {"draft.v_cache.2", 0}};
  EXPECT_EQ(groups, expected);
  for (const ir::Node* node : nodes_of(graph, "extend_drafts"))
    EXPECT_NE(node->inputs.find("window_table"), nullptr);

  options.draft->config.layers[0].window = 21;
  const ir::Graph whole = build_graph(config, options);
  for (const ir::Node* node : nodes_of(whole, "extend_drafts"))
    EXPECT_EQ(node->inputs.find("window_table"), nullptr);
}

TEST(BuildGraph, GivesEachLayerItsWindowAndItsRotation) {
  ModelConfig config = small_config("LlamaForCausalLM", 4);
  config.ropes.push_back({.theta = 5});
  config.layers[0].window = 20;
  config.layers[1].window = 64;  // the window is as long as the longest sequence
  config.layers[2].rope = 1;
  config.layers[3].rope.reset();
  const ir::Graph graph = build_graph(config, kOptions);
  EXPECT_NO_THROW(ir::verify(graph));
  const auto attention = nodes_of(graph, "attention");
  ASSERT_EQ(attention.size(), 4U);
  EXPECT_EQ(attention[0]->attrs.get_int("window"), 20);
  for (const int i : {1, 2, 3})
    EXPECT_EQ(attention[i]->attrs.find("window"), nullptr) << i;
  std::vector<std::string> rotations;
  for (const ir::Node* node : nodes_of(graph, "rope"))
    rotations.push_back(graph.value(node->inputs["inv_freq"]).name);
  EXPECT_EQ(rotations, (std::vector<std::string>{"inv_freq", "inv_freq", "inv_freq", "inv_freq",
                                                 "inv_freq.1", "inv_freq.1"}));
}

TEST(BuildGraph, PutsScalesCapsAndOffsetsWhereTheyBelong) {
  ModelConfig config = small_config("Gemma3ForCausalLM", 2);
  config.qk_norm = true;
  config.norm_offset = 1;
  config.activation = Activation::kGeluTanh;
  config.embedding_scale = 11.3137085;
  config.attention_scale = 0.3;
  config.attention_softcap = 50;
  config.logits_softcap = 30;
  config.logits_scale = 0.125;
  config.residual_scale = 0.22;
  const ir::Graph graph = build_graph(config, kOptions);
  EXPECT_NO_THROW(ir::verify(graph));
  // The scale is rounded to bf16.
  EXPECT_EQ(nodes_of(graph, "embedding")[0]->attrs.get_double("scale"), 11.3125);
  EXPECT_EQ(nodes_of(graph, "rms_norm").size(), 2U * 6 + 1);
  for (const ir::Node* node : nodes_of(graph, "rms_norm"))
    EXPECT_EQ(node->attrs.get_double("offset"), 1);
  for (const ir::Node* node : nodes_of(graph, "attention")) {
    EXPECT_EQ(node->attrs.get_double("scale"), 0.3);
    EXPECT_EQ(node->attrs.get_double("softcap"), 50);
  }
  EXPECT_EQ(nodes_of(graph, "gelu_tanh").size(), 2U);
  EXPECT_EQ(nodes_of(graph, "silu").size(), 0U);
  EXPECT_EQ(nodes_of(graph, "softcap").at(0)->attrs.get_double("cap"), 30);
  const auto factor = [&](const char* name) {
    return graph.value(graph.find_value(name).value()).recipe.pieces.at(0).factor;
  };
  EXPECT_EQ(factor("model.norm.weight"), 0.125);
  EXPECT_EQ(factor("model.layers.1.self_attn.o_proj.weight"), 0.22);
  EXPECT_EQ(factor("model.layers.0.mlp.down_proj.weight"), 0.22);
  EXPECT_EQ(factor("model.layers.0.mlp.up_proj.weight"), 1);
}

// The rotation's attention_factor multiplies both q and k. If the whole head turns, attention's
// scale is multiplied by its square. Otherwise the rows of K's projection that turn are multiplied
// by the square.
TEST(BuildGraph, MultipliesScoresByTheFactorOfTheRotation) {
  ModelConfig config = small_config("Phi3ForCausalLM", 1);
  config.merged_qkv = config.merged_gate_up = true;
  config.ropes[0].attention_factor = 3;
  const auto scale_of = [](const ir::Graph& graph) {
    return nodes_of(graph, "attention").at(0)->attrs.get_double("scale");
  };
  ir::Graph graph = build_graph(config, kOptions);
  EXPECT_EQ(scale_of(graph), 9.0 / 4);
  using Rows = ir::WeightPiece::Range;
  const auto recipe = [&](const char* name) {
    return graph.value(graph.find_value(name).value()).recipe.pieces;
  };
  EXPECT_EQ(recipe("model.layers.0.self_attn.v_proj.weight"),
            (Pieces{{"model.layers.0.self_attn.qkv_proj.weight", Rows{96, 128}}}));
  EXPECT_EQ(recipe("model.layers.0.mlp.up_proj.weight"),
            (Pieces{{"model.layers.0.mlp.gate_up_proj.weight", Rows{96, 192}}}));
  config.ropes[0].rotary_dim = 8;
  graph = build_graph(config, kOptions);
  EXPECT_EQ(scale_of(graph), 1.0 / 4);
  EXPECT_EQ(recipe("model.layers.0.self_attn.k_proj.weight").at(0),
            (ir::WeightPiece{"model.layers.0.self_attn.qkv_proj.weight", Rows{64, 68}, 9}));
  EXPECT_EQ(recipe("model.layers.0.self_attn.k_proj.weight").at(1),
            (ir::WeightPiece{"model.layers.0.self_attn.qkv_proj.weight", Rows{72, 76}, 1}));
  // Here the whole head turns, but the checkpoint pairs neighbouring rows (interleaved).
  config.ropes[0].rotary_dim = 0;
  config.ropes[0].interleaved = true;
  graph = build_graph(config, kOptions);
  EXPECT_EQ(scale_of(graph), 9.0 / 4);
  for (const ir::WeightPiece& piece : recipe("model.layers.0.self_attn.k_proj.weight"))
    EXPECT_EQ(piece.factor, 1);
}

TEST(BuildGraph, BuildsEveryArchitecture) {
  for (const char* name : {"Gemma2", "Glm4", "Olmo2", "Phi3", "SmolLM3", "Granite", "SeedOss"}) {
    const ir::Graph graph =
        build_graph(small_config(std::string(name) + "ForCausalLM", 2), kOptions);
    EXPECT_NO_THROW(ir::verify(graph)) << name;
    EXPECT_EQ(nodes_of(graph, "attention").size(), 2U) << name;
  }
}

// `slots` mark padding among rows that are tokens. In the last layer, whose rows are sequences,
// `kv_lens` mark it.
TEST(BuildGraph, RoutesTheLiveRowsOfLayersThatHaveExperts) {
  ModelConfig config = small_config("Qwen3MoeForCausalLM", 3);
  config.qk_norm = true;
  config.residual_scale = 0.5;
  config.experts = Experts{
      .num_experts = 5, .num_experts_per_tok = 2, .intermediate_size = 24, .norm_topk_prob = true};
  config.layers[0].mlp = config.layers[2].mlp = MlpKind::kExperts;
  const ir::Graph graph = build_graph(config, kOptions);
  EXPECT_NO_THROW(ir::verify(graph));
  const auto routes = nodes_of(graph, "route");
  ASSERT_EQ(routes.size(), 2U);
  EXPECT_EQ(routes[0]->attrs,
            (ir::Attrs{{"top_k", int64_t{2}}, {"renormalize", int64_t{1}}, {"least", int64_t{0}}}));
  EXPECT_EQ(graph.value(routes[0]->inputs["live"]).name, "slots");
  EXPECT_EQ(graph.value(routes[1]->inputs["live"]).name, "kv_lens");
  EXPECT_EQ(routes[1]->attrs.get_int("least"), 1);
  EXPECT_EQ(graph.value(routes[1]->inputs["logits"]).type.to_string(), "f32[B,5]");
  EXPECT_TRUE(graph.find_value("model.layers.1.mlp.gate_proj.weight").has_value());
  const auto value = [&](const char* name) { return graph.value(graph.find_value(name).value()); };
  const ir::Value gate_up = value("model.layers.0.mlp.experts.gate_proj_up_proj.weight");
  EXPECT_EQ(gate_up.type.to_string(), "bf16[5,48,64]");
  ASSERT_EQ(gate_up.recipe.pieces.size(), 10U);
  EXPECT_EQ(gate_up.recipe.pieces[3].tensor, "model.layers.0.mlp.experts.1.up_proj.weight");
  const ir::Value down = value("model.layers.2.mlp.experts.down_proj.weight");
  EXPECT_EQ(down.type.to_string(), "bf16[5,64,24]");
  EXPECT_EQ(
      down.recipe.pieces.at(4),
      (ir::WeightPiece{.tensor = "model.layers.2.mlp.experts.4.down_proj.weight", .factor = 0.5}));
}

// Where only part of a head turns, kernels pair other rows than the checkpoint, so the rows of the
// projection are reordered. The weight of K's norm per head is reordered in the same way. Where the
// head turns, it is also multiplied by the square of the rotation's attention_factor, because a
// norm behind the projection would undo a factor in the projection's rows.
TEST(BuildGraph, OrdersTheNormsOfHeadsAsTheirRows) {
  ModelConfig config = small_config("Qwen3ForCausalLM", 1);
  config.qk_norm = true;
  config.ropes[0].rotary_dim = 8;
  config.ropes[0].attention_factor = 3;
  const ir::Graph graph = build_graph(config, kOptions);
  const auto recipe = [&](const char* name) {
    return graph.value(graph.find_value(name).value()).recipe.pieces;
  };
  Pieces rows = recipe("model.layers.0.self_attn.k_proj.weight");
  rows.resize(rows.size() / 2);  // rows of the first of two heads
  Pieces norm = recipe("model.layers.0.self_attn.k_norm.weight");
  ASSERT_EQ(norm.size(), rows.size());
  EXPECT_GT(norm.size(), 1U);
  for (size_t i = 0; i < norm.size(); ++i) {
    EXPECT_EQ(norm[i].rows, rows[i].rows);
    EXPECT_EQ(rows[i].factor, 1);
  }
  EXPECT_EQ(norm[0].factor, 9);
  EXPECT_EQ(recipe("model.layers.0.self_attn.q_norm.weight").at(0).factor, 1);
}

TEST(BuildGraph, AddsTheExpertsThatAllTokensPass) {
  ModelConfig config = small_config("Glm4MoeForCausalLM", 1);
  config.experts = Experts{.num_experts = 12,
                           .num_experts_per_tok = 5,
                           .intermediate_size = 24,
                           .sigmoid = true,
                           .correction_bias = true,
                           .groups = 3,
                           .groups_kept = 2,
                           .scaling_factor = 2.5,
                           .shared_size = 40};
  config.layers[0].mlp = MlpKind::kExperts;
  const ir::Graph graph = build_graph(config, kOptions);
  EXPECT_NO_THROW(ir::verify(graph));
  const ir::Node& route = *nodes_of(graph, "route").at(0);
  EXPECT_EQ(route.attrs, (ir::Attrs{{"top_k", int64_t{5}},
                                    {"renormalize", int64_t{0}},
                                    {"least", int64_t{1}},
                                    {"score", std::string("sigmoid")},
                                    {"groups", int64_t{3}},
                                    {"groups_kept", int64_t{2}},
                                    {"factor", 2.5}}));
  EXPECT_EQ(graph.value(route.inputs["bias"]).type.to_string(), "f32[12]");
  const auto type_of = [&](const std::string& name) {
    const auto value = graph.find_value("model.layers.0.mlp." + name);
    return value ? graph.value(*value).type.to_string() : "absent";
  };
  EXPECT_EQ(type_of("shared_experts.down_proj.weight"), "bf16[64,40]");
  EXPECT_EQ(type_of("experts.down_proj.weight"), "bf16[12,64,24]");
  const auto sum = nodes_of(graph, "add").back();
  EXPECT_EQ(graph.node(graph.value(sum->inputs["b"]).producer).op->name, "add");
}

// The router's weight stays a float.
TEST(BuildGraph, StacksExpertsInFp8WithTheirScales) {
  ModelConfig config = small_config("Qwen3MoeForCausalLM", 1);
  config.qk_norm = true;
  config.experts = Experts{.num_experts = 3, .num_experts_per_tok = 1, .intermediate_size = 200};
  config.layers[0].mlp = MlpKind::kExperts;
  const auto graph_of = [&](ScaleLayout scales) {
    config.quantization = quantized_at_load();
    config.quantization->groups[0].scheme.scales = scales;
    const WeightFormats formats(config, {}, nullptr);
    GraphOptions options = kOptions;
    options.formats = &formats;
    return build_graph(config, options);
  };
  const auto type_of = [](const ir::Graph& graph, const std::string& name) {
    const auto value = graph.find_value("model.layers.0.mlp." + name);
    return value ? graph.value(*value).type.to_string() : "absent";
  };
  const ir::Graph by_row = graph_of(ScaleLayout::kRow);
  EXPECT_EQ(type_of(by_row, "gate.weight"), "bf16[3,64]");
  EXPECT_EQ(type_of(by_row, "experts.gate_proj_up_proj.weight"), "fp8[3,400,64]");
  EXPECT_EQ(type_of(by_row, "experts.gate_proj_up_proj.scale"), "f32[3,400]");
  EXPECT_EQ(type_of(by_row, "experts.down_proj.scale"), "f32[3,64]");
  const ir::Graph by_block = graph_of(ScaleLayout::kBlock);
  EXPECT_EQ(type_of(by_block, "experts.gate_proj_up_proj.scale"), "f32[3,4,1]");
  EXPECT_EQ(type_of(by_block, "experts.down_proj.scale"), "f32[3,1,2]");
  EXPECT_NO_THROW(ir::verify(by_block));
  const std::string text = listing::print(by_row);
  EXPECT_NE(text.find("gate_proj_up_proj.scale: f32[3,400] = stack(3, "
                      "\"model.layers.0.mlp.experts.#.gate_proj.weight_scale\", "),
            std::string::npos)
      << text;
  EXPECT_EQ(listing::print(listing::parse(text, ops::standard())), text);
}

TEST(BuildGraph, RefusesExpertsOfDifferentFormats) {
  ModelConfig config = small_config("Qwen3MoeForCausalLM", 1);
  config.qk_norm = true;
  config.experts = Experts{.num_experts = 2, .num_experts_per_tok = 1, .intermediate_size = 24};
  config.layers[0].mlp = MlpKind::kExperts;
  config.quantization = quantized_at_load();
  config.quantization->ignored.emplace_back(ModulePattern::Kind::kWildcard, "*.experts.1.up_proj");
  const WeightFormats formats(config, {}, nullptr);
  GraphOptions options = kOptions;
  options.formats = &formats;
  const std::string message =
      message_of(ErrorKind::kUnsupported, [&] { (void)build_graph(config, options); });
  EXPECT_NE(message.find("'model.layers.0.mlp.experts.0.gate_proj.weight' and "
                         "'model.layers.0.mlp.experts.1.up_proj.weight' are stored in different"),
            std::string::npos)
      << message;
}

TEST(BuildGraph, RoundTripsThroughText) {
  const std::string text = listing::print(build_graph(qwen3(), kOptions));
  EXPECT_EQ(listing::print(listing::parse(text, ops::standard())), text);
}

TEST(BuildGraph, ListsTheArchitecturesItKnows) {
  const std::string message = message_of(ErrorKind::kUnsupported, [&] {
    (void)build_graph(small_config("GPT5ForCausalLM", 1), kOptions);
  });
  EXPECT_NE(message.find("Qwen3ForCausalLM"), std::string::npos) << message;
}

TEST(KvBytesPerToken, CountsBothCachesOfAllLayers) {
  EXPECT_EQ(kv_bytes_per_token(*preset("llama-3.1-8b"), DType::kBF16), 2 * 32 * 8 * 128 * 2);
  EXPECT_EQ(kv_bytes_per_token(*preset("llama-3.1-8b"), DType::kFP8), 2 * 32 * 8 * 128);
}

}  // namespace
}  // namespace encore::model
