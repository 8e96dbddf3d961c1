// The families of models that config.json may name: what each implies, and the keys of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "model/config.h"

namespace encore::model {

// A model type: what it implies, and its values for absent keys, as the reference implementation
// has them. A zero says that the key must be there, unless its line says otherwise.
struct Family {
  std::string_view model_type;
  std::string_view architecture;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // 0: as many as query heads
  int64_t head_dim = 0;      // 0: D / H
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000;
  double partial_rotary_factor = 1;
  bool ties_embeddings = false;
  std::optional<int32_t> bos_token_id = {};
  std::optional<int32_t> eos_token_id = {};
  // The window of the layers that have one, where config.json names none. Absent: then no layer has a window.
  std::optional<int64_t> sliding_window = {};
  // Tells whether a layer slides where the config has no list of layer types. Null: none ever does.
  bool (*slides)(const json::Object& config, int64_t layer) = nullptr;
  // Reads the keys of its own, behind all others. Null: it has none.
  void (*read)(const json::Object& config, ModelConfig& model) = nullptr;
};

// Errors: kUnsupported, listing those that exist, where the config's model type is none of them.
const Family& family_of(const json::Object& config);

// The layers, with their windows. Errors: kModel, kUnsupported.
std::vector<LayerKind> read_layers(const json::Object& config, const Family& family);

// The rotations, and which of them each layer has. REQUIRES: the model's layers, head_dim and
// max_position_embeddings. Errors: kModel, kUnsupported.
void read_ropes(const json::Object& config, const Family& family, ModelConfig& model);

}  // namespace encore::model
