// Computes expert_mlp with one warp for each output of each row, in two launches. The first makes
// the products of gate and up with their activation, and the second adds up the experts' products.
// A lane has every 32nd chunk of columns, and fetches the next chunk before it multiplies the
// current one.
//
// Loops are not unrolled, because a multiprocessor fetches the code of each launch anew (launch.h).
// Launches with loops unrolled for more copies under way took longer, most of all with codes.
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/matrices.cuh"
#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kLanes = 32;
// The number of blocks that share a multiprocessor when there is one row, so that all of its blocks
// run at once.
constexpr int kBlocksOfOneRow = 3;

// The arguments of both launches: the rows of activations and the experts of each row. Units:
// strides are in elements.
template <typename T>
struct ExpertRows {
  const T* x;
  int64_t x_stride;
  const int32_t* experts;
  int64_t experts_stride;
  const float* weights;
  int64_t weights_stride;
  T* hidden;  // [R*X,F]
  T* y;
  int64_t y_stride;
  int num_rows;
  int num_experts;
  int top_k;
  int width;  // D
  int inner;  // F

  // Returns the row's k-th expert, or a negative number where it has none. Reads from the L2 cache,
  // because a launch that reads before its inputs are complete may find an earlier step's experts
  // in its L1 cache.
  [[nodiscard]] __device__ __forceinline__ int expert_of(int64_t row, int k) const {
    const int expert = __ldcg(experts + row * experts_stride + k);
    return expert < num_experts ? expert : -1;
  }
  [[nodiscard]] __device__ __forceinline__ float weight_of(int64_t row, int k) const {
    return __ldcg(weights + row * weights_stride + k);
  }
};

// Computes silu(gate x) * (up x). The grid is (pairs of a row and an expert, blocks of outputs). A
// warp computes kOutputs outputs.
template <typename T, typename Stored, bool kPacked, int kOutputs>
__global__ void __launch_bounds__(kWarps* kLanes, kOutputs == 1 ? 1 : kBlocksOfOneRow)
    expert_gate_up_kernel(const __grid_constant__ ExpertRows<T> args,
                          const __grid_constant__ ExpertMatrices<Stored> gate_up) {
  using Chunks = Factors<T, Stored, kPacked, 2, kOutputs>;
  const int64_t pair = blockIdx.x;
  const int output = static_cast<int>(blockIdx.y * kWarps + threadIdx.x / kLanes) * kOutputs;
  int row = static_cast<int>(blockIdx.x) / args.top_k;
  int k = static_cast<int>(blockIdx.x) % args.top_k;
  compute_now(row);
  compute_now(k);
  wait_for_inputs();
  // Allows the next launch to start only behind wait_for_inputs(), because the next launch reads
  // the experts that rows chose before this launch has ended.
  allow_next_kernel();
  const int expert = args.expert_of(row, k);
  if (expert < 0 || output >= args.inner) return;
  const T* const x = args.x + row * args.x_stride;
  float sums[kOutputs][2] = {};  // of gate and of up
  Chunks next;
  bool has_next = false;
  int column = static_cast<int>(threadIdx.x) % kLanes * Chunks::kSize;
#pragma unroll 1
  do {
    const Chunks chunks = next;
    const bool has_chunks = has_next;
    has_next = column < gate_up.columns;
    if (has_next) {
      next.fetch_x(x, gate_up, column);
      next.fetch_weights(gate_up, expert, output, column);
    }
    column += kLanes * Chunks::kSize;
    if (has_chunks) chunks.add(sums);
  } while (has_next);
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) {
    const float gate = warp_sum(sums[o][0]);
    const float up = warp_sum(sums[o][1]);
    if (threadIdx.x % kLanes == 0 && output + o < args.inner)
      args.hidden[pair * args.inner + output + o] = from_float<T>(silu<T>(gate) * up);
  }
}

