#include "model/shard.h"

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "listing/listing.h"
#include "model/format/weight_formats.h"
#include "model/graph.h"
#include "model/lora/slots.h"
#include "model/testing/small_config.h"

namespace encore::model {
namespace {

ir::Graph graph_of(const ModelConfig& config, Rank rank) {
  return build_graph(config, {.dtype = DType::kF32, .rank = rank});
}

const std::vector<ir::WeightPiece>& pieces(const ir::Graph& graph, const std::string& name) {
  return graph.value(graph.find_value(name).value()).recipe.pieces;
}

using Range = ir::WeightPiece::Range;

TEST(Shard, DividesHeadsFeedForwardAndVocabulary) {
  const ModelConfig config = small_config("LlamaForCausalLM", 1);
  const ModelConfig share = share_of(config, {1, 2});
  EXPECT_EQ(share.num_heads, 2);
  EXPECT_EQ(share.num_kv_heads, 1);
  EXPECT_EQ(share.intermediate_size, 48);
  EXPECT_EQ(share.hidden_size, config.hidden_size);

  const ir::Graph graph = graph_of(config, {1, 2});
  const std::string layer = "model.layers.0.";
  EXPECT_EQ(pieces(graph, layer + "self_attn.q_proj.weight")[0].rows, (Range{32, 64}));
  EXPECT_EQ(pieces(graph, layer + "self_attn.v_proj.weight")[0].rows, (Range{16, 32}));
  EXPECT_EQ(pieces(graph, layer + "self_attn.o_proj.weight")[0].columns, (Range{32, 64}));
  EXPECT_EQ(pieces(graph, layer + "mlp.up_proj.weight")[0].rows, (Range{48, 96}));
  EXPECT_EQ(pieces(graph, layer + "mlp.down_proj.weight")[0].columns, (Range{48, 96}));
  EXPECT_EQ(pieces(graph, "model.embed_tokens.weight")[0].rows, (Range{50, 100}));
  EXPECT_EQ(pieces(graph, "lm_head.weight")[0].rows, (Range{50, 100}));
}

TEST(Shard, GivesRanksThatOutnumberTheHeadsOfKAndVTheSameOnes) {
  const ModelConfig config = small_config("LlamaForCausalLM", 1);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(share_of(config, {rank, 4}).num_kv_heads, 1);
    const ir::Graph graph = graph_of(config, {rank, 4});
    const int64_t head = rank / 2;
    EXPECT_EQ(pieces(graph, "model.layers.0.self_attn.k_proj.weight")[0].rows,
              (Range{16 * head, 16 * (head + 1)}));
    EXPECT_EQ(pieces(graph, "model.layers.0.self_attn.q_proj.weight")[0].rows,
              (Range{16 * rank, 16 * (rank + 1)}));
  }
}

TEST(Shard, TakesItsPartOfMergedTensors) {
  ModelConfig config = small_config("Phi3ForCausalLM", 1);
  config.merged_qkv = true;
  config.merged_gate_up = true;
  const ir::Graph graph = graph_of(config, {1, 2});
  const std::string attn = "model.layers.0.self_attn.";
  EXPECT_EQ(pieces(graph, attn + "q_proj.weight")[0].rows, (Range{32, 64}));
  EXPECT_EQ(pieces(graph, attn + "k_proj.weight")[0].rows, (Range{64 + 16, 64 + 32}));
  EXPECT_EQ(pieces(graph, attn + "v_proj.weight")[0].rows, (Range{96 + 16, 96 + 32}));
  EXPECT_EQ(pieces(graph, "model.layers.0.mlp.gate_proj.weight")[0].rows, (Range{48, 96}));
  EXPECT_EQ(pieces(graph, "model.layers.0.mlp.up_proj.weight")[0].rows, (Range{96 + 48, 192}));
}

TEST(Shard, TakesItsPartOfEveryExpert) {
  ModelConfig config = small_config("Qwen3MoeForCausalLM", 1);
  config.layers[0].mlp = MlpKind::kExperts;
  config.experts = Experts{.num_experts = 3, .num_experts_per_tok = 2, .intermediate_size = 64};
  const ir::Graph graph = graph_of(config, {1, 2});
  const std::string experts = "model.layers.0.mlp.experts.";
  for (const ir::WeightPiece& piece : pieces(graph, experts + "gate_proj_up_proj.weight"))
    EXPECT_EQ(piece.rows, (Range{32, 64}));
  for (const ir::WeightPiece& piece : pieces(graph, experts + "down_proj.weight")) {
    EXPECT_EQ(piece.columns, (Range{32, 64}));
    EXPECT_EQ(piece.rows, std::nullopt);
  }
  EXPECT_EQ(pieces(graph, "model.layers.0.mlp.gate.weight")[0].rows, std::nullopt);
}

TEST(Shard, AddsTheBiasOfASumOnce) {
  ModelConfig config = small_config("LlamaForCausalLM", 1);
  config.o_bias = true;
  for (const int rank : {0, 1}) {
    const ir::Graph graph = graph_of(config, {rank, 2});
    const auto& bias = pieces(graph, "model.layers.0.self_attn.o_proj.bias");
    EXPECT_EQ(bias[0].factor, rank == 0 ? 1 : 0);
    EXPECT_EQ(bias[0].columns, std::nullopt);
  }
}

TEST(Shard, GivesEveryRankTheSameNodes) {
  for (const char* name : {"LlamaForCausalLM", "Qwen3ForCausalLM", "Gemma2ForCausalLM",
                           "Gemma3ForCausalLM", "Glm4ForCausalLM", "Olmo2ForCausalLM"}) {
    ModelConfig config = small_config(name, 2);
    config.qkv_bias = true;
    config.tie_word_embeddings = true;
    // Returns the text of the graph from the first node on, without the attribute in which ranks
    // differ.
    const auto nodes = [&](int rank) {
      std::string text = listing::print(graph_of(config, {rank, 2}));
      text.erase(0, text.find("%x: "));
      const size_t place = text.find("first_row=");
      EXPECT_NE(place, std::string::npos) << text;
      return text.erase(place, text.find('}', place) - place);
    };
    const std::string first = nodes(0);
    const std::string second = nodes(1);
    EXPECT_EQ(first, second) << name;
  }
}

// The host may move the mark of a burst's end at any time, so one rank reads it for all ranks.
TEST(Shard, HasRanksEndBurstsByOneWord) {
  const auto text = [](Rank rank, bool bursts) {
    return listing::print(build_graph(small_config("LlamaForCausalLM", 1),
                                      {.dtype = DType::kF32, .rank = rank, .bursts = bursts}));
  };
  const std::string told = text({1, 2}, true);
  EXPECT_NE(told.find("ring_marks=%ring_marks"), std::string::npos) << told;
  EXPECT_NE(told.find("run_until=%"), std::string::npos) << told;
  EXPECT_EQ(text({1, 2}, false).find("run_until"), std::string::npos);
  EXPECT_EQ(text({}, true), text({}, false));
}

// A rank has the share of B's rows that it has of the projection's rows, and the share of A's
// columns that it has of the projection's columns.
TEST(Shard, CutsAdaptersAsTheProductsThatTheyAddTo) {
  const ModelConfig config = small_config("LlamaForCausalLM", 1);
  const auto graph_with = [&](Rank rank) {
    GraphOptions options{.dtype = DType::kF32, .rank = rank};
    options.lora = LoraShape{.num_slots = 3,
                             .max_rank = 4,
                             .projections = {"q_proj", "o_proj", "gate_proj", "down_proj"}};
    return build_graph(config, options);
  };
  const ir::Graph whole = graph_with({});
  const LoraSizes sizes = lora_sizes(whole);
  for (const int rank : {0, 1}) {
    const ir::Graph graph = graph_with({rank, 2});
    for (const std::string name :
         {"self_attn.q_proj", "mlp.gate_proj", "self_attn.o_proj", "mlp.down_proj"}) {
      const bool column_parallel = name == "self_attn.q_proj" || name == "mlp.gate_proj";
      const std::string module = fmt::format("model.layers.0.{}", name);
      const ir::WeightPiece& a = pieces(graph, module + ".lora_a")[0];
      const ir::WeightPiece& b = pieces(graph, module + ".lora_b")[0];
      const auto [num_in, num_out] = sizes.find(module)->second;
      const auto share = [&](int64_t size) {
        return ir::WeightPiece::Range{rank * size / 2, (rank + 1) * size / 2};
      };
      const ir::WeightPiece::Range all{0, num_out};
      EXPECT_EQ(a.columns, column_parallel ? std::nullopt : std::optional(share(num_in))) << name;
      EXPECT_EQ(b.rows, column_parallel ? share(num_out) : all) << name;
      EXPECT_EQ(a.rows, std::nullopt) << name;
      EXPECT_EQ(b.columns, std::nullopt) << name;
    }
  }
}

// Covers vllm-project/vllm issue 52997: blocks of 128 x 128 share a scale, so a rank's share must
// end at a block's border.
TEST(Shard, CutsBlocksOfScalesAtTheirBordersOnly) {
  ModelConfig config = small_config("LlamaForCausalLM", 1);
  config.hidden_size = 256;
  config.head_dim = 128;
  config.intermediate_size = 512;
  const WeightScheme blocks{.scales = ScaleLayout::kBlock};
  config.quantization = Quantization{
      .method = "fp8",
      .where = "config.json",
      .groups = {{{ModulePattern(ModulePattern::Kind::kWildcard, "model.layers.*")}, blocks}},
      .ignored = {}};
  const WeightFormats formats(config, {}, nullptr);
  const auto graph_in_fp8 = [&](const ModelConfig& of, const WeightFormats& by) {
    return build_graph(of, {.dtype = DType::kF32, .formats = &by, .rank = {1, 2}});
  };
  const ir::Graph graph = graph_in_fp8(config, formats);
  const std::string layer = "model.layers.0.";
  EXPECT_EQ(pieces(graph, layer + "self_attn.o_proj.weight")[0].columns, (Range{256, 512}));
  EXPECT_EQ(pieces(graph, layer + "self_attn.o_proj.scale")[0].columns, (Range{2, 4}));
  EXPECT_EQ(pieces(graph, layer + "mlp.gate_proj.scale")[0].rows, (Range{2, 4}));
  EXPECT_EQ(pieces(graph, layer + "mlp.down_proj.scale")[0].columns, (Range{2, 4}));

  config.intermediate_size = 320;
  const WeightFormats of_narrow(config, {}, nullptr);
  const std::string message =
      message_of(ErrorKind::kUnsupported, [&] { (void)graph_in_fp8(config, of_narrow); });
  EXPECT_NE(message.find("rows 160 to 320 of 'model.layers.0.mlp.gate_proj.weight'"),
            std::string::npos)
      << message;
}

TEST(Shard, CutsBlocksOfScalesOfExpertsAtTheirBordersOnly) {
  ModelConfig config = small_config("Qwen3MoeForCausalLM", 1);
  config.qk_norm = true;
  config.experts = Experts{.num_experts = 2, .num_experts_per_tok = 1, .intermediate_size = 512};
  config.layers[0].mlp = MlpKind::kExperts;
  config.quantization = quantized_at_load();
  config.quantization->groups[0].scheme.scales = ScaleLayout::kBlock;
  config.quantization->ignored.emplace_back(ModulePattern::Kind::kWildcard, "*.self_attn.*");
  const auto graph = [&] {
    const WeightFormats formats(config, {}, nullptr);
    return build_graph(config, {.dtype = DType::kF32, .formats = &formats, .rank = {1, 2}});
  };
  const std::string experts = "model.layers.0.mlp.experts.";
  const ir::Graph fits = graph();
  EXPECT_EQ(pieces(fits, experts + "gate_proj_up_proj.weight")[1].rows, (Range{256, 512}));
  EXPECT_EQ(pieces(fits, experts + "gate_proj_up_proj.scale")[1].rows, (Range{2, 4}));
  EXPECT_EQ(pieces(fits, experts + "down_proj.scale")[0].columns, (Range{2, 4}));
  config.experts->intermediate_size = 384;
  const std::string message = message_of(ErrorKind::kUnsupported, [&] { (void)graph(); });
  EXPECT_NE(message.find("rows 192 to 384 of 'model.layers.0.mlp.experts.0.gate_proj.weight'"),
            std::string::npos)
      << message;
}

// The rank's own heads come first. If two ranks keep the same head of K, every such head occurs
// twice among the heads of all ranks, so the mean of the squares is the same as over each head
// once.
TEST(Shard, NormalizesOverTheHeadsOfAllRanks) {
  const ModelConfig config = small_config("Olmo2ForCausalLM", 1);
  const auto rows = [&](Rank rank, const std::string& name) {
    const ir::Graph graph = graph_of(config, rank);
    std::vector<int64_t> firsts;
    for (const ir::WeightPiece& piece :
         pieces(graph, "model.layers.0.self_attn." + name + ".weight")) {
      const Range range = piece.rows.value();
      EXPECT_EQ(range.last - range.first, name == "q_norm" && rank.size == 2 ? 32 : 16);
      firsts.push_back(range.first);
    }
    return firsts;
  };
  using Firsts = std::vector<int64_t>;
  EXPECT_EQ(rows({0, 2}, "q_norm"), (Firsts{0, 32}));
  EXPECT_EQ(rows({1, 2}, "q_norm"), (Firsts{32, 0}));
  EXPECT_EQ(rows({1, 2}, "k_norm"), (Firsts{16, 0}));
  EXPECT_EQ(rows({1, 4}, "k_norm"), (Firsts{0, 16, 16, 0}));
}

TEST(Shard, RefusesWhatDoesNotDivideWithTheSizesThatFit) {
  const ModelConfig config = small_config("LlamaForCausalLM", 1);
  const std::string message = message_of(ErrorKind::kUsage, [&] {
    (void)graph_of(config, {0, 3});
  });
  EXPECT_EQ(message,
            "--tensor-parallel 3 does not divide the model: it has 4 query heads, 2 key/value "
            "heads, a feed-forward width of 96 and a vocabulary of 100; take 1, 2, 4");
}

}  // namespace
}  // namespace encore::model
