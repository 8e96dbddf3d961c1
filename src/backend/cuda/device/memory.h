// Allocates device memory and pinned host memory, and reserves address ranges whose memory is
// mapped later.
#pragma once

#include <memory>
#include <vector>

#include "backend/device.h"

namespace encore::cuda {

// Allocate `bytes` of memory for the device `ordinal`. Errors: kMemory naming the sizes; kCompile
// while recording.
Memory allocate_device_memory(int ordinal, int64_t bytes);
Memory allocate_pinned_memory(int ordinal, int64_t bytes);
// Reserves addresses for memory of the device `ordinal`. The devices in `also` may read and write
// that memory too.
std::unique_ptr<AddressRange> reserve_addresses(int ordinal, int64_t bytes,
                                                std::vector<int> also = {});

}  // namespace encore::cuda
