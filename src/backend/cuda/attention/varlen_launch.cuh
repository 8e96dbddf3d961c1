// The launch of attention of prompts and of mixed steps. Its kernels take half a minute to compile for
// each size of heads, so each size has a file of its own, varlen_64.cu and its like.
#pragma once

#include "backend/cuda/attention/varlen_copy.cuh"

namespace encore::cuda::varlen {

// Tokens of a sequence whose keys may be cut into parts; -1: of none.
int most_split_tokens(const KernelArgs& args);
// Rows that parts leave. A uniform step has none: with few tokens it is not ours.
int64_t num_part_rows(const KernelArgs& args);

// Binds `attention` of heads of C elements.
template <int C>
BoundLaunch bind_varlen(Device& device, const KernelArgs& args);

}  // namespace encore::cuda::varlen
