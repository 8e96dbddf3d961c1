// Provides tests with a tiny model and adapters for it, and with the answers of sequences that use
// them.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/testing/tiny_model.h"
#include "model/testing/lora_files.h"

namespace encore::engine::lora {

using model::LoraFiles;
using model::LoraModule;
using model::TypedTensor;

inline constexpr int64_t kHidden = 64;
inline constexpr int64_t kInner = 96;
inline constexpr int64_t kVocabulary = 80;
inline constexpr int64_t kPageSize = 16;
inline constexpr int kLayers = 2;

// A family of models. `is_merged`: its checkpoints merge Q, K and V, and gate and up, into one
// projection each.
struct Family {
  const char* name;
  const char* config;  // JSON keys of config.json that only this family has
  bool is_merged = false;
};
inline const Family kLlama{"llama",
                           R"("architectures": ["LlamaForCausalLM"], "model_type": "llama")"};
inline const Family kPhi3{
    "phi3",
    R"("architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "pad_token_id": 0,
                      "partial_rotary_factor": 0.5)",
    true};
inline const Family kGranite{"granite",
                             R"("architectures": ["GraniteForCausalLM"], "model_type": "granite",
                         "residual_multiplier": 0.5, "attention_multiplier": 0.2,
                         "embedding_multiplier": 2.0, "logits_scaling": 3.0)"};
inline const Family kGlm4{"glm4",
                          R"("architectures": ["Glm4ForCausalLM"], "model_type": "glm4",
                      "partial_rotary_factor": 0.5, "attention_bias": false)"};

// The feed-forward layers of Mixtral consist of experts, which adapters do not change.
inline const Family kMixtral{
    "mixtral",
    R"("architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
                         "num_experts_per_tok": 2)"};
inline constexpr int kExperts = 4;

struct Shape2 {
  const char* name;
  int64_t num_out;
  int64_t num_in;
};
inline std::vector<Shape2> projections_of(const Family& family) {
  std::vector<Shape2> all;
  if (family.is_merged) {
    all = {{"self_attn.qkv_proj", 128, kHidden}, {"mlp.gate_up_proj", 2 * kInner, kHidden}};
  } else {
    all = {{"self_attn.q_proj", 64, kHidden},
           {"self_attn.k_proj", 32, kHidden},
           {"self_attn.v_proj", 32, kHidden},
           {"mlp.gate_proj", kInner, kHidden},
           {"mlp.up_proj", kInner, kHidden}};
    if (std::string_view(family.name) == "glm4") {
      all.resize(3);
      all.push_back({"mlp.gate_up_proj", 2 * kInner, kHidden});
    }
  }
  all.push_back({"self_attn.o_proj", kHidden, 64});
  if (std::string_view(family.name) == "mixtral") {
    std::erase_if(all, [](const Shape2& projection) {
      return std::string_view(projection.name).starts_with("mlp");
    });
    return all;
  }
  all.push_back({"mlp.down_proj", kHidden, kInner});
  return all;
}

inline std::string module_name(int layer, const Shape2& projection) {
  return fmt::format("model.layers.{}.{}", layer, projection.name);
}

// Returns all modules whose name contains one of these words.
inline std::vector<LoraModule> modules_of(const Family& family,
                                          const std::vector<std::string>& words, int64_t rank = 4) {
  std::vector<LoraModule> modules;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const Shape2& projection : projections_of(family)) {
      for (const std::string& word : words) {
        if (std::string_view(projection.name).find(word) == std::string_view::npos) continue;
        modules.push_back(
            {module_name(layer, projection), projection.num_in, projection.num_out, rank});
        break;
      }
    }
  }
  return modules;
}

inline std::vector<TypedTensor> base_tensors(const Family& family) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<TypedTensor> tensors;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns, float stddev) {
    TypedTensor tensor{name, DType::kF32, {rows, columns}, {}};
    for (int64_t i = 0; i < rows * columns; ++i)
      tensor.values.push_back(stddev * normal(random));
    tensors.push_back(std::move(tensor));
  };
  matrix("model.embed_tokens.weight", kVocabulary, kHidden, 1);
  matrix("lm_head.weight", kVocabulary, kHidden, 0.2F);
  tensors.push_back({"model.norm.weight", DType::kF32, {kHidden}, {1}});
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    for (const char* norm : {"input_layernorm", "post_attention_layernorm",
                             "post_self_attn_layernorm", "post_mlp_layernorm"})
      tensors.push_back({prefix + norm + ".weight", DType::kF32, {kHidden}, {1}});
    for (const Shape2& projection : projections_of(family))
      matrix(module_name(layer, projection) + ".weight", projection.num_out, projection.num_in,
             0.12F);
    if (std::string_view(family.name) != "mixtral") continue;
    const std::string experts = prefix + "block_sparse_moe.";
    matrix(experts + "gate.weight", kExperts, kHidden, 0.12F);
    for (int e = 0; e < kExperts; ++e) {
      for (const char* matrix_of_expert : {"w1", "w3"})
        matrix(fmt::format("{}experts.{}.{}.weight", experts, e, matrix_of_expert), kInner, kHidden,
               0.12F);
      matrix(fmt::format("{}experts.{}.w2.weight", experts, e), kHidden, kInner, 0.12F);
    }
  }
  return tensors;
}

