// For tests: provides a tiny Llama checkpoint as file contents that a test can break, and functions
// that write it to a directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/tensor.h"
#include "base/testing/temp_dir.h"

namespace encore::model {

// Maps file names to contents.
using Files = std::map<std::string, std::string>;

inline void write_all(const TempDir& dir, const Files& files) {
  for (const auto& [name, bytes] : files)
    (void)dir.write(name, bytes);
}

// Returns a safetensors file of a header and a buffer, with the header's length in front.
inline std::string safetensors(const std::string& header, const std::string& buffer) {
  std::string bytes;
  for (unsigned i = 0; i < 8; ++i)
    bytes += static_cast<char>((header.size() >> (8 * i)) & 0xffU);
  return bytes + header + buffer;
}

using NamedShapes = std::vector<std::pair<std::string, Shape>>;

// Returns a safetensors file of BF16 tensors, one after another. Byte i of the buffer is i modulo
// 251.
inline std::string safetensors(const NamedShapes& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  int64_t end = 0;
  for (const auto& [name, shape] : tensors) {
    std::string dims;
    for (const int64_t dim : shape)
      dims += fmt::format("{}{}", dims.empty() ? "" : ",", dim);
    const int64_t begin = end;
    end += 2 * shape.num_elements();
    header += fmt::format(R"(,"{}":{{"dtype":"BF16","shape":[{}],"data_offsets":[{},{}]}})", name,
                          dims, begin, end);
  }
  std::string buffer(static_cast<size_t>(end), '\0');
  for (size_t i = 0; i < buffer.size(); ++i)
    buffer[i] = static_cast<char>(i % 251);
  return safetensors(header + "}", buffer);
}

// Returns a safetensors file of F32 tensors with these names and shapes. Element i of the n-th
// tensor is value(n, i).
template <typename Value>
std::string safetensors_f32(const NamedShapes& tensors, const Value& value) {
  std::string header;
  std::string buffer;
  for (size_t n = 0; n < tensors.size(); ++n) {
    const auto& [name, shape] = tensors[n];
    const size_t begin = buffer.size();
    for (int64_t i = 0; i < shape.num_elements(); ++i) {
      const float element = value(n, i);
      buffer.append(reinterpret_cast<const char*>(&element), sizeof(element));
    }
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})",
                          n == 0 ? "{" : ",", name, fmt::join(shape, ","), begin, buffer.size());
  }
  return safetensors(header + "}", buffer);
}

// Returns the names and shapes of the tensors of a Llama with D = 8, H = 2, K = 1, C = 4, F = 12, V
// = 16 and one layer.
inline NamedShapes tiny_llama_tensors() {
  const std::string layer = "model.layers.0.";
  return {{"model.embed_tokens.weight", {16, 8}},
          {layer + "input_layernorm.weight", {8}},
          {layer + "self_attn.q_proj.weight", {8, 8}},
          {layer + "self_attn.k_proj.weight", {4, 8}},
          {layer + "self_attn.v_proj.weight", {4, 8}},
          {layer + "self_attn.o_proj.weight", {8, 8}},
          {layer + "post_attention_layernorm.weight", {8}},
          {layer + "mlp.gate_proj.weight", {12, 8}},
          {layer + "mlp.up_proj.weight", {12, 8}},
          {layer + "mlp.down_proj.weight", {8, 12}},
          {"model.norm.weight", {8}},
          {"lm_head.weight", {16, 8}}};
}

inline constexpr const char* kTinyLlamaConfig = R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_size": 8,
  "num_hidden_layers": 1,
  "num_attention_heads": 2,
  "num_key_value_heads": 1,
  "intermediate_size": 12,
  "vocab_size": 16,
  "max_position_embeddings": 64,
  "rms_norm_eps": 1e-05,
  "hidden_act": "silu",
  "rope_theta": 500000.0,
  "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
  "torch_dtype": "bfloat16",
  "bos_token_id": 1,
  "eos_token_id": [2, 3]
})";

inline Files tiny_llama() {
  return {{"config.json", kTinyLlamaConfig},
          {"model.safetensors", safetensors(tiny_llama_tensors())}};
}

// Returns the tiny checkpoint in two shards, with the last two tensors in the second.
inline Files tiny_llama_in_shards() {
  const NamedShapes tensors = tiny_llama_tensors();
  const auto split = tensors.end() - 2;
  std::string weight_map;
  for (auto it = tensors.begin(); it != tensors.end(); ++it) {
    weight_map += fmt::format(R"({}"{}": "{}.safetensors")", weight_map.empty() ? "" : ", ",
                              it->first, it < split ? "a" : "b");
  }
  return {{"config.json", kTinyLlamaConfig},
          {"model.safetensors.index.json",
           R"({"metadata": {"total_size": 0}, "weight_map": {)" + weight_map + "}}"},
          {"a.safetensors", safetensors(NamedShapes(tensors.begin(), split))},
          {"b.safetensors", safetensors(NamedShapes(split, tensors.end()))}};
}

// Replaces `from` in `text` by `to`. The test fails if `text` does not contain `from`.
inline void replace(std::string& text, const std::string& from, const std::string& to) {
  const size_t place = text.find(from);
  ASSERT_NE(place, std::string::npos) << "pattern is gone: " << from;
  text.replace(place, from.size(), to);
}

// Replaces `from` by `to` in the header of a safetensors file, and updates the header's length.
inline void replace_in_header(std::string& bytes, const std::string& from, const std::string& to) {
  size_t length = 0;
  for (unsigned i = 0; i < 8; ++i)
    length |= size_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  std::string header = bytes.substr(8, length);
  replace(header, from, to);
  bytes = safetensors(header, bytes.substr(8 + length));
}

// Returns the error that `function` throws, as "kind: message", or "" when it returns.
template <typename Function>
std::string error_of(Function&& function) {
  try {
    (void)function();
  } catch (const Error& error) {
    return fmt::format("{}: {}", name(error.kind()), error.what());
  }
  return "";
}

}  // namespace encore::model
