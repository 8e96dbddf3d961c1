// Defines the number of 8-bit elements that share a scale.
#pragma once

#include <cstdint>

namespace encore {

// Each block of this many rows and columns of a weight shares a scale, and so do each this many
// columns in a row of activations.
inline constexpr int64_t kScaleBlock = 128;

}  // namespace encore
