// Allocates a step's buffers anew in each step, as engines without a memory plan do. Benchmarks use
// it to show what persistent buffers save.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backend/device.h"
#include "passes/program.h"

namespace encore::measure {

// Allocates each buffer before the launch that writes it and frees it after the last launch that
// reads it. Freed memory is kept for the next buffer that fits, as the caching allocators of other
// engines do, so from the second step on nothing is requested from the device. The step's launches
// keep using their planned addresses; only the allocator's work is added to a step.
// Threads: one. Lifetime: refers to the device.
class StepAllocations {
 public:
  // Plans the allocations for steps of the given sizes.
  StepAllocations(Device& device, const passes::Program& program, const ir::Sizes& sizes);

  // Makes the allocations and frees of one step. Errors: kMemory.
  void run();
  // Returns the number of buffers that a step allocates.
  [[nodiscard]] int64_t num_buffers() const { return num_buffers_; }
  // Returns how many bytes were requested from the device so far.
  [[nodiscard]] int64_t device_bytes() const { return device_bytes_; }

 private:
  struct Event {
    size_t buffer = 0;
    int64_t bytes = 0;  // bytes to allocate; 0: the buffer is freed
  };

  [[nodiscard]] Memory take(int64_t bytes);

  Device& device_;
  std::vector<Event> events_;  // allocations and frees of a step, in order
  std::vector<Memory> live_;   // key: number of the buffer
  std::multimap<int64_t, Memory> free_;
  int64_t num_buffers_ = 0;
  int64_t device_bytes_ = 0;
};

}  // namespace encore::measure
