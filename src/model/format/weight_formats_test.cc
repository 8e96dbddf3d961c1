#include "model/format/weight_formats.h"

#include <cmath>

#include <gtest/gtest.h>

#include "listing/listing.h"
#include "model/graph.h"
#include "model/testing/checkpoint_fixture.h"
#include "model/testing/small_config.h"
#include "model/testing/typed_tensors.h"

namespace encore::model {
namespace {

const std::string kUp = "model.layers.0.mlp.up_proj";  // [12,8]

const char* const kFp8PerTensor = R"({"quant_method": "fp8", "activation_scheme": "dynamic"})";
const char* const kFp8Blocks = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";
const char* const kFbgemm = R"({"quant_method": "fbgemm_fp8"})";

class WeightFormatsTest : public ::testing::Test {
 protected:
  // Writes the tiny Llama with `changed` tensors, which are added to its own or replace them.
  void write(const std::string& quantization, const std::vector<TypedTensor>& changed) {
    std::vector<TypedTensor> all;
    for (const auto& [name, shape] : tiny_llama_tensors()) {
      if (std::ranges::count(changed, name, &TypedTensor::name) == 0)
        all.push_back({name, DType::kBF16, shape, {0.5F}});
    }
    all.insert(all.end(), changed.begin(), changed.end());
    std::string config = kTinyLlamaConfig;
    if (!quantization.empty())
      replace(config, "\"vocab_size\"",
              "\"quantization_config\": " + quantization + ", \"vocab_size\"");
    (void)dir_.write("config.json", config);
    (void)dir_.write("model.safetensors", safetensors(all));
  }
  std::optional<WeightFormat> find(const std::string& module, FormatOptions options = {}) {
    const Checkpoint checkpoint(dir_.path());
    return WeightFormats(checkpoint.config(), options, &checkpoint).find(module);
  }
  std::string find_error(const std::string& module) {
    return error_of([&] { return find(module); });
  }

  TempDir dir_;
};

TEST_F(WeightFormatsTest, TellCodesFromFloatsTensorByTensor) {
  write(kFp8PerTensor, {{kUp + ".weight", DType::kFP8, {12, 8}, {1}},
                        {kUp + ".weight_scale", DType::kF32, {}, {2}}});
  const auto up = find(kUp);
  ASSERT_TRUE(up.has_value());
  EXPECT_FALSE(up->blocks);
  EXPECT_TRUE(up->fp8_activations);
  EXPECT_EQ(up->codes, (ir::WeightPiece{.tensor = kUp + ".weight"}));
  EXPECT_FALSE(find("model.layers.0.mlp.gate_proj").has_value()) << "its sibling is of floats";
  EXPECT_FALSE(find(kUp, {.activations = Activations::k16Bit})->fp8_activations);
}

// Covers vllm-project/vllm issue 5915: one scale for the whole weight, in any shape of one number,
// becomes one scale for each row.
TEST_F(WeightFormatsTest, RepeatOneScaleForEachRow) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1}}) {
    write(kFp8PerTensor, {{kUp + ".weight", DType::kFP8, {12, 8}, {1}},
                          {kUp + ".weight_scale", DType::kBF16, shape, {2}}});
    EXPECT_EQ(find(kUp)->scale,
              (ir::WeightPiece{.tensor = kUp + ".weight_scale",
                               .transform = ir::WeightTransform{"repeat", {12}}}));
  }
}

// Covers huggingface/transformers issue 47030: scales must not be rounded to the dtype of
// activations, because codes are not either.
TEST(WeightFormats, KeepScalesInFloat32WhateverActivationsAre) {
  for (const ScaleLayout layout : {ScaleLayout::kRow, ScaleLayout::kBlock}) {
    ModelConfig config = small_config("LlamaForCausalLM", 1);
    config.quantization = quantized_at_load();
    config.quantization->groups[0].scheme.scales = layout;
    const WeightFormats formats(config, {}, nullptr);
    const ir::Graph graph = build_graph(config, {.dtype = DType::kBF16, .formats = &formats});
    const auto scale = graph.find_value("model.layers.0.self_attn.q_proj.scale");
    EXPECT_EQ(graph.value(*scale).type.dtype, DType::kF32);
  }
}

