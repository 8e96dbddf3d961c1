#include "model/transforms.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "backend/cpu/simd.h"
#include "backend/fp8_activations.h"

namespace encore::model {
namespace {

// Throws for a tensor, or numbers of a recipe, that a transform does not fit.
[[noreturn]] void does_not_fit(std::string_view why) {
  fail(ErrorKind::kModel, "{}", why);
}

int64_t width(const StoredTensor& tensor) {
  return tensor.shape.num_elements_from(1);
}

// Returns the place, in interleaved order, of row `row` of the deinterleaved order. The `rows` rows
// form groups of `parts` parts. In interleaved order, the parts of a group give one row each in
// turn.
int64_t interleaved_row(int64_t rows, int64_t groups, int64_t parts, int64_t row) {
  const int64_t rows_of_group = rows / groups;
  const int64_t rows_of_part = rows_of_group / parts;
  const int64_t part = row % rows_of_group / rows_of_part;
  return row / rows_of_group * rows_of_group + row % rows_of_part * parts + part;
}

Shape deinterleaved_shape(const StoredTensor& tensor, TransformNumbers numbers) {
  if (numbers.size() != 2 || numbers[0] < 1 || numbers[1] < 1 || tensor.shape.rank() == 0 ||
      tensor.shape[0] % (numbers[0] * numbers[1]) != 0)
    does_not_fit("needs rows that its groups and their parts divide");
  return tensor.shape;
}

void deinterleaved_row(const StoredTensor& tensor, TransformNumbers numbers, int64_t row,
                       float* to) {
  const int64_t from = interleaved_row(tensor.shape[0], numbers[0], numbers[1], row);
  widen(tensor, from * width(tensor), width(tensor), to);
}

Shape repeated_shape(const StoredTensor& tensor, TransformNumbers numbers) {
  if (tensor.shape.num_elements() != 1 || numbers.size() != 1)
    does_not_fit("needs a tensor of one number");
  return {numbers[0]};
}

void repeated_row(const StoredTensor& tensor, TransformNumbers, int64_t, float* to) {
  widen(tensor, 0, 1, to);
}

Shape given_shape(const StoredTensor& tensor, TransformNumbers numbers) {
  Shape shape;
  for (const int64_t dim : numbers)
    shape.push_back(dim);
  if (shape.rank() == 0 || shape.num_elements() != tensor.shape.num_elements())
    does_not_fit("needs as many numbers as the shape that is wanted");
  return shape;
}

void given_shape_row(const StoredTensor& tensor, TransformNumbers numbers, int64_t row, float* to) {
  const int64_t count = tensor.shape.num_elements() / numbers[0];
  widen(tensor, row * count, count, to);
}

Shape scaled_columns_shape(const StoredTensor& tensor, TransformNumbers numbers) {
  if (numbers.empty() || width(tensor) % static_cast<int64_t>(numbers.size()) != 0)
    does_not_fit("needs columns that its exponents divide");
  return tensor.shape;
}

void scaled_columns_row(const StoredTensor& tensor, TransformNumbers numbers, int64_t row,
                        float* to) {
  widen(tensor, row * width(tensor), width(tensor), to);
  const int64_t part = width(tensor) / static_cast<int64_t>(numbers.size());
  for (int64_t i = 0; i < width(tensor); ++i)
    to[i] = std::ldexp(to[i], static_cast<int>(numbers[static_cast<size_t>(i / part)]));
}

void require_float_matrix(const StoredTensor& tensor) {
  if (!is_float(tensor.dtype) || tensor.shape.rank() != 2)
    does_not_fit("needs a matrix of BF16, F16 or F32");
}

Shape codes_shape(const StoredTensor& tensor, TransformNumbers) {
  require_float_matrix(tensor);
  return tensor.shape;
}

Shape scales_shape(const StoredTensor& tensor, TransformNumbers) {
  require_float_matrix(tensor);
  return {tensor.shape[0]};
}

float largest_magnitude(const float* values, int64_t count) {
  // Computes this number of maxima side by side, so that the compiler can use vectors.
  constexpr int64_t kLanes = 16;
  std::array<float, kLanes> largest{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float magnitude = std::fabs(values[i + lane]);
      largest[static_cast<size_t>(lane)] = magnitude > largest[static_cast<size_t>(lane)]
                                               ? magnitude
                                               : largest[static_cast<size_t>(lane)];
    }
  }
  float result = *std::ranges::max_element(largest);
  for (; i < count; ++i)
    result = std::fabs(values[i]) > result ? std::fabs(values[i]) : result;
  return result;
}

void codes_row(const StoredTensor& tensor, TransformNumbers, int64_t row, float* to) {
  widen(tensor, row * width(tensor), width(tensor), to);
  const float inverse = 1 / activation_scale(largest_magnitude(to, width(tensor)));
  std::transform(to, to + width(tensor), to, [&](float value) { return value * inverse; });
}

void scales_row(const StoredTensor& tensor, TransformNumbers, int64_t row, float* to) {
  constexpr int64_t kChunk = 1024;
  float values[kChunk];
  float largest = 0;
  for (int64_t first = 0; first < width(tensor); first += kChunk) {
    const int64_t count = std::min(kChunk, width(tensor) - first);
    widen(tensor, row * width(tensor) + first, count, values);
    largest = std::max(largest, largest_magnitude(values, count));
  }
  *to = activation_scale(largest);
}

// Widens elements in the order of their bytes or of their blocks, without regard to interleaved
// heads.
void widen_stored(const StoredTensor& tensor, int64_t first, int64_t count, float* to) {
  if (tensor.blocks != nullptr) return gguf::widen(*tensor.blocks, tensor.data, first, count, to);
  constexpr int64_t kChunkBytes = 4096;
  alignas(16) std::byte aligned[kChunkBytes];  // needed because a file's tensors may be unaligned
  const int64_t size = size_of(tensor.dtype);
  const int64_t chunk = kChunkBytes / size;
  for (int64_t done = 0; done < count; done += chunk) {
    const int64_t part = std::min(chunk, count - done);
    std::memcpy(aligned, tensor.data + (first + done) * size, static_cast<size_t>(part * size));
    cpu::simd().load(aligned, tensor.dtype, part, to + done);
  }
}

constexpr std::array kTransforms = {
    Transform{"deinterleave", deinterleaved_shape, deinterleaved_row},
    Transform{"repeat", repeated_shape, repeated_row},
    Transform{"shape", given_shape, given_shape_row},
    Transform{"scale_columns", scaled_columns_shape, scaled_columns_row},
    Transform{"fp8_scales", scales_shape, scales_row},
    Transform{"fp8_codes", codes_shape, codes_row},
};

}  // namespace

const Transform& find_transform(std::string_view name) {
  std::string known;
  for (const Transform& row : kTransforms) {
    if (row.name == name) return row;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  fail(ErrorKind::kCompile, "no transform '{}' of a checkpoint's tensor; there are {}", name,
       known);
}

void widen(const StoredTensor& tensor, int64_t first, int64_t count, float* to) {
  if (tensor.interleaved_heads == 0) return widen_stored(tensor, first, count, to);
  const int64_t columns = width(tensor);
  for (int64_t done = 0; done < count;) {
    const int64_t row = (first + done) / columns;
    const int64_t column = (first + done) % columns;
    const int64_t part = std::min(columns - column, count - done);
    const int64_t from = interleaved_row(tensor.shape[0], tensor.interleaved_heads, 2, row);
    widen_stored(tensor, from * columns + column, part, to + done);
    done += part;
  }
}

}  // namespace encore::model
