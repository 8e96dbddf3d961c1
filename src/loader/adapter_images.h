// Keeps copies of adapters in host memory, so that they can be copied to the adapter slots of all
// ranks without reading a file.
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

// A cache of the images of the most recently used adapters. Its memory is not pinned: pinning 84 MB
// takes 42 ms, during which no step can be launched. (AdapterShare copies through memory that was
// pinned at the start.) Threads: any. Lifetime: refers to the layouts of the adapter slots.
class AdapterImages {
 public:
  // An adapter's content as model::LoraSlots::pack() writes it, for one rank after the other, in
  // rank order.
  using Image = std::shared_ptr<const Memory>;

  // `slots` holds the layout of each rank's adapter slots, indexed by rank. `max_images`, the
  // number of images that are kept, is 1 or more. More images exist only while callers hold them.
  AdapterImages(std::vector<const model::LoraSlots*> slots, int64_t max_images, int64_t max_rank);

  // Returns the adapter's image, and reads it from the adapter's files where no copy is kept.
  // Several threads may read at a time. Errors: those of LoraAdapter and LoraSlots::pack; kModel
  // when the files have changed since they were first read; kMemory.
  Image get(const Adapter& adapter);
  // Returns the part of an image that belongs to a rank.
  [[nodiscard]] const std::byte* part(const Image& image, size_t rank) const {
    return image->data() + offsets_[rank];
  }
  // Returns the digest of the files that the adapter was first read from. Empty where they have not
  // been read yet.
  [[nodiscard]] std::string digest(const Adapter& adapter) const;
  // Returns how often the files of an adapter were read.
  [[nodiscard]] int64_t num_reads() const;

 private:
  struct Kept {
    int64_t generation;
    std::shared_ptr<Memory> image;
  };

  // Reads the adapter's files into `image`, and returns their digest.
  std::string read(const Adapter& adapter, std::byte* image) const;
  // Returns memory for one more image. Where max_images are kept, reuses the memory of the least
  // recently used image that no caller holds. REQUIRES: the mutex is held.
  std::shared_ptr<Memory> take_buffer();

  std::vector<const model::LoraSlots*> slots_;  // by rank
  std::vector<int64_t> offsets_;                // of each rank's part, then the size. Units: bytes
  int64_t max_images_;
  int64_t max_rank_;
  mutable std::mutex mutex_;
  std::list<Kept> kept_;                    // last used first
  std::map<int64_t, std::string> digests_;  // by generation, from the first read
  int64_t num_reads_ = 0;
};

}  // namespace encore::loader
