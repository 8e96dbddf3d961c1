// The adapters (LoRA) of a loaded model, by name: which slot each has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/staged_copy.h"
#include "model/lora/shape.h"
#include "model/lora/slots.h"

namespace encore::loader {

// Which adapters a model gets, and how many and how large ones it has room for.
struct AdapterOptions {
  struct Named {
    std::string name;
    std::filesystem::path path;
  };
  std::vector<Named> adapters;
  int64_t num_slots = 0;  // or as many as `adapters`, where those are more
  int64_t max_rank = 16;
  // Projections that adapters may change beside those that `adapters` do (model::LoraShape).
  std::set<std::string, std::less<>> projections;
  // All slots hold random numbers, for benchmarks, as adapters "random-0", ...
  bool fills_slots = false;
};

// The room that a program gets; nothing: no adapters are asked for, and the program knows of none.
// Errors: those of LoraAdapter; kUsage when two adapters have one name, or no projection is named.
std::optional<model::LoraShape> lora_shape(const AdapterOptions& options);

// An adapter that rows of steps may have.
struct Adapter {
  std::string name;
  std::filesystem::path path;
  int32_t slot = 0;
  std::string digest;  // of its files: adapters with different ones compute different K and V
};

// Threads: find() any; fill() one. Lifetime: refers to the graph, the weights and the device.
class Adapters {
 public:
  // `weights` by ValueId::index of the graph. Reads every adapter once. Errors: those of LoraAdapter.
  Adapters(const ir::Graph& graph, const std::vector<TensorView>& weights, AdapterOptions options);

  // Writes all of them to their slots: at first, and when the weights were given back in between.
  // Errors: those of LoraSlots::write; kModel when an adapter's files have changed.
  void fill(Device& device, StagedCopy& copy) const;

  // Null: there is none of that name.
  [[nodiscard]] const Adapter* find(std::string_view name) const;
  // By slot.
  [[nodiscard]] const std::vector<Adapter>& all() const { return adapters_; }
  [[nodiscard]] int64_t num_slots() const { return slots_.num_slots(); }
  // Device memory of all slots. Units: bytes.
  [[nodiscard]] int64_t bytes() const;

 private:
  AdapterOptions options_;
  const std::vector<TensorView>& weights_;
  std::vector<size_t> slotted_;  // of those, by index
  model::LoraSlots slots_;
  std::vector<Adapter> adapters_;
};

}  // namespace encore::loader
