// The adapters (LoRA) of a loaded model, by name: which slot each has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/staged_copy.h"
#include "model/lora/shape.h"
#include "model/lora/slots.h"

namespace encore::loader {

// The adapters that a model gets, and how many and how large ones it has room for.
struct AdapterOptions {
  struct Named {
    std::string name;
    std::filesystem::path path;
  };
  std::vector<Named> adapters;
  int64_t num_slots = 0;  // or as many as `adapters`, where those are more
  int64_t max_rank = 16;
  // Projections that adapters may change beside those that `adapters` do (model::LoraShape); empty: all,
  // where there is room for more adapters than those.
  std::set<std::string, std::less<>> projections;
  // All slots hold random numbers, for benchmarks, as adapters "random-0", ...
  bool fills_slots = false;
};

// The room that a program gets; nothing: no adapters are asked for, and the program knows of none.
// Errors: those of LoraAdapter; kUsage when two adapters have one name, or no projection is named.
std::optional<model::LoraShape> lora_shape(const AdapterOptions& options);

// An adapter that rows of steps may have. Shared by those that name it, the sequences that have it and
// the steps in flight that read it: its slot is free when the last of them lets go.
struct Adapter {
  std::string name;
  std::filesystem::path path;
  int32_t slot = 0;
  std::string digest;  // of its files: adapters with different ones compute different K and V
};

// Threads: any, but for fill() and release(), which one calls between steps. Lifetime: refers to the
// weights and the device.
class Adapters {
 public:
  // `weights` by ValueId::index of the graph. Reads every adapter once. Errors: those of LoraAdapter.
  Adapters(const ir::Graph& graph, const std::vector<TensorView>& weights, Device& device,
           AdapterOptions options);

  // Writes all that somebody has to their slots: at first, and when the weights were given back in
  // between. Errors: those of LoraSlots::write; kModel when an adapter's files have changed.
  void fill(StagedCopy& copy);
  // The memory of the slots is about to be given back. Waits for the end of a load().
  void release();

  // Writes one more adapter to a free slot, beside steps that run: no row of theirs has it. Takes as
  // long as reading the files does; of several, one at a time. `replaces`: one of that name is there, and
  // sequences that have it keep it until they end.
  // Errors: kUsage, with what to do, when the name is taken, no slot is free, or the weights were given
  // back; those of LoraAdapter and LoraSlots::write.
  void load(const std::string& name, const std::filesystem::path& path, bool replaces = false);
  // Takes its name away; sequences that have it keep it. Errors: kUsage when there is none.
  void unload(std::string_view name);

  // Null: there is none of that name.
  [[nodiscard]] std::shared_ptr<const Adapter> find(std::string_view name) const;
  // The adapters that have a name.
  [[nodiscard]] std::vector<std::shared_ptr<const Adapter>> all() const;
  [[nodiscard]] int64_t num_slots() const { return slots_.num_slots(); }
  // Device memory of all slots. Units: bytes.
  [[nodiscard]] int64_t bytes() const;

 private:
  using Named = std::vector<std::shared_ptr<const Adapter>>;

  // The adapters that have a name, and those that only sequences have.
  [[nodiscard]] Named in_use() const;
  // With the mutex held:
  [[nodiscard]] Named::const_iterator place_of(std::string_view name) const;
  [[nodiscard]] std::optional<int32_t> free_slot() const;
  void put(Adapter adapter);

  AdapterOptions options_;
  Device& device_;
  const std::vector<TensorView>& weights_;
  std::vector<size_t> slotted_;  // of those, by index
  model::LoraSlots slots_;
  std::mutex loading_;      // one load at a time, and none while the memory is gone
  bool is_filled_ = false;  // with that held
  std::optional<StagedCopy> copy_;
  mutable std::mutex mutex_;
  Named adapters_;
  std::vector<std::weak_ptr<const Adapter>> owners_;  // by slot
};

}  // namespace encore::loader
