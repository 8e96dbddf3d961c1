// rms_norm, add_rms_norm: a block takes one group of a row. The order of additions depends on the
// group's length alone.
#include <algorithm>
#include <array>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

constexpr int64_t kMaxThreads = 1024;
constexpr int kMaxPacks = 2;  // per thread, kept in registers

// Units: strides in elements.
template <typename T>
struct NormArgs {
  const T* x;
  int64_t x_stride;
  const T* residual;  // null: rms_norm
  int64_t residual_stride;
  T* sum;  // null: rms_norm
  int64_t sum_stride;
  T* out;
  int64_t out_stride;
  const T* weight;
  int group_size;
  int groups_per_row;
  float eps;
};

// Sum over the block, in every thread.
__device__ __forceinline__ float block_sum(float value) {
  __shared__ float partial[32];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int num_warps = static_cast<int>(blockDim.x) / 32;
  value = warp_sum(value);
  if (num_warps == 1) return value;
  if (lane == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(lane < num_warps ? partial[lane] : 0.0F);
}

template <typename T, bool kAdd>
__global__ void __launch_bounds__(kMaxThreads) packed_norm_kernel(NormArgs<T> args) {
  constexpr int kSize = Pack<T>::kSize;
  allow_next_kernel();
  // Weights are constants, so they are fetched before the launches before have ended.
  Pack<T> weights[kMaxPacks];
#pragma unroll
  for (int p = 0; p < kMaxPacks; ++p) {
    const int column = static_cast<int>(p * blockDim.x + threadIdx.x) * kSize;
    if (column < args.group_size) weights[p] = load_pack(args.weight + column);
  }
  wait_for_inputs();
  const int64_t row = blockIdx.x / args.groups_per_row;
  const int64_t start = static_cast<int64_t>(blockIdx.x % args.groups_per_row) * args.group_size;
  float values[kMaxPacks][kSize] = {};
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kMaxPacks; ++p) {
    const int column = static_cast<int>(p * blockDim.x + threadIdx.x) * kSize;
    if (column >= args.group_size) continue;
    const Pack<T> x = load_pack(args.x + row * args.x_stride + start + column);
    if constexpr (kAdd) {
      float residual[kSize];
      unpack(load_pack(args.residual + row * args.residual_stride + start + column), residual);
      unpack(x, values[p]);
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        values[p][i] += residual[i];
      const Pack<T> rounded = to_pack<T>(values[p]);
      store_pack(args.sum + row * args.sum_stride + start + column, rounded);
      unpack(rounded, values[p]);
    } else {
      unpack(x, values[p]);
    }
#pragma unroll
    for (int i = 0; i < kSize; ++i)
      squares += values[p][i] * values[p][i];
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(args.group_size) + args.eps);
#pragma unroll
  for (int p = 0; p < kMaxPacks; ++p) {
    const int column = static_cast<int>(p * blockDim.x + threadIdx.x) * kSize;
    if (column >= args.group_size) continue;
    float weight[kSize];
    unpack(weights[p], weight);
#pragma unroll
    for (int i = 0; i < kSize; ++i)
      values[p][i] = values[p][i] * scale * weight[i];
    store_pack(args.out + row * args.out_stride + start + column, to_pack<T>(values[p]));
  }
}

template <typename T, bool kAdd>
__global__ void __launch_bounds__(kMaxThreads) scalar_norm_kernel(NormArgs<T> args) {
  begin_kernel();
  const int64_t row = blockIdx.x / args.groups_per_row;
  const int64_t start = static_cast<int64_t>(blockIdx.x % args.groups_per_row) * args.group_size;
  const T* x = args.x + row * args.x_stride + start;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x); i < args.group_size;
       i += static_cast<int>(blockDim.x)) {
    float value = to_float(x[i]);
    if constexpr (kAdd) {
      const T rounded =
          from_float<T>(value + to_float(args.residual[row * args.residual_stride + start + i]));
      args.sum[row * args.sum_stride + start + i] = rounded;
      value = to_float(rounded);
    }
    squares += value * value;
  }
  const float scale = rsqrtf(block_sum(squares) / static_cast<float>(args.group_size) + args.eps);
  const T* values = kAdd ? args.sum + row * args.sum_stride + start : x;
  for (int i = static_cast<int>(threadIdx.x); i < args.group_size;
       i += static_cast<int>(blockDim.x)) {
    args.out[row * args.out_stride + start + i] =
        from_float<T>(to_float(values[i]) * scale * to_float(args.weight[i]));
  }
}

// rms_norm: (x, weight) -> out. add_rms_norm: (x, residual, weight) -> (sum, out).
template <bool kAdd>
bool is_packed(const KernelArgs& args) {
  const auto aligned = [](const TensorView& view) { return is_aligned(view); };
  const TensorView& weight = args.inputs.back();
  const int64_t group_bytes = weight.num_bytes();
  return std::all_of(args.inputs.begin(), args.inputs.end(), aligned) &&
         std::all_of(args.outputs.begin(), args.outputs.end(), aligned) && group_bytes % 16 == 0 &&
         group_bytes / 16 <= kMaxPacks * kMaxThreads;
}

template <typename T, bool kAdd>
NormArgs<T> norm_args(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& out = args.outputs.back();
  const TensorView& weight = args.inputs.back();
  NormArgs<T> result{};
  result.x = x.as<const T>();
  result.x_stride = x.row_stride;
  if (kAdd) {
    result.residual = args.inputs[1].as<const T>();
    result.residual_stride = args.inputs[1].row_stride;
    result.sum = args.outputs[0].as<T>();
    result.sum_stride = args.outputs[0].row_stride;
  }
  result.out = out.as<T>();
  result.out_stride = out.row_stride;
  result.weight = weight.as<const T>();
  result.group_size = static_cast<int>(weight.row_elements() * weight.num_rows());
  result.groups_per_row = static_cast<int>(out.row_elements() / result.group_size);
  result.eps = static_cast<float>(args.attrs.get_double("eps"));
  return result;
}

template <bool kAdd, bool kPacked>
BoundLaunch bind(Device& /*device*/, const KernelArgs& args) {
  return visit_element(args.outputs[0].dtype, [&](auto tag) -> BoundLaunch {
    using T = typename decltype(tag)::type;
    const auto norm = norm_args<T, kAdd>(args);
    const int64_t items = norm.group_size / (kPacked ? Pack<T>::kSize : 1);
    const Grid grid{
        .blocks = static_cast<unsigned>(args.outputs[0].num_rows() * norm.groups_per_row),
        .threads = static_cast<unsigned>(std::min(kMaxThreads, round_up(items, 32)))};
    return [norm, grid](Stream& stream, const StepShape& /*step*/) {
      launch(stream, grid, kPacked ? packed_norm_kernel<T, kAdd> : scalar_norm_kernel<T, kAdd>,
             norm);
    };
  });
}

}  // namespace

std::span<const Kernel> norm_kernels() {
  static constexpr std::array<Kernel, 4> kRows = {{
      {"rms_norm", "rms_norm.packed", is_packed<false>, nullptr, bind<false, true>},
      {"rms_norm", "rms_norm.scalar", nullptr, nullptr, bind<false, false>},
      {"add_rms_norm", "add_rms_norm.packed", is_packed<true>, nullptr, bind<true, true>},
      {"add_rms_norm", "add_rms_norm.scalar", nullptr, nullptr, bind<true, false>},
  }};
  return kRows;
}

}  // namespace encore::cuda
