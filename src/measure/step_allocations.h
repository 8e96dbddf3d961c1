// Buffers that are allocated anew in each step, as engines without a memory plan have them: for benchmarks that show
// what persistent buffers save.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backend/device.h"
#include "passes/program.h"

namespace encore::measure {

// Allocates each buffer that a step writes in front of its launch and frees it behind the last one that reads it.
// What is freed is kept for the next buffer that fits, as caching allocators of other engines do, so from the second
// step on the device is asked for nothing. The step's launches keep to their own addresses: what this adds to a step
// is the work of the allocator.
// Threads: one. Lifetime: refers to the device.
class StepAllocations {
 public:
  // `sizes`: of the step.
  StepAllocations(Device& device, const passes::Program& program, const ir::Sizes& sizes);

  // Does a step's allocations. Errors: kMemory.
  void run();
  // Buffers of a step.
  [[nodiscard]] int64_t num_buffers() const { return num_buffers_; }
  // Bytes that were taken from the device.
  [[nodiscard]] int64_t device_bytes() const { return device_bytes_; }

 private:
  struct Event {
    size_t buffer = 0;
    int64_t bytes = 0;  // to allocate; 0: it is freed
  };

  [[nodiscard]] Memory take(int64_t bytes);

  Device& device_;
  std::vector<Event> events_;  // of a step, in order
  std::vector<Memory> live_;   // by buffer
  std::multimap<int64_t, Memory> free_;
  int64_t num_buffers_ = 0;
  int64_t device_bytes_ = 0;
};

}  // namespace encore::measure
