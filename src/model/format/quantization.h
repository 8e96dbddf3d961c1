// Reads from a checkpoint's configuration which weights are stored in fewer bits, and how.
//
// A file per family of spellings reads it: compressed_tensors.cc; fp8.cc (`fp8`, `fbgemm_fp8`);
// modelopt.cc (config.json and hf_quant_config.json).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace encore::json {
class Object;
}

namespace encore::model {

// The elements that share a scale: those of a weight, of one of its rows, or of a block of 128 x
// 128.
enum class ScaleLayout : uint8_t { kTensor, kRow, kBlock };

// The way in which the weight of a projection in FP8 is stored, and how it was made to be used.
struct WeightScheme {
  ScaleLayout scales = ScaleLayout::kRow;
  std::string scale = "weight_scale";  // the tensor beside `weight`
  bool fp8_activations = false;        // made for activations in FP8
  bool static_activations = false;     // those have a stored scale, `input_scale`

  bool operator==(const WeightScheme&) const = default;
};

// Modules by name, as a quantizer writes them. A name of several in one ("qkv_proj", "gate_up_proj")
// stands for each of them.
class ModulePattern {
 public:
  enum class Kind : uint8_t {
    kName,      // exactly
    kParts,     // exactly, or the first or last parts of the name between its dots
    kWildcard,  // with * and ?, as file names
    kRegex,     // a regular expression that matches from the start on
    kAny,
  };
  ModulePattern(Kind kind, std::string text) : kind_(kind), text_(std::move(text)) {}

  // Errors: kUnsupported on a regular expression that cannot be read.
  [[nodiscard]] bool matches(std::string_view module) const;
  [[nodiscard]] const std::string& text() const { return text_; }

  bool operator==(const ModulePattern&) const = default;

 private:
  Kind kind_;
  std::string text_;
};

// The whole configuration, in one form for all spellings.
struct Quantization {
  struct Group {
    std::vector<ModulePattern> targets;
    WeightScheme scheme;

    bool operator==(const Group&) const = default;
  };

  std::string method;  // "compressed-tensors"
  std::string where;   // the file and its key, for messages
  std::vector<Group> groups;
  std::vector<ModulePattern> ignored;

  // The pattern that says that a module stays as it is. Null: none.
  [[nodiscard]] const ModulePattern* ignoring(std::string_view module) const;
  // The scheme of the first group that has the module. Null: the module stays a float.
  [[nodiscard]] const WeightScheme* find(std::string_view module) const;

  bool operator==(const Quantization&) const = default;
};

// The scheme of weights that are quantized at load: FP8 with a scale for each row and activations
// in FP8. Routers of experts stay floats, as in checkpoints that are published.
Quantization quantized_at_load();

// Reads the object `config.json`, and `hf_quant_config.json` beside it where there is one. Returns
// nothing where weights are floats (settings for K and V alone are read elsewhere, kv_scales.h).
// Errors: kUnsupported, naming the key, on a scheme that Encore lacks; kModel on a configuration
// that contradicts itself.
std::optional<Quantization> read_quantization(const json::Object& config,
                                              const json::Object* hf_quant_config);

}  // namespace encore::model
