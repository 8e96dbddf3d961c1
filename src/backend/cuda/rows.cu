// embedding, gather_rows: copies of rows that are chosen on the device.
#include <algorithm>
#include <array>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

constexpr int64_t kMaxThreads = 128;

// Rows to copy from. Units: strides in elements.
template <typename T>
struct Source {
  const T* data;
  int64_t stride;
  int64_t num_rows;
  const int32_t* ids;
  const float* fill;  // value of rows whose id is no row; null: 0
};

template <typename T>
struct Target {
  T* data;
  int64_t stride;
};

// Block (output row, part of the row); a thread copies kSize elements.
template <typename T, int kSize>
__global__ void copy_rows_kernel(Target<T> out, Source<T> source, int num_items) {
  begin_kernel();
  const int item = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (item >= num_items) return;
  const int64_t row = blockIdx.x;
  const int64_t column = static_cast<int64_t>(item) * kSize;
  const int64_t id = source.ids[row];
  T* target = out.data + row * out.stride + column;
  if (id >= 0 && id < source.num_rows) {
    const T* from = source.data + id * source.stride + column;
    if constexpr (kSize == 1) {
      *target = *from;
    } else {
      store_pack(target, load_pack(from));
    }
    return;
  }
  const T value = from_float<T>(source.fill == nullptr ? 0.0F : *source.fill);
#pragma unroll
  for (int i = 0; i < kSize; ++i)
    target[i] = value;
}

// Operand positions in the two ops.
struct Operands {
  int source;
  int ids;
  int fill;  // -1: none
};
constexpr Operands kEmbedding{1, 0, 2};
constexpr Operands kGatherRows{0, 1, -1};

template <const Operands& kOperands>
bool is_packed(const KernelArgs& args) {
  const TensorView& out = args.outputs[0];
  return is_aligned(out) && is_aligned(args.inputs[kOperands.source]) &&
         out.row_elements() * size_of(out.dtype) % 16 == 0;
}

template <typename T, int kSize>
void launch_copy(Stream& stream, const TensorView& out, const Source<T>& source) {
  const int64_t items = out.row_elements() / kSize;
  if (items == 0) return;
  const int64_t threads = std::min(kMaxThreads, round_up(items, 32));
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(out.num_rows()),
                         static_cast<unsigned>(div_up(items, threads))),
          .threads = static_cast<unsigned>(threads)},
         copy_rows_kernel<T, kSize>, Target<T>{out.as<T>(), out.row_stride}, source,
         static_cast<int>(items));
}

template <const Operands& kOperands, bool kPacked>
BoundLaunch bind(Device& /*device*/, const KernelArgs& args) {
  const TensorView out = args.outputs[0];
  const TensorView source = args.inputs[kOperands.source];
  const auto* ids = args.inputs[kOperands.ids].as<const int32_t>();
  const float* fill = kOperands.fill < 0 ? nullptr : args.inputs[kOperands.fill].as<const float>();
  return [=](Stream& stream, const StepShape& /*step*/) {
    visit_element(out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      launch_copy<T, kPacked ? Pack<T>::kSize : 1>(
          stream, out, {source.as<const T>(), source.row_stride, source.num_rows(), ids, fill});
    });
  };
}

}  // namespace

std::span<const Kernel> row_kernels() {
  static constexpr std::array<Kernel, 4> kRows = {{
      {"embedding", "embedding.packed", is_packed<kEmbedding>, nullptr, bind<kEmbedding, true>},
      {"embedding", "embedding.scalar", nullptr, nullptr, bind<kEmbedding, false>},
      {"gather_rows", "gather_rows.packed", is_packed<kGatherRows>, nullptr,
       bind<kGatherRows, true>},
      {"gather_rows", "gather_rows.scalar", nullptr, nullptr, bind<kGatherRows, false>},
  }};
  return kRows;
}

}  // namespace encore::cuda
