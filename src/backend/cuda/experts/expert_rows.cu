// Computes expert_mlp with a warp for each output of each row, in two launches: one makes the
// products of gate and up with their activation, and one adds up the experts' products, where each
// lane adds its share in the order of the row's list. The second starts while the first still runs,
// and brings weights of the experts that it finds chosen to the L2 cache meanwhile. They have been
// chosen by then, as the first lets it start after its own wait; no result depends on that.
#include <algorithm>

#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/matrices.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/memory_order.cuh"

namespace encore::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kLanes = 32;
// Half of the L2 cache of an H100: the first launch reads through it as well.
constexpr int64_t kPrefetchedBytes = 24 << 20;

// What both launches are told of the rows. Strides count elements.
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
  int width;           // D
  int inner;           // F
  int num_prefetched;  // of each row's experts, for the second launch

  // The row's k-th expert; below 0: none.
  [[nodiscard]] __device__ __forceinline__ int expert_of(int64_t row, int k) const {
    const int expert = experts[row * experts_stride + k];
    return expert < num_experts ? expert : -1;
  }
  // The same before wait_for_inputs(), for a hint: it reads past the L1 cache, and may be any expert.
  [[nodiscard]] __device__ __forceinline__ int early_expert_of(int64_t row, int k) const {
    const int expert = static_cast<int>(ld_relaxed<Scope::kDevice>(
        reinterpret_cast<const uint32_t*>(experts + row * experts_stride + k)));
    return expert < num_experts ? expert : -1;
  }
};

// Computes silu(gate x) * (up x). The grid is (pairs of a row and an expert, blocks of outputs); a
// warp computes one output.
template <typename T, typename Stored, bool kPacked>
__global__ void __launch_bounds__(kWarps* kLanes)
    expert_gate_up_kernel(const __grid_constant__ ExpertRows<T> args,
                          const __grid_constant__ ExpertMatrices<Stored> gate_up) {
  // In this order, for the next kernel starts early to look at the experts that were chosen.
  wait_for_inputs();
  allow_next_kernel();
  const int64_t pair = blockIdx.x;
  const int output = static_cast<int>(blockIdx.y * kWarps + threadIdx.x / kLanes);
  const int64_t row = pair / args.top_k;
  const int expert = args.expert_of(row, static_cast<int>(pair % args.top_k));
  if (expert < 0 || output >= args.inner) return;
  float sums[2] = {};  // of gate and of up
  add_dot_products<kPacked>(args.x + row * args.x_stride, gate_up, expert, output, sums);
  const float gate = warp_sum(sums[0]);
  const float up = warp_sum(sums[1]);
  if (threadIdx.x % kLanes == 0)
    args.hidden[pair * args.inner + output] = from_float<T>(silu<T>(gate) * up);
}

// Adds up the products of each row's experts. The grid is (rows, blocks of outputs of down); a warp
// computes one output.
template <typename T, typename Stored, bool kPacked>
__global__ void __launch_bounds__(kWarps* kLanes)
    expert_down_kernel(const __grid_constant__ ExpertRows<T> args,
                       const __grid_constant__ ExpertMatrices<Stored> down) {
  allow_next_kernel();
  const int64_t row = blockIdx.x;
  if constexpr (kPacked) {
    // The rows of this block lie one after the other in each expert's matrix.
    const int thread = static_cast<int>(threadIdx.x);
    const int first = static_cast<int>(blockIdx.y) * kWarps;
    if (thread < args.num_prefetched) {
      const int expert = args.early_expert_of(row, thread);
      const int num_outputs = min(kWarps, args.width - first);
      if (expert >= 0) {
        prefetch(down.row(expert, 0, first),
                 static_cast<uint32_t>(num_outputs * down.columns * sizeof(Stored)));
      }
    }
  }
  wait_for_inputs();
  const int output = static_cast<int>(blockIdx.y * kWarps + threadIdx.x / kLanes);
  if (output >= args.width) return;
  float sum = 0;
#pragma unroll 2
  for (int k = 0; k < args.top_k; ++k) {
    const int expert = args.expert_of(row, k);
    if (expert < 0) continue;
    float product[1] = {};
    add_dot_products<kPacked>(args.hidden + (row * args.top_k + k) * args.inner, down, expert,
                              output, product);
    sum = fmaf(args.weights[row * args.weights_stride + k], product[0], sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kLanes == 0) args.y[row * args.y_stride + output] = from_float<T>(sum);
}

// One of the two launches, of an operand that is stored so.
template <typename T, typename Stored>
BoundLaunch bind_gate_up(const ExpertRows<T>& rows, const ExpertMatrices<Stored>& gate_up,
                         bool is_packed) {
  const auto kernel =
      is_packed ? expert_gate_up_kernel<T, Stored, true> : expert_gate_up_kernel<T, Stored, false>;
  const auto num_pairs = static_cast<unsigned>(int64_t{rows.num_rows} * rows.top_k);
  const Grid grid{.blocks = dim3(num_pairs, static_cast<unsigned>(div_up(rows.inner, kWarps))),
                  .threads = kWarps * kLanes};
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, kernel, rows, gate_up); };
}
template <typename T, typename Stored>
BoundLaunch bind_down(const ExpertRows<T>& rows, const ExpertMatrices<Stored>& down,
                      bool is_packed) {
  const auto kernel =
      is_packed ? expert_down_kernel<T, Stored, true> : expert_down_kernel<T, Stored, false>;
  const Grid grid{.blocks = dim3(static_cast<unsigned>(rows.num_rows),
                                 static_cast<unsigned>(div_up(rows.width, kWarps))),
                  .threads = kWarps * kLanes};
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, kernel, rows, down); };
}

// Returns how many experts of each row the second launch prefetches, so that caches hold them.
int num_prefetched(const KernelArgs& args) {
  const TensorView& down = args.inputs["down"];
  const int64_t top_k = args.inputs["experts"].shape[1];
  const int64_t num_rows = std::max(args.inputs["x"].num_rows(), int64_t{1});
  const int64_t bytes = down.shape[1] * down.shape[2] * size_of(down.dtype) * num_rows;
  return static_cast<int>(std::min({top_k, kPrefetchedBytes / bytes, int64_t{kWarps * kLanes}}));
}

// Calls `visitor(TypeTag<Stored>{})` with the type of a weight's elements, T or codes.
template <typename T, typename Visitor>
BoundLaunch visit_weight(const TensorView& weight, Visitor&& visitor) {
  if (weight.dtype == DType::kFP8) return visitor(TypeTag<Float8>{});
  return visitor(TypeTag<T>{});
}

// Can lanes take whole chunks of a weight's rows, and of the rows of x that they are multiplied with?
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
                             .inner = static_cast<int>(down.shape[2]),
                             .num_prefetched = num_prefetched(args)};
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
