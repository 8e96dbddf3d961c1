// Reads the spelling `fp8` of Qwen3 and DeepSeek, and `fbgemm_fp8` of Meta's Llama 3.1.
#include "model/format/spelling.h"

namespace encore::model::format {
namespace {

std::vector<ModulePattern> ignored_modules(const json::Object& object) {
  std::vector<ModulePattern> ignored;
  for (const char* const key : {"modules_to_not_convert", "ignored_layers"}) {
    for (const std::string& name : names_at(object, key))
      ignored.emplace_back(ModulePattern::Kind::kParts, name);
  }
  return ignored;
}

Quantization quantization_of(const json::Object& object, std::string method, WeightScheme scheme) {
  return {.method = std::move(method),
          .where = object.where(),
          .groups = {{{{ModulePattern::Kind::kAny, ""}}, std::move(scheme)}},
          .ignored = ignored_modules(object)};
}

}  // namespace

Quantization read_fp8(const json::Object& object) {
  require(object.string_or("fmt", "e4m3") == "e4m3", object, "fmt", "e4m3");
  const std::string activations = object.string_or("activation_scheme", "dynamic");
  require(activations == "dynamic" || activations == "static", object, "activation_scheme",
          "dynamic and static");
  WeightScheme scheme{.scales = ScaleLayout::kTensor,
                      .fp8_activations = true,
                      .static_activations = activations == "static"};
  if (object.has("weight_block_size")) {
    require(is_known_block(object.at("weight_block_size")), object, "weight_block_size",
            "[128, 128]");
    scheme.scales = ScaleLayout::kBlock;
    scheme.scale = "weight_scale_inv";  // codes are multiplied by it, in spite of its name
  }
  return quantization_of(object, "fp8", std::move(scheme));
}

Quantization read_fbgemm(const json::Object& object) {
  return quantization_of(object, "fbgemm_fp8",
                         {.scales = ScaleLayout::kRow, .fp8_activations = true});
}

}  // namespace encore::model::format
