// Holds the adapters (LoRA) of a loaded model: the ones that requests may name, and the adapter
// slots on the device that hold their weights.
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

// The adapters that a model starts with, and how many adapters of which rank it has room for.
struct AdapterOptions {
  struct Named {
    std::string name;
    std::filesystem::path path;
  };
  std::vector<Named> adapters;
  int64_t num_slots = 0;    // adapters on the device at a time; 0: as many as `adapters`
  int64_t max_images = 32;  // copies in host memory
  int64_t max_rank = 16;
  // Projections that adapters may change besides those that `adapters` change (model::LoraShape).
  // Where it is empty and there is room for more adapters than `adapters` lists, adapters may
  // change all projections.
  std::set<std::string, std::less<>> projections;
  // Fills all adapter slots with random numbers, for benchmarks. The adapters are named "random-0",
  // "random-1", ...
  bool fills_slots = false;

  // Returns whether a program gets room for adapters.
  [[nodiscard]] bool has_room() const { return num_slots > 0 || !adapters.empty(); }
};

// Returns how much room for adapters a program gets. Absent where no adapters are asked for; the
// program then has no ops for adapters. Errors: those of LoraAdapter; kUsage when two adapters have
// one name.
std::optional<model::LoraShape> lora_shape(const AdapterOptions& options);

// Reads the headers of the options' adapters and checks that they fit the adapter slots. Errors:
// those of LoraAdapter and LoraSlots::check.
void check_adapters(const model::LoraSlots& slots, const AdapterOptions& options);

struct AdapterStats {
  int64_t num_registered = 0;  // adapters that requests may name
  int64_t num_slots = 0;
  int64_t num_reads = 0;  // how often adapters were read from files
  AdapterSlotStats slots;
};

// Decides for all ranks which adapter has which adapter slot. An adapter is in an adapter slot when
// every rank has its share of the adapter there. A load that fails on one rank has failed on all.
//
// Threads: any. Only the thread that runs steps calls fill(), release(), slots() and wait_for().
class Adapters {
 public:
  // `shares` is indexed by rank. REQUIRES: check_adapters() has accepted the options.
  Adapters(std::vector<std::shared_ptr<AdapterShare>> shares, AdapterOptions options);

  // Fills the adapter slots once their memory is mapped. The first call loads the first adapters,
  // as many as there are adapter slots. A later call loads the adapters that are in use again; an
  // adapter whose files cannot be read fails for its users. Errors: at the first call those of
  // AdapterImages::get; later kDevice.
  void fill();
  // Stops loading, because the memory of the adapter slots is about to be given back. Waits for the
  // loads in progress.
  void release();

  // Reads one more adapter, so that requests may name it. Takes as long as reading the files does.
  // Where `replaces` is true, it may replace an adapter of the same name; requests that use the old
  // one keep it. Errors: kUsage, with what to do, when the name is taken; those of
  // AdapterImages::get.
  void load(const std::string& name, const std::filesystem::path& path, bool replaces = false);
  // Removes the adapter's name. Requests that use the adapter keep it. Errors: kUsage when no
  // adapter has the name.
  void unload(std::string_view name);

  // Returns the adapter of that name, or null where there is none.
  [[nodiscard]] std::shared_ptr<const Adapter> find(std::string_view name) const;
  // Returns a text that identifies the content of the adapter: its generation and the digest of its
  // files. Until the files are read, the text has the generation alone.
  [[nodiscard]] std::string identity(const Adapter& adapter) const;
  // Returns the adapters that have a name, in the order in which they were loaded.
  [[nodiscard]] std::vector<std::shared_ptr<const Adapter>> all() const;
  [[nodiscard]] AdapterSlots& slots() { return slots_; }
  // Waits until the adapter is in an adapter slot. Errors: kModel with the reason why the load
  // failed; kUsage where the slot of the adapter is about to be given to another adapter.
  std::shared_ptr<const ResidentAdapter> wait_for(const std::shared_ptr<const Adapter>& adapter);
  [[nodiscard]] int64_t num_slots() const { return layout().num_slots(); }
  // Returns the memory that all adapter slots take on rank 0's device. Units: bytes.
  [[nodiscard]] int64_t bytes() const { return shares_.front()->bytes(); }
  [[nodiscard]] AdapterStats stats() const;

 private:
  [[nodiscard]] const model::LoraSlots& layout() const { return shares_.front()->layout(); }
  // Writes the adapter to an adapter slot on all ranks.
  void write(const Adapter& adapter, int32_t slot);

  AdapterOptions options_;
  std::vector<std::shared_ptr<AdapterShare>> shares_;  // by rank; shared with its model
  AdapterImages images_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Adapter>, std::less<>> adapters_;
  int64_t next_generation_ = 1;
  bool was_filled_ = false;
  AdapterSlots slots_;  // last, since its threads use the members above
};

}  // namespace encore::loader
