// linear for shapes that neither gemv.cu nor cuBLASLt takes: tiles of 64 x 64 outputs, 16 columns
// at a time, in float. The order of additions depends on the number of columns alone.
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/gemv.h"

namespace encore::cuda {
namespace {

constexpr int kTile = 64;     // outputs in each direction
constexpr int kDepth = 16;    // columns in shared memory
constexpr int kThreads = 16;  // in each direction
constexpr int kPerThread = kTile / kThreads;

// Units: strides in elements.
template <typename T>
struct LinearArgs {
  const T* x;
  int64_t x_stride;
  const T* weight;
  int64_t weight_stride;
  const T* bias;  // null: none
  void* out;
  int64_t out_stride;
  DType out_dtype;
  int num_rows;
  int num_columns;
  int num_outputs;
};

// Loads a tile of `kTile` rows from `first_row` on, transposed; zero outside.
template <typename T>
__device__ __forceinline__ void load_tile(float (&tile)[kDepth][kTile + 1], const T* data,
                                          int64_t stride, int2 first, int2 end) {
  const int thread = static_cast<int>(threadIdx.y * kThreads + threadIdx.x);
  const int column = thread % kDepth;
  for (int row = thread / kDepth; row < kTile; row += kThreads * kThreads / kDepth) {
    const bool inside = first.x + row < end.x && first.y + column < end.y;
    tile[column][row] =
        inside ? to_float(data[static_cast<int64_t>(first.x + row) * stride + first.y + column])
               : 0.0F;
  }
}

__device__ __forceinline__ void store(void* out, DType dtype, int64_t index, float value) {
  if (dtype == DType::kF32) {
    static_cast<float*>(out)[index] = value;
  } else if (dtype == DType::kF16) {
    static_cast<__half*>(out)[index] = from_float<__half>(value);
  } else {
    static_cast<__nv_bfloat16*>(out)[index] = from_float<__nv_bfloat16>(value);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads* kThreads)
    plain_linear_kernel(const __grid_constant__ LinearArgs<T> args) {
  __shared__ float x_tile[kDepth][kTile + 1];
  __shared__ float weight_tile[kDepth][kTile + 1];
  begin_kernel();
  const int first_output = static_cast<int>(blockIdx.x) * kTile;
  const int first_row = static_cast<int>(blockIdx.y) * kTile;
  float sums[kPerThread][kPerThread] = {};
  for (int k = 0; k < args.num_columns; k += kDepth) {
    load_tile(x_tile, args.x, args.x_stride, {first_row, k}, {args.num_rows, args.num_columns});
    load_tile(weight_tile, args.weight, args.weight_stride, {first_output, k},
              {args.num_outputs, args.num_columns});
    __syncthreads();
    float tile_sums[kPerThread][kPerThread] =
        {};  // apart, so that rounding grows with tiles, not with columns
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      float x[kPerThread];
      float w[kPerThread];
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        x[i] = x_tile[d][threadIdx.y + i * kThreads];
        w[i] = weight_tile[d][threadIdx.x + i * kThreads];
      }
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
        for (int j = 0; j < kPerThread; ++j)
          tile_sums[i][j] = fmaf(x[i], w[j], tile_sums[i][j]);
      }
    }
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
      for (int j = 0; j < kPerThread; ++j)
        sums[i][j] += tile_sums[i][j];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int row = first_row + static_cast<int>(threadIdx.y) + i * kThreads;
    if (row >= args.num_rows) continue;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const int output = first_output + static_cast<int>(threadIdx.x) + j * kThreads;
      if (output >= args.num_outputs) continue;
      const float bias = args.bias == nullptr ? 0.0F : to_float(args.bias[output]);
      store(args.out, args.out_dtype, row * args.out_stride + output, sums[i][j] + bias);
    }
  }
}

}  // namespace

BoundLaunch bind_plain_linear(Device& /*device*/, const KernelArgs& args) {
  return visit_element(args.inputs["x"].dtype, [&](auto tag) -> BoundLaunch {
    using T = typename decltype(tag)::type;
    const TensorView& x = args.inputs["x"];
    const TensorView& weight = args.inputs["weight"];
    const TensorView* bias = args.inputs.find("bias");
    const TensorView& out = args.outputs["y"];
    LinearArgs<T> linear{};
    linear.x = x.as<const T>();
    linear.x_stride = x.row_stride;
    linear.weight = weight.as<const T>();
    linear.weight_stride = weight.row_stride;
    linear.bias = bias == nullptr ? nullptr : bias->as<const T>();
    linear.out = out.data;
    linear.out_stride = out.row_stride;
    linear.out_dtype = out.dtype;
    linear.num_rows = static_cast<int>(x.num_rows());
    linear.num_columns = static_cast<int>(x.row_elements());
    linear.num_outputs = static_cast<int>(weight.num_rows());
    const Grid grid{.blocks = dim3(static_cast<unsigned>(div_up(linear.num_outputs, kTile)),
                                   static_cast<unsigned>(div_up(linear.num_rows, kTile))),
                    .threads = dim3(kThreads, kThreads)};
    return [linear, grid](Stream& stream, const StepLengths&) {
      launch(stream, grid, plain_linear_kernel<T>, linear);
    };
  });
}

}  // namespace encore::cuda