TEST_F(WeightFormatsTest, TakeScalesOfRowsAndOfBlocksInTheirShapes) {
  const TypedTensor codes{kUp + ".weight", DType::kFP8, {12, 8}, {1}};
  write(kFbgemm, {codes, {kUp + ".weight_scale", DType::kF32, {12, 1}, {2}}});
  EXPECT_EQ(find(kUp)->scale.transform, (ir::WeightTransform{"shape", {12}}));
  write(kFbgemm, {codes, {kUp + ".weight_scale", DType::kF32, {12}, {2}}});
  EXPECT_EQ(find(kUp)->scale.transform, std::nullopt);
  write(kFp8Blocks, {codes, {kUp + ".weight_scale_inv", DType::kF32, {1, 1}, {2}}});
  EXPECT_TRUE(find(kUp)->blocks);
  EXPECT_EQ(find(kUp)->scale, (ir::WeightPiece{.tensor = kUp + ".weight_scale_inv"}));
  write(R"({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"})",
        {codes, {kUp + ".weight_scale", DType::kF32, {1, 1, 1, 1}, {2}}});
  EXPECT_EQ(find(kUp)->scale.transform, (ir::WeightTransform{"shape", {1, 1}}));
  EXPECT_FALSE(find(kUp)->fp8_activations);
  EXPECT_TRUE(find(kUp, {.activations = Activations::kFp8})->fp8_activations);
}

TEST_F(WeightFormatsTest, NameAScaleThatIsMissingOrHasAnotherShape) {
  const TypedTensor codes{kUp + ".weight", DType::kFP8, {12, 8}, {1}};
  write(kFbgemm, {codes});
  EXPECT_NE(find_error(kUp).find("up_proj.weight_scale\" is missing"), std::string::npos);
  write(kFbgemm, {codes, {kUp + ".weight_scale", DType::kF32, {8, 1}, {2}}});
  EXPECT_NE(find_error(kUp).find("up_proj.weight_scale\" has shape [8, 1], but"),
            std::string::npos);
  write(kFp8PerTensor, {codes, {kUp + ".weight_scale", DType::kF32, {12}, {2}}});
  EXPECT_NE(find_error(kUp).find("has shape [12], but"), std::string::npos);
  write(kFbgemm, {codes,
                  {kUp + ".weight_scale", DType::kF32, {12}, {2}},
                  {kUp + ".weight_scale_inv", DType::kF32, {12}, {2}}});
  EXPECT_NE(find_error(kUp).find("both '"), std::string::npos);
}

TEST_F(WeightFormatsTest, NameAScaleThatIsNoPositiveNumberAndItsIndex) {
  for (const float value : {0.0F, -1.0F, 1e-40F, INFINITY, NAN}) {
    write(kFbgemm, {{kUp + ".weight", DType::kFP8, {12, 8}, {1}},
                    {kUp + ".weight_scale", DType::kF32, {12, 1}, {value}}});
    EXPECT_NE(find_error(kUp).find("up_proj.weight_scale\" has "), std::string::npos);
    EXPECT_NE(find_error(kUp).find("at index 0"), std::string::npos) << find_error(kUp);
  }
}

// Covers NVIDIA/TensorRT-LLM issue 2699: a static scheme lacks the scales of activations.
TEST_F(WeightFormatsTest, CheckTheStoredScaleOfActivations) {
  const char* const kStatic = R"({"quant_method": "fp8", "activation_scheme": "static"})";
  const TypedTensor codes{kUp + ".weight", DType::kFP8, {12, 8}, {1}};
  const TypedTensor scale{kUp + ".weight_scale", DType::kF32, {}, {2}};
  write(kStatic, {codes, scale, {kUp + ".input_scale", DType::kF32, {}, {1}}});
  EXPECT_EQ(find_error(kUp), "");
  write(kStatic, {codes, scale});
  EXPECT_NE(find_error(kUp).find("up_proj.input_scale\" is missing"), std::string::npos);
  write(kStatic, {codes, scale, {kUp + ".input_scale", DType::kF32, {}, {0}}});
  EXPECT_NE(find_error(kUp).find("up_proj.input_scale\" has 0 at index 0"), std::string::npos);
  write(kStatic, {codes, scale, {kUp + ".input_scale", DType::kF32, {2}, {1, 1}}});
  EXPECT_NE(find_error(kUp).find("but a static scale is one number"), std::string::npos);
}

TEST_F(WeightFormatsTest, TakeTheStoredScaleOfActivationsWhereItIsAskedFor) {
  const TypedTensor codes{kUp + ".weight", DType::kFP8, {12, 8}, {1}};
  const TypedTensor scale{kUp + ".weight_scale", DType::kF32, {}, {2}};
  const FormatOptions by_static{.activations = Activations::kStatic};
  write(R"({"quant_method": "fp8", "activation_scheme": "static"})",
        {codes, scale, {kUp + ".input_scale", DType::kBF16, {1}, {0.125F}}});
  EXPECT_EQ(find(kUp, by_static)->x_scale, 0.125);
  EXPECT_TRUE(find(kUp, by_static)->fp8_activations);
  EXPECT_EQ(find(kUp)->x_scale, std::nullopt);
  write(kFp8PerTensor, {codes, scale});
  const std::string error = error_of([&] { return find(kUp, by_static); });
  EXPECT_NE(error.find("activations static: 'model.layers.0.mlp.up_proj' has no static scale"),
            std::string::npos)
      << error;
}

