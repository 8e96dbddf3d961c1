#include "measure/weight_errors.h"

#include <random>

#include <gtest/gtest.h>

#include "model/testing/typed_tensors.h"

namespace encore::measure {
namespace {

const std::string kUpProjection = "model.layers.0.mlp.up_proj";

// Writes the tiny Llama with its up projection either as FP8 codes with one scale, or as floats.
void write_model(const TempDir& dir, const std::vector<float>& codes, float scale, bool in_fp8) {
  std::vector<model::TypedTensor> tensors;
  for (const auto& [name, shape] : model::tiny_llama_tensors()) {
    if (name != kUpProjection + ".weight") tensors.push_back({name, DType::kF32, shape, {0.5F}});
  }
  std::vector<float> numbers(codes);
  for (float& number : numbers)
    number = in_fp8 ? number : number * scale;
  tensors.push_back(
      {kUpProjection + ".weight", in_fp8 ? DType::kFP8 : DType::kF32, {12, 8}, numbers});
  if (in_fp8) tensors.push_back({kUpProjection + ".weight_scale", DType::kF32, {12, 1}, {scale}});
  std::string config = model::kTinyLlamaConfig;
  if (in_fp8) {
    model::replace(config, "\"vocab_size\"",
                   R"("quantization_config": {"quant_method": "fbgemm_fp8"}, "vocab_size")");
  }
  (void)dir.write("config.json", config);
  (void)dir.write("model.safetensors", model::safetensors(tensors));
}

std::vector<WeightError> errors(const TempDir& ours, const TempDir& theirs,
                                model::FormatOptions options = {}) {
  const model::Checkpoint checkpoint(ours.path());
  const model::Checkpoint reference(theirs.path());
  const model::WeightFormats formats(checkpoint.config(), options, &checkpoint);
  const model::WeightFormats reference_formats(reference.config(), {}, &reference);
  std::vector<std::string> names;
  for (const auto& [name, shape] : model::tiny_llama_tensors())
    names.push_back(name);
  return weight_errors(names, {checkpoint, formats}, {reference, reference_formats});
}

TEST(WeightErrors, AreThoseOfTheNumbersThatCodesStandFor) {
  std::vector<float> codes;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 12 * 8; ++i)
    codes.push_back(static_cast<float>(Float8(40 * normal(random))));
  const TempDir stored;
  const TempDir floats;
  const TempDir doubled;
  write_model(stored, codes, 0.25F, true);
  write_model(floats, codes, 0.25F, false);
  write_model(doubled, codes, 0.5F, false);
  EXPECT_EQ(errors(stored, floats)[0].error, 0);
  EXPECT_EQ(errors(doubled, stored)[0].tensor, kUpProjection + ".weight");
  EXPECT_NEAR(errors(doubled, stored)[0].error, 1, 1e-6);
  EXPECT_EQ(errors(doubled, stored)[1].error, 0) << "the others are the same";
}

TEST(WeightErrors, AreThoseOfRoundingWhereWeightsAreQuantizedAtLoad) {
  std::vector<float> numbers;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 12 * 8; ++i)
    numbers.push_back(normal(random));
  const TempDir floats;
  write_model(floats, numbers, 1, false);
  const std::vector<WeightError> found = errors(floats, floats, {.quantize = true});
  EXPECT_EQ(found[0].tensor, kUpProjection + ".weight");
  EXPECT_GT(found[0].error, 0.01);
  EXPECT_LT(found[0].error, 0.04);
}

}  // namespace
}  // namespace encore::measure
