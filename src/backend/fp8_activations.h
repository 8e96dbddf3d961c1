// Defines how activations are quantized to FP8. The kernels of all devices use this one form.
//
// The columns of a row are quantized in groups of kScaleBlock columns, the last of which may be
// shorter. A group has one scale in f32, and an element x becomes the e4m3 number nearest to x * (1
// / scale), saturated; both 1 / scale and its product with x are rounded to f32. A scale does not
// depend on another row, so padding rows and other sequences never change it. A matrix product may
// have a static scale instead, which is then the scale of all groups.
#pragma once

#include "backend/host_device.h"
#include "base/scale_block.h"

namespace encore {

// Returns the scale of a group whose largest magnitude, NaNs left out, is `largest`: that magnitude
// divided by 448, the largest e4m3 number. The scale is 1 where the quotient is not a normal
// number: for zero, for values near zero, and for infinity. Where `static_scale` is not 0, returns
// that instead.
ENCORE_HOST_DEVICE inline float activation_scale(float largest, float static_scale = 0) {
  constexpr float kLargestFp8 = 448.0F;
  constexpr float kLeastNormal = 0x1p-126F;
  constexpr float kLargestFloat = 0x1.fffffep127F;
  if (static_scale != 0) return static_scale;
  const float scale = largest / kLargestFp8;
  return scale >= kLeastNormal && scale <= kLargestFloat ? scale : 1.0F;
}

}  // namespace encore