// Adds up the products of each row's experts. The grid is (rows, blocks of outputs of down), and a
// warp computes one output. Its lanes go through the columns of all experts of the row as if they
// were one long row. Shared memory holds the row's experts and their weights.
//
// The gate-and-up launch allows this launch to start once its own inputs are complete, which
// include the rows' experts. So this launch loads its first weights while hidden values are still
// computed.
template <typename T, typename Stored, bool kPacked, int kDownChunks>
__global__ void __launch_bounds__(kWarps* kLanes)
    expert_down_kernel(const __grid_constant__ ExpertRows<T> args,
                       const __grid_constant__ ExpertMatrices<Stored> down) {
  using Chunks = Factors<T, Stored, kPacked, 1>;
  extern __shared__ int32_t experts_of_row[];
  auto* const weights_of_row = reinterpret_cast<float*>(experts_of_row + args.top_k);
  allow_next_kernel();
  const int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  const int output = static_cast<int>(blockIdx.y) * kWarps + thread / kLanes;
#pragma unroll 1
  for (int k = thread; k < args.top_k; k += kWarps * kLanes) {
    experts_of_row[k] = args.expert_of(row, k);
    weights_of_row[k] = args.weight_of(row, k);
  }
  __syncthreads();
  if (output >= args.width) return;

  const T* const hidden = args.hidden + row * args.top_k * args.inner;
  int k = 0;
  // Column of the lane's chunk; beyond the last column, it belongs to a later expert.
  int column = thread % kLanes * Chunks::kSize;
  Chunks next[kDownChunks];
  float next_weights[kDownChunks] = {};  // 0: no such chunk
  // Goes on to the next chunk of weights, and calls `fetch(chunk, row of hidden)` if there is a
  // next chunk.
  const auto fetch_next = [&](int i, auto fetch) {
    while (column >= args.inner) {
      column -= args.inner;
      ++k;
    }
    next_weights[i] = 0;
    const bool has_next = k < args.top_k;
    const int expert = has_next ? experts_of_row[k] : -1;
    if (expert >= 0) {
      next_weights[i] = weights_of_row[k];
      fetch(hidden + static_cast<int64_t>(k) * args.inner, expert);
    }
    return has_next;
  };
  const T* first_rows[kDownChunks];
  int first_columns[kDownChunks];
#pragma unroll
  for (int i = 0; i < kDownChunks; ++i) {
    fetch_next(i, [&](const T* x, int expert) {
      next[i].fetch_weights(down, expert, output, column);
      first_rows[i] = x;
    });
    first_columns[i] = column;
    column += kLanes * Chunks::kSize;
  }
  wait_for_inputs();
#pragma unroll
  for (int i = 0; i < kDownChunks; ++i) {
    if (next_weights[i] != 0) next[i].fetch_x(first_rows[i], down, first_columns[i]);
  }
  float sum[1][1] = {};
  bool has_next;
#pragma unroll 1
  do {
    Chunks chunks[kDownChunks];
    float weights[kDownChunks];
#pragma unroll
    for (int i = 0; i < kDownChunks; ++i) {
      chunks[i] = next[i];
      weights[i] = next_weights[i];
      const bool has_chunk = fetch_next(i, [&](const T* x, int expert) {
        next[i].fetch_x(x, down, column);
        next[i].fetch_weights(down, expert, output, column);
      });
      if (i == 0) has_next = has_chunk;
      column += kLanes * Chunks::kSize;
    }
#pragma unroll
    for (int i = 0; i < kDownChunks; ++i) {
      if (weights[i] != 0) chunks[i].add(sum, weights[i]);
    }
  } while (has_next);
  const float total = warp_sum(sum[0][0]);
  if (thread % kLanes == 0) args.y[row * args.y_stride + output] = from_float<T>(total);
}

