// Describes the room that a program has for adapters (LoRA).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace encore::model {

struct LoraShape {
  int64_t num_slots = 1;  // S: number of adapter slots, so of adapters on the device at a time
  int64_t max_rank = 16;  // K: adapters of lower rank are padded to it with zeros
  // The projections that adapters may change, by the last part of their names, as checkpoints or
  // Encore call them: "q_proj", "qkv_proj". The name of one projection of a merged product
  // ("q_proj" of "qkv_proj") stands for the whole product.
  std::set<std::string, std::less<>> projections;

  // Returns whether adapters may change `module`, which is a name in Encore:
  // "model.layers.0.self_attn.q_proj".
  [[nodiscard]] bool covers(std::string_view module) const;

  friend bool operator==(const LoraShape&, const LoraShape&) = default;
};

// Returns the last part of a module's name.
std::string_view projection_of(std::string_view module);

}  // namespace encore::model
