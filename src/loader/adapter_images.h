// Copies of adapters in host memory, from where they come to the slots of all ranks without a file being read.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backend/staged_copy.h"
#include "loader/adapter.h"
#include "model/lora/slots.h"

namespace encore::loader {

// Keeps those that were used last, in memory that is not pinned: pinning 84 MB takes 42 ms, in which no step can
// be launched (AdapterShare copies through memory that was pinned at the start). Threads: any. Lifetime: refers
// to the slots.
class AdapterImages {
 public:
  // As model::LoraSlots::pack() writes it, that of each rank behind those of the ranks before.
  using Image = std::shared_ptr<const Memory>;

  // `slots`: by rank. `max_images`: 1 or more. More are there only while somebody has them.
  AdapterImages(std::vector<const model::LoraSlots*> slots, int64_t max_images, int64_t max_rank);

  // The adapter's image, read from its files where no copy is kept. Several threads may read at a time.
  // Errors: those of LoraAdapter and LoraSlots::pack; kModel when its files are not those that were read
  // the first time; kMemory.
  Image get(const Adapter& adapter);
  // The rank's part of an image.
  [[nodiscard]] const std::byte* part(const Image& image, size_t rank) const {
    return image->data() + offsets_[rank];
  }
  // The digest of the files that the adapter was read from; empty: they have not been read yet.
  [[nodiscard]] std::string digest(const Adapter& adapter) const;
  // Times that files were read.
  [[nodiscard]] int64_t num_reads() const;

 private:
  struct Kept {
    int64_t generation;
    std::shared_ptr<Memory> image;
  };

  // Reads the files into `image`; returns their digest.
  std::string read(const Adapter& adapter, std::byte* image) const;
  // Memory for one more image: that of the one whose use is the longest ago, where enough are kept and
  // nobody has it. With the mutex held.
  std::shared_ptr<Memory> take_buffer();

  std::vector<const model::LoraSlots*> slots_;  // by rank
  std::vector<int64_t> offsets_;                // of their parts, and of the end. Units: bytes
  int64_t max_images_;
  int64_t max_rank_;
  mutable std::mutex mutex_;
  std::list<Kept> kept_;                    // last used first
  std::map<int64_t, std::string> digests_;  // by generation, as they were first read
  int64_t num_reads_ = 0;
};

}  // namespace encore::loader
