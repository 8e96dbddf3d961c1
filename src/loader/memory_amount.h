// An amount of device memory in an option: a number of bytes or a share.
#pragma once

#include <cstdint>

namespace encore::loader {

// A number of bytes, or a share of all memory that the device has.
struct MemoryAmount {
  int64_t bytes = 0;
  double share = 0;  // 0 to 1; used when above 0

  // Returns the amount in bytes on a device with `total` bytes of memory.
  [[nodiscard]] int64_t of(int64_t total) const {
    return share > 0 ? static_cast<int64_t>(share * static_cast<double>(total)) : bytes;
  }
  friend bool operator==(const MemoryAmount&, const MemoryAmount&) = default;
};

}  // namespace encore::loader
