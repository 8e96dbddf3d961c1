// The CPU's kernels: one file a family, with its rows of the kernel table; one function a kernel, all
// dtypes by widening rows to f32.
//
// Every output element is computed whole by one thread, and a row's bits do not depend on the rows
// beside it nor on how many there are.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "backend/cpu/pool.h"
#include "backend/kernel.h"

namespace encore::cpu {

// The function that does a launch's work when its turn comes.
using Run = void (*)(Pool& pool, const KernelArgs& args);

// Binds a launch that runs `run` on the device's pool. nodes() shows it as `kernel`.
BoundLaunch bind_run(Device& device, const KernelArgs& args, std::string_view kernel, Run run);

// A text that can be a template's argument.
template <size_t kSize>
struct Literal {
  // NOLINTNEXTLINE(google-explicit-constructor): rows read as text
  consteval Literal(const char (&literal)[kSize]) { std::copy_n(literal, kSize, text); }
  char text[kSize] = {};
};

template <Literal kName, Run kRun>
BoundLaunch bind(Device& device, const KernelArgs& args) {
  return bind_run(device, args, kName.text, kRun);
}
// One row of the table: a kernel of an op, with the optional operands that it knows.
template <Literal kName, Run kRun>
constexpr Kernel row(std::string_view op, std::array<std::string_view, 8> optional = {}) {
  return {.op = op, .name = kName.text, .bind = bind<kName, kRun>, .optional = optional};
}

std::span<const Kernel> linear_kernels();       // linear.cc
std::span<const Kernel> expert_kernels();       // experts.cc: route, expert_mlp
std::span<const Kernel> lora_kernels();         // lora.cc: lora_shrink, lora_expand
std::span<const Kernel> norm_kernels();         // norm.cc
std::span<const Kernel> elementwise_kernels();  // elementwise.cc: add, mul, silu and the like
std::span<const Kernel> row_kernels();          // rows.cc: embedding, gather_rows, kv_write
std::span<const Kernel> rope_kernels();         // rope.cc: rope, rope_kv_write
std::span<const Kernel> attention_kernels();    // attention.cc
std::span<const Kernel> advance_kernels();      // advance.cc: advance, write_inputs
std::span<const Kernel> logits_kernels();  // logits.cc: adjust_logits, log_probs, write_token_state
std::span<const Kernel> sample_kernels();  // sample.cc
std::span<const Kernel> accept_kernels();  // accept.cc: sample_draft, accept
std::span<const Kernel> collective_kernels();  // collectives.cc: all_reduce, all_gather and others
std::span<const Kernel> lookup_drafts_kernels();  // lookup_drafts.cc
std::span<const Kernel> draft_chain_kernels();    // draft_chain.cc: begin_drafts and others

// Rows of logits of a sequence, of a launch that has any.
inline int64_t rows_of_each(const KernelArgs& args) {
  return args.inputs["logits"].num_rows() /
         std::max<int64_t>(1, args.inputs["sampling"].num_rows());
}

// The address of a view's row, from element `first` on. The elements are floats.
inline std::byte* row_bytes(const TensorView& view, int64_t row, int64_t first = 0) {
  return view.as<std::byte>() + (row * view.row_stride + first) * size_of(view.dtype);
}

// Scratch of the calling thread, at least `count` floats, one buffer per `slot`; grows and stays.
enum class Buffer : uint8_t { kFirst, kSecond, kThird, kFourth, kFifth, kCount };
float* thread_buffer(Buffer slot, int64_t count);

// Converts `n` elements to another float dtype or fp8, rounded once. Uses Buffer::kSecond.
void convert(const std::byte* from, DType from_dtype, int64_t n, std::byte* to, DType to_dtype);

// Replaces each x by x / (1 + exp(-x)), for at most kMaxSilu elements.
constexpr int64_t kMaxSilu = 512;
void apply_silu(float* x, int64_t count);

// Normalizes one head, for rope and the fused kernel: x *= scale * weight, with scale = 1 /
// sqrt(mean(x^2) + eps).
void normalize(float* x, const float* weight, int64_t n, float eps);
// The weight of a norm in f32, with the attribute `offset` added where there is one.
const float* widened_weight(const TensorView& weight, const ir::Attrs& attrs, Buffer slot);

}  // namespace encore::cpu
