// Computes y = x weight^T + bias.
//
// One row of x streams the weights once from memory. With many rows of x, 16 rows of the weight are
// widened at a time and used for every row of x, in blocks that fit the registers. Both ways add in
// the order that simd.h defines, even where scales change along the columns.
#include <algorithm>
#include <array>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"
#include "backend/fp8_activations.h"
#include "backend/fused_linear.h"
#include "base/rounding.h"

namespace encore::cpu {
namespace {

constexpr int64_t kMaxPackedRows = 256;  // rows of x widened at a time
constexpr int64_t kOutsPerPanel = 16;    // rows of the weight widened at a time
constexpr int64_t kMinRowsForPanel = 4;  // fewer rows read the weight as it is

struct Linear {
  const TensorView& x;
  const TensorView& weight;
  const TensorView* scale;
  const TensorView* bias;
  const TensorView& y;
  bool fp8_activations;
  float x_scale;
  float* packed;    // [kMaxPackedRows, padded(I)]: x, or x as rounded to fp8
  float* x_scales;  // [kMaxPackedRows, num_groups()]: scales of x in fp8

  [[nodiscard]] int64_t num_in() const { return weight.shape[1]; }
  [[nodiscard]] int64_t num_out() const { return weight.shape[0]; }
  // Elements from the start of one widened row to the start of the next.
  [[nodiscard]] int64_t stride() const { return padded(num_in()); }
  [[nodiscard]] Arrangement arrangement() const {
    return weight.dtype == DType::kBF16 ? Arrangement::kEvenOdd : Arrangement::kNatural;
  }
  [[nodiscard]] int64_t num_groups() const { return div_up(num_in(), kScaleBlock); }
  [[nodiscard]] bool has_row_scales() const { return scale != nullptr && scale->shape.rank() == 1; }
  [[nodiscard]] bool has_block_scales() const {
    return scale != nullptr && scale->shape.rank() == 2;
  }
};

// Widens row `row` of x. With fp8 activations, it rounds the row to fp8 and sets the scales of its
// groups.
void pack_row(const Linear& l, int64_t row, int64_t packed_row) {
  float* packed = l.packed + packed_row * l.stride();
  simd().pack(row_bytes(l.x, row), l.x.dtype, l.num_in(), l.arrangement(), packed);
  if (!l.fp8_activations) return;
  for (int64_t group = 0; group < l.num_groups(); ++group) {
    float* first = packed + group * kScaleBlock;
    const int64_t count = std::min(kScaleBlock, l.num_in() - group * kScaleBlock);
    const float scale = activation_scale(simd().max_magnitude(first, count), l.x_scale);
    const float inverse = 1 / scale;
    for (int64_t i = 0; i < count; ++i)
      first[i] *= inverse;
    std::array<Float8, kScaleBlock> codes;
    simd().store(first, count, DType::kFP8, codes.data());
    simd().load(codes.data(), DType::kFP8, count, first);
    l.x_scales[packed_row * l.num_groups() + group] = scale;
  }
}

// Multiplies columns [first, first + count) of rows [row, row + num_rows) by the scales of the
// weight's rows, adds the bias and stores the results.
void finish(const Linear& l, float* sums, int64_t row, int64_t num_rows, int64_t first,
            int64_t count) {
  const float* scale = l.has_row_scales() ? l.scale->as<const float>() + first : nullptr;
  std::array<float, kOutsPerPanel> bias{};
  if (l.bias != nullptr) {
    simd().load(l.bias->as<std::byte>() + first * size_of(l.bias->dtype), l.bias->dtype, count,
                bias.data());
  }
  for (int64_t r = 0; r < num_rows; ++r) {
    float* sum = sums + r * kOutsPerPanel;
    if (scale != nullptr) {
      for (int64_t c = 0; c < count; ++c)
        sum[c] *= scale[c];
    }
    if (l.bias != nullptr) {
      for (int64_t c = 0; c < count; ++c)
        sum[c] += bias[static_cast<size_t>(c)];
    }
    simd().store(sum, count, l.y.dtype, row_bytes(l.y, row + r, first));
  }
}

// Sets the scales of groups of columns: the scales of x in fp8; the scales of the block of the
// weight that holds rows [out, out + kOutsPerPanel); or the products of both.
void set_group_scales(const Linear& l, int64_t num_rows, int64_t out, DotProducts& dots) {
  static_assert(kScaleBlock % kOutsPerPanel == 0, "a panel lies in one row of blocks");
  const float* of_block =
      l.has_block_scales() ? l.scale->row<const float>(out / kScaleBlock) : nullptr;
  dots.scales = l.fp8_activations ? l.x_scales : of_block;
  dots.scales_stride = l.fp8_activations ? l.num_groups() : 0;
  if (!l.fp8_activations || of_block == nullptr) return;
  float* products = thread_buffer(Buffer::kThird, num_rows * l.num_groups());
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t group = 0; group < l.num_groups(); ++group) {
      const int64_t at = r * l.num_groups() + group;
      products[at] = l.x_scales[at] * of_block[group];
    }
  }
  dots.scales = products;
}

// Computes columns [first, last) of y for rows [row, row + num_rows) of x, which `packed` holds.
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
    set_group_scales(l, num_rows, out, dots);
    simd().dot_products(dots);
    finish(l, sums, row, num_rows, out, count);
  }
}

Workspace linear_workspace(const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  const int64_t columns = o.x->shape[1];
  const int64_t num_scales = o.fp8_activations ? div_up(columns, kScaleBlock) : 0;
  return {std::min(o.x->shape[0], kMaxPackedRows) * (padded(columns) + num_scales) *
              size_of(DType::kF32),
          0};
}

void linear(Pool& pool, const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  const int64_t num_rows = o.x->shape[0];
  auto* packed = static_cast<float*>(args.scratch);
  const Linear l{
      *o.x,      *o.weight, o.scale,
      o.bias,    *o.out,    o.fp8_activations,
      o.x_scale, packed,    packed + std::min(num_rows, kMaxPackedRows) * padded(o.x->shape[1])};
  const int64_t panels = div_up(l.num_out(), kOutsPerPanel);
  for (int64_t row = 0; row < num_rows; row += kMaxPackedRows) {
    const int64_t count = std::min(kMaxPackedRows, num_rows - row);
    pool.parallel_for(count, 16, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r)
        pack_row(l, row + r, r);
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
                                              .optional = {"scale", "bias"}}};
  return kRows;
}

}  // namespace encore::cpu