// Binds the first launch, for a weight with elements of type Stored.
template <typename T, typename Stored>
BoundLaunch bind_gate_up(const ExpertRows<T>& rows, const ExpertMatrices<Stored>& gate_up,
                         bool is_packed) {
  // One row has few warps. With two outputs per warp, all warps run at once and each has more loads
  // under way. With codes, two outputs would take too many registers to run all warps at once.
  constexpr int kOutputsOfOneRow = ExpertMatrices<Stored>::kHasScales ? 1 : 2;
  const bool has_one_row = is_packed && rows.num_rows == 1;
  const int outputs = has_one_row ? kOutputsOfOneRow : 1;
  auto kernel = is_packed ? expert_gate_up_kernel<T, Stored, true, 1>
                          : expert_gate_up_kernel<T, Stored, false, 1>;
  if (has_one_row) kernel = expert_gate_up_kernel<T, Stored, true, kOutputsOfOneRow>;
  const auto num_pairs = static_cast<unsigned>(int64_t{rows.num_rows} * rows.top_k);
  const Grid grid{
      .blocks = dim3(num_pairs, static_cast<unsigned>(div_up(rows.inner, kWarps * outputs))),
      .threads = kWarps * kLanes};
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, kernel, rows, gate_up); };
}
template <typename T, typename Stored>
BoundLaunch bind_down(const ExpertRows<T>& rows, const ExpertMatrices<Stored>& down,
                      bool is_packed) {
  // The number of chunks that a lane fetches at once, which changes no bit of the result. One row
  // has few warps, so each has more loads under way. With codes, which take longer to multiply,
  // fewer are enough.
  constexpr int kChunksOfOneRow = ExpertMatrices<Stored>::kHasScales ? 3 : 4;
  auto kernel = expert_down_kernel<T, Stored, false, 1>;
  if (is_packed) {
    kernel = rows.num_rows == 1 ? expert_down_kernel<T, Stored, true, kChunksOfOneRow>
                                : expert_down_kernel<T, Stored, true, 2>;
  }
  const Grid grid{.blocks = dim3(static_cast<unsigned>(rows.num_rows),
                                 static_cast<unsigned>(div_up(rows.width, kWarps))),
                  .threads = kWarps * kLanes,
                  .shared_bytes = static_cast<size_t>(rows.top_k) * 8};
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, kernel, rows, down); };
}

// Calls `visitor(TypeTag<Stored>{})` with the type of a weight's elements: T, or Float8 for codes.
template <typename T, typename Visitor>
BoundLaunch visit_weight(const TensorView& weight, Visitor&& visitor) {
  if (weight.dtype == DType::kFP8) return visitor(TypeTag<Float8>{});
  return visitor(TypeTag<T>{});
}

// Returns whether lanes can read whole chunks of a weight's rows, and of the rows of x that are
// multiplied with them.
template <typename T>
bool is_packed(const TensorView& weight) {
  const int64_t chunk = weight.dtype == DType::kFP8 ? kCodeGroup : Pack<T>::kSize;
  return is_aligned(weight) && weight.shape[2] % chunk == 0;
}

}  // namespace

Workspace expert_rows_workspace(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  return {.scratch_bytes = num_pairs(args) * args.inputs["down"].shape[2] * size_of(x.dtype)};
}

BoundLaunch bind_expert_rows(Device& /*device*/, const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& experts = args.inputs["experts"];
  const TensorView& weights = args.inputs["weights"];
  const TensorView& gate_up = args.inputs["gate_up"];
  const TensorView& down = args.inputs["down"];
  const TensorView& y = args.outputs["y"];
  return visit_element(x.dtype, [&](auto tag) -> BoundLaunch {
    using T = typename decltype(tag)::type;
    const ExpertRows<T> rows{.x = x.as<const T>(),
                             .x_stride = x.row_stride,
                             .experts = experts.as<const int32_t>(),
                             .experts_stride = experts.row_stride,
                             .weights = weights.as<const float>(),
                             .weights_stride = weights.row_stride,
                             .hidden = static_cast<T*>(args.scratch),
                             .y = y.as<T>(),
                             .y_stride = y.row_stride,
                             .num_rows = static_cast<int>(x.num_rows()),
                             .num_experts = static_cast<int>(gate_up.shape[0]),
                             .top_k = static_cast<int>(experts.shape[1]),
                             .width = static_cast<int>(x.shape[1]),
                             .inner = static_cast<int>(down.shape[2])};
    const BoundLaunch first = visit_weight<T>(gate_up, [&](auto stored) {
      using Stored = typename decltype(stored)::type;
      return bind_gate_up(rows, matrices_of<Stored>(args, "gate_up", 2),
                          is_packed<T>(gate_up) && is_aligned(x));
    });
    const BoundLaunch second = visit_weight<T>(down, [&](auto stored) {
      using Stored = typename decltype(stored)::type;
      return bind_down(rows, matrices_of<Stored>(args, "down", 1), is_packed<T>(down));
    });
    return [first, second](Stream& stream, const StepLengths& lengths) {
      first(stream, lengths);
      second(stream, lengths);
    };
  });
}

}  // namespace encore::cuda
