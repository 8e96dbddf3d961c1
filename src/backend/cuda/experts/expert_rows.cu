// Computes expert_mlp with a warp for each output of each row, in two launches: one makes the
// products of gate and up with their activation, and one adds up the experts' products, where each
// lane adds its share in the order of the row's list.
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/rows/chunk.cuh"

namespace encore::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kLanes = 32;

// Strides count elements.
template <typename T>
struct ExpertRows {
  const T* x;
  int64_t x_stride;
  const int32_t* experts;
  int64_t experts_stride;
  const float* weights;
  int64_t weights_stride;
  const T* gate_up;  // [E,2*F,D]
  const T* down;     // [E,D,F]
  T* hidden;         // [R*X,F]
  T* y;
  int64_t y_stride;
  int num_rows;
  int num_experts;
  int top_k;
  int width;  // D
  int inner;  // F

  // Whose pair it is, and which expert; -1: none.
  [[nodiscard]] __device__ __forceinline__ int expert_of(int64_t row, int k) const {
    const int expert = experts[row * experts_stride + k];
    return expert < num_experts ? expert : -1;
  }
};

// A warp's share of a dot product with kRows rows of a weight, `stride` elements apart.
template <bool kPacked, int kRows, typename T>
__device__ __forceinline__ void add_dot_products(const T* x, const T* rows, int64_t stride,
                                                 int columns, float (&sums)[kRows]) {
  using Elements = Chunk<T, kPacked>;
  constexpr int kSize = Elements::kSize;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll 4
  for (int i = lane * kSize; i < columns; i += kLanes * kSize) {
    float values[kSize];
    Elements::load(x, i, values);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float weights[kSize];
      Elements::load(rows + r * stride, i, weights);
      add_products(values, weights, sums[r]);
    }
  }
}

// Computes silu(gate x) * (up x). The grid is (pairs of a row and an expert, blocks of outputs); a
// warp computes one output.
template <typename T, bool kPacked>
__global__ void __launch_bounds__(kWarps* kLanes)
    expert_gate_up_kernel(const __grid_constant__ ExpertRows<T> args) {
  begin_kernel();
  const int64_t pair = blockIdx.x;
  const int output = static_cast<int>(blockIdx.y * kWarps + threadIdx.x / kLanes);
  const int64_t row = pair / args.top_k;
  const int64_t expert = args.expert_of(row, static_cast<int>(pair % args.top_k));
  if (expert < 0 || output >= args.inner) return;
  float sums[2] = {};  // of gate and of up
  add_dot_products<kPacked>(args.x + row * args.x_stride,
                            args.gate_up + (expert * 2 * args.inner + output) * args.width,
                            static_cast<int64_t>(args.inner) * args.width, args.width, sums);
  const float gate = warp_sum(sums[0]);
  const float up = warp_sum(sums[1]);
  if (threadIdx.x % kLanes == 0)
    args.hidden[pair * args.inner + output] = from_float<T>(silu<T>(gate) * up);
}

// Adds up the products of each row's experts. The grid is (rows, blocks of outputs of down); a warp
// computes one output.
template <typename T, bool kPacked>
__global__ void __launch_bounds__(kWarps* kLanes)
    expert_down_kernel(const __grid_constant__ ExpertRows<T> args) {
  begin_kernel();
  const int64_t row = blockIdx.x;
  const int output = static_cast<int>(blockIdx.y * kWarps + threadIdx.x / kLanes);
  if (output >= args.width) return;
  float sum = 0;
#pragma unroll 2
  for (int k = 0; k < args.top_k; ++k) {
    const int64_t expert = args.expert_of(row, k);
    if (expert < 0) continue;
    float product[1] = {};
    add_dot_products<kPacked>(args.hidden + (row * args.top_k + k) * args.inner,
                              args.down + (expert * args.width + output) * args.inner, 0,
                              args.inner, product);
    sum = fmaf(args.weights[row * args.weights_stride + k], product[0], sum);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kLanes == 0) args.y[row * args.y_stride + output] = from_float<T>(sum);
}

template <typename T, bool kPacked>
BoundLaunch bind_typed(const ExpertRows<T>& rows) {
  const auto num_pairs = static_cast<unsigned>(int64_t{rows.num_rows} * rows.top_k);
  const auto blocks = [](int outputs) { return static_cast<unsigned>(div_up(outputs, kWarps)); };
  const Grid gate_up{.blocks = dim3(num_pairs, blocks(rows.inner)), .threads = kWarps * kLanes};
  const Grid down{.blocks = dim3(static_cast<unsigned>(rows.num_rows), blocks(rows.width)),
                  .threads = kWarps * kLanes};
  return [rows, gate_up, down](Stream& stream, const StepLengths&) {
    launch(stream, gate_up, expert_gate_up_kernel<T, kPacked>, rows);
    launch(stream, down, expert_down_kernel<T, kPacked>, rows);
  };
}

}  // namespace

Workspace expert_rows_workspace(const KernelArgs& args) {
  const TensorView& down = args.inputs["down"];
  return {.scratch_bytes = num_pairs(args) * down.shape[2] * size_of(down.dtype)};
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
    constexpr int kPack = Pack<T>::kSize;
    const ExpertRows<T> rows{.x = x.as<const T>(),
                             .x_stride = x.row_stride,
                             .experts = experts.as<const int32_t>(),
                             .experts_stride = experts.row_stride,
                             .weights = weights.as<const float>(),
                             .weights_stride = weights.row_stride,
                             .gate_up = gate_up.as<const T>(),
                             .down = down.as<const T>(),
                             .hidden = static_cast<T*>(args.scratch),
                             .y = y.as<T>(),
                             .y_stride = y.row_stride,
                             .num_rows = static_cast<int>(x.num_rows()),
                             .num_experts = static_cast<int>(gate_up.shape[0]),
                             .top_k = static_cast<int>(experts.shape[1]),
                             .width = static_cast<int>(x.shape[1]),
                             .inner = static_cast<int>(down.shape[2])};
    const bool is_packed = is_aligned(x) && is_aligned(gate_up) && is_aligned(down) &&
                           rows.width % kPack == 0 && rows.inner % kPack == 0;
    return is_packed ? bind_typed<T, true>(rows) : bind_typed<T, false>(rows);
  });
}

}  // namespace encore::cuda
