#include "model/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/json.h"

namespace encore::model {
namespace {

// What a model type implies, and its values for absent keys, as the reference implementation has
// them.
struct Family {
  std::string_view model_type;
  std::string_view architecture;
  int64_t num_kv_heads;  // 0: as many as query heads
  int64_t head_dim;      // 0: D / H
  int64_t max_position_embeddings;
  std::optional<int64_t> sliding_window;
  std::optional<int32_t> bos_token_id;
  std::optional<int32_t> eos_token_id;
};
constexpr std::array kFamilies = {
    Family{"llama", "LlamaForCausalLM", 0, 0, 2048, std::nullopt, 1, 2},
    Family{"mistral", "MistralForCausalLM", 8, 0, 131072, 4096, 1, 2},
    Family{"qwen2", "Qwen2ForCausalLM", 32, 0, 32768, 4096, std::nullopt, std::nullopt},
    Family{"qwen3", "Qwen3ForCausalLM", 32, 128, 32768, 4096, std::nullopt, std::nullopt},
};

// Far above any model, far below overflow in the products that shapes are made of.
constexpr int64_t kMaxWidth = 1 << 24;
constexpr int64_t kMaxLayers = 1 << 14;
constexpr int64_t kMaxHeads = 1 << 16;
constexpr int64_t kMaxHeadDim = 1 << 12;
constexpr int64_t kMaxVocab = 1 << 28;
constexpr int64_t kMaxPositions = int64_t{1} << 31;
constexpr int64_t kMaxTokenId = std::numeric_limits<int32_t>::max();

int64_t in_range(const json::Object& object, std::string_view key, int64_t number, int64_t low,
                 int64_t high) {
  if (number < low || number > high) {
    fail(ErrorKind::kModel, "{}: key '{}' must be between {} and {}, not {}", object.where(), key,
         low, high, number);
  }
  return number;
}

int64_t count_at(const json::Object& object, std::string_view key, int64_t max) {
  return in_range(object, key, object.int_at(key), 1, max);
}

int64_t count_or(const json::Object& object, std::string_view key, int64_t fallback, int64_t max) {
  return in_range(object, key, object.int_or(key, fallback), 1, max);
}

// Neither infinite nor NaN once it is a float, and at least `low`.
double real(const json::Object& object, std::string_view key, double number, double low) {
  if (!std::isfinite(static_cast<float>(number)) || number < low) {
    fail(ErrorKind::kModel, "{}: key '{}' must be a finite number of at least {}, not {}",
         object.where(), key, low, number);
  }
  return number;
}

// True when the key is there, even with the value null, which differs from absence for some keys.
bool present(const json::Object& object, std::string_view key) {
  return object.raw().contains(key);
}

const Family& family_of(const json::Object& config) {
  const std::string model_type = config.string_at("model_type");
  std::string supported;
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family;
    supported += fmt::format("{}{}", supported.empty() ? "" : ", ", family.model_type);
  }
  fail(ErrorKind::kUnsupported, "{}: model_type {:?} is not supported; supported: {}",
       config.where(), model_type.substr(0, 80), supported);
}

// Errors: kUnsupported on a head other than the language model's (a classifier, a bare encoder).
void check_architecture(const json::Object& config, const Family& family) {
  if (!config.has("architectures")) return;
  std::string first;
  const json::array& list = config.array_at("architectures");
  for (const json::value& entry : list) {
    if (!entry.is_string()) {
      fail(ErrorKind::kModel, "{}: key 'architectures' must hold strings", config.where());
    }
    const std::string text(entry.get_string().data(), entry.get_string().size());
    if (text == family.architecture) return;
    if (first.empty()) first = text;
  }
  if (list.empty()) return;
  fail(ErrorKind::kUnsupported, "{}: architecture {:?} is not supported; for model_type '{}': {}",
       config.where(), first.substr(0, 80), family.model_type, family.architecture);
}

// Is it of K and V alone? Their scales are beside weights that nothing was done to (kv_scales.h).
bool leaves_weights(const json::Object& quantization) {
  return quantization.string_or("quant_method", "") == "compressed-tensors" &&
         quantization.has("kv_cache_scheme") &&
         (!quantization.has("config_groups") ||
          quantization.object_at("config_groups").raw().empty());
}

void check_supported(const json::Object& config) {
  const std::string act = config.string_or("hidden_act", "silu");
  if (act != "silu") {
    fail(ErrorKind::kUnsupported, "{}: hidden_act {:?} is not supported; supported: silu",
         config.where(), act.substr(0, 80));
  }
  if (config.has("quantization_config") &&
      !leaves_weights(config.object_at("quantization_config"))) {
    const std::string method =
        config.object_at("quantization_config").string_or("quant_method", "unnamed");
    fail(ErrorKind::kUnsupported,
         "{}: quantization {:?} is not supported: use a checkpoint in bf16, f16 or f32",
         config.where(), method.substr(0, 80));
  }
  if (config.double_or("partial_rotary_factor", 1) != 1) {
    fail(ErrorKind::kUnsupported, "{}: partial_rotary_factor must be 1", config.where());
  }
}

DType read_dtype(const json::Object& config) {
  const char* const key = config.has("dtype") ? "dtype" : "torch_dtype";
  std::string text = config.string_or(key, "bfloat16");
  if (text.starts_with("torch.")) text.erase(0, 6);
  if (text == "bfloat16") return DType::kBF16;
  if (text == "float16") return DType::kF16;
  if (text == "float32") return DType::kF32;
  fail(ErrorKind::kUnsupported,
       "{}: {} {:?} is not supported; supported: bfloat16, float16, float32", config.where(), key,
       text.substr(0, 80));
}

// The scaling's own numbers, from the object that names its type.
void read_scaling(const json::Object& config, const json::Object& params,
                  int64_t max_position_embeddings, Rope& rope) {
  if (params.double_or("partial_rotary_factor", 1) != 1) {
    fail(ErrorKind::kUnsupported, "{}: partial_rotary_factor must be 1", params.where());
  }
  const std::string type = params.string_or("rope_type", params.string_or("type", "default"));
  if (type == "default") return;
  if (type != "linear" && type != "llama3") {
    fail(ErrorKind::kUnsupported,
         "{}: rope_type {:?} is not supported; supported: default, linear, llama3", params.where(),
         type.substr(0, 80));
  }
  constexpr double kSmallest = 1e-6;
  rope.scaling = type == "linear" ? RopeScaling::kLinear : RopeScaling::kLlama3;
  rope.factor = real(params, "factor", params.double_at("factor"), kSmallest);
  if (rope.scaling == RopeScaling::kLinear) return;
  rope.low_freq_factor =
      real(params, "low_freq_factor", params.double_at("low_freq_factor"), kSmallest);
  rope.high_freq_factor =
      real(params, "high_freq_factor", params.double_at("high_freq_factor"), kSmallest);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    fail(ErrorKind::kModel, "{}: key 'high_freq_factor' must be above 'low_freq_factor'",
         params.where());
  }
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  rope.original_max_position_embeddings =
      config.has(kOriginal) ? count_at(config, kOriginal, kMaxPositions)
                            : count_or(params, kOriginal, max_position_embeddings, kMaxPositions);
}

