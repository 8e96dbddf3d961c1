// Defines the number of 8-bit elements that share a scale.
#pragma once

#include <cstdint>

namespace encore {

// Elements along each side of a scale's block. In a weight, a square of this many rows and this
// many columns shares one scale. In a row of activations, each run of this many columns shares one.
inline constexpr int64_t kScaleBlock = 128;

}  // namespace encore
