// Kernels that round rows of activations to FP8 in groups of 128 columns. Sixteen threads share a
// group, with eight columns each.
#include "backend/cuda/linear/quantize.h"

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/quantize.cuh"

namespace encore::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kGroups = kThreads / kGroupLanes;
constexpr int64_t kScaleAlignment = 16;  // rows
constexpr int64_t kAlignment = 256;

template <typename T>
struct QuantizeArgs {
  const T* x;
  int64_t x_stride;
  uint8_t* codes;
  int64_t codes_stride;
  float* scales;
  int64_t scales_stride;
  int num_rows;
  int num_columns;
  int row_groups;
  float static_scale;
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    quantize_rows_kernel(const __grid_constant__ QuantizeArgs<T> args) {
  const int group =
      static_cast<int>(blockIdx.x) * kGroups + static_cast<int>(threadIdx.x) / kGroupLanes;
  const int lane = static_cast<int>(threadIdx.x) % kGroupLanes;
  const int row = group / args.row_groups;
  const int of_row = group % args.row_groups;
  const int column = of_row * static_cast<int>(kScaleBlock) + lane * Pack<T>::kSize;
  const bool is_there = row < args.num_rows && column < args.num_columns;
  begin_kernel();
  float values[Pack<T>::kSize] = {};
  if (is_there) unpack(load_pack(args.x + row * args.x_stride + column), values);
  store_codes(values, is_there, args.codes + row * args.codes_stride + column,
              args.scales + of_row * args.scales_stride + row, args.static_scale);
}

int64_t codes_bytes(int64_t rows, int64_t columns) {
  return round_up(rows * columns, kAlignment);
}

template <typename T>
BoundLaunch bind_for(const LinearOperands& o, const QuantizedRows& to) {
  const TensorView& x = *o.x;
  QuantizeArgs<T> args{};
  args.x = x.as<const T>();
  args.x_stride = x.row_stride;
  args.codes = to.codes.as<uint8_t>();
  args.codes_stride = to.codes.row_stride;
  args.scales = to.scales.as<float>();
  args.scales_stride = to.scales.row_stride;
  args.num_rows = static_cast<int>(x.num_rows());
  args.num_columns = static_cast<int>(x.row_elements());
  args.row_groups = static_cast<int>(to.scales.num_rows());
  args.static_scale = o.x_scale;
  const int64_t groups = x.num_rows() * to.scales.num_rows();
  const Grid grid{.blocks = static_cast<unsigned>(div_up(groups, kGroups)), .threads = kThreads};
  return [args, grid](Stream& stream, const StepLengths&) {
    launch(stream, grid, quantize_rows_kernel<T>, args);
  };
}

}  // namespace

int64_t quantized_bytes(int64_t rows, int64_t columns) {
  return codes_bytes(rows, columns) +
         div_up(columns, kScaleBlock) * round_up(rows, kScaleAlignment) * size_of(DType::kF32);
}

QuantizedRows quantized_rows(const TensorView& x, void* scratch) {
  const int64_t rows = x.num_rows();
  const int64_t columns = x.row_elements();
  auto* scales = static_cast<std::byte*>(scratch) + codes_bytes(rows, columns);
  return {.codes = TensorView(scratch, DType::kFP8, {rows, columns}),
          .scales = TensorView(scales, DType::kF32,
                               {div_up(columns, kScaleBlock), round_up(rows, kScaleAlignment)})};
}

BoundLaunch bind_quantize(const LinearOperands& o, const QuantizedRows& to) {
  if (o.norm != nullptr) return bind_quantized_norm(o, to);
  return o.x->dtype == DType::kF16 ? bind_for<__half>(o, to) : bind_for<__nv_bfloat16>(o, to);
}

}  // namespace encore::cuda