Rope read_rope(const json::Object& config, int64_t max_position_embeddings) {
  Rope rope;
  rope.theta = config.double_or("rope_theta", rope.theta);
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    if (!config.has(key)) continue;
    const json::Object params = config.object_at(key);
    if (params.raw().empty()) continue;
    for (const auto& item : params.raw()) {
      if (!item.value().is_object()) continue;
      fail(ErrorKind::kUnsupported, "{}: RoPE that differs between layers is not supported",
           params.where());
    }
    rope.theta = params.double_or("rope_theta", rope.theta);
    read_scaling(config, params, max_position_embeddings, rope);
    break;
  }
  real(config, "rope_theta", rope.theta, 1);
  return rope;
}

// Which layers have a window, before it is known whether the model has one at all.
std::vector<bool> sliding_layers(const json::Object& config, const Family& family,
                                 int64_t num_layers) {
  std::vector<bool> slides(static_cast<size_t>(num_layers), family.model_type == "mistral");
  if (config.has("layer_types")) {
    const json::array& types = config.array_at("layer_types");
    if (types.size() != slides.size()) {
      fail(ErrorKind::kModel, "{}: key 'layer_types' must name {} layers, not {}", config.where(),
           num_layers, types.size());
    }
    for (size_t i = 0; i < types.size(); ++i) {
      slides[i] = types[i] == "sliding_attention";
      if (slides[i] || types[i] == "full_attention") continue;
      fail(ErrorKind::kUnsupported,
           "{}: layers of type {} are not supported; supported: full_attention, sliding_attention",
           config.where(), json::to_text(types[i]).substr(0, 80));
    }
    return slides;
  }
  if (family.model_type == "mistral") return slides;
  // Qwen: late layers only.
  const int64_t first = std::clamp<int64_t>(config.int_or("max_window_layers", 28), 0, num_layers);
  std::fill(slides.begin() + first, slides.end(), true);
  return slides;
}

