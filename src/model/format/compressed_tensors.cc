// Reads the spelling `compressed-tensors`, which llm-compressor writes.
#include "model/format/spelling.h"

namespace encore::model::format {
namespace {

constexpr std::string_view kFormats = "float-quantized and naive-quantized, of FP8";

// A configuration targets modules by their class in PyTorch. This is the class of all projections.
constexpr std::string_view kLinear = "Linear";

bool is_fp8_format(const json::Object& object, std::string_view key) {
  const std::string format = object.string_or(key, "float-quantized");
  return format == "float-quantized" || format == "naive-quantized" || format == "dense" ||
         format == "mixed-precision";
}

// Returns the pattern of a text that is "re:" and a regular expression, or a name.
ModulePattern pattern_of(const std::string& text) {
  if (text.starts_with("re:")) return {ModulePattern::Kind::kRegex, text.substr(3)};
  return {ModulePattern::Kind::kName, text};
}

void require_fp8(const json::Object& numbers) {
  require(numbers.string_or("type", "") == "float", numbers, "type", "float");
  if (numbers.int_or("num_bits", 0) != 8) refuse(numbers, "num_bits", "8");
  require(numbers.bool_or("symmetric", true), numbers, "symmetric", "true");
}

WeightScheme read_scheme(const json::Object& group) {
  WeightScheme scheme;
  const json::Object weights = group.object_at("weights");
  require_fp8(weights);
  require(!weights.bool_or("dynamic", false), weights, "dynamic", "false, of weights");
  const std::string strategy = weights.string_or("strategy", "tensor");
  if (strategy == "tensor") {
    scheme.scales = ScaleLayout::kTensor;
  } else if (strategy == "channel") {
    scheme.scales = ScaleLayout::kRow;
  } else if (strategy == "block") {
    scheme.scales = ScaleLayout::kBlock;
    if (!weights.has("block_structure") || !is_known_block(weights.at("block_structure")))
      refuse(weights, "block_structure", "[128, 128]");
  } else {
    refuse(weights, "strategy", "tensor, channel and block");
  }
  if (!group.has("input_activations")) return scheme;
  const json::Object inputs = group.object_at("input_activations");
  require_fp8(inputs);
  scheme.fp8_activations = true;
  // "dynamic" may be true, false, or "local".
  scheme.static_activations =
      inputs.has("dynamic") && inputs.at("dynamic").is_bool() && !inputs.at("dynamic").get_bool();
  return scheme;
}

Quantization::Group read_group(const json::Object& group) {
  require(is_fp8_format(group, "format"), group, "format", kFormats);
  require(false, group, "output_activations", "null");
  Quantization::Group read;
  for (const std::string& target : names_at(group, "targets")) {
    if (target == kLinear) {
      read.targets.emplace_back(ModulePattern::Kind::kAny, target);
    } else {
      read.targets.push_back(pattern_of(target));
    }
  }
  read.scheme = read_scheme(group);
  return read;
}

// Refuses a non-empty object under this key, which asks for transforms or sparsity.
void require_empty(const json::Object& object, std::string_view key) {
  if (!object.has(key)) return;
  const json::Object inner = object.object_at(key);
  if (inner.raw().empty() || inner.string_or("format", "") == "dense") return;
  refuse(object, key, "an empty object");
}

}  // namespace

std::optional<Quantization> read_compressed_tensors(const json::Object& object) {
  require_empty(object, "transform_config");
  require_empty(object, "sparsity_config");
  const bool has_groups =
      object.has("config_groups") && !object.object_at("config_groups").raw().empty();
  // Only K and V are quantized.
  if (!has_groups && object.has("kv_cache_scheme")) return std::nullopt;
  if (!has_groups) refuse(object, "config_groups", "groups of modules");
  require(is_fp8_format(object, "format"), object, "format", kFormats);
  Quantization quantization{
      .method = "compressed-tensors", .where = object.where(), .groups = {}, .ignored = {}};
  const json::Object groups = object.object_at("config_groups");
  for (const auto& item : groups.raw())
    quantization.groups.push_back(
        read_group(groups.object_at({item.key().data(), item.key().size()})));
  for (const std::string& name : names_at(object, "ignore"))
    quantization.ignored.push_back(pattern_of(name));
  return quantization;
}

}  // namespace encore::model::format
