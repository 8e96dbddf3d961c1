// Attention of prompts and of mixed steps: when it runs, and what it takes. What it does: varlen.cuh and
// varlen_kernel.cuh; the kernels' instances: varlen_64.cu and its like.
#include <algorithm>

#include "backend/cuda/attention/varlen_launch.cuh"

namespace encore::cuda {

namespace varlen {

int most_split_tokens(const KernelArgs& args) {
  const int tile_tokens = kTileRows / attention_shape(args).group();
  return args.batch_invariant ? -1 : std::min(kMostSplitTokens, tile_tokens);
}

int64_t num_part_rows(const KernelArgs& args) {
  const AttentionShape shape = attention_shape(args);
  return args.step.is_uniform() || args.batch_invariant
             ? 0
             : shape.sequences * kMostPartRows * shape.heads;
}

}  // namespace varlen

namespace {

using namespace varlen;  // NOLINT(google-build-using-namespace): one kernel in several files

bool accepts(const KernelArgs& args) {
  const AttentionShape shape = attention_shape(args);
  const bool has_rows = shape.tokens > 0 && args.inputs["k_cache"].num_rows() > 0;
  const bool is_decode =
      !args.batch_invariant && args.step.is_uniform() && *args.step.q <= kMostSplitTokens;
  return accepts_tensor_cores(args, 256) && has_rows && !is_decode &&
         shape.num_runs(args.step.q) <= kMaxSequences;
}

Workspace workspace(const KernelArgs& args) {
  const AttentionShape shape = attention_shape(args);
  const int64_t row_bytes = shape.head_size * sizeof(float) + sizeof(float2);
  return {num_part_rows(args) * row_bytes, 1 + shape.sequences * shape.kv_heads * kConsumers};
}

BoundLaunch bind(Device& device, const KernelArgs& args) {
  return visit_head_size<256>(
      args, [&](auto head_size) { return bind_varlen<head_size.value>(device, args); });
}

}  // namespace

Kernel attention_varlen_kernel() {
  return {"attention", "attention.varlen", accepts, workspace, bind, {"sinks"}};
}

}  // namespace encore::cuda
