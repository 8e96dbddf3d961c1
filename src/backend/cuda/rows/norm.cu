// Kernels of rms_norm, and of a norm whose results are rounded to 8-bit codes. A block takes one
// group of a row. The order in which squares are added depends on the length of the group alone.
#include "backend/cuda/rows/norm.cuh"

#include <algorithm>
#include <array>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/quantize.cuh"
#include "backend/cuda/linear/quantize.h"

namespace encore::cuda {
namespace {

template <typename T, bool kAdd, int kPacks, bool kQuantizes = false>
__global__ void __launch_bounds__(kMaxNormThreads)
    packed_norm_kernel(const __grid_constant__ NormArgs<T> args) {
  constexpr int kSize = Pack<T>::kSize;
  allow_next_kernel();
  const int64_t row = blockIdx.x / args.groups_per_row;
  const int64_t start = static_cast<int64_t>(blockIdx.x % args.groups_per_row) * args.group_size;
  const auto packs_of = [&](const T* rows, int64_t stride) {
    return Packs<kPacks>(rows + row * stride + start, args.group_size);
  };
  const Packs<kPacks> x = packs_of(args.x, args.x_stride);
  const Packs<kPacks> residual = packs_of(args.residual, args.residual_stride);
  const Packs<kPacks> sum = packs_of(args.sum, args.sum_stride);
  const Packs<kPacks> out = packs_of(args.out, args.out_stride);
  float per_element = args.per_element;
  float eps = args.eps;
  compute_now(per_element);
  compute_now(eps);
  // The norm's weights are constants, so the block fetches them before the launches in front of it
  // have ended.
  Pack<T> weight_packs[kPacks];
  Packs<kPacks>(args.weight, args.group_size).load(weight_packs);
  float weights[kPacks][kSize];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    unpack(weight_packs[p], weights[p]);
#pragma unroll
    for (float& weight : weights[p]) {
      weight += args.offset;
      compute_now(weight);
    }
  }
  wait_for_inputs();
  Pack<T> packs[kPacks];
  x.load(packs);
  float values[kPacks][kSize];
  float squares = 0;
  if constexpr (kAdd) {
    Pack<T> others[kPacks];
    residual.load(others);
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      packs[p] = add_packs(packs[p], others[p]);
      sum.store(p, packs[p]);
    }
  }
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    unpack(packs[p], values[p]);
    add_products(values[p], values[p], squares);
  }
  const float scale = rsqrtf(block_sum(squares) * per_element + eps);
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
#pragma unroll
    for (int i = 0; i < kSize; ++i)
      values[p][i] = values[p][i] * scale * weights[p][i];
    const Pack<T> normed = to_pack<T>(values[p]);
    if constexpr (kQuantizes) {
      const int pack = p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
      unpack(normed, values[p]);
      store_codes(values[p], x.has(p), args.codes + row * args.codes_stride + pack * kSize,
                  args.scales + pack / kGroupLanes * args.scales_stride + row, args.static_scale);
    } else {
      out.store(p, normed);
    }
  }
}

template <typename T, bool kAdd>
__global__ void __launch_bounds__(kMaxNormThreads)
    scalar_norm_kernel(const __grid_constant__ NormArgs<T> args) {
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
  const float scale = rsqrtf(block_sum(squares) * args.per_element + args.eps);
  const T* values = kAdd ? args.sum + row * args.sum_stride + start : x;
  for (int i = static_cast<int>(threadIdx.x); i < args.group_size;
       i += static_cast<int>(blockDim.x)) {
    args.out[row * args.out_stride + start + i] =
        from_float<T>(to_float(values[i]) * scale * (to_float(args.weight[i]) + args.offset));
  }
}

bool is_packed(const KernelArgs& args) {
  const auto aligned = [](const TensorView& view) { return is_aligned(view); };
  const TensorView& weight = args.inputs["weight"];
  const int64_t group_bytes = weight.num_bytes();
  return std::all_of(args.inputs.begin(), args.inputs.end(), aligned) &&
         std::all_of(args.outputs.begin(), args.outputs.end(), aligned) && group_bytes % 16 == 0 &&
         group_bytes / 16 <= kMaxPacks * kMaxNormThreads;
}

