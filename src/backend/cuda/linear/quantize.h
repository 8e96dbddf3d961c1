// Activations in FP8, as products of codes with codes take them.
#pragma once

#include "backend/kernel.h"

namespace encore::cuda {

// Rows in 8-bit codes: in the order of codes.h, with a scale for each row and 128 columns.
// Shapes: codes [rows, columns]; scales f32 [columns / 128 (rounded up), rows (rounded up to 16)].
struct QuantizedRows {
  TensorView codes;
  TensorView scales;
};
int64_t quantized_bytes(int64_t rows, int64_t columns);
// Those of x [rows, columns], in quantized_bytes() of scratch.
QuantizedRows quantized_rows(const TensorView& x, void* scratch);

// Rounds x, of bf16 or f16, as backend/fp8_activations.h says. Columns are a multiple of 16.
BoundLaunch bind_quantize_rows(const TensorView& x, const QuantizedRows& to);

}  // namespace encore::cuda
