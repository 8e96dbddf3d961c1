// The CPU's kernels: one file a family, one function a kernel, all dtypes by widening rows to f32.
//
// Every output element is computed whole by one thread, and a row's bits do not depend on the rows
// beside it nor on how many there are.
#pragma once

#include "backend/cpu/pool.h"
#include "backend/kernel.h"

namespace encore::cpu {

// What one launch of a kernel does, once its turn has come.
using Run = void (*)(Pool& pool, const KernelArgs& args);

// A bound launch that runs `run` on the device's pool. `kernel` is what nodes() shows.
BoundLaunch bind_run(Device& device, const KernelArgs& args, std::string_view kernel, Run run);

// linear.cc
void linear(Pool& pool, const KernelArgs& args);
Workspace linear_workspace(const KernelArgs& args);
// norm.cc
void rms_norm(Pool& pool, const KernelArgs& args);
void add_rms_norm(Pool& pool, const KernelArgs& args);
// elementwise.cc
void add(Pool& pool, const KernelArgs& args);
void mul(Pool& pool, const KernelArgs& args);
void silu(Pool& pool, const KernelArgs& args);
void silu_mul(Pool& pool, const KernelArgs& args);
// rows.cc
void embedding(Pool& pool, const KernelArgs& args);
void gather_rows(Pool& pool, const KernelArgs& args);
void kv_write(Pool& pool, const KernelArgs& args);
// rope.cc
void rope(Pool& pool, const KernelArgs& args);
void rope_kv_write(Pool& pool, const KernelArgs& args);
// attention.cc
void attention(Pool& pool, const KernelArgs& args);
// advance.cc
void advance(Pool& pool, const KernelArgs& args);
void write_pages(Pool& pool, const KernelArgs& args);
// logits.cc
void adjust_logits(Pool& pool, const KernelArgs& args);
void log_probs(Pool& pool, const KernelArgs& args);
void write_token_state(Pool& pool, const KernelArgs& args);
// sample.cc
void sample(Pool& pool, const KernelArgs& args);

// Float elements of a view's row from element `first` on, as bytes.
inline std::byte* row_bytes(const TensorView& view, int64_t row, int64_t first = 0) {
  return view.as<std::byte>() + (row * view.row_stride + first) * size_of(view.dtype);
}

// Scratch of the calling thread, at least `count` floats, one buffer per `slot`; grows and stays.
enum class Buffer : uint8_t { kFirst, kSecond, kThird, kFourth, kFifth, kCount };
float* thread_buffer(Buffer slot, int64_t count);

// `n` elements as those of another float dtype or fp8, rounded once. Uses Buffer::kSecond.
void convert(const std::byte* from, DType from_dtype, int64_t n, std::byte* to, DType to_dtype);

// One head's normalization and rotation, shared by rope and the fused kernel.
// x *= scale * weight, with scale = 1 / sqrt(mean(x^2) + eps).
void normalize(float* x, const float* weight, int64_t n, float eps);

}  // namespace encore::cpu