template <bool kPacked, bool kAdd>
BoundLaunch bind_norm(const KernelArgs& args) {
  return visit_element(args.outputs["y"].dtype, [&](auto tag) -> BoundLaunch {
    using T = typename decltype(tag)::type;
    const auto norm = norm_args<T>(args);
    const int64_t items = norm.group_size / (kPacked ? Pack<T>::kSize : 1);
    const Grid grid{
        .blocks = static_cast<unsigned>(args.outputs["y"].num_rows() * norm.groups_per_row),
        .threads = static_cast<unsigned>(std::min(kMaxNormThreads, round_up(items, 32)))};
    const auto kernel = !kPacked                   ? scalar_norm_kernel<T, kAdd>
                        : items <= kMaxNormThreads ? packed_norm_kernel<T, kAdd, 1>
                                                   : packed_norm_kernel<T, kAdd, kMaxPacks>;
    return [norm, grid, kernel](Stream& stream, const StepLengths&) {
      launch(stream, grid, kernel, norm);
    };
  });
}

template <bool kPacked>
BoundLaunch bind(Device& /*device*/, const KernelArgs& args) {
  const bool adds = args.inputs.find("residual") != nullptr;
  return adds ? bind_norm<kPacked, true>(args) : bind_norm<kPacked, false>(args);
}

template <typename T>
BoundLaunch bind_quantized(const LinearOperands& o, const QuantizedRows& to) {
  NormArgs<T> norm{};
  norm.x = o.x->as<const T>();
  norm.x_stride = o.x->row_stride;
  if (o.residual != nullptr) {
    norm.residual = o.residual->as<const T>();
    norm.residual_stride = o.residual->row_stride;
    norm.sum = o.sum->as<T>();
    norm.sum_stride = o.sum->row_stride;
  }
  norm.weight = o.norm->as<const T>();
  norm.codes = to.codes.as<uint8_t>();
  norm.codes_stride = to.codes.row_stride;
  norm.scales = to.scales.as<float>();
  norm.scales_stride = to.scales.row_stride;
  norm.static_scale = o.x_scale;
  norm.group_size = static_cast<int>(o.x->row_elements());
  norm.groups_per_row = 1;
  norm.per_element = 1.0F / static_cast<float>(norm.group_size);
  norm.eps = static_cast<float>(o.eps);
  norm.offset = static_cast<float>(o.norm_offset);
  const int64_t items = norm.group_size / Pack<T>::kSize;
  const Grid grid{.blocks = static_cast<unsigned>(o.x->num_rows()),
                  .threads = static_cast<unsigned>(std::min(kMaxNormThreads, round_up(items, 32)))};
  const auto with = [&](auto adds) {
    return items <= kMaxNormThreads ? packed_norm_kernel<T, adds.value, 1, true>
                                    : packed_norm_kernel<T, adds.value, kMaxPacks, true>;
  };
  const auto kernel = o.residual != nullptr ? with(std::true_type{}) : with(std::false_type{});
  return [norm, grid, kernel](Stream& stream, const StepLengths&) {
    launch(stream, grid, kernel, norm);
  };
}

}  // namespace

bool accepts_quantized_norm(const LinearOperands& o) {
  const auto aligned = [](const TensorView* view) { return view == nullptr || is_aligned(*view); };
  return size_of(o.x->dtype) == 2 && aligned(o.x) && aligned(o.residual) && aligned(o.norm) &&
         aligned(o.sum) && o.x->row_elements() % kCodeGroup == 0 &&
         o.x->row_elements() / Pack<__half>::kSize <= kMaxPacks * kMaxNormThreads;
}

BoundLaunch bind_quantized_norm(const LinearOperands& o, const QuantizedRows& to) {
  return o.x->dtype == DType::kF16 ? bind_quantized<__half>(o, to)
                                   : bind_quantized<__nv_bfloat16>(o, to);
}

std::span<const Kernel> norm_kernels() {
  static constexpr std::array<Kernel, 2> kRows = {{
      {"rms_norm", "rms_norm.packed", is_packed, nullptr, bind<true>, {"residual"}},
      {"rms_norm", "rms_norm.scalar", nullptr, nullptr, bind<false>, {"residual"}},
  }};
  return kRows;
}

}  // namespace encore::cuda