// Covers NVIDIA/TensorRT-LLM issue 4218: a head is quantized although the configuration excludes
// it.
TEST_F(WeightFormatsTest, RefuseCodesThatTheConfigurationDoesNotTellOf) {
  const std::vector<TypedTensor> head = {{"lm_head.weight", DType::kFP8, {16, 8}, {1}},
                                         {"lm_head.weight_scale", DType::kF32, {16, 1}, {2}}};
  write(R"({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]})", head);
  EXPECT_NE(find_error("lm_head").find("'lm_head.weight' is in FP8 (F8_E4M3), but"),
            std::string::npos);
  write("", head);
  EXPECT_NE(find_error("lm_head").find("no quantization_config"), std::string::npos);
}

TEST_F(WeightFormatsTest, QuantizeFloatsAtLoadWhereNoSchemeIsThere) {
  write("", {});
  const FormatOptions quantize{.quantize = true};
  const auto up = find(kUp, quantize);
  EXPECT_EQ(up->codes.transform, (ir::WeightTransform{"fp8_codes", {}}));
  EXPECT_EQ(up->scale, (ir::WeightPiece{.tensor = kUp + ".weight",
                                        .transform = ir::WeightTransform{"fp8_scales", {}}}));
  EXPECT_TRUE(up->fp8_activations);
  EXPECT_FALSE(find("lm_head", quantize).has_value());
  write(kFbgemm, {});
  EXPECT_FALSE(find(kUp, quantize).has_value()) << "the checkpoint says what is quantized";
}

TEST(WeightFormats, OfAModelWithoutFilesAreThoseThatItsConfigDeclares) {
  ModelConfig config = small_config("LlamaForCausalLM", 1);
  config.quantization = quantized_at_load();
  const WeightFormats formats(config, {}, nullptr);
  const GraphOptions options{.num_pages = 8, .max_seq_len = 64, .formats = &formats};
  const ir::Graph graph = build_graph(config, options);
  EXPECT_NO_THROW(ir::verify(graph));
  const std::string text = listing::print(graph);
  EXPECT_NE(text.find("up_proj.weight: fp8[96,64]"), std::string::npos) << text;
  EXPECT_NE(text.find("up_proj.scale: f32[96] = "), std::string::npos);
  EXPECT_NE(text.find("{fp8_rows=33}"), std::string::npos);
  EXPECT_NE(text.find("lm_head.weight: bf16[100,64]"), std::string::npos);
}

// Covers vllm-project/vllm issue 5915: a checkpoint that keeps q, k and v in one tensor has their
// scales in one tensor too.
TEST(WeightFormats, AreCutAsTheTensorsThatHoldSeveralWeights) {
  ModelConfig config = small_config("LlamaForCausalLM", 1);
  config.merged_qkv = true;
  config.quantization = quantized_at_load();
  const WeightFormats formats(config, {}, nullptr);
  const auto piece = [&](const char* name) {
    const ir::Graph graph =
        build_graph(config, {.num_pages = 8, .max_seq_len = 64, .formats = &formats});
    return graph.value(*graph.find_value(std::string("model.layers.0.self_attn.") + name))
        .recipe.pieces.at(0);
  };
  EXPECT_EQ(piece("v_proj.weight").tensor, "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ(piece("v_proj.weight").rows, (ir::WeightPiece::Range{96, 128}));
  EXPECT_EQ(piece("v_proj.scale").tensor, "model.layers.0.self_attn.qkv_proj.weight_scale");
  EXPECT_EQ(piece("v_proj.scale").rows, (ir::WeightPiece::Range{96, 128}));
  config.quantization->groups[0].scheme.scales = ScaleLayout::kBlock;
  EXPECT_NE(error_of([&] { return piece("v_proj.scale"); }).find("begin inside a block of 128"),
            std::string::npos);
}

// Codes stay as they are stored, so factors of a weight are multiplied into its scale.
TEST(WeightFormats, LeaveFactorsToTheScale) {
  ModelConfig config = small_config("LlamaForCausalLM", 1);
  config.quantization = quantized_at_load();
  const WeightFormats formats(config, {}, nullptr);
  GraphOptions options{.kv_dtype = DType::kFP8, .num_pages = 8, .max_seq_len = 64};
  options.kv_scales = {{4, 0.5}};
  options.formats = &formats;
  const ir::Graph graph = build_graph(config, options);
  const auto factor = [&](const std::string& name) {
    return graph.value(*graph.find_value("model.layers.0.self_attn." + name))
        .recipe.pieces[0]
        .factor;
  };
  EXPECT_EQ(factor("k_proj.scale"), 0.25);
  EXPECT_EQ(factor("v_proj.scale"), 2);
  EXPECT_EQ(factor("o_proj.scale"), 0.5);
  EXPECT_EQ(factor("k_proj.weight"), 1);
  EXPECT_EQ(factor("o_proj.weight"), 1);
}

}  // namespace
}  // namespace encore::model
