// Root-mean-square normalization. Source: Zhang and Sennrich, 2019, equation 4.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"

namespace encore::cpu {
namespace {

// Returns the number of rows in one piece of a parallel loop: about 16 K elements.
int64_t rows_per_piece(int64_t row_elements) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, row_elements));
}

}  // namespace

const float* widened_weight(const TensorView& weight, const ir::Attrs& attrs, Buffer slot) {
  const int64_t n = weight.shape[0];
  float* wide = thread_buffer(slot, n);
  simd().load(weight.data, weight.dtype, n, wide);
  if (attrs.find("offset") == nullptr) return wide;
  const auto offset = static_cast<float>(attrs.get_double("offset"));
  for (int64_t i = 0; i < n; ++i)
    wide[i] += offset;
  return wide;
}

void normalize(float* x, const float* weight, int64_t n, float eps) {
  const float mean = simd().sum_of_squares(x, n) / static_cast<float>(n);
  const float scale = 1.0F / std::sqrt(mean + eps);
  for (int64_t i = 0; i < n; ++i)
    x[i] = x[i] * scale * weight[i];
}

namespace {

void rms_norm(Pool& pool, const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView* residual = args.inputs.find("residual");
  const TensorView& weight = args.inputs["weight"];
  const TensorView* sum = args.outputs.find("sum");
  const TensorView& y = args.outputs["y"];
  const auto eps = static_cast<float>(args.attrs.get_double("eps"));
  const int64_t n = x.shape[1];
  const int64_t group = weight.shape[0];
  pool.parallel_for(x.shape[0], rows_per_piece(n), [&](int64_t first, int64_t last) {
    const float* wide = widened_weight(weight, args.attrs, Buffer::kSecond);
    float* row = thread_buffer(Buffer::kFirst, n);
    float* other = thread_buffer(Buffer::kThird, n);
    for (int64_t r = first; r < last; ++r) {
      simd().load(row_bytes(x, r), x.dtype, n, row);
      if (residual != nullptr) {
        simd().load(row_bytes(*residual, r), residual->dtype, n, other);
        for (int64_t i = 0; i < n; ++i)
          row[i] += other[i];
        simd().store(row, n, sum->dtype, row_bytes(*sum, r));
        // The norm is that of the rounded sum, as if the two ops were separate.
        simd().load(row_bytes(*sum, r), sum->dtype, n, row);
      }
      for (int64_t g = 0; g < n; g += group)
        normalize(row + g, wide, group, eps);
      simd().store(row, n, y.dtype, row_bytes(y, r));
    }
  });
}

}  // namespace

std::span<const Kernel> norm_kernels() {
  static constexpr std::array kRows = {
      row<"rms_norm.cpu", rms_norm>("rms_norm", {"residual"}),
  };
  return kRows;
}

}  // namespace encore::cpu
