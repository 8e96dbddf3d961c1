#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "model/gguf/metadata.h"

namespace encore::model::gguf {
namespace {

struct Architecture {
  std::string_view name;  // the name in general.architecture, and the model_type
  std::string_view class_name;
};
constexpr std::array kArchitectures = {Architecture{"llama", "LlamaForCausalLM"},
                                       Architecture{"qwen2", "Qwen2ForCausalLM"},
                                       Architecture{"qwen3", "Qwen3ForCausalLM"}};

const Architecture& architecture_of(const File& file) {
  const std::string_view name = file.text("general.architecture");
  std::string known;
  for (const Architecture& row : kArchitectures) {
    if (row.name == name) return row;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  fail(ErrorKind::kUnsupported, "{}: general.architecture {:?} is not supported; supported: {}",
       file.path().string(), name.substr(0, 80), known);
}

// Returns Llama 3's scaling of RoPE: frequencies of wavelengths above 8192 are divided by the
// factor, those below a quarter of it are kept. The file only has the divisor of each frequency, so
// the other numbers are assumed.
json::object rope_scaling(const File& file, double theta, int64_t head_dim) {
  constexpr double kOriginal = 8192;
  constexpr double kLowFactor = 1;
  constexpr double kHighFactor = 4;
  const Tensor& tensor = file.tensors().find("rope_freqs.weight")->second;
  const int64_t count = tensor.shape.num_elements();
  const auto refuse = [&](std::string_view why) {
    fail(ErrorKind::kUnsupported, "{}: tensor \"rope_freqs.weight\" {}", file.path().string(), why);
  };
  if (count != head_dim / 2 || tensor.format->widen == nullptr)
    refuse("is no number for each frequency");
  std::vector<float> divisors(static_cast<size_t>(count));
  widen(*tensor.format, tensor.data, 0, count, divisors.data());
  const double factor = *std::ranges::max_element(divisors);
  for (int64_t i = 0; i < count; ++i) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
    const double turns = kOriginal * frequency / (2 * M_PI);
    const double smooth = std::clamp((turns - kLowFactor) / (kHighFactor - kLowFactor), 0.0, 1.0);
    const double expected = 1 / ((1 - smooth) / factor + smooth);
    if (!(std::abs(divisors[static_cast<size_t>(i)] - expected) < 1e-3 * expected))
      refuse("is not Llama 3's scaling of frequencies, and no other is known");
  }
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", kLowFactor},
          {"high_freq_factor", kHighFactor},
          {"original_max_position_embeddings", static_cast<int64_t>(kOriginal)}};
}

// Returns the default dtype of activations, which is the dtype of most weights.
std::string_view dtype_of(const File& file) {
  int64_t halves = 0;
  int64_t floats = 0;
  int64_t all = 0;
  for (const auto& [name, tensor] : file.tensors()) {
    all += tensor.shape.num_elements();
    if (tensor.format->name == "F16") halves += tensor.shape.num_elements();
    if (tensor.format->name == "F32") floats += tensor.shape.num_elements();
  }
  return 2 * halves > all ? "float16" : 2 * floats > all ? "float32" : "bfloat16";
}

}  // namespace

