// Reads from a checkpoint's configuration which weights are stored in fewer bits, and how.
//
// Each family of spellings has a file that reads it: compressed_tensors.cc; fp8.cc (`fp8`,
// `fbgemm_fp8`); modelopt.cc (config.json and hf_quant_config.json).
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

// Says which elements share a scale: all elements of a weight, of one of its rows, or of a block of
// 128 x 128.
enum class ScaleLayout : uint8_t { kTensor, kRow, kBlock };

// Describes how the weight of a projection in FP8 is stored, and for which activations it was made.
struct WeightScheme {
  ScaleLayout scales = ScaleLayout::kRow;
  std::string scale = "weight_scale";  // name of the scale's tensor, beside `weight`
  bool fp8_activations = false;        // the weight was made for activations in FP8
  bool static_activations = false;     // activations have a stored scale, `input_scale`

  bool operator==(const WeightScheme&) const = default;
};

// Matches modules by name, as a quantizer writes them. A name that stands for several modules
// merged in one ("qkv_proj", "gate_up_proj") matches each of them.
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

  // Returns whether the pattern matches a module. Errors: kUnsupported on a regular expression that
  // cannot be read.
  [[nodiscard]] bool matches(std::string_view module) const;
  [[nodiscard]] const std::string& text() const { return text_; }

  bool operator==(const ModulePattern&) const = default;

 private:
  Kind kind_;
  std::string text_;
};

// Holds a checkpoint's whole quantization configuration, in one form for all spellings.
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

  // Returns the pattern that says that a module is not quantized, or null.
  [[nodiscard]] const ModulePattern* ignoring(std::string_view module) const;
  // Returns the scheme of the first of the configuration's groups that matches the module, or null
  // if the module's weight stays a float.
  [[nodiscard]] const WeightScheme* find(std::string_view module) const;

  bool operator==(const Quantization&) const = default;
};

// Returns the scheme of weights that are quantized at load: FP8 with a scale for each row, and
// activations in FP8. Routers of experts stay floats, as in published checkpoints.
Quantization quantized_at_load();

// Reads the quantization from the object of `config.json`, and from that of `hf_quant_config.json`
// if there is one. Returns nullopt where weights are floats (settings for K and V alone are read by
// kv_scales.h).
// Errors: kUnsupported, naming the key, on a scheme that Encore lacks; kModel on a configuration
// that contradicts itself.
std::optional<Quantization> read_quantization(const json::Object& config,
                                              const json::Object* hf_quant_config);

}  // namespace encore::model
