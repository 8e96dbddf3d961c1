#include "model/format/quantization.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "model/testing/checkpoint_fixture.h"

namespace encore::model {
namespace {

std::optional<Quantization> read(const std::string& config, const std::string& beside = "") {
  const json::value value =
      json::parse(R"({"quantization_config": )" + config + "}", "config.json");
  const json::Object object(value, "config.json");
  if (beside.empty()) return read_quantization(object, nullptr);
  const json::value other = json::parse(beside, "hf_quant_config.json");
  const json::Object other_object(other, "hf_quant_config.json");
  return read_quantization(object, &other_object);
}

std::string read_error(const std::string& config, const std::string& beside = "") {
  return error_of([&] { return read(config, beside); });
}

// Returns a compressed-tensors configuration with one group, followed by further keys.
std::string compressed(const std::string& weights, const std::string& inputs,
                       const std::string& more = "") {
  return R"({"quant_method": "compressed-tensors", "format": "float-quantized", )" + more +
         R"("config_groups": {"group_0": {"targets": ["Linear"], "weights": )" + weights +
         R"(, "input_activations": )" + inputs + R"(, "output_activations": null}}})";
}
const std::string kChannel =
    R"({"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true, "dynamic": false})";
const std::string kToken =
    R"({"num_bits": 8, "type": "float", "strategy": "token", "symmetric": true, "dynamic": true})";
const std::string kProjection = "model.layers.3.self_attn.q_proj";

TEST(Quantization, ReadsCompressedTensors) {
  const auto scheme = [](const std::string& config) { return *read(config)->find(kProjection); };
  EXPECT_EQ(scheme(compressed(kChannel, kToken)),
            (WeightScheme{.scales = ScaleLayout::kRow, .fp8_activations = true}));
  EXPECT_EQ(scheme(compressed(kChannel, "null")), (WeightScheme{.scales = ScaleLayout::kRow}));
  const std::string tensor = R"({"num_bits": 8, "type": "float", "strategy": "tensor"})";
  EXPECT_EQ(
      scheme(compressed(
          tensor, R"({"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": false})")),
      (WeightScheme{
          .scales = ScaleLayout::kTensor, .fp8_activations = true, .static_activations = true}));
  for (const std::string block : {"[128, 128]", "\"128x128\""}) {
    EXPECT_EQ(scheme(compressed(R"({"num_bits": 8, "type": "float", "strategy": "block",
                                    "block_structure": )" +
                                    block + "}",
                                kToken)),
              (WeightScheme{.scales = ScaleLayout::kBlock, .fp8_activations = true}));
  }
}

TEST(Quantization, ReadsFp8WithBlocksAndWithout) {
  const std::string kFp8 = R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": )";
  EXPECT_EQ(
      *read(kFp8 + R"("dynamic", "weight_block_size": [128, 128], "scale_fmt": "ue8m0"})")
           ->find(kProjection),
      (WeightScheme{
          .scales = ScaleLayout::kBlock, .scale = "weight_scale_inv", .fp8_activations = true}));
  EXPECT_EQ(
      *read(kFp8 + R"("static"})")->find(kProjection),
      (WeightScheme{
          .scales = ScaleLayout::kTensor, .fp8_activations = true, .static_activations = true}));
  EXPECT_EQ(
      *read(R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0})")->find(kProjection),
      (WeightScheme{.scales = ScaleLayout::kRow, .fp8_activations = true}));
}

TEST(Quantization, ReadsModelOptInBothFiles) {
  const auto config = [](const std::string& algorithm) {
    return R"({"quant_method": "modelopt", "quant_algo": ")" + algorithm + "\"}";
  };
  const WeightScheme tensor{
      .scales = ScaleLayout::kTensor, .fp8_activations = true, .static_activations = true};
  EXPECT_EQ(*read(config("FP8"))->find(kProjection), tensor);
  EXPECT_EQ(read(config("FP8_PER_CHANNEL_PER_TOKEN"))->find(kProjection)->scales,
            ScaleLayout::kRow);
  EXPECT_EQ(*read(config("FP8_PB_WO"))->find(kProjection),
            (WeightScheme{.scales = ScaleLayout::kBlock}));
  const std::string beside =
      R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8",
          "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head", "model.layers.1*"]}})";
  const auto old = read("null", beside);
  EXPECT_EQ(*old->find(kProjection), tensor);
  EXPECT_EQ(old->find("lm_head"), nullptr);
  EXPECT_EQ(old->find("model.layers.10.mlp.up_proj"), nullptr) << "a wildcard";
  EXPECT_EQ(*read(config("FP8"), beside)->find(kProjection), tensor);
  EXPECT_EQ(
      read_error(config("FP8_PB_WO"), beside),
      "model: config.json: 'quantization_config' and hf_quant_config.json: 'quantization' say "
      "that weights are stored in different ways: remove one");
}