// Returns the base tensors with scale * B A of each of the adapter's modules added.
inline std::vector<TypedTensor> merged_tensors(
    const Family& family, const LoraFiles& adapter,
    const std::function<double(const std::string&)>& scale) {
  std::vector<TypedTensor> tensors = base_tensors(family);
  for (size_t i = 0; i < adapter.tensors.size(); i += 2) {
    const TypedTensor& a = adapter.tensors[i];
    const TypedTensor& b = adapter.tensors[i + 1];
    const std::string prefix = "base_model.model.";
    const std::string module =
        a.name.substr(prefix.size(), a.name.rfind(".lora_A") - prefix.size());
    const auto weight = std::ranges::find(tensors, module + ".weight", &TypedTensor::name);
    ENCORE_CHECK(weight != tensors.end());
    const int64_t columns = a.shape[1];
    const int64_t rank = a.shape[0];
    for (int64_t o = 0; o < b.shape[0]; ++o) {
      for (int64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < rank; ++k)
          sum += static_cast<double>(b.values[static_cast<size_t>(o * rank + k)]) *
                 a.values[static_cast<size_t>(k * columns + c)];
        weight->values[static_cast<size_t>(o * columns + c)] +=
            static_cast<float>(scale(module) * sum);
      }
    }
  }
  return tensors;
}

inline void write_model(const TempDir& dir, const Family& family,
                        const std::vector<TypedTensor>& tensors) {
  (void)dir.write("config.json", fmt::format(R"({{{}, "hidden_size": {}, "num_hidden_layers": {},
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": {},
      "vocab_size": {}, "max_position_embeddings": 256, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
      "torch_dtype": "float32", "hidden_act": "silu", "tie_word_embeddings": false}})",
                                             family.config, kHidden, kLayers, kInner, kVocabulary));
  (void)dir.write("model.safetensors", safetensors(tensors));
}

inline LoadOptions lora_options() {
  LoadOptions options;
  options.limits = {.max_num_tokens = 48, .max_batch_size = 6, .max_q = 1, .max_seq_len = 160};
  options.kv_tokens = 1024;
  options.page_size = kPageSize;
  options.scores_prompts = true;
  options.bursts = true;
  return options;
}

inline std::vector<int32_t> prompt_of(int seed, int64_t length) {
  std::mt19937 random(seed);
  std::vector<int32_t> prompt(static_cast<size_t>(length));
  for (int32_t& token : prompt)
    token = static_cast<int32_t>(random() % kVocabulary);
  return prompt;
}

// The tokens that a sequence generated, and the log probabilities that its request asked for.
// Answers are compared bit for bit.
struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  int64_t num_cached = 0;
  // The reason why the sequence's adapter could not be read. Empty if it was read.
  std::string problem;

  void add(const Generated& generated) {
    problem = generated.problem;
    if (generated.finish == Finish::kNoAdapter) return;
    if (tokens.empty()) num_cached = generated.num_cached;
    tokens.push_back(generated.token);
    for (const LogprobRow& row : generated.prompt_logprobs)
      logprobs.push_back(row.logprob);
    if (generated.logprobs) logprobs.push_back(generated.logprobs->logprob);
  }
  friend bool operator==(const Answer& a, const Answer& b) {
    return a.tokens == b.tokens && a.logprobs.size() == b.logprobs.size() &&
           std::memcmp(a.logprobs.data(), b.logprobs.data(), a.logprobs.size() * sizeof(float)) ==
               0;
  }
};

inline Request request_of(const std::string& adapter, int seed, int64_t length = 20) {
  Request request{.prompt = prompt_of(seed, length), .max_tokens = 12, .adapter = adapter};
  request.sampling.num_logprobs = 2;
  return request;
}

inline std::vector<Answer> answers(Engine& engine, const std::vector<Request>& requests) {
  std::map<SequenceId, Answer> given;
  for (const Request& request : requests) {
    const auto added = engine.add(request);
    given[std::get<SequenceId>(added)];
  }
  while (
      engine.step([&](const Generated& generated) { given[generated.sequence].add(generated); })) {
  }
  std::vector<Answer> list;
  for (auto& [id, answer] : given)
    list.push_back(std::move(answer));
  return list;
}

inline double error_of(const Answer& found, const Answer& expected) {
  EXPECT_EQ(found.tokens, expected.tokens);
  EXPECT_EQ(found.logprobs.size(), expected.logprobs.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(found.logprobs.size(), expected.logprobs.size()); ++i)
    worst = std::max<double>(worst, std::fabs(found.logprobs[i] - expected.logprobs[i]));
  return worst;
}

}  // namespace encore::engine::lora
