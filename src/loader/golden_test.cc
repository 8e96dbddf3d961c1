// Compares each architecture's graph, as src/model traces it, and the program that it is compiled
// to with text files. An empty diff shows that a refactor changed nothing. After an intended
// change, this command
//
//   loader_test --gtest_also_run_disabled_tests --gtest_filter='*DISABLED_WriteTheFiles*'
//
// writes the files again, so that their diff can be read.
#include <fstream>

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/source_dir.h"
#include "listing/listing.h"
#include "loader/loaded_model.h"
#include "model/testing/small_config.h"
#include "ops/ops.h"

namespace encore::loader {
namespace {

constexpr int64_t kNumPages = 8;

// The suffix of a model whose steps have drafts: "LlamaDrafts" is Llama with drafts.
constexpr std::string_view kDrafts = "Drafts";
bool has_drafts(std::string_view name) {
  return name.ends_with(kDrafts);
}
// The suffix of a model with a draft model: "LlamaDraftModel" is Llama with a draft model of one
// layer.
constexpr std::string_view kDraftModel = "DraftModel";
bool has_draft_model(std::string_view name) {
  return name.ends_with(kDraftModel);
}

// The suffix of a model whose layers with a window have pages of their own, as in
// "Gemma3WindowPages".
constexpr std::string_view kWindowPages = "WindowPages";

// The suffix of a model on two ranks: "LlamaRanks" is the program of rank 0 of two.
constexpr std::string_view kRanks = "Ranks";
bool has_ranks(std::string_view name) {
  return name.ends_with(kRanks);
}

// The suffixes of models with weights in FP8: "LlamaFp8" has a scale for each row of a weight, and
// "LlamaFp8Blocks" a scale for each rectangular block of a weight's elements.
constexpr std::string_view kFp8 = "Fp8";
constexpr std::string_view kFp8Blocks = "Fp8Blocks";

// Returns a configuration with two layers, so that the text shows the border between layers.
model::ModelConfig config_of(std::string architecture) {
  std::optional<model::ScaleLayout> fp8;
  if (architecture.ends_with(kFp8)) fp8 = model::ScaleLayout::kRow;
  if (architecture.ends_with(kFp8Blocks)) fp8 = model::ScaleLayout::kBlock;
  for (const std::string_view end :
       {kDrafts, kDraftModel, kWindowPages, kRanks, kFp8, kFp8Blocks}) {
    if (architecture.ends_with(end)) architecture.resize(architecture.size() - end.size());
  }
  model::ModelConfig config = model::small_config(architecture + "ForCausalLM", 2);
  if (fp8) {
    config.quantization = model::quantized_at_load();
    config.quantization->groups[0].scheme.scales = *fp8;
  }
  config.vocab_size = 128;
  config.qkv_bias = architecture == "Qwen2";
  config.qk_norm = architecture == "Qwen3";
  config.tie_word_embeddings = architecture == "Qwen3";
  if (architecture == "Qwen3Moe") {
    config.qk_norm = true;
    config.layers[1].mlp = model::MlpKind::kExperts;
    config.experts = model::Experts{.num_experts = 3,
                                    .num_experts_per_tok = 2,
                                    .intermediate_size = 24,
                                    .norm_topk_prob = true};
  }
  if (architecture == "Phi3") {
    config.merged_qkv = config.merged_gate_up = true;
    config.ropes[0].rotary_dim = 12;
  }
  if (architecture == "Gemma3") {
    config.qk_norm = true;
    config.norm_offset = 1;
    config.activation = model::Activation::kGeluTanh;
    config.embedding_scale = 8;
    config.ropes.push_back({.theta = 1e6});
    config.layers[0].window = 16;
    config.layers[1].rope = 1;
  }
  return config;
}

// Returns the names of the passes that may be left out.
std::vector<std::string> optional_passes() {
  std::vector<std::string> names;
  for (const passes::Pass& pass : passes::all()) {
    if (!pass.required) names.emplace_back(pass.name);
  }
  return names;
}

class Golden : public ::testing::TestWithParam<const char*> {
 protected:
  using Dump = std::function<void(std::string_view, const passes::Program&, double)>;
  static passes::Program compiled(std::vector<std::string> disabled = {}, Dump dump = {}) {
    LoadOptions options;
    options.limits = {.max_num_tokens = 64, .max_batch_size = 8, .max_q = 1, .max_seq_len = 64};
    options.limits.num_drafts = has_drafts(GetParam()) ? 3 : has_draft_model(GetParam()) ? 2 : 0;
    if (has_draft_model(GetParam())) {
      options.draft = {config_of("Llama"), std::nullopt};
      options.draft->config.layers.resize(1);
    }
    options.page_size = 16;
    if (has_ranks(GetParam())) options.rank = {0, 2};
    options.window_pages = std::string_view(GetParam()).ends_with(kWindowPages);
    options.compile.disabled = std::move(disabled);
    options.compile.dump = std::move(dump);
    return compile_model({config_of(GetParam()), std::nullopt}, options, kNumPages);
  }
  static ir::Graph traced() {
    std::optional<ir::Graph> graph;
    (void)compiled({}, [&](std::string_view pass, const passes::Program& program, double) {
      if (pass == "trace") graph = program.graph;
    });
    return *graph;
  }
  static std::string path(const char* what) {
    return fmt::format("{}/src/loader/testdata/{}.{}", ENCORE_SOURCE_DIR, GetParam(), what);
  }
};

TEST_P(Golden, IsTracedToTheGraphOnFile) {
  EXPECT_EQ(listing::print(traced()), json::read_file(path("traced")));
}

TEST_P(Golden, IsCompiledToTheProgramOnFile) {
  EXPECT_EQ(listing::print(compiled()), json::read_file(path("compiled")));
}

TEST_P(Golden, DISABLED_WriteTheFiles) {
  std::ofstream(path("traced")) << listing::print(traced());
  std::ofstream(path("compiled")) << listing::print(compiled());
}

TEST_P(Golden, GraphsReadBackAsTheyWerePrintedAndVerifyAfterEachPass) {
  (void)compiled({}, [](std::string_view pass, const passes::Program& program, double) {
    const std::string text = listing::print(program.graph);
    const ir::Graph graph = listing::parse(text, ops::standard());
    EXPECT_NO_THROW(ir::verify(graph)) << pass;
    EXPECT_EQ(listing::print(graph), text) << pass;
  });
}

// Everything from one attention to the next is one segment, across the border between two layers.
// After the last attention come two segments whose rows are sequences, one up to the logits and one
// from there on. The last segment is `advance`, whose rows are tokens. Like attention, it depends
// on the tokens of a sequence and is in no piece. The same holds for two more segments of a program
// with drafts: the first, which looks drafts up, and `adjust_logits`, which counts them.
TEST_P(Golden, HasTwoSegmentsALayerAndThreeForTheRest) {
  if (has_draft_model(GetParam()))
    GTEST_SKIP() << "launches of a draft model are segments of their own";
  for (const auto& disabled : {std::vector<std::string>(), optional_passes()}) {
    const passes::Program program = compiled(disabled);
    std::vector<passes::Segment> segments = program.segments;
    if (has_drafts(GetParam())) {
      ASSERT_EQ(segments.size(), 9U);
      EXPECT_FALSE(segments[0].in_pieces);
      EXPECT_FALSE(segments[6].in_pieces);
      EXPECT_EQ(program.first_awaiting_host(), 6);
      segments.erase(segments.begin() + 6);
      segments.erase(segments.begin());
    } else {
      EXPECT_EQ(program.first_awaiting_host(), 5);
    }
    ASSERT_EQ(segments.size(), 7U);
    for (size_t i = 0; i < segments.size(); ++i) {
      EXPECT_EQ(!segments[i].in_pieces, i == 1 || i == 3 || i == 6) << i;
      const bool has_sequences = i == 4 || i == 5;
      EXPECT_EQ(segments[i].rows, has_sequences ? ir::Symbol::kSequences : ir::Symbol::kTokens)
          << i;
    }
    if (disabled.empty()) continue;
    EXPECT_EQ(program.graph.num_nodes(), traced().num_nodes());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         ::testing::Values("Llama", "LlamaDrafts", "LlamaDraftModel", "LlamaRanks",
                                           "LlamaFp8", "LlamaFp8Blocks", "Mistral", "Qwen2",
                                           "Qwen3", "Qwen3Moe", "Phi3", "Gemma3",
                                           "Gemma3WindowPages"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace encore::loader
