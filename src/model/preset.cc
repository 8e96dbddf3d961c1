#include <array>

#include "model/config.h"

namespace encore::model {
namespace {

// Holds the numbers of one preset. The code below fills in the fields that all models of a family
// share.
struct Preset {
  std::string_view name;
  std::string_view model_type;
  int64_t num_layers;
  int64_t hidden_size;        // D
  int64_t num_heads;          // H
  int64_t num_kv_heads;       // K
  int64_t head_dim;           // C
  int64_t intermediate_size;  // F
  int64_t vocab_size;         // V
  bool tie_word_embeddings;
  double llama3_factor;  // factor of Llama 3's RoPE scaling; 0: no scaling
  int64_t num_experts = 0;
  int64_t num_experts_per_tok = 0;
  int64_t moe_intermediate_size = 0;
};
constexpr std::array kPresets = {
    Preset{"llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, true, 32},
    Preset{"llama-3.1-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, false, 8},
    // This draft model reads as many bytes as an EAGLE-3 head of the 8B model, which has products
    // with wider inputs and fewer columns in between.
    Preset{"llama-3.1-8b-draft", "llama", 1, 4096, 32, 8, 128, 20480, 32000, false, 8},
    Preset{"llama-3.1-70b", "llama", 80, 8192, 64, 8, 128, 28672, 128256, false, 8},
    Preset{"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, true, 0},
    Preset{"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, false, 0},
    Preset{"qwen3-30b-a3b", "qwen3_moe", 48, 2048, 32, 4, 128, 6144, 151936, false, 0, 128, 8, 768},
    Preset{"qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, true, 0},
    Preset{"mistral-7b", "mistral", 32, 4096, 32, 8, 128, 14336, 32768, false, 0},
};

void fill_family(const Preset& row, ModelConfig& model) {
  if (row.model_type == "llama") {
    model.architecture = "LlamaForCausalLM";
    model.max_position_embeddings = 131072;
    model.rms_norm_eps = 1e-5;
    model.ropes = {{.theta = 500000,
                    .scaling = RopeScaling::kLlama3,
                    .factor = row.llama3_factor,
                    .low_freq_factor = 1,
                    .high_freq_factor = 4,
                    .original_max_position_embeddings = 8192}};
    model.bos_token_id = 128000;
    model.eos_token_ids = {128001};
  } else if (row.model_type == "qwen3" || row.model_type == "qwen3_moe") {
    model.architecture = row.num_experts > 0 ? "Qwen3MoeForCausalLM" : "Qwen3ForCausalLM";
    model.max_position_embeddings = 40960;
    model.ropes = {{.theta = 1e6}};
    model.qk_norm = true;
    model.bos_token_id = 151643;
    model.eos_token_ids = {151645, 151643};
  } else if (row.model_type == "qwen2") {
    model.architecture = "Qwen2ForCausalLM";
    model.max_position_embeddings = 32768;
    model.ropes = {{.theta = 1e6}};
    model.qkv_bias = true;
    model.bos_token_id = 151643;
    model.eos_token_ids = {151643};
  } else {
    model.architecture = "MistralForCausalLM";
    model.max_position_embeddings = 32768;
    model.rms_norm_eps = 1e-5;
    model.ropes = {{.theta = 1e6}};
    model.bos_token_id = 1;
    model.eos_token_ids = {2};
  }
}

}  // namespace

std::optional<ModelConfig> preset(std::string_view name) {
  for (const Preset& row : kPresets) {
    if (row.name != name) continue;
    ModelConfig model;
    model.model_type = row.model_type;
    model.layers.resize(static_cast<size_t>(row.num_layers));
    model.hidden_size = row.hidden_size;
    model.num_heads = row.num_heads;
    model.num_kv_heads = row.num_kv_heads;
    model.head_dim = row.head_dim;
    model.intermediate_size = row.intermediate_size;
    model.vocab_size = row.vocab_size;
    model.tie_word_embeddings = row.tie_word_embeddings;
    if (row.num_experts > 0) {
      for (LayerKind& layer : model.layers)
        layer.mlp = MlpKind::kExperts;
      model.experts = Experts{.num_experts = row.num_experts,
                              .num_experts_per_tok = row.num_experts_per_tok,
                              .intermediate_size = row.moe_intermediate_size,
                              .norm_topk_prob = true};
    }
    fill_family(row, model);
    return model;
  }
  return std::nullopt;
}

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const Preset& row : kPresets)
    names.push_back(row.name);
  return names;
}

}  // namespace encore::model
