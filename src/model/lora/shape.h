// The room that a program has for adapters (LoRA).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

namespace encore::model {

struct LoraShape {
  int64_t num_slots = 1;  // S: adapters that are on the device at a time
  int64_t max_rank = 16;  // K: adapters of lower ranks are padded with zeros
  // Projections that adapters may change, by the last part of their names, as checkpoints or Encore
  // call them: "q_proj", "qkv_proj". One of a merged product stands for all of it.
  std::set<std::string, std::less<>> projections;

  // May adapters change `module`, by its name in Encore: "model.layers.0.self_attn.q_proj"?
  [[nodiscard]] bool covers(std::string_view module) const;

  friend bool operator==(const LoraShape&, const LoraShape&) = default;
};

// The last part of a module's name.
std::string_view projection_of(std::string_view module);

}  // namespace encore::model
