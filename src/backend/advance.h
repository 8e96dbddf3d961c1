// What the devices' kernels of `advance` (ops.cc) and the host's end of the ring agree on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace encore::advance_op {

// In ring_marks, each in a cache line of its own.
inline constexpr size_t kPublished = 0;  // the device's: steps whose tokens are in the ring
inline constexpr size_t kRunUntil = 16;  // the host's: the step at which a burst ends

// Does a sequence end with a token that makes it `length` tokens long? The rule of host and
// devices.
constexpr bool ends(bool is_stop_token, int64_t length, int64_t max_length) {
  return is_stop_token || length >= max_length;
}

}  // namespace encore::advance_op
