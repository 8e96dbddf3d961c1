#include "model/graph.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/testing/message_of.h"
#include "listing/listing.h"
#include "model/testing/small_config.h"
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

TEST(BuildGraph, GivesLogitsOfEveryTokenWhenAskedAndSamplesNothing) {
  GraphOptions options = kOptions;
  options.logits = LogitsRows::kAll;
  const ir::Graph graph = build_graph(small_config("LlamaForCausalLM", 1), options);
  ASSERT_EQ(graph.outputs().size(), 1U);
  EXPECT_EQ(graph.value(graph.outputs()[0]).type.to_string(), "f32[T,100]");
  EXPECT_FALSE(graph.find_value("temperature").has_value());
}

// Nobody reads what the last layer makes of other rows behind its attention.
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
