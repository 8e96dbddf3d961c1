// The launch of attention of prompts and of mixed steps. Its kernels take half a minute to compile for
// each size of heads, so each size has a file of its own, varlen_64.cu and its like.
#pragma once

#include "backend/cuda/attention/varlen_copy.cuh"

namespace encore::cuda::varlen {

// The most new tokens that a sequence may have for its keys to be cut into parts; -1: no keys are
// cut.
int most_split_tokens(const KernelArgs& args);
// The rows of results that parts leave. A uniform step has none: with few tokens it runs on another
// kernel.
int64_t num_part_rows(const KernelArgs& args);

// Binds `attention` of heads of C elements.
template <int C>
BoundLaunch bind_varlen(Device& device, const KernelArgs& args);

}  // namespace encore::cuda::varlen
