// Uses the host's memory as a device's memory.
#pragma once

#include <memory>

#include "backend/device.h"

namespace encore::cpu {

// The memory of this machine, or of the control group in which the process runs, if that is less.
struct HostMemory {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
};
HostMemory host_memory();

// Allocates memory that is aligned to 64 bytes and never null. Errors: kMemory with the figures.
Memory allocate(int64_t bytes);

// Reserves address space without memory. An access to an address that is not mapped faults. Errors:
// kMemory.
std::unique_ptr<AddressRange> reserve(int64_t bytes);

}  // namespace encore::cpu
