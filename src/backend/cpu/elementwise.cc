// Ops that compute every element in the same way: add, mul, silu, silu_mul, gelu_tanh, softcap.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "backend/cpu/kernels.h"
#include "backend/cpu/simd.h"
#include "base/rounding.h"

namespace encore::cpu {

void apply_silu(float* x, int64_t count) {
  std::array<float, kMaxSilu> power;
  for (int64_t i = 0; i < count; ++i)
    power[static_cast<size_t>(i)] = -x[i];
  simd().exp(power.data(), count);
  for (int64_t i = 0; i < count; ++i)
    x[i] = x[i] / (1.0F + power[static_cast<size_t>(i)]);
}

namespace {

constexpr int64_t kChunk = kMaxSilu;  // elements widened at a time
using Chunk = std::array<float, kChunk>;

// Computes y = f(a, b) chunk by chunk; f works in place on a. Where `b` is null, f gets unspecified
// values for b and must not use them.
template <typename F>
void for_each_chunk(Pool& pool, const TensorView& a, const TensorView* b, const TensorView& y,
                    const F& f) {
  const int64_t n = y.row_elements();
  const int64_t chunks_per_row = div_up(n, kChunk);
  pool.parallel_for(y.num_rows() * chunks_per_row, 32, [&](int64_t first, int64_t last) {
    Chunk left;
    Chunk right;
    for (int64_t chunk = first; chunk < last; ++chunk) {
      const int64_t row = chunk / chunks_per_row;
      const int64_t begin = chunk % chunks_per_row * kChunk;
      const int64_t count = std::min(kChunk, n - begin);
      simd().load(row_bytes(a, row, begin), a.dtype, count, left.data());
      if (b != nullptr) simd().load(row_bytes(*b, row, begin), b->dtype, count, right.data());
      f(left.data(), right.data(), count);
      simd().store(left.data(), count, y.dtype, row_bytes(y, row, begin));
    }
  });
}

void add(Pool& pool, const KernelArgs& args) {
  const Views& in = args.inputs;
  for_each_chunk(pool, in["a"], &in["b"], args.outputs["y"],
                 [](float* a, const float* b, int64_t count) {
                   for (int64_t i = 0; i < count; ++i)
                     a[i] += b[i];
                 });
}

void mul(Pool& pool, const KernelArgs& args) {
  const Views& in = args.inputs;
  for_each_chunk(pool, in["a"], &in["b"], args.outputs["y"],
                 [](float* a, const float* b, int64_t count) {
                   for (int64_t i = 0; i < count; ++i)
                     a[i] *= b[i];
                 });
}

void silu(Pool& pool, const KernelArgs& args) {
  for_each_chunk(pool, args.inputs["x"], nullptr, args.outputs["y"],
                 [](float* x, const float* /*unused*/, int64_t count) { apply_silu(x, count); });
}

void gelu_tanh(Pool& pool, const KernelArgs& args) {
  constexpr float kCubic = 0.044715F;
  const float root = std::sqrt(2.0F * std::numbers::inv_pi_v<float>);
  for_each_chunk(pool, args.inputs["x"], nullptr, args.outputs["y"],
                 [&](float* x, const float* /*unused*/, int64_t count) {
                   for (int64_t i = 0; i < count; ++i) {
                     const float inner = root * (x[i] + kCubic * x[i] * x[i] * x[i]);
                     x[i] = 0.5F * x[i] * (1.0F + std::tanh(inner));
                   }
                 });
}

void softcap(Pool& pool, const KernelArgs& args) {
  const auto cap = static_cast<float>(args.attrs.get_double("cap"));
  for_each_chunk(pool, args.inputs["x"], nullptr, args.outputs["y"],
                 [&](float* x, const float* /*unused*/, int64_t count) {
                   for (int64_t i = 0; i < count; ++i)
                     x[i] = cap * std::tanh(x[i] / cap);
                 });
}

void silu_mul(Pool& pool, const KernelArgs& args) {
  const Views& in = args.inputs;
  for_each_chunk(pool, in["gate"], &in["up"], args.outputs["y"],
                 [](float* gate, const float* up, int64_t count) {
                   apply_silu(gate, count);
                   for (int64_t i = 0; i < count; ++i)
                     gate[i] *= up[i];
                 });
}

}  // namespace

std::span<const Kernel> elementwise_kernels() {
  static constexpr std::array kRows = {
      row<"add.cpu", add>("add"),
      row<"mul.cpu", mul>("mul"),
      row<"silu.cpu", silu>("silu"),
      row<"silu_mul.cpu", silu_mul>("silu_mul"),
      row<"gelu_tanh.cpu", gelu_tanh>("gelu_tanh"),
      row<"softcap.cpu", softcap>("softcap"),
  };
  return kRows;
}

}  // namespace encore::cpu
