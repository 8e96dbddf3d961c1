// Rounds activations to FP8 for products of codes with codes.
#pragma once

#include "backend/fused_linear.h"

namespace encore::cuda {

// Rows in 8-bit codes, in the order of codes.h, with a scale for each row and 128 columns. Shapes:
// codes [rows, columns]; scales f32 [columns / 128 (rounded up), rows (rounded up to 16)].
struct QuantizedRows {
  TensorView codes;
  TensorView scales;
};
int64_t quantized_bytes(int64_t rows, int64_t columns);
// Lays out the codes and scales of x [rows, columns] in quantized_bytes() of scratch.
QuantizedRows quantized_rows(const TensorView& x, void* scratch);

// Rounds the rows of bf16 or f16 that a linear or fused_linear multiplies, as
// backend/fp8_activations.h says: x, or the output of the norm in front, over x and a residual.
// Columns are a multiple of 16.
BoundLaunch bind_quantize(const LinearOperands& o, const QuantizedRows& to);

// Says whether the kernel for operands with a norm in front takes so many columns, and these
// operands.
bool accepts_quantized_norm(const LinearOperands& o);
BoundLaunch bind_quantized_norm(const LinearOperands& o, const QuantizedRows& to);

}  // namespace encore::cuda
