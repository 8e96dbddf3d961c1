#include "model/kv_scales.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/scale_block.h"

namespace encore::model {
namespace {

constexpr double kLargest = 448;  // the largest number that 8 bits (e4m3) hold
constexpr double kRoom = 2;       // how much larger K and V may be than their biases

// These are names below "model.layers.N.self_attn". The last one is the scale of both K and V, as
// older quantizers wrote it.
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

// Holds the scales of K or of V in one layer: the largest scale of all heads, and, if the scales
// differ, each head's share, which is its scale divided by the largest.
struct HeadScales {
  double largest = 1;
  std::vector<double> shares = {};
};

std::optional<HeadScales> stored_scale(const Checkpoint& checkpoint, const std::string& prefix,
                                       std::span<const char* const> names) {
  const int64_t num_heads = checkpoint.config().num_kv_heads;
  for (const char* name : names) {
    if (!checkpoint.contains(prefix + name)) continue;
    const StoredTensor tensor = checkpoint.tensor(prefix + name);
    const int64_t count = tensor.shape.num_elements();
    std::vector<float> scales;
    if (is_float(tensor.dtype) && (count == 1 || count == num_heads)) scales = widened(tensor);
    const auto is_scale = [](float scale) { return std::isnormal(scale) && scale > 0; };
    if (scales.empty() || !std::ranges::all_of(scales, is_scale)) {
      fail(ErrorKind::kModel,
           "{}: tensor '{}' must be one positive number, or one for each of {} heads: the scale of "
           "K or V in 8 bits",
           checkpoint.dir().string(), prefix + name, num_heads);
    }
    HeadScales result{power_of_two_from(*std::ranges::max_element(scales))};
    for (const float scale : scales)
      result.shares.push_back(power_of_two_from(scale) / result.largest);
    if (std::ranges::all_of(result.shares, [](double share) { return share == 1; }))
      result.shares.clear();
    return result;
  }
  return std::nullopt;
}

// Returns a scale of K or V, at least 1, with which the values of the bias `name` fit into 8 bits.
// RoPE rotates elements i and i + `distance` as a pair. With a `distance` of 0 it rotates nothing.
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

// Returns the distance between two elements of K that the rotation pairs, in the checkpoint's
// order.
size_t pair_distance(const ModelConfig& config, const LayerKind& layer) {
  if (!layer.rope) return 0;
  const Rope& rope = config.ropes.at(*layer.rope);
  return rope.interleaved ? 1 : static_cast<size_t>(rope.turned(config.head_dim) / 2);
}

// Multiplies the weight of that name by `factor`. Returns false if the graph has no such weight.
bool multiply(ir::Graph& graph, const std::string& name, double factor) {
  const auto weight = graph.find_value(name);
  if (!weight) return false;
  for (ir::WeightPiece& piece : graph.value(*weight).recipe.pieces)
    piece.factor *= factor;
  return true;
}

// Multiplies the weight of a projection by `factor`. Codes stay as they are, and their scales are
// multiplied; floats are multiplied themselves. The outputs of adapters of this projection are
// multiplied too, through lora_b. Returns false if the graph has no such projection.
bool multiply_projection(ir::Graph& graph, const std::string& projection, double factor) {
  multiply(graph, projection + ".lora_b", factor);
  return multiply(graph, projection + ".scale", factor) ||
         multiply(graph, projection + ".weight", factor);
}

const ir::Value* find_weight(const ir::Graph& graph, const std::string& name) {
  const auto weight = graph.find_value(name);
  return weight ? &graph.value(*weight) : nullptr;
}

// Calls body(node) for each product that reads the weight and has a static scale of its
// activations.
template <typename Graph, typename Body>
void for_static_products(Graph& graph, const std::string& projection, const Body& body) {
  const auto weight = graph.find_value(projection + ".weight");
  for (int i = 0; weight && i < graph.num_nodes(); ++i) {
    auto& node = graph.node(ir::NodeId{i});
    const ir::ValueId* const read = node.inputs.find("weight");
    if (read != nullptr && *read == *weight && node.attrs.find("x_scale") != nullptr) body(node);
  }
}

// Returns whether the projection's rows can be multiplied by a factor for each of `num_heads`
// equal parts.
bool takes_rows(const ir::Graph& graph, const std::string& projection, size_t num_heads) {
  const ir::Value* const weight = find_weight(graph, projection + ".weight");
  if (weight == nullptr) return false;
  const int64_t rows = weight->type.dims[0].value;
  const auto heads = static_cast<int64_t>(num_heads);
  const ir::Value* const scale = find_weight(graph, projection + ".scale");
  const bool has_blocks = scale != nullptr && scale->type.dims.size() == 2;
  const auto& pieces = (scale == nullptr ? weight : scale)->recipe.pieces;
  return rows % heads == 0 && (!has_blocks || rows / heads % kScaleBlock == 0) &&
         (pieces.size() == 1 || std::ranges::all_of(pieces, [](const ir::WeightPiece& piece) {
            return piece.rows.has_value();
          }));
}

// Divides the static activation scales of the projection by `factor`, since its input is divided
// by `factor`.
void divide_static_scales(ir::Graph& graph, const std::string& projection, double factor) {
  for_static_products(graph, projection, [&](ir::Node& node) {
    node.attrs.set("x_scale", node.attrs.get_double("x_scale") / factor);
  });
}

// Returns whether the projection's columns can be multiplied by a factor for each of `num_heads`
// equal parts. A static scale of the activations prevents it, as it is one number for all columns.
bool takes_columns(const ir::Graph& graph, const std::string& projection, size_t num_heads) {
  const ir::Value* weight = find_weight(graph, projection + ".weight");
  if (weight == nullptr) return false;
  bool is_static = false;
  for_static_products(graph, projection, [&](const ir::Node&) { is_static = true; });
  if (is_static) return false;
  const int64_t columns = weight->type.dims[1].value;
  if (columns % static_cast<int64_t>(num_heads) != 0) return false;
  if (const ir::Value* scale = find_weight(graph, projection + ".scale")) {
    const int64_t of_head = columns / static_cast<int64_t>(num_heads);
    if (scale->type.dims.size() == 1 || of_head % kScaleBlock != 0) return false;
    weight = scale;
  }
  return std::ranges::none_of(weight->recipe.pieces, [](const ir::WeightPiece& piece) {
    return piece.transform || piece.columns;
  });
}

// Divides the rows into equal parts, one for each factor, and multiplies each part by its factor.
void multiply_parts(ir::Value& weight, std::span<const double> factors) {
  const int64_t rows = weight.type.dims[0].value;
  const int64_t part = rows / static_cast<int64_t>(factors.size());
  std::vector<ir::WeightPiece> parts;
  int64_t at = 0;
  for (const ir::WeightPiece& piece : weight.recipe.pieces) {
    const auto range = piece.rows.value_or(ir::WeightPiece::Range{0, rows});
    for (int64_t first = range.first; first < range.last;) {
      const int64_t last = std::min(range.last, first + part - at % part);
      ir::WeightPiece& of_head = parts.emplace_back(piece);
      of_head.rows = {first, last};
      of_head.factor *= factors[static_cast<size_t>(at / part)];
      at += last - first;
      first = last;
    }
  }
  weight.recipe.pieces = std::move(parts);
}

void multiply_rows(ir::Graph& graph, const std::string& projection,
                   std::span<const double> factors) {
  const bool has_scale = find_weight(graph, projection + ".scale") != nullptr;
  for (const char* name : {has_scale ? ".scale" : ".weight", ".bias"}) {
    if (const auto weight = graph.find_value(projection + name))
      multiply_parts(graph.value(*weight), factors);
  }
}

void multiply_columns(ir::Graph& graph, const std::string& projection,
                      std::span<const double> factors) {
  ir::WeightTransform transform{.name = "scale_columns"};
  for (const double factor : factors)
    transform.numbers.push_back(std::ilogb(factor));
  const bool has_scale = find_weight(graph, projection + ".scale") != nullptr;
  const auto weight = graph.find_value(projection + (has_scale ? ".scale" : ".weight"));
  for (ir::WeightPiece& piece : graph.value(*weight).recipe.pieces)
    piece.transform = transform;
}

std::vector<double> inverses(std::vector<double> factors) {
  for (double& factor : factors)
    factor = 1 / factor;
  return factors;
}

// Divides the rows of each head in K's projection by the head's share, and multiplies the rows of
// the queries that read this head by it. Does nothing where K or q has a norm, which is the same
// for all heads and cannot hold a share of each.
void share_keys(ir::Graph& graph, const std::string& prefix, const std::vector<double>& shares) {
  const std::string k = prefix + "k_proj";
  const std::string q = prefix + "q_proj";
  const bool has_norm = find_weight(graph, prefix + "k_norm.weight") != nullptr ||
                        find_weight(graph, prefix + "q_norm.weight") != nullptr;
  if (shares.empty() || has_norm || !takes_rows(graph, k, shares.size()) ||
      !takes_rows(graph, q, shares.size()))
    return;
  multiply_rows(graph, k, inverses(shares));
  multiply_rows(graph, q, shares);
}

// Multiplies the columns of the output projection by each head's share of the scale of V. The
// graph for scores has this projection but not that of V. Returns whether the projection can take
// shares.
bool share_output(ir::Graph& graph, const std::string& prefix, const std::vector<double>& shares) {
  const std::string o = prefix + "o_proj";
  if (shares.empty() || !takes_columns(graph, o, shares.size())) return false;
  multiply_columns(graph, o, shares);
  return true;
}

void share_values(ir::Graph& graph, const std::string& prefix, const std::vector<double>& shares) {
  if (!share_output(graph, prefix, shares)) return;
  const std::string v = prefix + "v_proj";
  if (!takes_rows(graph, v, shares.size())) {
    fail(ErrorKind::kUnsupported,
         "KV in 8 bits: '{}.weight' cannot take a scale of V for each head; take --kv-dtype auto",
         v);
  }
  multiply_rows(graph, v, inverses(shares));
}

}  // namespace

std::vector<KvScale> read_kv_scales(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  std::vector<KvScale> scales(static_cast<size_t>(config.num_layers()));
  for (size_t layer = 0; layer < scales.size(); ++layer) {
    const std::string prefix = prefix_of(layer);
    const auto k = stored_scale(checkpoint, prefix, kNamesOfK);
    const auto v = stored_scale(checkpoint, prefix, kNamesOfV);
    // A bias in front of a norm of heads does not tell how large K is.
    const double k_bias = config.qk_norm
                              ? 1
                              : scale_for_bias(checkpoint, prefix + "k_proj.bias",
                                               pair_distance(config, config.layers[layer]));
    // The weight of a norm with an offset cannot take a scale.
    const bool fixed = config.qk_norm && config.norm_offset != 0;
    KvScale& scale = scales[layer];
    scale.k = fixed ? 1 : k ? k->largest : k_bias;
    scale.v = v ? v->largest : scale_for_bias(checkpoint, prefix + "v_proj.bias", 0);
    if (k) scale.k_shares = k->shares;
    if (v) scale.v_shares = v->shares;
  }
  return scales;
}

std::optional<std::string> missing_kv_scales(const Checkpoint& checkpoint) {
  struct Declaration {
    const char* file;
    const char* object;
    const char* key;
  };
  for (const auto& [file, object, key] :
       {Declaration{"config.json", "quantization_config", "kv_cache_scheme"},
        Declaration{"hf_quant_config.json", "quantization", "kv_cache_quant_algo"}}) {
    const std::filesystem::path path = checkpoint.dir() / file;
    if (std::error_code none; !std::filesystem::exists(path, none)) continue;
    const json::value value = json::parse_file(path);
    const json::Object config(value, path.string());
    if (!config.has(object) || !config.object_at(object).has(key)) continue;
    for (size_t layer = 0; layer < static_cast<size_t>(checkpoint.config().num_layers()); ++layer) {
      const auto is_there = [&](const char* name) {
        return checkpoint.contains(prefix_of(layer) + name);
      };
      if (std::ranges::any_of(kNamesOfK, is_there) || std::ranges::any_of(kNamesOfV, is_there))
        return std::nullopt;
    }
    return fmt::format(
        "{}: '{}' says that K and V have scales in 8 bits, but no tensor of theirs is there (such "
        "as "
        "'{}k_scale'): they are taken as 1",
        path.string(), key, prefix_of(0));
  }
  return std::nullopt;
}

void drop_shares(std::span<KvScale> scales) {
  for (KvScale& scale : scales) {
    scale.k_shares.clear();
    scale.v_shares.clear();
  }
}

void scale_score_weights(ir::Graph& graph, std::span<const KvScale> scales) {
  if (scales.empty()) return;
  const std::string prefix = prefix_of(scales.size() - 1);
  multiply_projection(graph, prefix + "o_proj", scales.back().v);
  divide_static_scales(graph, prefix + "o_proj", scales.back().v);
  share_output(graph, prefix, scales.back().v_shares);
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
    divide_static_scales(graph, prefix + "o_proj", scale.v);
    share_keys(graph, prefix, scale.k_shares);
    share_values(graph, prefix, scale.v_shares);
  }
}

}  // namespace encore::model
