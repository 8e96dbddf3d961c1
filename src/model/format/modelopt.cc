// Reads the spelling `modelopt`, which NVIDIA's Model Optimizer writes to config.json or
// hf_quant_config.json.
#include <algorithm>

#include "model/format/spelling.h"

namespace encore::model::format {
namespace {

struct Algorithm {
  std::string_view name;
  WeightScheme scheme;
};

const std::vector<Algorithm>& algorithms() {
  static const std::vector<Algorithm> rows = {
      {"FP8",
       {.scales = ScaleLayout::kTensor, .fp8_activations = true, .static_activations = true}},
      {"FP8_PER_CHANNEL_PER_TOKEN", {.scales = ScaleLayout::kRow, .fp8_activations = true}},
      {"FP8_PB_WO", {.scales = ScaleLayout::kBlock}},
      {"FP8_BLOCK_SCALES", {.scales = ScaleLayout::kBlock, .fp8_activations = true}},
  };
  return rows;
}

WeightScheme scheme_of(const json::Object& object) {
  const std::string name = object.string_or("quant_algo", "");
  const auto row = std::ranges::find(algorithms(), name, &Algorithm::name);
  if (row == algorithms().end()) {
    refuse(
        object, "quant_algo",
        "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, FP8_BLOCK_SCALES and MIXED_PRECISION of those");
  }
  return row->scheme;
}

}  // namespace

std::optional<Quantization> read_modelopt(const json::Object& object) {
  if (!object.has("quant_algo") && object.has("kv_cache_quant_algo")) return std::nullopt;
  Quantization quantization{
      .method = "modelopt", .where = object.where(), .groups = {}, .ignored = {}};
  for (const char* const key : {"exclude_modules", "ignore"}) {
    for (const std::string& name : names_at(object, key))
      quantization.ignored.emplace_back(ModulePattern::Kind::kWildcard, name);
  }
  if (object.string_or("quant_algo", "") != "MIXED_PRECISION") {
    quantization.groups.push_back({{{ModulePattern::Kind::kAny, ""}}, scheme_of(object)});
    return quantization;
  }
  const json::Object layers = object.object_at("quantized_layers");
  for (const auto& item : layers.raw()) {
    const std::string name(item.key().data(), item.key().size());
    quantization.groups.push_back(
        {{{ModulePattern::Kind::kName, name}}, scheme_of(layers.object_at(name))});
  }
  return quantization;
}

}  // namespace encore::model::format
