// Finds the format of each projection's weight, tensor by tensor: a file may mix weights in FP8
// with floats, and the layers of a model may differ.
#pragma once

#include <optional>
#include <string>

#include "ir/weight.h"
#include "model/checkpoint.h"

namespace encore::model {

// A weight of codes in FP8: where codes and scales come from, and what uses them.
struct WeightFormat {
  ir::WeightPiece codes;  // fp8[O,I]
  ir::WeightPiece scale;  // f32[O], or f32[ceil(O/128),ceil(I/128)] where `blocks`
  bool blocks = false;
  bool fp8_activations = false;   // x may be rounded to FP8
  std::optional<double> x_scale;  // by this static scale; absent: by scales of its own
};

// Decides whether x is rounded to FP8 in front of a weight in FP8.
enum class Activations : uint8_t {
  kAsMade,  // where the checkpoint was made for it, or the weight was quantized at load
  kFp8,     // always
  kStatic,  // always, by the static scales of a checkpoint that was made with some
  k16Bit,   // never
};

struct FormatOptions {
  bool quantize = false;  // floats of a checkpoint without a scheme become FP8 as they are loaded
  Activations activations = Activations::kAsMade;
};

// Answers for one model. Lifetime: refers to the config and to the checkpoint.
class WeightFormats {
 public:
  // `checkpoint`: null for a model without files, whose weights are as its config declares.
  WeightFormats(const ModelConfig& config, const FormatOptions& options,
                const Checkpoint* checkpoint);

  // The format of `module`.weight. Nothing: it is a float.
  // Errors: kUnsupported when the weight is in FP8 and nothing says how, or the configuration says
  // that it is not; kModel, naming the tensor, when a scale is missing, has another shape, or holds
  // anything but positive normal numbers, with the index of the first. Static scales of activations are
  // checked likewise, and kUnsupported where they are asked for and the scheme has none.
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
