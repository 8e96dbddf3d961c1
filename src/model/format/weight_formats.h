// Finds the format of each projection's weight, tensor by tensor: a file may mix weights in FP8
// with floats, and the layers of a model may differ.
#pragma once

#include <optional>
#include <string>

#include "ir/weight.h"
#include "model/checkpoint.h"

namespace encore::model {

// Describes a weight of codes in FP8: the sources of its codes and scales, and how activations meet
// it.
struct WeightFormat {
  ir::WeightPiece codes;  // fp8[O,I]
  ir::WeightPiece scale;  // f32[O], or f32[ceil(O/128),ceil(I/128)] where `blocks`
  bool blocks = false;
  bool fp8_activations = false;   // x may be rounded to FP8
  std::optional<double> x_scale;  // static scale for x; absent: each row has its own
};

// Decides whether x is rounded to FP8 in front of a weight in FP8.
enum class Activations : uint8_t {
  kAsMade,  // if the checkpoint was made for it, or the weight was quantized at load
  kFp8,     // always
  kStatic,  // always, by the static scales that the checkpoint must have
  k16Bit,   // never
};

struct FormatOptions {
  bool quantize = false;  // floats become FP8 at load, if the checkpoint has no scheme
  Activations activations = Activations::kAsMade;
};

// Finds the formats of one model's weights. Lifetime: refers to the config and to the checkpoint.
class WeightFormats {
 public:
  // `checkpoint` is null for a model without files, whose weights are as its config declares.
  WeightFormats(const ModelConfig& config, const FormatOptions& options,
                const Checkpoint* checkpoint);

  // Returns the format of `module`.weight, or nullopt if it is a float.
  // Errors: kUnsupported when the weight is in FP8 and the configuration has no scheme for it or
  // says that it is not; kModel, naming the tensor, when a scale is missing, has another shape, or
  // has an element that is not a positive normal number (with the index of the first). Static
  // scales of activations are checked in the same way; kUnsupported where they are asked for and
  // the scheme has none.
  [[nodiscard]] std::optional<WeightFormat> find(const std::string& module) const;

 private:
  [[nodiscard]] bool is_stored_in_fp8(const std::string& module) const;
  [[nodiscard]] const WeightScheme& scheme_of(const std::string& module) const;
  [[nodiscard]] ir::WeightPiece stored_scale(const std::string& module,
                                             const WeightScheme& scheme) const;
  [[nodiscard]] bool has_fp8_activations(const WeightScheme& scheme) const;

  const ModelConfig& config_;
  FormatOptions options_;
  const Checkpoint* checkpoint_;
};

}  // namespace encore::model