json::object config_json(const File& file) {
  const Architecture& architecture = architecture_of(file);
  const auto key = [&](std::string_view name) {
    return fmt::format("{}.{}", architecture.name, name);
  };
  const auto copy = [&](json::object& config, std::string_view to, std::string_view from) {
    config[to] = file.integer(key(from));
  };
  json::object config{{"model_type", architecture.name},
                      {"architectures", json::array{architecture.class_name}},
                      {"hidden_act", "silu"},
                      {"torch_dtype", dtype_of(file)},
                      {"tie_word_embeddings", !file.has_tensor("output.weight")}};
  copy(config, "num_hidden_layers", "block_count");
  copy(config, "hidden_size", "embedding_length");
  copy(config, "intermediate_size", "feed_forward_length");
  copy(config, "num_attention_heads", "attention.head_count");
  copy(config, "max_position_embeddings", "context_length");
  if (file.has(key("expert_count")) && file.integer(key("expert_count")) > 0)
    fail(ErrorKind::kUnsupported, "{}: key '{}': experts are not supported", file.path().string(),
         key("expert_count"));
  const int64_t heads = file.integer(key("attention.head_count"));
  config["num_key_value_heads"] = file.has(key("attention.head_count_kv"))
                                      ? file.integer(key("attention.head_count_kv"))
                                      : heads;
  const int64_t width = file.integer(key("embedding_length"));
  const int64_t head_dim = file.has(key("attention.key_length"))
                               ? file.integer(key("attention.key_length"))
                           : heads > 0 ? width / heads
                                       : 0;
  config["head_dim"] = head_dim;
  if (file.has(key("attention.value_length")) &&
      file.integer(key("attention.value_length")) != head_dim)
    fail(ErrorKind::kUnsupported, "{}: key '{}' differs from that of keys", file.path().string(),
         key("attention.value_length"));
  if (file.has(key("rope.dimension_count")) &&
      file.integer(key("rope.dimension_count")) != head_dim)
    fail(ErrorKind::kUnsupported, "{}: key '{}': all of a head is rotated, or nothing",
         file.path().string(), key("rope.dimension_count"));
  config["rms_norm_eps"] = file.number(key("attention.layer_norm_rms_epsilon"));
  const double theta = file.has(key("rope.freq_base")) ? file.number(key("rope.freq_base")) : 10000;
  config["rope_theta"] = theta;
  const std::string scaling = key("rope.scaling.type");
  if (file.has_tensor("rope_freqs.weight")) {
    config["rope_scaling"] = rope_scaling(file, theta, head_dim);
  } else if (file.has(scaling) && file.text(scaling) != "none") {
    config["rope_scaling"] = json::object{{"rope_type", file.text(scaling)},
                                          {"factor", file.number(key("rope.scaling.factor"))}};
  }
  config["vocab_size"] = file.has(key("vocab_size"))
                             ? file.integer(key("vocab_size"))
                             : std::ssize(file.texts("tokenizer.ggml.tokens"));
  if (architecture.name == "llama") {
    config["attention_bias"] = file.has_tensor("blk.0.attn_q.bias");
    config["mlp_bias"] = file.has_tensor("blk.0.ffn_up.bias");
  }
  const std::string bos = "tokenizer.ggml.bos_token_id";
  config["bos_token_id"] = file.has(bos) ? json::value(file.integer(bos)) : json::value(nullptr);
  json::array ends;
  for (const std::string_view end :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (!file.has(end)) continue;
    const json::value id = file.integer(end);
    if (std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  }
  config["eos_token_id"] = ends.empty() ? json::value(nullptr) : json::value(ends);
  return config;
}

ModelConfig read_config(const File& file) {
  const json::value config = config_json(file);
  return parse_config(json::Object(config, file.path().string()), nullptr);
}

std::string tensor_name(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kWhole[] = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"},
  };
  static constexpr std::pair<std::string_view, std::string_view> kOfLayers[] = {
      {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},
  };
  for (const auto& [theirs, ours] : kWhole) {
    if (name == theirs) return std::string(ours);
  }
  constexpr std::string_view kLayer = "model.layers.";
  if (!name.starts_with(kLayer)) return "";
  const size_t dot = name.find('.', kLayer.size());
  const size_t last = name.rfind('.');
  if (dot == std::string_view::npos || last <= dot) return "";
  const std::string_view number = name.substr(kLayer.size(), dot - kLayer.size());
  const std::string_view part = name.substr(dot + 1, last - dot - 1);
  for (const auto& [theirs, ours] : kOfLayers) {
    if (part == theirs) return fmt::format("blk.{}.{}{}", number, ours, name.substr(last));
  }
  return "";
}

}  // namespace encore::model::gguf
