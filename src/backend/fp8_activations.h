// Activations in FP8: the one form in which kernels of every device take them.
//
// The columns of a row are quantized in groups of kScaleBlock, the last of which may be shorter. A
// group has one scale in f32, and an element is the e4m3 number nearest to x * (1 / scale),
// saturated; both products are rounded to f32. Nothing depends on another row, so padding and
// neighbours never enter a scale. A product may have a static scale instead, which all groups take.
#pragma once

#include "backend/host_device.h"
#include "base/scale_block.h"

namespace encore {

// The scale of a group whose largest magnitude is `largest`, NaNs left out. It is 1 where the
// quotient is no normal number: for zeros, for numbers as good as zero, and for infinity. A static scale
// that is not 0 is the answer for every group.
ENCORE_HOST_DEVICE inline float activation_scale(float largest, float static_scale = 0) {
  constexpr float kLargestFp8 = 448.0F;
  constexpr float kLeastNormal = 0x1p-126F;
  constexpr float kLargestFloat = 0x1.fffffep127F;
  if (static_scale != 0) return static_scale;
  const float scale = largest / kLargestFp8;
  return scale >= kLeastNormal && scale <= kLargestFloat ? scale : 1.0F;
}

}  // namespace encore
