// Kernels for both halves of an adapter's product. They work row by row, because each row may have
// another adapter.
#include <algorithm>
#include <array>
#include <optional>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"
#include "backend/lora_blocks.h"
#include "base/error.h"

namespace encore::cpu {
namespace {

constexpr int64_t kRowsPerPiece = 4;
constexpr int64_t kMaxDots = 16;  // rows of a matrix that are multiplied at a time

Arrangement arrangement_for(DType weight) {
  return weight == DType::kBF16 ? Arrangement::kEvenOdd : Arrangement::kNatural;
}

// Returns the adapter slot of a row, or nothing where the row has no adapter.
std::optional<int64_t> slot_of(const TensorView& adapters, int64_t row, int64_t num_slots) {
  const int32_t slot = adapters.as<const int32_t>()[row];
  if (slot < 0) return std::nullopt;
  ENCORE_CHECK(slot < num_slots, "a row has slot {} of {}", slot, num_slots);
  return slot;
}

// Rounds the numbers to the values that `dtype` can store. Uses Buffer::kFifth.
void round_to(DType dtype, int64_t n, float* x) {
  auto* stored = reinterpret_cast<std::byte*>(thread_buffer(Buffer::kFifth, n));
  simd().store(x, n, dtype, stored);
  simd().load(stored, dtype, n, x);
}

// Replaces the first half of the numbers by silu(first half) * second half.
void apply_silu_mul(int64_t half, float* x) {
  for (int64_t i = 0; i < half; i += kMaxSilu)
    apply_silu(x + i, std::min(kMaxSilu, half - i));
  for (int64_t i = 0; i < half; ++i)
    x[i] *= x[half + i];
}

// Computes the dot products of rows [first, first + num_rows) of an adapter slot of `matrix`
// [S,M,n] with x [n], which is packed for that matrix.
void dot_rows(const TensorView& matrix, int64_t slot, int64_t first, int64_t num_rows,
              const float* x, float* y) {
  const int64_t n = matrix.shape[2];
  for (int64_t done = 0; done < num_rows; done += kMaxDots) {
    const int64_t count = std::min(kMaxDots, num_rows - done);
    simd().dot_products({.x = x,
                         .x_stride = padded(n),
                         .num_x = 1,
                         .w = row_bytes(matrix, slot, (first + done) * n),
                         .w_dtype = matrix.dtype,
                         .w_stride = n,
                         .num_w = count,
                         .n = n,
                         .y = y + done,
                         .y_stride = count});
  }
}

// Adds row r of `residual` to x, and rounds the sums to `dtype`.
void add_rounded(const TensorView& residual, int64_t r, DType dtype, int64_t n, float* x) {
  float* other = thread_buffer(Buffer::kFourth, n);
  simd().load(row_bytes(residual, r), residual.dtype, n, other);
  for (int64_t i = 0; i < n; ++i)
    x[i] += other[i];
  round_to(dtype, n, x);
}

void lora_shrink(Pool& pool, const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView* residual = args.inputs.find("residual");
  const TensorView* norm = args.inputs.find("norm");
  const TensorView& a = args.inputs["a"];
  const TensorView& adapters = args.inputs["adapters"];
  const TensorView& h = args.outputs["h"];
  const int64_t n = x.shape[1];
  pool.parallel_for(x.shape[0], kRowsPerPiece, [&](int64_t first, int64_t last) {
    float* packed = thread_buffer(Buffer::kFirst, padded(n));
    const float* weight =
        norm == nullptr ? nullptr : widened_weight(*norm, args.attrs, Buffer::kSecond);
    for (int64_t r = first; r < last; ++r) {
      const auto slot = slot_of(adapters, r, a.shape[0]);
      if (!slot) continue;
      const std::byte* row = row_bytes(x, r);
      if (norm != nullptr) {
        float* wide = thread_buffer(Buffer::kThird, n);
        simd().load(row, x.dtype, n, wide);
        if (residual != nullptr) add_rounded(*residual, r, x.dtype, n, wide);
        normalize(wide, weight, n, static_cast<float>(args.attrs.get_double("eps")));
        auto* rounded = reinterpret_cast<std::byte*>(thread_buffer(Buffer::kFourth, n));
        simd().store(wide, n, x.dtype, rounded);
        row = rounded;
      }
      simd().pack(row, x.dtype, n, arrangement_for(a.dtype), packed);
      dot_rows(a, *slot, 0, a.shape[1], packed, h.row<float>(r));
    }
  });
}

void lora_expand(Pool& pool, const KernelArgs& args) {
  const TensorView& base = args.inputs["base"];
  const TensorView& h = args.inputs["h"];
  const TensorView& b = args.inputs["b"];
  const TensorView& adapters = args.inputs["adapters"];
  const TensorView& y = args.outputs["y"];
  const int64_t num_out = base.shape[1];
  const int64_t rank = b.shape[2];
  const bool has_silu_mul = args.attrs.find("epilogue") != nullptr;
  const std::vector<int64_t> ends = lora_block_ends(args.attrs, num_out);
  pool.parallel_for(base.shape[0], kRowsPerPiece, [&](int64_t first, int64_t last) {
    float* packed = thread_buffer(Buffer::kFirst, padded(rank));
    float* sums = thread_buffer(Buffer::kSecond, num_out);
    float* wide = thread_buffer(Buffer::kThird, num_out);
    for (int64_t r = first; r < last; ++r) {
      const auto slot = slot_of(adapters, r, b.shape[0]);
      if (!slot && !has_silu_mul) {
        if (y.data != base.data)
          std::copy_n(row_bytes(base, r), num_out * size_of(y.dtype), row_bytes(y, r));
        continue;
      }
      simd().load(row_bytes(base, r), base.dtype, num_out, wide);
      if (slot) {
        const float* of_block = h.row<const float>(r);
        int64_t begin = 0;
        for (const int64_t end : ends) {
          simd().pack(of_block, DType::kF32, rank, arrangement_for(b.dtype), packed);
          dot_rows(b, *slot, begin, end - begin, packed, sums + begin);
          begin = end;
          of_block += rank;
        }
        for (int64_t o = 0; o < num_out; ++o)
          wide[o] += sums[o];
      }
      if (has_silu_mul) {
        if (slot) round_to(y.dtype, num_out, wide);
        apply_silu_mul(num_out / 2, wide);
      }
      simd().store(wide, y.shape[1], y.dtype, row_bytes(y, r));
    }
  });
}

}  // namespace

std::span<const Kernel> lora_kernels() {
  static constexpr std::array kRows = {
      row<"lora_shrink.cpu", lora_shrink>("lora_shrink", {"residual", "norm"}),
      row<"lora_expand.cpu", lora_expand>("lora_expand"),
  };
  return kRows;
}

}  // namespace encore::cpu