TEST(Quantization, TellsFormatsByProjection) {
  const auto mixed = read(
      R"({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers":
          {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"},
           "model.layers.0.self_attn.qkv_proj": {"quant_algo": "FP8_PB_WO"}}})");
  EXPECT_EQ(mixed->find("model.layers.0.mlp.up_proj")->scales, ScaleLayout::kTensor);
  EXPECT_EQ(mixed->find("model.layers.0.self_attn.k_proj")->scales, ScaleLayout::kBlock);
  EXPECT_EQ(mixed->find("model.layers.0.mlp.down_proj"), nullptr);
}

// Covers vllm-project/vllm issues 25378 and 53992: a list ignores one of several modules that other
// engines merge, and a name is the beginning of another name.
TEST(Quantization, IgnoresWhatTheListNames) {
  const auto ignores = [](const std::string& list, const std::string& module) {
    const auto quantization = read(compressed(kChannel, kToken, "\"ignore\": " + list + ","));
    return quantization->find(module) == nullptr;
  };
  const std::string attn = "model.layers.0.self_attn.";
  EXPECT_TRUE(ignores(R"(["model.layers.0.self_attn.k_proj"])", attn + "k_proj"));
  EXPECT_FALSE(ignores(R"(["model.layers.0.self_attn.k_proj"])", attn + "q_proj"));
  EXPECT_TRUE(ignores(R"(["re:.*k_proj"])", attn + "k_proj"));
  EXPECT_FALSE(ignores(R"(["re:.*k_proj"])", attn + "v_proj"));
  EXPECT_FALSE(ignores(R"(["re:k_proj"])", attn + "k_proj")) << "anchored at the start";
  EXPECT_TRUE(ignores(R"(["re:model"])", attn + "k_proj")) << "and there alone";
  for (const char* const part : {"q_proj", "k_proj", "v_proj"})
    EXPECT_TRUE(ignores(R"(["model.layers.0.self_attn.qkv_proj"])", attn + part));
  EXPECT_TRUE(ignores(R"(["re:.*gate_up_proj$"])", "model.layers.2.mlp.up_proj"));
  EXPECT_FALSE(ignores(R"(["re:.*gate_up_proj$"])", "model.layers.2.mlp.down_proj"));
  const auto not_converted = [](const std::string& name, const std::string& module) {
    return read(R"({"quant_method": "fp8", "modules_to_not_convert": [")" + name + "\"]}")
               ->find(module) == nullptr;
  };
  EXPECT_TRUE(not_converted("lm_head", "lm_head"));
  EXPECT_TRUE(not_converted("k_proj", attn + "k_proj"));
  EXPECT_TRUE(not_converted("model.layers.1", "model.layers.1.mlp.up_proj"));
  EXPECT_FALSE(not_converted("model.layers.1", "model.layers.10.mlp.up_proj"));
}

TEST(Quantization, RefusesWhatItLacksAndNamesTheKey) {
  const auto expect = [](const std::string& config, const std::string& error) {
    EXPECT_NE(read_error(config).find(error), std::string::npos) << read_error(config);
  };
  expect(R"({"quant_method": "awq", "bits": 4})", "quant_method \"awq\" is not supported");
  expect(R"({})", "quant_method absent is not supported");
  expect(R"({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":
             {"group_0": {"weights": {}}}})",
         "format \"pack-quantized\" is not supported");
  expect(R"({"quant_method": "compressed-tensors", "config_groups": {}})",
         "config_groups {} is not supported");
  expect(compressed(R"({"num_bits": 4, "type": "float"})", "null"), "num_bits 4 is not supported");
  expect(compressed(R"({"num_bits": 8, "type": "int"})", "null"), "type \"int\" is not supported");
  expect(compressed(R"({"num_bits": 8, "type": "float", "strategy": "group"})", "null"),
         "strategy \"group\" is not supported");
  expect(compressed(R"({"num_bits": 8, "type": "float", "strategy": "block",
                        "block_structure": [64, 128]})",
                    "null"),
         "block_structure [64, 128] is not supported");
  expect(compressed(kChannel, R"({"num_bits": 8, "type": "int"})"),
         "type \"int\" is not supported");
  expect(compressed(kChannel, kToken, R"("transform_config": {"a": 1},)"),
         "transform_config {\"a\": 1} is not supported");
  expect(R"({"quant_method": "fp8", "weight_block_size": [32, 32]})",
         "weight_block_size [32, 32] is not supported");
  expect(R"({"quant_method": "fp8", "activation_scheme": "other"})",
         "activation_scheme \"other\" is not supported");
  expect(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})",
         "quant_algo \"NVFP4\" is not supported");
  expect(R"({"quant_method": "fp8", "ignored_layers": [3]})",
         "key 'ignored_layers' must hold names of modules");
}

TEST(Quantization, NamesAPatternThatCannotBeRead) {
  const auto quantization = read(compressed(kChannel, kToken, R"("ignore": ["re:(?<=x"],)"));
  EXPECT_NE(error_of([&] { return quantization->find("lm_head"); }).find("the pattern \"(?<=x\""),
            std::string::npos);
}

}  // namespace
}  // namespace encore::model
