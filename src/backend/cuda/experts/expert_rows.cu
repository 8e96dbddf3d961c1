// Computes expert_mlp with a warp for each output of each row, in two launches: one makes the
// products of gate and up with their activation, and one adds up the experts' products, where each
// lane adds its share in the order of the row's list.
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/launch.h"

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
};

// Loads kSize adjacent elements as floats.
template <typename T, int kSize>
__device__ __forceinline__ void load_floats(const T* from, float (&values)[kSize]) {
  if constexpr (kSize == 1) {
    values[0] = to_float(*from);
  } else {
    unpack(load_pack(from), values);
  }
}

template <int kSize>
__device__ __forceinline__ void add_products(const float (&a)[kSize], const float (&b)[kSize],
                                             float& sum) {
#pragma unroll
  for (int i = 0; i < kSize; ++i)
    sum = fmaf(a[i], b[i], sum);
}

// Computes silu(gate x) * (up x). The grid is (pairs of a row and an expert, blocks of outputs); a
// warp computes one output.
template <typename T, int kSize>
__global__ void __launch_bounds__(kWarps* kLanes)
    expert_gate_up_kernel(const __grid_constant__ ExpertRows<T> args) {
  begin_kernel();
  const int64_t pair = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int output = static_cast<int>(blockIdx.y * kWarps + threadIdx.x / kLanes);
  const int64_t row = pair / args.top_k;
  const int64_t expert = args.experts[row * args.experts_stride + pair % args.top_k];
  if (expert < 0 || expert >= args.num_experts || output >= args.inner) return;
  const T* const x = args.x + row * args.x_stride;
  const T* const gate = args.gate_up + (expert * 2 * args.inner + output) * args.width;
  const T* const up = gate + static_cast<int64_t>(args.inner) * args.width;
  float gate_sum = 0;
  float up_sum = 0;
#pragma unroll 4
  for (int i = lane * kSize; i < args.width; i += kLanes * kSize) {
    float gates[kSize];
    float ups[kSize];
    float values[kSize];
    load_floats(gate + i, gates);
    load_floats(up + i, ups);
    load_floats(x + i, values);
    add_products(values, gates, gate_sum);
    add_products(values, ups, up_sum);
  }
  gate_sum = warp_sum(gate_sum);
  up_sum = warp_sum(up_sum);
  if (lane == 0)
    args.hidden[pair * args.inner + output] = from_float<T>(silu<T>(gate_sum) * up_sum);
}

// Adds up the products of each row's experts. The grid is (rows, blocks of outputs of down); a warp
// computes one output.
template <typename T, int kSize>
__global__ void __launch_bounds__(kWarps* kLanes)
    expert_down_kernel(const __grid_constant__ ExpertRows<T> args) {
  begin_kernel();
  const int64_t row = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int output = static_cast<int>(blockIdx.y * kWarps + threadIdx.x / kLanes);
  if (output >= args.width) return;
  float sum = 0;
#pragma unroll 2
  for (int k = 0; k < args.top_k; ++k) {
    const int64_t expert = args.experts[row * args.experts_stride + k];
    if (expert < 0 || expert >= args.num_experts) continue;
    const float weight = args.weights[row * args.weights_stride + k];
    const T* const down = args.down + (expert * args.width + output) * args.inner;
    const T* const hidden = args.hidden + (row * args.top_k + k) * args.inner;
    float product = 0;
#pragma unroll 4
    for (int i = lane * kSize; i < args.inner; i += kLanes * kSize) {
      float downs[kSize];
      float values[kSize];
      load_floats(down + i, downs);
      load_floats(hidden + i, values);
      add_products(values, downs, product);
    }
    sum = fmaf(weight, product, sum);
  }
  sum = warp_sum(sum);
  if (lane == 0) args.y[row * args.y_stride + output] = from_float<T>(sum);
}

template <typename T, int kSize>
BoundLaunch bind_typed(const ExpertRows<T>& rows) {
  const auto num_pairs = static_cast<unsigned>(int64_t{rows.num_rows} * rows.top_k);
  const auto blocks = [](int outputs) { return static_cast<unsigned>(div_up(outputs, kWarps)); };
  const Grid gate_up{.blocks = dim3(num_pairs, blocks(rows.inner)), .threads = kWarps * kLanes};
  const Grid down{.blocks = dim3(static_cast<unsigned>(rows.num_rows), blocks(rows.width)),
                  .threads = kWarps * kLanes};
  return [rows, gate_up, down](Stream& stream, const StepLengths&) {
    launch(stream, gate_up, expert_gate_up_kernel<T, kSize>, rows);
    launch(stream, down, expert_down_kernel<T, kSize>, rows);
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
    return is_packed ? bind_typed<T, kPack>(rows) : bind_typed<T, 1>(rows);
  });
}

}  // namespace encore::cuda
