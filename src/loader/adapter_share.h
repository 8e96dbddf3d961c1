// The slots of adapters that one rank has, which rank 0 fills on all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/device.h"
#include "backend/staged_copy.h"
#include "model/lora/slots.h"

namespace encore::loader {

// It is shared by the rank's model and by rank 0's adapters. A model that one device computes has one. All that
// filling a slot takes of the device is there from the start: while the driver makes a stream or pins memory, it
// lets no step be launched.
// Threads: any.
class AdapterShare {
 public:
  // `weights` by ValueId::index of the rank's graph; `sizes`: of the whole model. Lifetime: refers to graph,
  // weights and device until close().
  AdapterShare(const ir::Graph& graph, const std::vector<TensorView>& weights,
               model::LoraSizes sizes, Device& device);

  // Lifetime: as the object.
  [[nodiscard]] const model::LoraSlots& layout() const { return layout_; }
  // Device memory of all slots. Units: bytes.
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  // Copies what layout().pack() has written to a slot, in parts of a few megabytes; the device has it when it
  // returns. One slot is written at a time, and others wait. Errors: kDevice, also once it is closed.
  void write(const std::byte* image, int64_t slot);
  // Fills a slot with random numbers, which depend on its place among the weights with slots alone.
  void write_random(int64_t slot);
  // The rank ends. Waits for who writes, and nobody writes any more.
  void close();

 private:
  // Has the work enqueued beside the device's steps, and waits for it.
  template <typename Work>
  void enqueue(const Work& work);

  model::LoraSlots layout_;
  Device& device_;
  std::vector<TensorView> slotted_;
  int64_t bytes_ = 0;
  std::mutex mutex_;
  std::unique_ptr<StagedCopy> copy_;  // null once it is closed
};

}  // namespace encore::loader