std::vector<LayerKind> read_layers(const json::Object& config, const Family& family) {
  const int64_t num_layers = count_at(config, "num_hidden_layers", kMaxLayers);
  std::vector<LayerKind> layers(static_cast<size_t>(num_layers));
  const bool is_null = present(config, "sliding_window") && !config.has("sliding_window");
  if (!family.sliding_window || is_null) return layers;
  // Qwen: off unless switched on.
  if (family.model_type != "mistral" && !config.bool_or("use_sliding_window", false)) return layers;
  const std::vector<bool> slides = sliding_layers(config, family, num_layers);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (slides[i])
      layers[i].window = count_or(config, "sliding_window", *family.sliding_window, kMaxPositions);
  }
  return layers;
}

// An id, a list of ids, or null for none.
std::vector<int32_t> token_ids_at(const json::Object& object, std::string_view key) {
  const json::value& found = object.at(key);
  std::vector<int32_t> ids;
  const auto add = [&](const json::value& id) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > kMaxTokenId) {
      fail(ErrorKind::kModel, "{}: key '{}' must hold token ids, integers from 0", object.where(),
           key);
    }
    ids.push_back(static_cast<int32_t>(id.get_int64()));
  };
  if (found.is_array()) {
    for (const json::value& id : found.get_array())
      add(id);
  } else if (!found.is_null()) {
    add(found);
  }
  return ids;
}

void read_special_tokens(const json::Object& config, const json::Object* generation_config,
                         const Family& family, ModelConfig& model) {
  const auto read = [&](std::string_view key, std::optional<int32_t> fallback) {
    if (generation_config != nullptr && generation_config->has(key)) {
      return token_ids_at(*generation_config, key);
    }
    if (present(config, key)) return token_ids_at(config, key);
    return fallback ? std::vector<int32_t>{*fallback} : std::vector<int32_t>{};
  };
  model.eos_token_ids = read("eos_token_id", family.eos_token_id);
  const std::vector<int32_t> bos = read("bos_token_id", family.bos_token_id);
  if (!bos.empty()) model.bos_token_id = bos.front();
}

void read_heads(const json::Object& config, const Family& family, ModelConfig& model) {
  model.num_heads = count_at(config, "num_attention_heads", kMaxHeads);
  const bool all_heads = family.num_kv_heads == 0 || present(config, "num_key_value_heads");
  model.num_kv_heads = count_or(config, "num_key_value_heads",
                                all_heads ? model.num_heads : family.num_kv_heads, kMaxHeads);
  if (model.num_heads % model.num_kv_heads != 0) {
    fail(ErrorKind::kModel,
         "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", config.where(),
         model.num_heads, model.num_kv_heads);
  }
  if (config.has("head_dim")) {
    model.head_dim = count_at(config, "head_dim", kMaxHeadDim);
  } else if (family.head_dim != 0) {
    model.head_dim = family.head_dim;
  } else if (model.hidden_size % model.num_heads == 0) {
    model.head_dim =
        in_range(config, "head_dim", model.hidden_size / model.num_heads, 1, kMaxHeadDim);
  } else {
    fail(ErrorKind::kModel, "{}: hidden_size {} is not a multiple of num_attention_heads {}",
         config.where(), model.hidden_size, model.num_heads);
  }
  if (model.head_dim % 2 != 0) {
    fail(ErrorKind::kModel, "{}: head_dim {} must be even", config.where(), model.head_dim);
  }
}

}  // namespace

