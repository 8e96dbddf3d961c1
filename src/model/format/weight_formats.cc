#include "model/format/weight_formats.h"

#include <cmath>

#include <fmt/ranges.h>

#include "base/rounding.h"
#include "base/scale_block.h"
#include "model/transforms.h"

namespace encore::model {
namespace {

// Returns the shape of scales in device memory: one for each row, or one for each block.
Shape resident_shape(ScaleLayout layout, int64_t out, int64_t in) {
  if (layout != ScaleLayout::kBlock) return {out};
  return {div_up(out, kScaleBlock), div_up(in, kScaleBlock)};
}

// Returns the numbers of a tensor of scales after checking them.
std::vector<float> scales_of(const Checkpoint& checkpoint, const std::string& name,
                             const StoredTensor& tensor) {
  if (!is_float(tensor.dtype)) {
    fail(ErrorKind::kUnsupported, "{}: tensor {:?} holds {}: a scale is of BF16, F16 or F32",
         checkpoint.dir().string(), name, encore::name(tensor.dtype));
  }
  std::vector<float> numbers(static_cast<size_t>(tensor.shape.num_elements()));
  widen(tensor, 0, tensor.shape.num_elements(), numbers.data());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (std::isnormal(numbers[i]) && numbers[i] > 0) continue;
    fail(ErrorKind::kModel, "{}: tensor {:?} has {} at index {}: a scale is a positive number",
         checkpoint.dir().string(), name, numbers[i], i);
  }
  return numbers;
}

// Returns the static scale of a module's activations, which the quantizer found beforehand.
double static_scale(const Checkpoint& checkpoint, const std::string& module) {
  const std::string name = module + ".input_scale";
  const StoredTensor tensor = checkpoint.tensor(name);
  if (tensor.shape.num_elements() != 1) {
    fail(ErrorKind::kModel, "{}: tensor {:?} has shape [{}], but a static scale is one number",
         checkpoint.dir().string(), name, fmt::join(tensor.shape, ", "));
  }
  return scales_of(checkpoint, name, tensor)[0];
}

}  // namespace

WeightFormats::WeightFormats(const ModelConfig& config, const FormatOptions& options,
                             const Checkpoint* checkpoint)
    : config_(config), options_(options), checkpoint_(checkpoint) {}

bool WeightFormats::has_fp8_activations(const WeightScheme& scheme) const {
  if (options_.activations == Activations::kAsMade) return scheme.fp8_activations;
  return options_.activations != Activations::k16Bit;
}

bool WeightFormats::is_stored_in_fp8(const std::string& module) const {
  const std::string name = module + ".weight";
  return checkpoint_ != nullptr && checkpoint_->contains(name) &&
         checkpoint_->tensor(name).dtype == DType::kFP8;
}

const WeightScheme& WeightFormats::scheme_of(const std::string& module) const {
  if (!config_.quantization) {
    fail(ErrorKind::kUnsupported,
         "{}: tensor '{}.weight' is in FP8 (F8_E4M3), but config.json has no quantization_config "
         "that says so",
         checkpoint_->dir().string(), module);
  }
  const Quantization& quantization = *config_.quantization;
  if (const ModulePattern* pattern = quantization.ignoring(module)) {
    fail(ErrorKind::kUnsupported,
         "tensor '{}.weight' is in FP8 (F8_E4M3), but {} says by {:?} that it is not quantized",
         module, quantization.where, pattern->text().substr(0, 200));
  }
  const WeightScheme* scheme = quantization.find(module);
  if (scheme == nullptr) {
    fail(ErrorKind::kUnsupported,
         "tensor '{}.weight' is in FP8 (F8_E4M3), but no scheme of {} covers it", module,
         quantization.where);
  }
  return *scheme;
}

