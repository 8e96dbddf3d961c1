// Rounds activations to FP8 for products of codes with codes.
#pragma once

#include "backend/fused_linear.h"

namespace encore::cuda {

// Rows in 8-bit codes, in the order of codes.h, with a scale for each row and group of 128 columns.
// Shapes: codes [rows, columns]; scales f32 [columns / 128 (rounded up), rows (rounded up to 16)].
struct QuantizedRows {
  TensorView codes;
  TensorView scales;
};
int64_t quantized_bytes(int64_t rows, int64_t columns);
// Places the codes and scales of x [rows, columns] in `scratch`, which has quantized_bytes().
QuantizedRows quantized_rows(const TensorView& x, void* scratch);

// Rounds the rows of bf16 or f16 that a linear or fused_linear multiplies, as described in
// backend/fp8_activations.h. These rows are x or, where a norm stands in front of the product, the
// output of that norm, which reads x and a residual. The number of columns must be a multiple of
// 16.
BoundLaunch bind_quantize(const LinearOperands& o, const QuantizedRows& to);

// Returns whether the kernel for a norm in front accepts these operands and their number of
// columns.
bool accepts_quantized_norm(const LinearOperands& o);
BoundLaunch bind_quantized_norm(const LinearOperands& o, const QuantizedRows& to);

}  // namespace encore::cuda