ModelConfig parse_config(const json::Object& config, const json::Object* generation_config) {
  const Family& family = family_of(config);
  check_architecture(config, family);
  check_supported(config);

  ModelConfig model;
  model.architecture = family.architecture;
  model.model_type = family.model_type;
  model.layers = read_layers(config, family);
  model.hidden_size = count_at(config, "hidden_size", kMaxWidth);
  read_heads(config, family, model);
  model.intermediate_size = count_at(config, "intermediate_size", kMaxWidth);
  model.vocab_size = count_at(config, "vocab_size", kMaxVocab);
  model.max_position_embeddings =
      count_or(config, "max_position_embeddings", family.max_position_embeddings, kMaxPositions);

  model.rms_norm_eps = real(config, "rms_norm_eps", config.double_or("rms_norm_eps", 1e-6), 0);
  model.ropes = {read_rope(config, model.max_position_embeddings)};

  model.tie_word_embeddings = config.bool_or("tie_word_embeddings", false);
  const bool reads_bias = family.model_type == "llama" || family.model_type == "qwen3";
  const bool attention_bias = reads_bias && config.bool_or("attention_bias", false);
  model.qkv_bias = attention_bias || family.model_type == "qwen2";
  model.o_bias = attention_bias;
  model.mlp_bias = family.model_type == "llama" && config.bool_or("mlp_bias", false);
  model.qk_norm = family.model_type == "qwen3";
  model.dtype = read_dtype(config);
  read_special_tokens(config, generation_config, family, model);
  return model;
}

ModelConfig read_config(const std::filesystem::path& dir) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::error_code problem;  // of a file that may be there, as in a folder that may not be read
  if (!fs::is_directory(dir, ignored)) {
    fail(ErrorKind::kModel,
         "{}: {}; give the directory of a downloaded checkpoint (config.json, *.safetensors, "
         "tokenizer.json)",
         dir.string(), fs::exists(dir, ignored) ? "not a directory" : "no such directory");
  }
  const fs::path config_path = dir / "config.json";
  if (!fs::exists(config_path, problem)) {
    if (problem) fail(ErrorKind::kModel, "{}: {}", config_path.string(), problem.message());
    fail(ErrorKind::kModel,
         "{}: no config.json; a Hugging Face checkpoint has config.json, *.safetensors and "
         "tokenizer.json",
         dir.string());
  }
  const json::value config_value = json::parse_file(config_path);
  const json::Object config(config_value, config_path.string());
  const fs::path generation_path = dir / "generation_config.json";
  if (!fs::exists(generation_path, ignored)) return parse_config(config, nullptr);
  const json::value generation_value = json::parse_file(generation_path);
  const json::Object generation(generation_value, generation_path.string());
  return parse_config(config, &generation);
}

std::optional<int64_t> ModelConfig::shortest_window() const {
  std::optional<int64_t> shortest;
  for (const LayerKind& layer : layers) {
    if (layer.window) shortest = std::min(*layer.window, shortest.value_or(*layer.window));
  }
  return shortest;
}

std::vector<float> inv_freq(const Rope& rope, int64_t head_dim) {
  const auto pairs = static_cast<size_t>(head_dim / 2);
  std::vector<float> frequencies(pairs);
  for (size_t i = 0; i < pairs; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    frequencies[i] = 1.0F / static_cast<float>(std::pow(rope.theta, static_cast<double>(exponent)));
  }
  const auto factor = static_cast<float>(rope.factor);
  if (rope.scaling == RopeScaling::kLinear) {
    for (float& frequency : frequencies)
      frequency /= factor;
  }
  if (rope.scaling != RopeScaling::kLlama3) return frequencies;

  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const auto low_wavelength = static_cast<float>(original / rope.low_freq_factor);
  const auto high_wavelength = static_cast<float>(original / rope.high_freq_factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto ramp = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  for (float& frequency : frequencies) {
    const float wavelength = 1.0F / frequency * static_cast<float>(2 * std::numbers::pi);
    if (wavelength < high_wavelength) continue;
    if (wavelength > low_wavelength) {
      frequency /= factor;
      continue;
    }
    const float smooth = (1.0F / wavelength * static_cast<float>(original) - low) / ramp;
    frequency = (1.0F - smooth) * frequency / factor + smooth * frequency;
  }
  return frequencies;
}

int64_t longest_sequence(const ModelConfig& config) {
  return std::min(config.max_position_embeddings,
                  config.shortest_window().value_or(config.max_position_embeddings));
}

}  // namespace encore::model
