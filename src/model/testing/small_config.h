// For tests of graphs: provides a model that is small enough for its whole graph to be read.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "model/config.h"

namespace encore::model {

// Returns a config without biases, norms of Q and K, and tied embeddings. Tests set those that
// their architecture has.
inline ModelConfig small_config(std::string architecture, int64_t num_layers) {
  ModelConfig config;
  config.architecture = std::move(architecture);
  config.model_type = "small";
  config.layers.resize(static_cast<size_t>(num_layers));
  config.hidden_size = 64;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.intermediate_size = 96;
  config.vocab_size = 100;
  config.max_position_embeddings = 256;
  return config;
}

}  // namespace encore::model
