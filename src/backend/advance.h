// Constants and a rule that the devices' kernels of `advance` (ops.cc) share with the host, which
// reads the ring.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/host_device.h"

namespace encore::advance_op {

// Indices of the two marks in ring_marks. Each mark lies in a cache line of its own.
inline constexpr size_t kPublished = 0;  // written by the device: number of published steps
inline constexpr size_t kRunUntil = 16;  // written by the host: the step at which a burst ends

// Returns whether a sequence ends with a token that makes it `length` tokens long. The host and all
// devices use this rule.
constexpr bool ends(bool is_stop_token, int64_t length, int64_t max_length) {
  return is_stop_token || length >= max_length;
}

// Returns a number in [0, 1) that decides, in benchmarks that force an acceptance rate, how many
// drafts of a row count as right in a step. The numbers of consecutive steps are spread evenly
// (multiples of the golden ratio), so that the average over a few steps is already close to the
// average over many.
ENCORE_HOST_DEVICE inline float forced_draw(uint32_t step, uint32_t row) {
  const uint32_t spread = step * 0x9E3779B9U + row * 0x85EBCA6BU;
  return static_cast<float>(spread >> 8U) * 0x1p-24F;
}

}  // namespace encore::advance_op
