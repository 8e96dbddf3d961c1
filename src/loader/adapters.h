// The adapters (LoRA) of a loaded model: those that requests may name, and where their numbers are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "loader/adapter.h"
#include "loader/adapter_images.h"
#include "loader/adapter_share.h"
#include "loader/adapter_slots.h"
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
  int64_t num_slots = 0;    // on the device at a time; 0: as many as `adapters`
  int64_t max_images = 32;  // copies in host memory
  int64_t max_rank = 16;
  // Projections that adapters may change beside those that `adapters` do (model::LoraShape); empty: all,
  // where there is room for more adapters than those.
  std::set<std::string, std::less<>> projections;
  // All slots hold random numbers, for benchmarks, as adapters "random-0", ...
  bool fills_slots = false;

  // Does a program get room for adapters?
  [[nodiscard]] bool has_room() const { return num_slots > 0 || !adapters.empty(); }
};

// The room that a program gets; nothing: no adapters are asked for, and the program knows of none.
// Errors: those of LoraAdapter; kUsage when two adapters have one name.
std::optional<model::LoraShape> lora_shape(const AdapterOptions& options);

// Reads the headers of the options' adapters. Errors: those of LoraAdapter and LoraSlots::check.
void check_adapters(const model::LoraSlots& slots, const AdapterOptions& options);

struct AdapterStats {
  int64_t num_registered = 0;  // adapters that requests may name
  int64_t num_slots = 0;
  int64_t num_reads = 0;  // of adapters from their files
  AdapterSlotStats slots;
};

// Decides once for all ranks which adapter has which slot: a slot is an adapter's when all of them have their
// shares of it there. A load that fails on one rank has failed.
//
// Threads: any, but for fill(), release(), slots() and wait_for(), which are those of who steps.
class Adapters {
 public:
  // `shares`: by rank. REQUIRES: check_adapters().
  Adapters(std::vector<std::shared_ptr<AdapterShare>> shares, AdapterOptions options);

  // The memory of the slots is there. The first time, loads the first adapters to them, as many as there
  // are slots; later, what somebody has: whose files cannot be read fails for those who have it.
  // Errors: the first time, those of AdapterImages::get; later, kDevice.
  void fill();
  // The memory of the slots is about to be given back. Waits for the end of loads.
  void release();

  // Reads one more adapter, so that requests may name it; takes as long as reading the files does.
  // `replaces`: one of that name may be there, and requests that have it keep it.
  // Errors: kUsage, with what to do, when the name is taken; those of AdapterImages::get.
  void load(const std::string& name, const std::filesystem::path& path, bool replaces = false);
  // Takes its name away; requests that have it keep it. Errors: kUsage when there is none.
  void unload(std::string_view name);

  // The adapter of that name; null where there is none.
  [[nodiscard]] std::shared_ptr<const Adapter> find(std::string_view name) const;
  // Says which numbers the adapter has: those of the load that gave it, whose files have this digest. Until they
  // are read, the load alone.
  [[nodiscard]] std::string identity(const Adapter& adapter) const;
  // The adapters that have a name, in the order in which they came.
  [[nodiscard]] std::vector<std::shared_ptr<const Adapter>> all() const;
  [[nodiscard]] AdapterSlots& slots() { return slots_; }
  // Waits until the adapter is in a slot. Errors: kModel with the reason why it is not;
  // kUsage where others use all slots.
  std::shared_ptr<const ResidentAdapter> wait_for(const std::shared_ptr<const Adapter>& adapter);
  [[nodiscard]] int64_t num_slots() const { return layout().num_slots(); }
  // Memory of all slots on rank 0's device. Units: bytes.
  [[nodiscard]] int64_t bytes() const { return shares_.front()->bytes(); }
  [[nodiscard]] AdapterStats stats() const;

 private:
  [[nodiscard]] const model::LoraSlots& layout() const { return shares_.front()->layout(); }
  // Fills a slot on all ranks.
  void write(const Adapter& adapter, int32_t slot);

  AdapterOptions options_;
  std::vector<std::shared_ptr<AdapterShare>> shares_;  // by rank, each shared with the rank's model
  AdapterImages images_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Adapter>, std::less<>> adapters_;
  int64_t next_generation_ = 1;
  bool was_filled_ = false;
  AdapterSlots slots_;  // last: its threads use the others
};

}  // namespace encore::loader
