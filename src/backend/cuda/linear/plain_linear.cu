// The kernel of linear for shapes that neither gemv.cu nor cuBLASLt takes. It computes tiles of 64
// x 64 outputs, 16 columns at a time, in float. The order in which a sum's products are added
// depends on the number of columns alone. A weight in fp8 is widened, and each sum of 16 columns is
// multiplied by its scale before it is added to the others.
#include "backend/cuda/fp8.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/codes.h"
#include "backend/cuda/linear/gemv.h"
#include "backend/fp8_activations.h"
#include "backend/fused_linear.h"

namespace encore::cuda {
namespace {

constexpr int kTile = 64;     // a tile's width and height in outputs
constexpr int kDepth = 16;    // columns of a tile that are in shared memory at a time
constexpr int kThreads = 16;  // a block's width and height in threads
constexpr int kPerThread = kTile / kThreads;
constexpr int kGroup = kScaleBlock;
static_assert(kGroup % kDepth == 0);

// The arguments of the kernel. Units: strides in elements.
template <typename T, typename Weight>
struct LinearArgs {
  const T* x;
  int64_t x_stride;
  const Weight* weight;
  int64_t weight_stride;
  const float* row_scales;    // null: none
  const float* block_scales;  // null: none
  int64_t scale_stride;       // stride of block_scales
  bool fp8_activations;
  float x_scale;  // the scale of x; 0: each group of columns has its own
  const T* bias;  // null: none
  void* out;
  int64_t out_stride;
  DType out_dtype;
  int num_rows;
  int num_columns;
  int num_outputs;
};

// Returns an element of a tile unchanged.
struct AsItIs {
  __device__ float operator()(float value, int /*row*/) const { return value; }
};

// Loads a tile, transposed. It has kTile rows and kDepth columns, and is zero outside of the
// matrix.
template <typename T, typename Change = AsItIs>
__device__ __forceinline__ void load_tile(float (&tile)[kDepth][kTile + 1], const T* data,
                                          int64_t stride, int2 first, int2 end,
                                          const Change& change = {}) {
  const int thread = static_cast<int>(threadIdx.y * kThreads + threadIdx.x);
  const int column = thread % kDepth;
  for (int row = thread / kDepth; row < kTile; row += kThreads * kThreads / kDepth) {
    const bool inside = first.x + row < end.x && first.y + column < end.y;
    int64_t place = first.y + column;
    if constexpr (kIsFp8<T>) place = place_of_code(place, end.y);
    const int64_t at = static_cast<int64_t>(first.x + row) * stride + place;
    tile[column][row] = inside ? change(to_float(data[at]), row) : 0.0F;
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

// Finds the scales with which a tile's rows are rounded to fp8, for the group of kGroup columns
// from column `first.y` on.
template <typename T>
__device__ __forceinline__ void find_scales(float (&scales)[kTile], const T* data, int64_t stride,
                                            int2 first, int2 end, float static_scale) {
  constexpr int kPerRow = kThreads * kThreads / kTile;
  const int thread = static_cast<int>(threadIdx.y * kThreads + threadIdx.x);
  const int row = thread / kPerRow;
  float largest = 0;
  if (first.x + row < end.x) {
    const int last = min(first.y + kGroup, end.y);
    for (int column = first.y + thread % kPerRow; column < last; column += kPerRow) {
      const float value = to_float(data[static_cast<int64_t>(first.x + row) * stride + column]);
      largest = fmaxf(largest, fabsf(value));
    }
  }
  for (int lanes = kPerRow / 2; lanes > 0; lanes /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, lanes));
  if (thread % kPerRow == 0) scales[row] = activation_scale(largest, static_scale);
  __syncthreads();
}

template <typename T, typename Weight>
__global__ void __launch_bounds__(kThreads* kThreads)
    plain_linear_kernel(const __grid_constant__ LinearArgs<T, Weight> args) {
  __shared__ float x_tile[kDepth][kTile + 1];
  __shared__ float weight_tile[kDepth][kTile + 1];
  __shared__ float x_scales[kTile];
  begin_kernel();
  const int first_output = static_cast<int>(blockIdx.x) * kTile;
  const int first_row = static_cast<int>(blockIdx.y) * kTile;
  float sums[kPerThread][kPerThread] = {};
  const int2 x_end = {args.num_rows, args.num_columns};
  for (int k = 0; k < args.num_columns; k += kDepth) {
    if (kIsFp8<Weight> && args.fp8_activations) {
      if (k % kGroup == 0)
        find_scales(x_scales, args.x, args.x_stride, {first_row, k}, x_end, args.x_scale);
      const auto to_fp8 = [&](float value, int row) {
        return to_float(from_float<Float8>(value * (1.0F / x_scales[row])));
      };
      load_tile(x_tile, args.x, args.x_stride, {first_row, k}, x_end, to_fp8);
    } else {
      load_tile(x_tile, args.x, args.x_stride, {first_row, k}, x_end);
    }
    load_tile(weight_tile, args.weight, args.weight_stride, {first_output, k},
              {args.num_outputs, args.num_columns});
    __syncthreads();
    float tile_sums[kPerThread][kPerThread] =
        {};  // kept apart, so that rounding errors grow with the number of tiles, not of columns
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
      for (int j = 0; j < kPerThread; ++j) {
        if constexpr (kIsFp8<Weight>) {
          const int output = first_output + static_cast<int>(threadIdx.x) + j * kThreads;
          if (args.block_scales != nullptr && output < args.num_outputs)
            tile_sums[i][j] *= args.block_scales[output / kGroup * args.scale_stride + k / kGroup];
          if (args.fp8_activations) tile_sums[i][j] *= x_scales[threadIdx.y + i * kThreads];
        }
        sums[i][j] += tile_sums[i][j];
      }
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
      if (args.row_scales != nullptr) sums[i][j] *= args.row_scales[output];
      const float bias = args.bias == nullptr ? 0.0F : to_float(args.bias[output]);
      store(args.out, args.out_dtype, row * args.out_stride + output, sums[i][j] + bias);
    }
  }
}

template <typename T, typename Weight>
BoundLaunch bind_typed(const KernelArgs& args) {
  const LinearOperands o = linear_operands(args);
  LinearArgs<T, Weight> linear{};
  linear.x = o.x->as<const T>();
  linear.x_stride = o.x->row_stride;
  linear.weight = o.weight->as<const Weight>();
  linear.weight_stride = o.weight->row_stride;
  if (o.scale != nullptr) {
    const bool by_row = o.scale->shape.rank() == 1;
    (by_row ? linear.row_scales : linear.block_scales) = o.scale->as<const float>();
    linear.scale_stride = o.scale->row_stride;
  }
  linear.fp8_activations = o.fp8_activations;
  linear.x_scale = o.x_scale;
  if (o.bias != nullptr) linear.bias = o.bias->as<const T>();
  linear.out = o.out->data;
  linear.out_stride = o.out->row_stride;
  linear.out_dtype = o.out->dtype;
  linear.num_rows = static_cast<int>(o.x->num_rows());
  linear.num_columns = static_cast<int>(o.x->row_elements());
  linear.num_outputs = static_cast<int>(o.weight->num_rows());
  const Grid grid{.blocks = dim3(static_cast<unsigned>(div_up(linear.num_outputs, kTile)),
                                 static_cast<unsigned>(div_up(linear.num_rows, kTile))),
                  .threads = dim3(kThreads, kThreads)};
  return [linear, grid](Stream& stream, const StepLengths&) {
    launch(stream, grid, plain_linear_kernel<T, Weight>, linear);
  };
}

}  // namespace

BoundLaunch bind_plain_linear(Device& /*device*/, const KernelArgs& args) {
  return visit_element(args.inputs["x"].dtype, [&](auto tag) -> BoundLaunch {
    using T = typename decltype(tag)::type;
    if (args.inputs["weight"].dtype == DType::kFP8) return bind_typed<T, Float8>(args);
    return bind_typed<T, T>(args);
  });
}

}  // namespace encore::cuda
