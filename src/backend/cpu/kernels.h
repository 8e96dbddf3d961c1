// Declares the CPU's kernels. Each file has one family of kernels with its rows of the kernel
// table, and one function per kernel, which widens rows of any dtype to f32.
//
// One thread computes each output element completely, and a row's bits depend neither on the rows
// beside it nor on their number.
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
// Returns one row of the table: a kernel of an op, with the optional operands that it accepts.
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

// Returns the number of rows of logits of each sequence, for a launch that has logits.
inline int64_t rows_of_each(const KernelArgs& args) {
  return args.inputs["logits"].num_rows() /
         std::max<int64_t>(1, args.inputs["sampling"].num_rows());
}

// Returns the address of a view's row, from element `first` on. The elements are of a float dtype.
inline std::byte* row_bytes(const TensorView& view, int64_t row, int64_t first = 0) {
  return view.as<std::byte>() + (row * view.row_stride + first) * size_of(view.dtype);
}

// Returns scratch memory of the calling thread with room for at least `count` floats. Each thread
// has one buffer per value of Buffer, which grows when needed and is never freed.
enum class Buffer : uint8_t { kFirst, kSecond, kThird, kFourth, kFifth, kCount };
float* thread_buffer(Buffer slot, int64_t count);

// Converts `n` elements to another float dtype or fp8, rounded once. Uses Buffer::kSecond.
void convert(const std::byte* from, DType from_dtype, int64_t n, std::byte* to, DType to_dtype);

// Replaces each x by x / (1 + exp(-x)), for at most kMaxSilu elements.
constexpr int64_t kMaxSilu = 512;
void apply_silu(float* x, int64_t count);

// Normalizes one head, for rope and for the kernels that fuse it: x *= scale * weight, with scale =
// 1 / sqrt(mean(x^2) + eps).
void normalize(float* x, const float* weight, int64_t n, float eps);
// Returns the weight of a norm in f32, plus the attribute `offset` where the norm has it.
const float* widened_weight(const TensorView& weight, const ir::Attrs& attrs, Buffer slot);

}  // namespace encore::cpu
