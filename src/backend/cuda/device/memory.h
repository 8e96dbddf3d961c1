// Device memory, pinned host memory, and ranges of addresses that get their memory later.
#pragma once

#include <memory>
#include <vector>

#include "backend/device.h"

namespace encore::cuda {

// Errors: kMemory with the figures; kCompile while recording.
Memory allocate_device_memory(int ordinal, int64_t bytes);
Memory allocate_pinned_memory(int ordinal, int64_t bytes);
// `also` lists devices that may read and write the memory, besides its own.
std::unique_ptr<AddressRange> reserve_addresses(int ordinal, int64_t bytes,
                                                std::vector<int> also = {});

}  // namespace encore::cuda
