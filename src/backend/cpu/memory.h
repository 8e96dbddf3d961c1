// The host's memory as a device's memory.
#pragma once

#include <memory>

#include "backend/device.h"

namespace encore::cpu {

// Memory of this machine, or of the control group the process runs in where that is less.
struct HostMemory {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
};
HostMemory host_memory();

// Aligned to 64 bytes, never null. Errors: kMemory with the figures.
Memory allocate(int64_t bytes);

// Address space without memory; touching what is not mapped faults. Errors: kMemory.
std::unique_ptr<AddressRange> reserve(int64_t bytes);

}  // namespace encore::cpu
