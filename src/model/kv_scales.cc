#include "model/kv_scales.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace encore::model {
namespace {

constexpr double kLargest = 448;  // that 8 bits (e4m3) hold
constexpr double kRoom = 2;       // of K and V, to what their biases are

// Names below "model.layers.N.self_attn". The last is the scale of both K and V, as older
// quantizers wrote it.
constexpr std::array kNamesOfK = {"k_scale", "k_proj.k_scale", "k_proj.output_scale", "kv_scale"};
constexpr std::array kNamesOfV = {"v_scale", "v_proj.v_scale", "v_proj.output_scale", "kv_scale"};

std::string prefix_of(size_t layer) {
  return fmt::format("model.layers.{}.self_attn.", layer);
}

std::vector<float> widened(const StoredTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.shape.num_elements()));
  visit_float(tensor.dtype, [&](auto element) {
    for (size_t i = 0; i < values.size(); ++i) {
      std::memcpy(&element, tensor.data + i * sizeof(element), sizeof(element));
      values[i] = static_cast<float>(element);
    }
  });
  return values;
}

double power_of_two_from(double scale) {
  return std::exp2(std::ceil(std::log2(scale)));
}

std::optional<double> stored_scale(const Checkpoint& checkpoint, const std::string& prefix,
                                   std::span<const char* const> names) {
  for (const char* name : names) {
    if (!checkpoint.contains(prefix + name)) continue;
    const StoredTensor tensor = checkpoint.tensor(prefix + name);
    const bool is_number = is_float(tensor.dtype) && tensor.shape.num_elements() == 1;
    const float scale = is_number ? widened(tensor)[0] : 0;
    if (!std::isnormal(scale) || scale < 0) {
      fail(ErrorKind::kModel,
           "{}: tensor '{}' must be one positive number, the scale of K or V in 8 bits",
           checkpoint.dir().string(), prefix + name);
    }
    return power_of_two_from(scale);
  }
  return std::nullopt;
}

// Elements i and i + distance turn into each other; with 0, nothing turns.
double scale_for_bias(const Checkpoint& checkpoint, const std::string& name, size_t distance) {
  if (!checkpoint.contains(name)) return 1;
  const StoredTensor tensor = checkpoint.tensor(name);
  if (!is_float(tensor.dtype)) return 1;
  const std::vector<float> bias = widened(tensor);
  double largest = 0;
  for (size_t i = 0; i < bias.size(); ++i) {
    const bool has_other = distance > 0 && i / distance % 2 == 0 && i + distance < bias.size();
    largest = std::max<double>(largest, std::hypot(bias[i], has_other ? bias[i + distance] : 0));
  }
  if (!std::isfinite(largest)) return 1;
  return std::max(1.0, power_of_two_from(kRoom * largest / kLargest));
}

// The distance at which the checkpoint keeps two elements of K that the rotation pairs.
size_t pair_distance(const ModelConfig& config, const LayerKind& layer) {
  if (!layer.rope) return 0;
  const Rope& rope = config.ropes.at(*layer.rope);
  return rope.interleaved ? 1 : static_cast<size_t>(rope.turned(config.head_dim) / 2);
}

// The weight of that name, if the graph has one.
bool multiply(ir::Graph& graph, const std::string& name, double factor) {
  const auto weight = graph.find_value(name);
  if (!weight) return false;
  for (ir::WeightPiece& piece : graph.value(*weight).recipe.pieces)
    piece.factor *= factor;
  return true;
}

// The weight of a projection: the scales of codes, which stay as they are stored, or else floats. What
// adapters add to it is multiplied with it.
bool multiply_projection(ir::Graph& graph, const std::string& projection, double factor) {
  multiply(graph, projection + ".lora_b", factor);
  return multiply(graph, projection + ".scale", factor) ||
         multiply(graph, projection + ".weight", factor);
}

}  // namespace

std::vector<KvScale> read_kv_scales(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  std::vector<KvScale> scales(static_cast<size_t>(config.num_layers()));
  for (size_t layer = 0; layer < scales.size(); ++layer) {
    const std::string prefix = prefix_of(layer);
    const auto k = stored_scale(checkpoint, prefix, kNamesOfK);
    const auto v = stored_scale(checkpoint, prefix, kNamesOfV);
    // Where heads are normalized, a bias in front of the norm does not tell the size of K.
    const double k_bias = config.qk_norm
                              ? 1
                              : scale_for_bias(checkpoint, prefix + "k_proj.bias",
                                               pair_distance(config, config.layers[layer]));
    // The weight of a norm with an offset cannot take a scale.
    const bool fixed = config.qk_norm && config.norm_offset != 0;
    scales[layer] = {fixed ? 1 : k.value_or(k_bias),
                     v.value_or(scale_for_bias(checkpoint, prefix + "v_proj.bias", 0))};
  }
  return scales;
}

void scale_score_weights(ir::Graph& graph, std::span<const KvScale> scales) {
  if (scales.empty()) return;
  multiply_projection(graph, prefix_of(scales.size() - 1) + "o_proj", scales.back().v);
}

void scale_kv_weights(ir::Graph& graph, std::span<const KvScale> scales) {
  for (size_t layer = 0; layer < scales.size(); ++layer) {
    const std::string prefix = prefix_of(layer);
    const KvScale& scale = scales[layer];
    const auto scale_weight = [&](const char* name, double factor) {
      if (!multiply_projection(graph, prefix + name, factor) && factor != 1) {
        fail(ErrorKind::kUnsupported,
             "KV in 8 bits: the model has no weight '{}{}.weight' that could take a scale of K or "
             "V; "
             "take --kv-dtype auto",
             prefix, name);
      }
    };
    const auto scale_outputs = [&](const char* name, double factor) {
      scale_weight(name, factor);
      multiply(graph, prefix + name + ".bias", factor);
    };
    if (!multiply(graph, prefix + "k_norm.weight", 1 / scale.k))
      scale_outputs("k_proj", 1 / scale.k);
    scale_outputs("v_proj", 1 / scale.v);
    scale_weight("o_proj", scale.v);
  }
}

}  // namespace encore::model
