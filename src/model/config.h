// The numbers of an architecture, read from a checkpoint's config.json.
//
// Shape letters, here and in all model code:
//   T tokens in the step   B sequences in the step   D hidden size   H query heads   K key/value
//   heads C head size   F feed-forward size   V vocabulary   P pages   S slots per page
//   E experts   X experts that a token chooses
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "model/format/quantization.h"
#include "model/rope.h"

namespace encore::json {
class Object;
}

namespace encore::model {

// The way in which a layer computes its feed-forward part.
enum class MlpKind : uint8_t {
  kDense,    // down(activation(gate(x)) * up(x))
  kExperts,  // the same of each expert that a router chooses for the token, added by its weights
};

// The function that gates pass through.
enum class Activation : uint8_t { kSilu, kGeluTanh };

// Everything in which one layer of a model may differ from another.
struct LayerKind {
  // Each token attends to itself and the window - 1 tokens before it. None: to all before it.
  std::optional<int64_t> window;
  // The one of ModelConfig::ropes that turns q and k. None: positions do not show in this layer.
  std::optional<size_t> rope = 0;
  MlpKind mlp = MlpKind::kDense;

  bool operator==(const LayerKind&) const = default;
};

// Does a layer's window hide any token of sequences of up to `max_seq_len`? One that none outgrows does not.
inline bool has_window(const LayerKind& layer, int64_t max_seq_len) {
  return layer.window && *layer.window < max_seq_len;
}

// Describes the experts of layers of MlpKind::kExperts.
struct Experts {
  // The names that a checkpoint has for a layer's block of experts, and for the projections of
  // each.
  struct Names {
    std::string block = "mlp";
    std::string gate = "gate_proj";
    std::string up = "up_proj";
    std::string down = "down_proj";
    bool operator==(const Names&) const = default;
  };

  int64_t num_experts = 0;          // E
  int64_t num_experts_per_tok = 0;  // X, at most E
  int64_t intermediate_size = 0;    // F of one of them
  bool norm_topk_prob = false;      // the weights of those that are chosen are divided by their sum
  bool sigmoid = false;             // scores are sigmoids of logits; else their softmax
  bool correction_bias = false;     // a bias is added to scores for the choice alone
  int64_t groups = 1;               // of neighbours, of which
  int64_t groups_kept = 1;          // the best are chosen from
  double scaling_factor = 1;        // weights are multiplied by it
  int64_t shared_size = 0;          // F of experts that all tokens pass, together; 0: none
  Names names = {};

  bool operator==(const Experts&) const = default;
};

// A decoder-only transformer: RMS norm, rotary positions, grouped-query attention, gated feed-forward.
// Made by `parse_config`, `read_config` or `preset`; those guarantee what is said of each field.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM": which builder makes the graph
  std::string model_type;    // "llama": which defaults held for absent keys

  std::vector<LayerKind> layers;        // from the first on
  int64_t hidden_size = 0;              // D
  int64_t num_heads = 0;                // H, a multiple of K
  int64_t num_kv_heads = 0;             // K
  int64_t head_dim = 0;                 // C, even; H * C need not be D
  int64_t intermediate_size = 0;        // F, of dense layers
  int64_t vocab_size = 0;               // V, as the embedding has it: may exceed the tokenizer's
  int64_t max_position_embeddings = 0;  // Units: tokens.

  std::optional<Experts> experts;  // there if a layer has some

  double rms_norm_eps = 1e-6;
  double norm_offset = 0;  // added to the weights of all RMS norms
  Activation activation = Activation::kSilu;
  std::vector<Rope> ropes{Rope{}};  // the rotations that layers choose from

  double embedding_scale = 1;               // embeddings are multiplied by it
  std::optional<double> attention_scale;    // scores are multiplied by it; none: 1 / sqrt(C)
  std::optional<double> attention_softcap;  // scores are limited to it; none: they are not
  double residual_scale = 1;  // what attention and feed-forward add is multiplied by it
  double logits_scale = 1;
  std::optional<double> logits_softcap;

  bool tie_word_embeddings = false;  // the output projection is the embedding
  bool qkv_bias = false;             // q_proj, k_proj and v_proj have a bias
  bool o_bias = false;               // o_proj has a bias
  bool mlp_bias = false;             // gate_proj, up_proj and down_proj have a bias
  bool qk_norm = false;              // each head of q and k passes an RMS norm before RoPE
  bool merged_qkv = false;           // the checkpoint has q, k and v in one tensor, qkv_proj
  bool merged_gate_up = false;       // and gate and up in one, gate_up_proj

  DType dtype = DType::kBF16;                // to compute in; bf16 when the config does not say
  std::optional<Quantization> quantization;  // of weights; none: they are floats

  // generation_config.json's where it names them, config.json's otherwise. Each in [0, 2^31).
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // any of them ends a sequence; may be empty

  [[nodiscard]] int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  // Columns of q: H * C.
  [[nodiscard]] int64_t q_size() const { return num_heads * head_dim; }
  // Columns of k, and of v: K * C.
  [[nodiscard]] int64_t kv_size() const { return num_kv_heads * head_dim; }

  bool operator==(const ModelConfig&) const = default;
};

// Reads a config in the classic spelling (rope_theta, rope_scaling, torch_dtype) or that of
// transformers 5 (rope_parameters, dtype). Absent keys take the model type's defaults, but the
// sizes of the weights must be there. The objects of generation_config.json and
// hf_quant_config.json may be null. Errors: kModel on a missing key, a wrong type or an impossible
// value; kUnsupported, naming what is supported, on a model type, architecture, activation, RoPE
// type or quantization Encore lacks. A config of several kinds of input is read for its text model
// alone (`text_config`).
ModelConfig parse_config(const json::Object& config, const json::Object* generation_config,
                         const json::Object* hf_quant_config = nullptr);

// Parses config.json of a checkpoint's directory, and generation_config.json and
// hf_quant_config.json where they are there.
// Errors: as parse_config; kModel when the directory or its config.json is missing.
ModelConfig read_config(const std::filesystem::path& dir);

// The published shape of a well-known model, for synthetic weights: "llama-3.2-1b", "llama-3.1-8b",
// "llama-3.1-70b", "qwen3-0.6b", "qwen3-8b", "qwen3-30b-a3b", "qwen2.5-0.5b", "mistral-7b". None for
// another name.
std::optional<ModelConfig> preset(std::string_view name);
std::vector<std::string_view> preset_names();

// Tokens that one sequence of the model may have: its positions, times the factor by which dynamic
// RoPE stretches them.
int64_t longest_sequence(const ModelConfig& config);

}  // namespace encore::model
