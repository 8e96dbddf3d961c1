// Constants and a rule that the devices' kernels of `advance` (ops.cc) share with the host, which
// reads the ring.
#pragma once

#include <cstddef>
#include <cstdint>

namespace encore::advance_op {

// Indices in ring_marks, each in a cache line of its own.
inline constexpr size_t kPublished = 0;  // the device's: steps whose tokens are in the ring
inline constexpr size_t kRunUntil = 16;  // the host's: the step at which a burst ends

// Does a sequence end with a token that makes it `length` tokens long? Host and devices use this
// rule.
constexpr bool ends(bool is_stop_token, int64_t length, int64_t max_length) {
  return is_stop_token || length >= max_length;
}

}  // namespace encore::advance_op
