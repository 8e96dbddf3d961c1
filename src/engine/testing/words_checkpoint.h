// A tiny model on disk. Two models that load it have the same weights, for example a model and its
// draft model.
#pragma once

#include <random>
#include <string>

#include <fmt/format.h>

#include "model/config.h"
#include "model/source.h"
#include "model/testing/checkpoint_fixture.h"

namespace encore::engine::testing {

// Writes a model of one layer whose vocabulary is so small that drafts are often right.
// `has_twins`: each token of the second half of the vocabulary has the same row of the output layer
// as one of the first half, and so the same logits.
class WordsCheckpoint {
 public:
  static constexpr int32_t kWords = 24;

  explicit WordsCheckpoint(bool has_twins = false) {
    const std::string layer = "model.layers.0.";
    const model::NamedShapes tensors{{"model.embed_tokens.weight", {kWords, 64}},
                                     {"lm_head.weight", {kWords, 64}},
                                     {"model.norm.weight", {64}},
                                     {layer + "input_layernorm.weight", {64}},
                                     {layer + "post_attention_layernorm.weight", {64}},
                                     {layer + "self_attn.q_proj.weight", {128, 64}},
                                     {layer + "self_attn.k_proj.weight", {128, 64}},
                                     {layer + "self_attn.v_proj.weight", {128, 64}},
                                     {layer + "self_attn.o_proj.weight", {64, 128}},
                                     {layer + "mlp.gate_proj.weight", {96, 64}},
                                     {layer + "mlp.up_proj.weight", {96, 64}},
                                     {layer + "mlp.down_proj.weight", {64, 96}}};
    std::mt19937 random(11);
    std::normal_distribution<float> normal(0, 0.2F);
    std::vector<float> head;
    for (int i = 0; i < kWords * 64; ++i)
      head.push_back(has_twins && i >= kWords * 32 ? head[static_cast<size_t>(i - kWords * 32)]
                                                   : normal(random));
    (void)dir_.write("model.safetensors", model::safetensors_f32(tensors, [&](size_t n, int64_t i) {
                       if (tensors[n].first == "lm_head.weight")
                         return head[static_cast<size_t>(i)];
                       return tensors[n].second.rank() == 1 ? 1 : normal(random);
                     }));
    (void)dir_.write("config.json", fmt::format(R"({{"architectures": ["LlamaForCausalLM"],
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": {}, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 512, "tie_word_embeddings": false, "torch_dtype": "float32"}})",
                                                kWords));
  }
  [[nodiscard]] model::ModelSource source() const {
    return {model::read_config(dir_.path()), dir_.path()};
  }

 private:
  TempDir dir_;
};

}  // namespace encore::engine::testing
