// Declares the CUDA backend's kernel table, with one function for each file of kernels. An op is
// launched with the first kernel of its rows in the table whose `accepts` accepts the launch.
#pragma once

#include <span>
#include <vector>

#include "backend/kernel.h"

namespace encore::cuda {

std::span<const Kernel> linear_kernels();        // linear/linear.cc: linear
std::span<const Kernel> fused_linear_kernels();  // linear/linear.cc: fused_linear
std::span<const Kernel> expert_kernels();        // experts/experts.cc: route, expert_mlp
std::span<const Kernel> lora_kernels();          // linear/lora.cc: lora_shrink, lora_expand
std::span<const Kernel> elementwise_kernels();   // rows/elementwise.cu: add, mul, silu, silu_mul
std::span<const Kernel> norm_kernels();          // rows/norm.cu: rms_norm
std::span<const Kernel> row_kernels();           // rows/rows.cu: embedding, gather_rows
std::span<const Kernel> rope_kernels();          // rows/rope.cu: rope, kv_write, rope_kv_write
std::span<const Kernel> attention_kernels();     // attention/attention.cc: attention, ...
std::span<const Kernel> collective_kernels();  // collectives/collectives.cu: all_reduce, all_gather
std::span<const Kernel> all_reduce_norm_kernels();  // collectives/: all_reduce_add_rms_norm
std::span<const Kernel> logits_kernels();  // sampling/logits.cu: adjust_logits, log_probs, ...
std::span<const Kernel> sample_kernels();  // sampling/sample.cu: sample
std::span<const Kernel> own_candidates_kernels();  // sampling/own_candidates.cu: own_largest, ...
std::span<const Kernel> accept_kernels();          // sampling/accept.cu: sample_draft, accept
std::span<const Kernel> advance_kernels();         // sampling/advance.cu: advance, write_inputs
std::span<const Kernel> draft_chain_kernels();  // sampling/draft_chain.cu: begin_drafts and others
std::span<const Kernel> lookup_drafts_kernels();  // sampling/lookup_drafts.cu: lookup_drafts

// Returns the kernels of all tables above.
std::vector<Kernel> all_kernels();

}  // namespace encore::cuda
