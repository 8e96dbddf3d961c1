#include "model/families.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/error.h"
#include "model/config_keys.h"

namespace encore::model {
namespace {

bool all_slide(const json::Object& /*config*/, int64_t /*layer*/) {
  return true;
}

// Returns whether a layer of Qwen2 has a window where windows are switched on: only layers from
// max_window_layers on have one.
bool qwen_slides(const json::Object& config, int64_t layer) {
  return layer >= config.int_or("max_window_layers", 28);
}

bool gemma2_slides(const json::Object& /*config*/, int64_t layer) {
  return layer % 2 == 0;
}

bool gemma3_slides(const json::Object& config, int64_t layer) {
  return (layer + 1) % count_or(config, "sliding_window_pattern", 6, kMaxLayers) != 0;
}

// Returns whether a layer of SmolLM3 rotates q and k.
bool smollm3_rotates(const json::Object& config, int64_t layer) {
  if (!config.has("no_rope_layers"))
    return (layer + 1) % count_or(config, "no_rope_layer_interval", 4, kMaxLayers) != 0;
  const json::array& rotates = config.array_at("no_rope_layers");
  if (static_cast<size_t>(layer) >= rotates.size() || !rotates[layer].is_int64()) {
    fail(ErrorKind::kModel, "{}: key 'no_rope_layers' must have 0 or 1 for each layer",
         config.where());
  }
  return rotates[layer].get_int64() != 0;
}

bool smollm3_slides(const json::Object& config, int64_t layer) {
  return !smollm3_rotates(config, layer);
}

void read_attention_bias(const json::Object& config, ModelConfig& model) {
  model.qkv_bias = model.o_bias = config.bool_or("attention_bias", false);
}

void read_biases(const json::Object& config, ModelConfig& model) {
  read_attention_bias(config, model);
  model.mlp_bias = config.bool_or("mlp_bias", false);
}

void read_qwen2(const json::Object& /*config*/, ModelConfig& model) {
  model.qkv_bias = true;
}

void read_qwen3(const json::Object& config, ModelConfig& model) {
  read_attention_bias(config, model);
  model.qk_norm = true;
}

bool qwen3_moe_slides(const json::Object& /*config*/, int64_t /*layer*/) {
  return true;
}

// Every decoder_sparse_step-th layer feeds forward by experts, except those that mlp_only_layers
// lists as dense.
void read_qwen3_moe(const json::Object& config, ModelConfig& model) {
  read_qwen3(config, model);
  const std::string_view num_experts_key =
      config.has("num_experts") ? "num_experts" : "num_local_experts";
  const int64_t num_experts =
      in_range(config, num_experts_key, config.int_or(num_experts_key, 128), 0, kMaxExperts);
  if (num_experts == 0) return;
  Experts experts{.num_experts = num_experts};
  experts.num_experts_per_tok = count_or(config, "num_experts_per_tok", 8, num_experts);
  experts.intermediate_size = count_or(config, "moe_intermediate_size", 768, kMaxWidth);
  experts.norm_topk_prob = config.bool_or("norm_topk_prob", false);
  std::set<int64_t> dense_layers;
  if (config.has("mlp_only_layers")) {
    for (const json::value& layer : config.array_at("mlp_only_layers")) {
      if (!layer.is_int64())
        fail(ErrorKind::kModel, "{}: key 'mlp_only_layers' must hold numbers of layers",
             config.where());
      dense_layers.insert(layer.get_int64());
    }
  }
  const int64_t step = count_or(config, "decoder_sparse_step", 1, kMaxLayers);
  for (int64_t i = 0; i < model.num_layers(); ++i) {
    if ((i + 1) % step != 0 || dense_layers.contains(i)) continue;
    model.layers[i].mlp = MlpKind::kExperts;
    model.experts = experts;
  }
}

void read_mixtral(const json::Object& config, ModelConfig& model) {
  const int64_t num_experts = count_or(config, "num_local_experts", 8, kMaxExperts);
  model.experts =
      Experts{.num_experts = num_experts,
              .num_experts_per_tok = count_or(config, "num_experts_per_tok", 2, num_experts),
              .intermediate_size = model.intermediate_size,
              .norm_topk_prob = true,
              .names = {"block_sparse_moe", "w1", "w3", "w2"}};
  for (LayerKind& layer : model.layers)
    layer.mlp = MlpKind::kExperts;
}

void read_glm4_moe(const json::Object& config, ModelConfig& model) {
  model.qkv_bias = config.bool_or("attention_bias", false);
  model.qk_norm = config.bool_or("use_qk_norm", false);
  Experts e{.num_experts = count_or(config, "n_routed_experts", 128, kMaxExperts)};
  e.num_experts_per_tok = count_or(config, "num_experts_per_tok", 8, e.num_experts);
  e.intermediate_size = count_or(config, "moe_intermediate_size", 1408, kMaxWidth);
  e.norm_topk_prob = config.bool_or("norm_topk_prob", true);
  e.sigmoid = e.correction_bias = true;
  e.groups = count_or(config, "n_group", 1, kMaxExpertGroups);
  e.groups_kept = count_or(config, "topk_group", 1, e.groups);
  e.scaling_factor = real_or(config, "routed_scaling_factor", 1, 0);
  const int64_t num_shared =
      in_range(config, "n_shared_experts", config.int_or("n_shared_experts", 1), 0, kMaxExperts);
  e.shared_size = num_shared * e.intermediate_size;
  if (e.num_experts % e.groups != 0 ||
      e.num_experts / e.groups * e.groups_kept < e.num_experts_per_tok) {
    fail(ErrorKind::kModel,
         "{}: {} experts in {} groups, of which {} are kept, do not give {} experts per token",
         config.where(), e.num_experts, e.groups, e.groups_kept, e.num_experts_per_tok);
  }
  const int64_t first = in_range(config, "first_k_dense_replace",
                                 config.int_or("first_k_dense_replace", 1), 0, kMaxLayers);
  for (int64_t i = first; i < model.num_layers(); ++i) {
    model.layers[i].mlp = MlpKind::kExperts;
    model.experts = e;
  }
}

void read_seed_oss(const json::Object& config, ModelConfig& model) {
  read_biases(config, model);
  model.qkv_bias = config.bool_or("attention_bias", true);
  model.o_bias = config.bool_or("attention_out_bias", false);
}

void read_smollm3(const json::Object& config, ModelConfig& model) {
  read_biases(config, model);
  for (int64_t i = 0; i < model.num_layers(); ++i) {
    if (!smollm3_rotates(config, i)) model.layers[i].rope.reset();
  }
}

void read_gemma(const json::Object& config, ModelConfig& model) {
  read_attention_bias(config, model);
  if (config.bool_or("use_bidirectional_attention", false)) {
    fail(ErrorKind::kUnsupported, "{}: use_bidirectional_attention is not supported",
         config.where());
  }
  model.norm_offset = 1;
  model.activation = Activation::kGeluTanh;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
  model.attention_scale =
      1 / std::sqrt(real_or(config, "query_pre_attn_scalar", 256, kLeastFactor));
  const bool is_gemma2 = model.model_type == "gemma2";
  // In Gemma 2, an absent key stands for the default cap, and null for no cap.
  const auto read_cap = [&](std::string_view key, double fallback) -> std::optional<double> {
    if (config.has(key)) return real(config, key, config.double_at(key), kLeastFactor);
    if (present(config, key) || !is_gemma2) return std::nullopt;
    return fallback;
  };
  model.attention_softcap = read_cap("attn_logit_softcapping", 50);
  model.logits_softcap = read_cap("final_logit_softcapping", 30);
  model.qk_norm = !is_gemma2;
}

void read_phi3(const json::Object& /*config*/, ModelConfig& model) {
  model.merged_qkv = true;
  model.merged_gate_up = true;
}

void read_glm4(const json::Object& config, ModelConfig& model) {
  model.qkv_bias = config.bool_or("attention_bias", true);
  model.merged_gate_up = true;
  for (Rope& rope : model.ropes)
    rope.interleaved = true;
}

void read_granite(const json::Object& config, ModelConfig& model) {
  read_biases(config, model);
  model.embedding_scale = real_or(config, "embedding_multiplier", 1, 0);
  model.attention_scale = real_or(config, "attention_multiplier", 1, 0);
  model.residual_scale = real_or(config, "residual_multiplier", 1, 0);
  model.logits_scale = 1 / real_or(config, "logits_scaling", 1, kLeastFactor);
}

constexpr std::array kFamilies = {
    Family{.model_type = "llama",
           .architecture = "LlamaForCausalLM",
           .max_position_embeddings = 2048,
           .bos_token_id = 1,
           .eos_token_id = 2,
           .read = read_biases},
    Family{.model_type = "mistral",
           .architecture = "MistralForCausalLM",
           .num_kv_heads = 8,
           .max_position_embeddings = 131072,
           .bos_token_id = 1,
           .eos_token_id = 2,
           .sliding_window = 4096,
           .slides = all_slide},
    Family{.model_type = "ministral",
           .architecture = "MinistralForCausalLM",
           .num_kv_heads = 8,
           .max_position_embeddings = 131072,
           .bos_token_id = 1,
           .eos_token_id = 2,
           .sliding_window = 4096,
           .slides = all_slide},
    Family{.model_type = "mixtral",
           .architecture = "MixtralForCausalLM",
           .num_kv_heads = 8,
           .max_position_embeddings = 131072,
           .rms_norm_eps = 1e-5,
           .rope_theta = 1e6,
           .bos_token_id = 1,
           .eos_token_id = 2,
           .slides = all_slide,
           .read = read_mixtral},
    Family{.model_type = "qwen2",
           .architecture = "Qwen2ForCausalLM",
           .num_kv_heads = 32,
           .max_position_embeddings = 32768,
           .sliding_window = 4096,
           .slides = qwen_slides,
           .read = read_qwen2},
    Family{.model_type = "qwen3",
           .architecture = "Qwen3ForCausalLM",
           .num_kv_heads = 32,
           .head_dim = 128,
           .max_position_embeddings = 32768,
           .sliding_window = 4096,
           .slides = qwen_slides,
           .read = read_qwen3},
    Family{.model_type = "qwen3_moe",
           .architecture = "Qwen3MoeForCausalLM",
           .num_kv_heads = 4,
           .max_position_embeddings = 32768,
           .sliding_window = 4096,
           .slides = qwen3_moe_slides,
           .read = read_qwen3_moe},
    Family{.model_type = "qwen3_vl_text",
           .architecture = "Qwen3ForCausalLM",
           .num_kv_heads = 32,
           .head_dim = 128,
           .max_position_embeddings = 128000,
           .rope_theta = 500000,
           .read = read_qwen3},
    Family{.model_type = "gemma2",
           .architecture = "Gemma2ForCausalLM",
           .num_heads = 8,
           .num_kv_heads = 4,
           .head_dim = 256,
           .vocab_size = 256000,
           .max_position_embeddings = 8192,
           .ties_embeddings = true,
           .bos_token_id = 2,
           .eos_token_id = 1,
           .sliding_window = 4096,
           .slides = gemma2_slides,
           .read = read_gemma},
    Family{.model_type = "gemma3_text",
           .architecture = "Gemma3ForCausalLM",
           .num_heads = 8,
           .num_kv_heads = 4,
           .head_dim = 256,
           .vocab_size = 262208,
           .max_position_embeddings = 131072,
           .rope_theta = 1e6,
           .ties_embeddings = true,
           .bos_token_id = 2,
           .eos_token_id = 1,
           .sliding_window = 4096,
           .slides = gemma3_slides,
           .read = read_gemma},
    Family{.model_type = "phi3",
           .architecture = "Phi3ForCausalLM",
           .max_position_embeddings = 4096,
           .rms_norm_eps = 1e-5,
           .bos_token_id = 1,
           .eos_token_id = 32000,
           .slides = all_slide,
           .read = read_phi3},
    Family{.model_type = "smollm3",
           .architecture = "SmolLM3ForCausalLM",
           .num_kv_heads = 4,
           .max_position_embeddings = 32768,
           .rope_theta = 2e6,
           .ties_embeddings = true,
           .bos_token_id = 128000,
           .eos_token_id = 128001,
           .slides = smollm3_slides,
           .read = read_smollm3},
    Family{.model_type = "olmo2",
           .architecture = "Olmo2ForCausalLM",
           .max_position_embeddings = 2048,
           .rms_norm_eps = 1e-5,
           .eos_token_id = 50279,
           .read = read_attention_bias},
    Family{.model_type = "glm4",
           .architecture = "Glm4ForCausalLM",
           .num_kv_heads = 2,
           .head_dim = 128,
           .max_position_embeddings = 131072,
           .rms_norm_eps = 1.5625e-7,
           .partial_rotary_factor = 0.5,
           .read = read_glm4},
    Family{.model_type = "glm4_moe",
           .architecture = "Glm4MoeForCausalLM",
           .num_heads = 96,
           .num_kv_heads = 8,
           .max_position_embeddings = 131072,
           .rms_norm_eps = 1e-5,
           .partial_rotary_factor = 0.5,
           .read = read_glm4_moe},
    Family{.model_type = "granite",
           .architecture = "GraniteForCausalLM",
           .max_position_embeddings = 2048,
           .bos_token_id = 1,
           .eos_token_id = 2,
           .read = read_granite},
    Family{.model_type = "seed_oss",
           .architecture = "SeedOssForCausalLM",
           .num_kv_heads = 8,
           .head_dim = 128,
           .max_position_embeddings = 524288,
           .bos_token_id = 0,
           .eos_token_id = 2,
           .read = read_seed_oss},
};

// Returns for each layer whether it has a window, for a model that has windows.
std::vector<bool> sliding_layers(const json::Object& config, const Family& family,
                                 int64_t num_layers) {
  std::vector<bool> slides(static_cast<size_t>(num_layers));
  if (!config.has("layer_types")) {
    for (int64_t i = 0; i < num_layers; ++i)
      slides[i] = family.slides(config, i);
    return slides;
  }
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

}  // namespace

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

std::vector<LayerKind> read_layers(const json::Object& config, const Family& family) {
  const int64_t num_layers = count_at(config, "num_hidden_layers", kMaxLayers);
  std::vector<LayerKind> layers(static_cast<size_t>(num_layers));
  const bool is_null = present(config, "sliding_window") && !config.has("sliding_window");
  const bool is_absent = !config.has("sliding_window") && !family.sliding_window;
  if (family.slides == nullptr || is_null || is_absent) return layers;
  // Where a family has the key use_sliding_window, layers have no window unless the config sets the
  // key to true.
  const bool has_switch = family.slides == qwen_slides || family.slides == smollm3_slides ||
                          family.slides == qwen3_moe_slides;
  if (has_switch && !config.bool_or("use_sliding_window", false)) return layers;
  const std::vector<bool> slides = sliding_layers(config, family, num_layers);
  const int64_t window =
      count_or(config, "sliding_window", family.sliding_window.value_or(0), kMaxPositions);
  for (size_t i = 0; i < layers.size(); ++i) {
    if (slides[i]) layers[i].window = window;
  }
  return layers;
}

namespace {

void read_llama3(const json::Object& params, Rope& rope) {
  rope.low_freq_factor =
      real(params, "low_freq_factor", params.double_at("low_freq_factor"), kLeastFactor);
  rope.high_freq_factor =
      real(params, "high_freq_factor", params.double_at("high_freq_factor"), kLeastFactor);
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    fail(ErrorKind::kModel, "{}: key 'high_freq_factor' must be above 'low_freq_factor'",
         params.where());
  }
}

// Returns the factor of attention's scores for positions that are stretched by `factor`.
double mscale(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

void read_yarn(const json::Object& params, Rope& rope) {
  rope.beta_fast = real_or(params, "beta_fast", 32, kLeastFactor);
  rope.beta_slow = real_or(params, "beta_slow", 1, kLeastFactor);
  rope.truncate = params.bool_or("truncate", true);
  const double weight = params.double_or("mscale", 0);
  const double weight_all = params.double_or("mscale_all_dim", 0);
  const double derived = weight != 0 && weight_all != 0
                             ? mscale(rope.factor, weight) / mscale(rope.factor, weight_all)
                             : mscale(rope.factor, 1);
  rope.attention_factor = real_or(params, "attention_factor", derived, kLeastFactor);
}

std::vector<double> read_divisors(const json::Object& params, std::string_view key,
                                  int64_t num_pairs) {
  std::vector<double> divisors;
  for (const json::value& number : params.array_at(key)) {
    const double divisor = number.is_number() ? number.to_number<double>() : 0;
    divisors.push_back(real(params, key, divisor, kLeastFactor));
  }
  if (static_cast<int64_t>(divisors.size()) != num_pairs) {
    fail(ErrorKind::kModel, "{}: key '{}' must have {} numbers, one of each pair, not {}",
         params.where(), key, num_pairs, divisors.size());
  }
  return divisors;
}

void read_longrope(const json::Object& params, const ModelConfig& model, Rope& rope) {
  const int64_t num_pairs = rope.turned(model.head_dim) / 2;
  rope.short_factor = read_divisors(params, "short_factor", num_pairs);
  rope.long_factor = read_divisors(params, "long_factor", num_pairs);
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  rope.factor =
      real_or(params, "factor", static_cast<double>(model.max_position_embeddings) / original, 0);
  const double derived =
      rope.factor <= 1 ? 1 : std::sqrt(1 + std::log(rope.factor) / std::log(original));
  rope.attention_factor = real_or(params, "attention_factor", derived, kLeastFactor);
}

// "su" and, in Phi's configs, "yarn" are older names of longrope.
RopeScaling scaling_of(const json::Object& params, const Family& family) {
  const std::string type = params.string_or("rope_type", params.string_or("type", "default"));
  // mrope's three sections of positions are equal for text, so it is a plain rotation.
  if (type == "default" || type == "mrope") return RopeScaling::kNone;
  if (type == "linear") return RopeScaling::kLinear;
  if (type == "llama3") return RopeScaling::kLlama3;
  if (type == "dynamic") return RopeScaling::kDynamic;
  if (type == "longrope" || type == "su") return RopeScaling::kLongrope;
  if (type == "yarn" && family.model_type != "phi3") return RopeScaling::kYarn;
  if (type == "yarn") return RopeScaling::kLongrope;
  fail(ErrorKind::kUnsupported,
       "{}: rope_type {:?} is not supported; supported: default, linear, llama3, yarn, dynamic, "
       "longrope",
       params.where(), type.substr(0, 80));
}

// Reads one rotation from the object that names its type.
Rope read_rope(const json::Object& config, const json::Object& params, const Family& family,
               const ModelConfig& model, double theta) {
  Rope rope;
  rope.theta = real(params, "rope_theta", params.double_or("rope_theta", theta), 1);
  const double part =
      params.double_or("partial_rotary_factor",
                       config.double_or("partial_rotary_factor", family.partial_rotary_factor));
  real(config, "partial_rotary_factor", part, 0);
  if (part != 1) {
    rope.rotary_dim =
        static_cast<int64_t>(static_cast<double>(model.head_dim) * std::min(part, 2.0));
    in_range(config, "partial_rotary_factor", rope.rotary_dim, 2, model.head_dim);
    if (rope.rotary_dim % 2 != 0) {
      fail(ErrorKind::kModel,
           "{}: partial_rotary_factor {} turns {} elements of a head: an odd "
           "number",
           config.where(), part, rope.rotary_dim);
    }
    if (rope.rotary_dim == model.head_dim) rope.rotary_dim = 0;
  }
  rope.scaling = scaling_of(params, family);
  if (rope.scaling == RopeScaling::kNone) return rope;
  if (rope.scaling != RopeScaling::kLongrope)
    rope.factor = real(params, "factor", params.double_at("factor"), kLeastFactor);
  if (rope.scaling == RopeScaling::kLinear) return rope;
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  rope.original_max_position_embeddings = model.max_position_embeddings;
  if (rope.scaling != RopeScaling::kDynamic) {
    rope.original_max_position_embeddings =
        config.has(kOriginal)
            ? count_at(config, kOriginal, kMaxPositions)
            : count_or(params, kOriginal, model.max_position_embeddings, kMaxPositions);
  }
  if (rope.scaling == RopeScaling::kLlama3) read_llama3(params, rope);
  if (rope.scaling == RopeScaling::kYarn) read_yarn(params, rope);
  if (rope.scaling == RopeScaling::kLongrope) read_longrope(params, model, rope);
  return rope;
}

}  // namespace

void read_ropes(const json::Object& config, const Family& family, ModelConfig& model) {
  const json::value none = json::object();
  json::Object params(none, config.where());
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    if (config.has(key) && !config.object_at(key).raw().empty()) {
      params = config.object_at(key);
      break;
    }
  }
  const double theta = real_or(config, "rope_theta", family.rope_theta, 1);
  constexpr std::string_view kFull = "full_attention";
  constexpr std::string_view kSliding = "sliding_attention";
  const bool by_type = params.has(kFull) || params.has(kSliding);
  // In Gemma 3, layers with a window have another base of the rotation.
  if (!by_type && family.model_type != "gemma3_text") {
    for (const auto& item : params.raw()) {
      if (!item.value().is_object()) continue;
      fail(ErrorKind::kUnsupported,
           "{}: RoPE by other types of layers than {} and {} is not supported", params.where(),
           kFull, kSliding);
    }
    model.ropes = {read_rope(config, params, family, model, theta)};
    return;
  }
  const json::Object plain(none, config.where());
  const double sliding_theta = real_or(config, "rope_local_base_freq", 10000, 1);
  const auto params_of = [&](std::string_view type) {
    return params.has(type) ? params.object_at(type) : plain;
  };
  model.ropes = {
      read_rope(config, by_type ? params_of(kFull) : params, family, model, theta),
      read_rope(config, by_type ? params_of(kSliding) : plain, family, model, sliding_theta)};
  for (LayerKind& layer : model.layers)
    layer.rope = layer.window ? 1 : 0;
}

}  // namespace encore::model
