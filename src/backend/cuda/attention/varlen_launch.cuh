// Declares the launch of attention for prompts and mixed steps. Its kernels take half a minute to
// compile for each head size, so each head size has a source file (varlen_64.cu and others).
#pragma once

#include "backend/cuda/attention/varlen_copy.cuh"

namespace encore::cuda::varlen {

// Returns the most new tokens that a sequence may have for its keys to be cut into parts. Returns
// -1 where no keys are cut.
int most_split_tokens(const KernelArgs& args);
// Returns the number of rows of results that parts write to scratch. It is 0 where the batch must
// not change results, because no keys are cut then, and for a uniform step, because a uniform step
// with few tokens per sequence runs on the decode kernel.
int64_t num_part_rows(const KernelArgs& args);

// Binds `attention` of heads of C elements.
template <int C>
BoundLaunch bind_varlen(Device& device, const KernelArgs& args);

}  // namespace encore::cuda::varlen
