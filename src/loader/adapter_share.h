// Owns the adapter slots of one rank. Rank 0 fills the slots of all ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/device.h"
#include "backend/staged_copy.h"
#include "model/lora/slots.h"

namespace encore::loader {

// The adapter slots of one rank. The rank's model and rank 0's Adapters share this object; a model
// on a single device has one such object. The stream and the pinned memory that filling an adapter
// slot needs are made at the start, because no step can be launched while the driver makes them.
// Threads: any.
class AdapterShare {
 public:
  // `weights` is indexed by ValueId::index of the rank's graph. `sizes` are those of the whole
  // model, not of the rank's share. Lifetime: refers to graph, weights and device until close().
  AdapterShare(const ir::Graph& graph, const std::vector<TensorView>& weights,
               model::LoraSizes sizes, Device& device);

  // Returns the layout of the adapter slots. Lifetime: that of this object.
  [[nodiscard]] const model::LoraSlots& layout() const { return layout_; }
  // Returns the device memory that all adapter slots of this rank take. Units: bytes.
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  // Copies an image, written by layout().pack(), to an adapter slot in parts of a few megabytes.
  // The device has the whole image when this returns. Only one adapter slot is written at a time;
  // other calls wait. Errors: kDevice, also after close().
  void write(const std::byte* image, int64_t slot);
  // Fills an adapter slot with random numbers. They depend only on the number of the slot and on
  // the order of the weights that adapters change.
  void write_random(int64_t slot);
  // Called when the rank ends. Waits for a write in progress; later writes fail with an error.
  void close();

 private:
  // Enqueues `work` on the stream of copies, which runs beside the stream of the steps, and waits
  // for it.
  template <typename Work>
  void enqueue(const Work& work);

  model::LoraSlots layout_;
  Device& device_;
  std::vector<TensorView> slotted_;
  int64_t bytes_ = 0;
  std::mutex mutex_;
  std::unique_ptr<StagedCopy> copy_;  // null after close()
};

}  // namespace encore::loader
