// Products with weights whose scales change along the columns.
#pragma once

#include <algorithm>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"
#include "base/scale_block.h"

namespace encore::cpu {

// Computes the dot products of `columns` columns as sums of groups of kScaleBlock of them, each times
// scale_of(row of x, row of w, group), in the order of the groups. `partial`: a buffer that it uses.
template <typename ScaleOf>
void grouped_dot_products(const DotProducts& dots, int64_t columns, Buffer partial,
                          const ScaleOf& scale_of) {
  float* products = thread_buffer(partial, dots.num_x * dots.y_stride);
  std::fill_n(dots.y, dots.num_x * dots.y_stride, 0.0F);
  for (int64_t column = 0; column < columns; column += kScaleBlock) {
    DotProducts part = dots;
    part.x += column;
    part.w = static_cast<const std::byte*>(dots.w) + column * size_of(dots.w_dtype);
    part.n = std::min(kScaleBlock, columns - column);
    part.y = products;
    simd().dot_products(part);
    for (int64_t r = 0; r < dots.num_x; ++r) {
      for (int64_t c = 0; c < dots.num_w; ++c) {
        const int64_t at = r * dots.y_stride + c;
        dots.y[at] += products[at] * scale_of(r, c, column / kScaleBlock);
      }
    }
  }
}

}  // namespace encore::cpu
