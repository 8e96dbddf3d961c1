// Describes the families of models that config.json may name: what each family implies, and the
// keys that only it has.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/json.h"
#include "model/config.h"

namespace encore::model {

// Describes a model type: what it implies, and its defaults for absent keys, which are those of the
// reference implementation. A zero means that the key must be present, unless the field's comment
// says otherwise.
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
  // `sliding_window` is the default window of layers that have a window. Absent: no layer has a
  // window unless config.json names one.
  std::optional<int64_t> sliding_window = {};
  // Returns whether a layer has a sliding window, for a config without a list of layer types. Null:
  // no layer has one.
  bool (*slides)(const json::Object& config, int64_t layer) = nullptr;
  // Reads the keys that only this family has, after all other keys. Null: the family has no such
  // keys.
  void (*read)(const json::Object& config, ModelConfig& model) = nullptr;
};

// Returns the family of the config's model type. Errors: kUnsupported, listing the known model
// types, for another one.
const Family& family_of(const json::Object& config);

// Reads the layers with their windows. Errors: kModel, kUnsupported.
std::vector<LayerKind> read_layers(const json::Object& config, const Family& family);

// Reads the rotations, and sets which of them each layer has. REQUIRES: the model's layers,
// head_dim and max_position_embeddings are set. Errors: kModel, kUnsupported.
void read_ropes(const json::Object& config, const Family& family, ModelConfig& model);

}  // namespace encore::model
