// Computes attention in float64 with plain loops. Tests use it at sizes that are too large for the
// reference of tests/conformance/; at small sizes, a test compares it with that reference.
#pragma once

#include <cstdint>

#include "backend/device.h"

namespace encore::cuda {

// Names a row of q, its sequence, and how many of the sequence's first keys the row sees. The
// results of a row without keys are zeros.
struct QueryRow {
  int32_t row = 0;
  int32_t sequence = 0;
  int32_t num_keys = 0;
};

// Holds two sums over the columns of one head of a row: the size of the expected results, and the
// error of the actual ones.
struct HeadError {
  double squares = 0;      // sum of the squares of the expected values
  double differences = 0;  // sum of the squared differences
};

// Computes the results of a launch of attention in float64, [num_rows,H*C]. Takes queries of f16 or
// bf16, heads of 64, 96, 128 or 256, and scores below 700. All pointers are to device memory.
void attention_float64(Stream& stream, const KernelArgs& args, const QueryRow* rows,
                       int64_t num_rows, double* expected);

// Computes how far `actual` [T,H*C] is from `expected`, for each row and head.
void compare_heads(Stream& stream, const TensorView& actual, int64_t head_size,
                   const QueryRow* rows, int64_t num_rows, const double* expected,
                   HeadError* errors);

// Writes NaN to every slot of a cache [P,K,S,C] for which `used` has 0.
void poison_slots(Stream& stream, const TensorView& cache, const uint8_t* used);

}  // namespace encore::cuda
