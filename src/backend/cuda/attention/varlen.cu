// Decides when attention of prompts and mixed steps runs on the variable-length kernel, and binds
// its operands. varlen.cuh and varlen_kernel.cuh have the kernel; varlen_64.cu and its sister files
// instantiate it.
#include <algorithm>
#include <utility>
#include <vector>

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
             : std::min<int64_t>(shape.sequences, kMaxSequences) * kMostPartRows * shape.heads;
}

namespace {

bool accepts(const KernelArgs& args) {
  const AttentionShape shape = attention_shape(args);
  const bool has_rows = shape.tokens > 0 && args.inputs["k_cache"].num_rows() > 0;
  const bool is_decode =
      !args.batch_invariant && args.step.is_uniform() && *args.step.q <= kMostSplitTokens;
  return accepts_tensor_cores(args, 256) && has_rows && !is_decode;
}

// Returns the number of launches. One launch takes at most kMaxSequences runs, so a step of more
// sequences takes several launches, one behind the other.
int num_launches(const KernelArgs& args) {
  const int64_t num_runs = attention_shape(args).num_runs(args.step.q);
  return static_cast<int>(std::max<int64_t>(1, div_up(num_runs, int64_t{kMaxSequences})));
}

// Returns the rows of a view from row `first` on, at most `most` of them.
TensorView rows_from(const TensorView& view, int64_t first, int64_t most) {
  TensorView rows = view;
  const int64_t bytes = std::min(first, view.num_rows()) * view.row_stride * size_of(view.dtype);
  rows.data = view.as<std::byte>() + bytes;
  rows.shape = {std::clamp<int64_t>(view.num_rows() - first, 0, most)};
  for (int i = 1; i < view.shape.rank(); ++i)
    rows.shape.push_back(view.shape[i]);
  return rows;
}

// Returns the operands of a launch for the step's sequences from `first` on. The rows of their
// tokens follow from `first` in a uniform step, and from query_starts in a mixed one. All launches
// use the same scratch memory and counters, because each begins to use them when the one before has
// ended.
KernelArgs launch_from(const KernelArgs& args, int64_t first) {
  KernelArgs part = args;
  const auto cut = [&](TensorView& view, int64_t rows_each, int64_t more) {
    view = rows_from(view, first * rows_each, kMaxSequences * rows_each + more);
  };
  cut(part.inputs["kv_lens"], 1, 0);
  cut(part.inputs["page_table"], 1, 0);
  cut(part.inputs["query_starts"], 1, 1);
  if (args.step.is_uniform()) {
    cut(part.inputs["q"], *args.step.q, 0);
    cut(part.outputs["o"], *args.step.q, 0);
  }
  return part;
}

Workspace workspace(const KernelArgs& args) {
  const AttentionShape shape = attention_shape(args);
  const int64_t row_bytes = shape.head_size * sizeof(float) + sizeof(float2);
  return {num_part_rows(args) * row_bytes,
          1 + std::min<int64_t>(shape.sequences, kMaxSequences) * shape.kv_heads * kConsumers};
}

BoundLaunch bind(Device& device, const KernelArgs& args) {
  std::vector<BoundLaunch> launches;
  for (int64_t i = 0; i < num_launches(args); ++i) {
    launches.push_back(visit_head_size<256>(args, [&](auto head_size) {
      return bind_varlen<head_size.value>(device, launch_from(args, i * kMaxSequences));
    }));
  }
  if (launches.size() == 1) return std::move(launches.front());
  return [launches = std::move(launches)](Stream& stream, const StepLengths& lengths) {
    for (const BoundLaunch& launch : launches)
      launch(stream, lengths);
  };
}

}  // namespace
}  // namespace varlen

Kernel attention_varlen_kernel() {
  return {.op = "attention",
          .name = "attention.varlen",
          .accepts = varlen::accepts,
          .workspace = varlen::workspace,
          .bind = varlen::bind,
          .optional = {"sinks"},
          .num_nodes = varlen::num_launches};
}

}  // namespace encore::cuda
