// y = x weight^T + bias.
//
// One row of x streams the weights once from memory. Many rows widen 16 rows of the weight at a
// time and use them for every row of x, from registers in blocks. Both add in the order simd.h
// gives.
#include <algorithm>
#include <array>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"
#include "base/rounding.h"

namespace encore::cpu {
namespace {

constexpr int64_t kMaxPackedRows = 256;  // rows of x widened at a time
constexpr int64_t kOutsPerPanel = 16;    // rows of the weight widened at a time
constexpr int64_t kMinRowsForPanel = 4;  // fewer rows read the weight as it is

struct Linear {
  const TensorView& x;
  const TensorView& weight;
  const TensorView* bias;
  const TensorView& y;
  float* packed;  // [kMaxPackedRows, padded(I)]

  [[nodiscard]] int64_t num_in() const { return weight.shape[1]; }
  [[nodiscard]] int64_t num_out() const { return weight.shape[0]; }
  [[nodiscard]] int64_t stride() const { return padded(num_in()); }  // of widened rows
  [[nodiscard]] Arrangement arrangement() const {
    return weight.dtype == DType::kBF16 ? Arrangement::kEvenOdd : Arrangement::kNatural;
  }
};

// Adds the bias to columns [first, first + count) of rows [row, row + num_rows) and stores them.
void finish(const Linear& l, float* sums, int64_t row, int64_t num_rows, int64_t first,
            int64_t count) {
  std::array<float, kOutsPerPanel> bias{};
  if (l.bias != nullptr) {
    simd().load(l.bias->as<std::byte>() + first * size_of(l.bias->dtype), l.bias->dtype, count,
                bias.data());
  }
  for (int64_t r = 0; r < num_rows; ++r) {
    float* sum = sums + r * kOutsPerPanel;
    if (l.bias != nullptr) {
      for (int64_t c = 0; c < count; ++c)
        sum[c] += bias[static_cast<size_t>(c)];
    }
    simd().store(sum, count, l.y.dtype, row_bytes(l.y, row + r, first));
  }
}

// Columns [first, last) of y for the packed rows, which are rows [row, row + num_rows) of x.
void columns(const Linear& l, int64_t row, int64_t num_rows, int64_t first, int64_t last) {
  const bool widen = num_rows >= kMinRowsForPanel && l.weight.dtype != DType::kF32;
  float* sums = thread_buffer(Buffer::kFirst, num_rows * kOutsPerPanel);
  float* panel = widen ? thread_buffer(Buffer::kSecond, kOutsPerPanel * l.stride()) : nullptr;
  for (int64_t out = first; out < last; out += kOutsPerPanel) {
    const int64_t count = std::min(kOutsPerPanel, last - out);
    DotProducts dots{.x = l.packed,
                     .x_stride = l.stride(),
                     .num_x = num_rows,
                     .w = row_bytes(l.weight, out),
                     .w_dtype = l.weight.dtype,
                     .w_stride = l.weight.row_stride,
                     .num_w = count,
                     .n = l.num_in(),
                     .y = sums,
                     .y_stride = kOutsPerPanel};
    if (widen) {
      for (int64_t c = 0; c < count; ++c) {
        simd().pack(row_bytes(l.weight, out + c), l.weight.dtype, l.num_in(), l.arrangement(),
                    panel + c * l.stride());
      }
      dots.w = panel;
      dots.w_dtype = DType::kF32;
      dots.w_stride = l.stride();
      dots.n = l.stride();
    }
    simd().dot_products(dots);
    finish(l, sums, row, num_rows, out, count);
  }
}

Workspace linear_workspace(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  return {std::min(x.shape[0], kMaxPackedRows) * padded(x.shape[1]) * size_of(DType::kF32), 0};
}

void linear(Pool& pool, const KernelArgs& args) {
  const Linear l{args.inputs["x"], args.inputs["weight"], args.inputs.find("bias"),
                 args.outputs["y"], static_cast<float*>(args.scratch)};
  const int64_t num_rows = l.x.shape[0];
  const int64_t panels = div_up(l.num_out(), kOutsPerPanel);
  for (int64_t row = 0; row < num_rows; row += kMaxPackedRows) {
    const int64_t count = std::min(kMaxPackedRows, num_rows - row);
    pool.parallel_for(count, 16, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        simd().pack(row_bytes(l.x, row + r), l.x.dtype, l.num_in(), l.arrangement(),
                    l.packed + r * l.stride());
      }
    });
    pool.parallel_for(panels, pool.grain(panels), [&](int64_t first, int64_t last) {
      columns(l, row, count, first * kOutsPerPanel, std::min(last * kOutsPerPanel, l.num_out()));
    });
  }
}

}  // namespace

std::span<const Kernel> linear_kernels() {
  static constexpr std::array kRows = {Kernel{.op = "linear",
                                              .name = "linear.cpu",
                                              .workspace = linear_workspace,
                                              .bind = bind<"linear.cpu", linear>,
                                              .optional = {"bias"}}};
  return kRows;
}

}  // namespace encore::cpu
