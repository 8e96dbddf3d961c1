// Attention in float64, by the plainest loops, for tests at sizes that are too large for the
// reference of tests/conformance/, which it is held to at small ones.
#pragma once

#include <cstdint>

#include "backend/device.h"

namespace encore::cuda {

// A row of q, its sequence, and how many of the first keys it sees. Without keys its results are
// zeros.
struct QueryRow {
  int32_t row = 0;
  int32_t sequence = 0;
  int32_t num_keys = 0;
};

// Sums over the columns of one head of a row: the error and the size of its results.
struct HeadError {
  double squares = 0;      // of what is expected
  double differences = 0;  // squared
};

// Computes the results of a launch of attention in float64, [num_rows,H*C]. Takes queries of f16 or
// bf16, heads of 64, 96, 128 or 256, scores below 700. Units: all pointers are to the device's
// memory.
void attention_float64(Stream& stream, const KernelArgs& args, const QueryRow* rows,
                       int64_t num_rows, double* expected);

// Computes how far `actual` [T,H*C] is from `expected`, for each row and head.
void compare_heads(Stream& stream, const TensorView& actual, int64_t head_size,
                   const QueryRow* rows, int64_t num_rows, const double* expected,
                   HeadError* errors);

// Writes NaN to every slot of a cache [P,K,S,C] for which `used` has 0.
void poison_slots(Stream& stream, const TensorView& cache, const uint8_t* used);

}  // namespace encore::cuda
