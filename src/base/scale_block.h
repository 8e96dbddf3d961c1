// The number of elements in 8 bits that share a scale.
#pragma once

#include <cstdint>

namespace encore {

// A weight's block has so many rows and columns; a row of activations has a scale for so many
// columns.
inline constexpr int64_t kScaleBlock = 128;

}  // namespace encore
