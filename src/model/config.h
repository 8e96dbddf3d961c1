// The numbers of an architecture, read from a checkpoint's config.json.
//
// Shape letters, here and in all model code:
//   T tokens in the step   B sequences in the step   D hidden size   H query heads   K key/value
//   heads C head size   F feed-forward size   V vocabulary   P pages   S slots per page
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace encore::json {
class Object;
}

namespace encore::model {

enum class RopeScaling {
  kNone,
  kLinear,  // every frequency divided by `factor`
  kLlama3,  // low frequencies divided, high ones kept, a ramp between
};

// Rotary position embedding over all of a head: pairs (i, i + C/2), angle = position * inv_freq[i].
struct Rope {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;  // kLinear, kLlama3
  // kLlama3: wavelengths above original/low are divided, those below original/high are kept.
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  int64_t original_max_position_embeddings = 0;  // Units: tokens; set for kLlama3 only.

  bool operator==(const Rope&) const = default;
};

// How a layer computes its feed-forward part.
enum class MlpKind : uint8_t {
  kDense,  // down(silu(gate(x)) * up(x))
};

// Everything in which one layer of a model may differ from another.
struct LayerKind {
  // Each token attends to itself and the window - 1 tokens before it. None: to all before it.
  std::optional<int64_t> window;
  // Which of ModelConfig::ropes turns q and k. None: positions do not show in this layer.
  std::optional<size_t> rope = 0;
  MlpKind mlp = MlpKind::kDense;

  bool operator==(const LayerKind&) const = default;
};

// A decoder-only transformer: RMS norm, rotary positions, grouped-query attention, gated SiLU.
// Made by `parse_config`, `read_config` or `preset`; those guarantee what is said of each field.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM": which builder makes the graph
  std::string model_type;    // "llama": which defaults held for absent keys

  std::vector<LayerKind> layers;        // from the first on
  int64_t hidden_size = 0;              // D
  int64_t num_heads = 0;                // H, a multiple of K
  int64_t num_kv_heads = 0;             // K
  int64_t head_dim = 0;                 // C, even; H * C need not be D
  int64_t intermediate_size = 0;        // F
  int64_t vocab_size = 0;               // V, as the embedding has it: may exceed the tokenizer's
  int64_t max_position_embeddings = 0;  // Units: tokens.

  double rms_norm_eps = 1e-6;
  std::vector<Rope> ropes{Rope{}};  // the rotations that layers choose from

  bool tie_word_embeddings = false;  // the output projection is the embedding
  bool qkv_bias = false;             // q_proj, k_proj and v_proj have a bias
  bool o_bias = false;               // o_proj has a bias
  bool mlp_bias = false;             // gate_proj, up_proj and down_proj have a bias
  bool qk_norm = false;              // each head of q and k passes an RMS norm before RoPE

  DType dtype = DType::kBF16;  // to compute in; bf16 when the config does not say

  // generation_config.json's where it names them, config.json's otherwise. Each in [0, 2^31).
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // any of them ends a sequence; may be empty

  [[nodiscard]] int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  // The shortest window of all layers. None where no layer has one. Builders here have no such
  // mask: a caller must refuse to serve more tokens than this.
  [[nodiscard]] std::optional<int64_t> shortest_window() const;
  // Columns of q: H * C.
  [[nodiscard]] int64_t q_size() const { return num_heads * head_dim; }
  // Columns of k, and of v: K * C.
  [[nodiscard]] int64_t kv_size() const { return num_kv_heads * head_dim; }

  bool operator==(const ModelConfig&) const = default;
};

// Reads a config in the classic spelling (rope_theta, rope_scaling, torch_dtype) or that of
// transformers 5 (rope_parameters, dtype). Absent keys take the model type's defaults, but the
// sizes of the weights must be there. `generation_config` may be null. Errors: kModel on a missing
// key, a wrong type or an impossible value; kUnsupported, naming what is supported, on a model
// type, architecture, activation, RoPE type or quantization Encore lacks.
ModelConfig parse_config(const json::Object& config, const json::Object* generation_config);

// Parses config.json and, when it is there, generation_config.json of a checkpoint's directory.
// Errors: as parse_config; kModel when the directory or its config.json is missing.
ModelConfig read_config(const std::filesystem::path& dir);

// The published shape of a well-known model, for synthetic weights: "llama-3.2-1b", "llama-3.1-8b",
// "llama-3.1-70b", "qwen3-0.6b", "qwen3-8b", "qwen2.5-0.5b", "mistral-7b". None for another name.
std::optional<ModelConfig> preset(std::string_view name);
std::vector<std::string_view> preset_names();

// The angle per position of each of a head's C/2 pairs, scaling applied; computed in f32 steps as the
// checkpoints' reference does, so that angles agree far into a long context.
// Source: Su et al., "RoFormer", arXiv:2104.09864, section 3.2.2; Llama 3.1's scaling as published
// with its reference code.
std::vector<float> inv_freq(const Rope& rope, int64_t head_dim);

// Tokens that one sequence of the model may have: its positions, or its shortest window where that
// is less.
int64_t longest_sequence(const ModelConfig& config);

}  // namespace encore::model
