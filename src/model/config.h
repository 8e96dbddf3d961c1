// Reads the numbers of an architecture from a checkpoint's config.json.
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

// Says how a layer computes its feed-forward part.
enum class MlpKind : uint8_t {
  kDense,    // down(activation(gate(x)) * up(x))
  kExperts,  // the same for each expert that a router chooses, summed by the router's weights
};

// Names the activation function, which is applied to the gate of the feed-forward.
enum class Activation : uint8_t { kSilu, kGeluTanh };

// Holds everything in which one layer of a model may differ from another.
struct LayerKind {
  // Each token attends to itself and to the window - 1 tokens before it. Absent: it attends to all
  // tokens before it.
  std::optional<int64_t> window;
  // `rope` is the index in ModelConfig::ropes of the rotation that turns q and k. Absent: this
  // layer ignores positions.
  std::optional<size_t> rope = 0;
  MlpKind mlp = MlpKind::kDense;

  bool operator==(const LayerKind&) const = default;
};

// Returns whether a layer's window hides any token of sequences of up to `max_seq_len` tokens. A
// window that is at least as long hides none.
inline bool has_window(const LayerKind& layer, int64_t max_seq_len) {
  return layer.window && *layer.window < max_seq_len;
}

// Describes the experts of layers of MlpKind::kExperts.
struct Experts {
  // Holds the names that a checkpoint uses for a layer's block of experts and for each expert's
  // projections.
  struct Names {
    std::string block = "mlp";
    std::string gate = "gate_proj";
    std::string up = "up_proj";
    std::string down = "down_proj";
    bool operator==(const Names&) const = default;
  };

  int64_t num_experts = 0;          // E
  int64_t num_experts_per_tok = 0;  // X, at most E
  int64_t intermediate_size = 0;    // F of one expert
  bool norm_topk_prob = false;      // the weights of a token's experts are divided by their sum
  bool sigmoid = false;          // scores are sigmoids of logits; else they are the logits' softmax
  bool correction_bias = false;  // a bias is added to scores to choose experts, not to weigh them
  int64_t groups = 1;            // number of groups that neighbouring experts form
  int64_t groups_kept = 1;       // number of groups that a token's experts may be of
  double scaling_factor = 1;     // the experts' weights are multiplied by it
  int64_t shared_size = 0;       // total F of the experts that all tokens pass; 0: there are none
  Names names = {};

  bool operator==(const Experts&) const = default;
};

// Describes a decoder-only transformer with RMS norms, rotary positions, grouped-query attention
// and gated feed-forward. `parse_config`, `read_config` and `preset` make it, and guarantee the
// properties in the comments of its fields.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM": which builder makes the graph
  std::string model_type;    // "llama": which defaults held for absent keys

  std::vector<LayerKind> layers;        // in order, from the first
  int64_t hidden_size = 0;              // D
  int64_t num_heads = 0;                // H, a multiple of K
  int64_t num_kv_heads = 0;             // K
  int64_t head_dim = 0;                 // C, even; H * C need not be D
  int64_t intermediate_size = 0;        // F of the dense layers
  int64_t vocab_size = 0;               // V, as the embedding has it: may exceed the tokenizer's
  int64_t max_position_embeddings = 0;  // Units: tokens.

  std::optional<Experts> experts;  // set if a layer has experts

  double rms_norm_eps = 1e-6;
  double norm_offset = 0;  // added to the weights of all RMS norms
  Activation activation = Activation::kSilu;
  std::vector<Rope> ropes{Rope{}};  // the rotations that layers choose from

  double embedding_scale = 1;  // embeddings are multiplied by it
  // Attention's scores are multiplied by this. Absent: by 1 / sqrt(C).
  std::optional<double> attention_scale;
  // Attention's scores are limited to this. Absent: there is no limit.
  std::optional<double> attention_softcap;
  double residual_scale = 1;  // outputs of attention and feed-forward are multiplied by it
  double logits_scale = 1;
  std::optional<double> logits_softcap;

  bool tie_word_embeddings = false;  // the output projection is the embedding
  bool qkv_bias = false;             // q_proj, k_proj and v_proj have a bias
  bool o_bias = false;               // o_proj has a bias
  bool mlp_bias = false;             // gate_proj, up_proj and down_proj have a bias
  bool qk_norm = false;              // each head of q and k passes an RMS norm before RoPE
  bool merged_qkv = false;           // the checkpoint has q, k and v in one tensor, qkv_proj
  bool merged_gate_up = false;       // the checkpoint has gate and up in one tensor, gate_up_proj

  DType dtype = DType::kBF16;                // of activations; bf16 when the config does not say
  std::optional<Quantization> quantization;  // how weights are quantized; absent: they are floats

  // The special tokens come from generation_config.json if it names them, else from config.json.
  // Each is in [0, 2^31).
  std::optional<int32_t> bos_token_id;
  std::vector<int32_t> eos_token_ids;  // any of them ends a sequence; may be empty

  [[nodiscard]] int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  // Returns the columns of q: H * C.
  [[nodiscard]] int64_t q_size() const { return num_heads * head_dim; }
  // Returns the columns of k, which are as many as those of v: K * C.
  [[nodiscard]] int64_t kv_size() const { return num_kv_heads * head_dim; }

  bool operator==(const ModelConfig&) const = default;
};

// Reads a config in the classic spelling (rope_theta, rope_scaling, torch_dtype) or in the spelling
// of transformers 5 (rope_parameters, dtype). Absent keys take the model type's defaults, but the
// sizes of the weights must be present. `generation_config` and `hf_quant_config` are the objects
// of the files with these names, and may be null. From a config for several kinds of input, only
// the text model (`text_config`) is read.
// Errors: kModel on a missing key, a wrong type or an impossible value; kUnsupported, naming what
// is supported, on a model type, architecture, activation, RoPE type or quantization that Encore
// lacks.
ModelConfig parse_config(const json::Object& config, const json::Object* generation_config,
                         const json::Object* hf_quant_config = nullptr);

// Reads config.json of a checkpoint's directory, and generation_config.json and
// hf_quant_config.json if they exist.
// Errors: as parse_config; kModel when the directory or its config.json is missing.
ModelConfig read_config(const std::filesystem::path& dir);

// Returns the published shape of a well-known model, for synthetic weights: "llama-3.2-1b",
// "llama-3.1-8b", "llama-3.1-70b", "qwen3-0.6b", "qwen3-8b", "qwen3-30b-a3b", "qwen2.5-0.5b",
// "mistral-7b". Returns nullopt for any other name.
std::optional<ModelConfig> preset(std::string_view name);
std::vector<std::string_view> preset_names();

// Returns the number of tokens that one sequence of the model may have: its positions, times the
// factor by which dynamic RoPE stretches them.
int64_t longest_sequence(const ModelConfig& config);

}  // namespace encore::model