ir::WeightPiece WeightFormats::stored_scale(const std::string& module,
                                            const WeightScheme& scheme) const {
  const Shape weight = checkpoint_->tensor(module + ".weight").shape;
  if (weight.rank() != 2) {
    fail(ErrorKind::kModel, "{}: tensor '{}.weight' must be a matrix, as its scales are",
         checkpoint_->dir().string(), module);
  }
  const int64_t out = weight[0];
  const int64_t in = weight[1];
  const std::string name = module + "." + scheme.scale;
  const StoredTensor tensor = checkpoint_->tensor(name);
  for (const char* const other : {".weight_scale", ".weight_scale_inv"}) {
    if (module + other != name && checkpoint_->contains(module + other)) {
      fail(ErrorKind::kModel, "{}: both '{}' and '{}{}' are there, and one is the scale",
           checkpoint_->dir().string(), name, module, other);
    }
  }
  const Shape resident = resident_shape(scheme.scales, out, in);
  const int64_t count = scheme.scales == ScaleLayout::kTensor ? 1 : resident.num_elements();
  // The tensor may have dims of 1 anywhere between the dims of the scale.
  Shape dims;
  for (const int64_t dim : tensor.shape) {
    if (dim != 1) dims.push_back(dim);
  }
  Shape wanted;
  for (const int64_t dim : resident) {
    if (dim != 1 && count != 1) wanted.push_back(dim);
  }
  if (dims != wanted) {
    fail(ErrorKind::kModel,
         "{}: tensor {:?} has shape [{}], but {} makes it the scale of [{}] numbers",
         checkpoint_->dir().string(), name, fmt::join(tensor.shape, ", "),
         config_.quantization->where,
         count == 1 ? "1" : fmt::format("{}", fmt::join(resident, ", ")));
  }
  (void)scales_of(*checkpoint_, name, tensor);
  if (scheme.scales == ScaleLayout::kTensor)
    return {.tensor = name, .transform = ir::WeightTransform{"repeat", {out}}};
  if (tensor.shape == resident) return {.tensor = name};
  return {.tensor = name,
          .transform = ir::WeightTransform{"shape", {resident.begin(), resident.end()}}};
}

std::optional<WeightFormat> WeightFormats::find(const std::string& module) const {
  WeightFormat format{.codes = {.tensor = module + ".weight"}, .scale = {}};
  const bool is_static = options_.activations == Activations::kStatic;
  const auto of_scheme = [&](const WeightScheme& scheme) {
    if (is_static && !(scheme.static_activations && checkpoint_ != nullptr)) {
      fail(
          ErrorKind::kUnsupported,
          "activations static: '{}' has no static scale of its activations ('input_scale'), as the "
          "checkpoint was not made with any; take --activations auto or fp8",
          module);
    }
    format.blocks = scheme.scales == ScaleLayout::kBlock;
    format.fp8_activations = has_fp8_activations(scheme);
  };
  if (is_stored_in_fp8(module)) {
    const WeightScheme& scheme = scheme_of(module);
    of_scheme(scheme);
    format.scale = stored_scale(module, scheme);
    if (scheme.static_activations) {
      const double x_scale = static_scale(*checkpoint_, module);
      if (is_static) format.x_scale = x_scale;
    }
    return format;
  }
  if (checkpoint_ == nullptr && config_.quantization) {
    const WeightScheme* scheme = config_.quantization->find(module);
    if (scheme == nullptr) return std::nullopt;
    of_scheme(*scheme);
    format.scale.tensor = module + "." + scheme->scale;
    return format;
  }
  if (!options_.quantize || config_.quantization) return std::nullopt;
  static const Quantization at_load = quantized_at_load();
  const WeightScheme* scheme = at_load.find(module);
  if (scheme == nullptr) return std::nullopt;
  of_scheme(*scheme);
  format.scale = {.tensor = module + ".weight", .transform = ir::WeightTransform{"fp8_scales", {}}};
  format.codes.transform = ir::WeightTransform{"fp8_codes", {}};
  return format;
}

}  // namespace encore::model
