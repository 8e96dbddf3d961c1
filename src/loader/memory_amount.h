// An amount of device memory, as options ask for it.
#pragma once

#include <cstdint>

namespace encore::loader {

// Bytes, or a share of all that the device has.
struct MemoryAmount {
  int64_t bytes = 0;
  double share = 0;  // 0 to 1; used when above 0

  // The amount in bytes, on a device of `total` bytes.
  [[nodiscard]] int64_t of(int64_t total) const {
    return share > 0 ? static_cast<int64_t>(share * static_cast<double>(total)) : bytes;
  }
  friend bool operator==(const MemoryAmount&, const MemoryAmount&) = default;
};

}  // namespace encore::loader
