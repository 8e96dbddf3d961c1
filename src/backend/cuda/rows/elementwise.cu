// Kernels of add, mul, silu, silu_mul, gelu_tanh and softcap. A thread takes 16 bytes of a row, or
// one element where rows are not aligned.
#include <algorithm>
#include <array>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

constexpr int64_t kMaxThreads = 128;

struct Add {
  static constexpr std::array<std::string_view, 2> kInputs = {"a", "b"};
  template <typename T>
  __device__ static float apply(float a, float b) {
    return a + b;
  }
};
struct Mul {
  static constexpr std::array<std::string_view, 2> kInputs = {"a", "b"};
  template <typename T>
  __device__ static float apply(float a, float b) {
    return a * b;
  }
};
struct Silu {
  static constexpr std::array<std::string_view, 1> kInputs = {"x"};
  template <typename T>
  __device__ static float apply(float a, float /*b*/) {
    return silu<T>(a);
  }
};
struct GeluTanh {
  static constexpr std::array<std::string_view, 1> kInputs = {"x"};
  template <typename T>
  __device__ static float apply(float a, float /*b*/) {
    constexpr float kRoot = 0.797884561F;  // the root of 2 / pi
    return 0.5F * a * (1.0F + tanhf(kRoot * (a + 0.044715F * a * a * a)));
  }
};
struct SiluMul {
  static constexpr std::array<std::string_view, 2> kInputs = {"gate", "up"};
  template <typename T>
  __device__ static float apply(float a, float b) {
    return silu<T>(a) * b;
  }
};

// The rows of one operand. Units: elements.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;
};
template <typename T>
Rows<T> rows_of(const TensorView& view) {
  return {view.as<T>(), view.row_stride};
}

// Applies an op to every element. The grid is (rows, parts of a row). The output may be one of the
// inputs, because each thread writes only elements that it has read itself.
template <typename T, typename Op>
__global__ void pack_kernel(Rows<T> out, Rows<T> a, Rows<T> b, int num_packs) {
  begin_kernel();
  const int pack = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (pack >= num_packs) return;
  const int64_t row = blockIdx.x;
  const int64_t column = static_cast<int64_t>(pack) * Pack<T>::kSize;
  float x[Pack<T>::kSize];
  float y[Pack<T>::kSize] = {};
  const Pack<T> packed_x = load_pack(a.data + row * a.stride + column);
  if constexpr (Op::kInputs.size() == 2) unpack(load_pack(b.data + row * b.stride + column), y);
  unpack(packed_x, x);
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i)
    x[i] = Op::template apply<T>(x[i], y[i]);
  store_pack(out.data + row * out.stride + column, to_pack<T>(x));
}

template <typename T, typename Op>
__global__ void scalar_kernel(Rows<T> out, Rows<T> a, Rows<T> b, int num_columns) {
  begin_kernel();
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (column >= num_columns) return;
  const int64_t row = blockIdx.x;
  float y = 0;
  if constexpr (Op::kInputs.size() == 2) y = to_float(b.data[row * b.stride + column]);
  const float x = to_float(a.data[row * a.stride + column]);
  out.data[row * out.stride + column] = from_float<T>(Op::template apply<T>(x, y));
}

// Computes cap tanh(x / cap). It is meant for logits, so it is bound by memory.
template <typename T>
__global__ void softcap_kernel(Rows<T> out, Rows<T> x, int num_columns, float cap) {
  begin_kernel();
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (column >= num_columns) return;
  const int64_t row = blockIdx.x;
  const float value = to_float(x.data[row * x.stride + column]);
  out.data[row * out.stride + column] = from_float<T>(cap * tanhf(value / cap));
}

bool is_packed(const KernelArgs& args) {
  const TensorView& out = args.outputs["y"];
  const bool inputs_aligned =
      std::all_of(args.inputs.begin(), args.inputs.end(),
                  [](const TensorView& input) { return is_aligned(input); });
  return inputs_aligned && is_aligned(out) && out.row_elements() * size_of(out.dtype) % 16 == 0;
}

template <typename Op, bool kPacked>
BoundLaunch bind(Device& /*device*/, const KernelArgs& args) {
  const TensorView out = args.outputs["y"];
  const TensorView a = args.inputs[Op::kInputs.front()];
  const TensorView b = args.inputs[Op::kInputs.back()];
  return [out, a, b](Stream& stream, const StepLengths&) {
    visit_element(out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t items = out.row_elements() / (kPacked ? Pack<T>::kSize : 1);
      const int64_t threads = std::min(kMaxThreads, round_up(items, 32));
      if (items == 0) return;
      const Grid grid{.blocks = dim3(static_cast<unsigned>(out.num_rows()),
                                     static_cast<unsigned>(div_up(items, threads))),
                      .threads = static_cast<unsigned>(threads)};
      const auto kernel = kPacked ? pack_kernel<T, Op> : scalar_kernel<T, Op>;
      launch(stream, grid, kernel, rows_of<T>(out), rows_of<T>(a), rows_of<T>(b),
             static_cast<int>(items));
    });
  };
}

BoundLaunch bind_softcap(Device& /*device*/, const KernelArgs& args) {
  const TensorView out = args.outputs["y"];
  const TensorView x = args.inputs["x"];
  const auto cap = static_cast<float>(args.attrs.get_double("cap"));
  return [out, x, cap](Stream& stream, const StepLengths&) {
    visit_element(out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const int64_t columns = out.row_elements();
      if (columns == 0) return;
      const Grid grid{.blocks = dim3(static_cast<unsigned>(out.num_rows()),
                                     static_cast<unsigned>(div_up(columns, kMaxThreads))),
                      .threads = static_cast<unsigned>(kMaxThreads)};
      launch(stream, grid, softcap_kernel<T>, rows_of<T>(out), rows_of<T>(x),
             static_cast<int>(columns), cap);
    });
  };
}

}  // namespace

std::span<const Kernel> elementwise_kernels() {
  static constexpr std::array<Kernel, 11> kRows = {{
      {"add", "add.packed", is_packed, nullptr, bind<Add, true>},
      {"add", "add.scalar", nullptr, nullptr, bind<Add, false>},
      {"mul", "mul.packed", is_packed, nullptr, bind<Mul, true>},
      {"mul", "mul.scalar", nullptr, nullptr, bind<Mul, false>},
      {"silu", "silu.packed", is_packed, nullptr, bind<Silu, true>},
      {"silu", "silu.scalar", nullptr, nullptr, bind<Silu, false>},
      {"gelu_tanh", "gelu_tanh.packed", is_packed, nullptr, bind<GeluTanh, true>},
      {"gelu_tanh", "gelu_tanh.scalar", nullptr, nullptr, bind<GeluTanh, false>},
      {"softcap", "softcap.scalar", nullptr, nullptr, bind_softcap},
      {"silu_mul", "silu_mul.packed", is_packed, nullptr, bind<SiluMul, true>},
      {"silu_mul", "silu_mul.scalar", nullptr, nullptr, bind<SiluMul, false>},
  }};
  return kRows;
}

}  // namespace encore::cuda
