// Constants and a rule that the devices' kernels of `advance` (ops.cc) share with the host, which
// reads the ring.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/host_device.h"

namespace encore::advance_op {

// Indices in ring_marks, each in a cache line of its own.
inline constexpr size_t kPublished = 0;  // the device's: steps whose tokens are in the ring
inline constexpr size_t kRunUntil = 16;  // the host's: the step at which a burst ends

// Does a sequence end with a token that makes it `length` tokens long? Host and devices use this
// rule.
constexpr bool ends(bool is_stop_token, int64_t length, int64_t max_length) {
  return is_stop_token || length >= max_length;
}

// A number in [0, 1) that decides, in benchmarks, how many drafts of a row are right in a step. Numbers of
// steps in a row are spread evenly (multiples of the golden ratio), so that few steps have as many right
// drafts on average as many.
ENCORE_HOST_DEVICE inline float forced_draw(uint32_t step, uint32_t row) {
  const uint32_t spread = step * 0x9E3779B9U + row * 0x85EBCA6BU;
  return static_cast<float>(spread >> 8U) * 0x1p-24F;
}

}  // namespace encore::advance_op
