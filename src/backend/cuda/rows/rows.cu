// Kernels of embedding and gather_rows, which copy rows that are chosen on the device.
#include <algorithm>
#include <array>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

constexpr int64_t kMaxThreads = 128;

// The rows that a launch copies from. Units: strides in elements.
template <typename T>
struct Source {
  const T* data;
  int64_t stride;
  int64_t num_rows;
  int64_t first_row;  // the id of the first row
  bool is_share;      // rows of other ids are on other ranks, and are zeros here
  const int32_t* ids;
  const float* fill;           // the value of rows whose id has no row; null: 0
  const int32_t* last_tokens;  // id -2 - i stands for the id last_tokens[i]; null: no id does
  int num_last_tokens;
  float scale;  // rows are multiplied by it; 1: they are copied unchanged
};

template <typename T>
__device__ int64_t source_row(const Source<T>& source, int64_t row) {
  const int64_t id = source.ids[row];
  const int64_t last = -2 - id;
  const bool is_last_token =
      source.last_tokens != nullptr && last >= 0 && last < source.num_last_tokens;
  return is_last_token ? source.last_tokens[last] : id;
}

template <typename T>
struct Target {
  T* data;
  int64_t stride;
};

template <typename T>
struct Copy {
  Target<T> out;
  Source<T> source;
  int num_items;  // items of a row, each copied by one thread
};

// Copies rows. The grid is (rows of the output, parts of a row, one or two copies of RowsOp); a
// thread copies kSize elements.
template <typename T, int kSize>
__global__ void copy_rows_kernel(Copy<T> first, Copy<T> second, bool starts_step) {
  if (!starts_step) allow_next_kernel();
  wait_for_inputs();
  if (starts_step) allow_next_kernel();
  const auto [out, source, num_items] = blockIdx.z == 0 ? first : second;
  const int item = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (item >= num_items) return;
  const int64_t row = blockIdx.x;
  const int64_t column = static_cast<int64_t>(item) * kSize;
  const int64_t id = source_row(source, row);
  const int64_t from_row = id - source.first_row;
  T* target = out.data + row * out.stride + column;
  if (id >= 0 && from_row >= 0 && from_row < source.num_rows) {
    const T* from = source.data + from_row * source.stride + column;
    if (source.scale != 1.0F) {
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        target[i] = from_float<T>(to_float(from[i]) * source.scale);
    } else if constexpr (kSize == 1) {
      *target = *from;
    } else {
      store_pack(target, load_pack(from));
    }
    return;
  }
  const bool is_of_another = source.is_share && id >= 0;
  const T value = from_float<T>(source.fill == nullptr || is_of_another ? 0.0F : *source.fill);
#pragma unroll
  for (int i = 0; i < kSize; ++i)
    target[i] = value;
}

// The names of the operands of one copy, in the op that makes it.
struct Names {
  std::string_view source;
  std::string_view ids;
  std::string_view out;
};
// An op that copies rows. A second copy is made if the op has the operand that `second.source`
// names.
struct RowsOp {
  Names first;
  Names second;
  // Is true for the first launch of a step. It lets no other launch start before all of the last
  // step has ended, so that later launches may read lengths, page tables and old K and V before
  // they wait for the launch in front of them.
  bool starts_step;
};
constexpr RowsOp kEmbedding{{"table", "ids", "x"}, {}, true};
constexpr RowsOp kGatherRows{{"x", "rows", "y"}, {"residual", "rows", "residual_y"}, false};

bool is_packed(const KernelArgs& args, const Names& names) {
  const TensorView* source = args.inputs.find(names.source);
  if (source == nullptr) return true;
  const TensorView& out = args.outputs[names.out];
  return is_aligned(out) && is_aligned(*source) &&
         out.row_elements() * size_of(out.dtype) % 16 == 0;
}

template <const RowsOp& kOp>
bool is_packed(const KernelArgs& args) {
  return is_packed(args, kOp.first) && is_packed(args, kOp.second);
}

// Returns the arguments of a copy, or an empty copy if the op lacks the operand that `names.source`
// names.
template <typename T, int kSize>
Copy<T> make_copy(const KernelArgs& args, const Names& names) {
  const TensorView* source = args.inputs.find(names.source);
  if (source == nullptr) return {};
  const TensorView& out = args.outputs[names.out];
  const TensorView* fill = args.inputs.find("fill");
  const TensorView* last = args.inputs.find("last_tokens");
  const bool is_share = args.attrs.find("first_row") != nullptr;
  return {.out = {out.as<T>(), out.row_stride},
          .source = {.data = source->as<const T>(),
                     .stride = source->row_stride,
                     .num_rows = source->num_rows(),
                     .first_row = is_share ? args.attrs.get_int("first_row") : 0,
                     .is_share = is_share,
                     .ids = args.inputs[names.ids].as<const int32_t>(),
                     .fill = fill == nullptr ? nullptr : fill->as<const float>(),
                     .last_tokens = last == nullptr ? nullptr : last->as<const int32_t>(),
                     .num_last_tokens = last == nullptr ? 0 : static_cast<int>(last->shape[0]),
                     .scale = args.attrs.find("scale") == nullptr
                                  ? 1.0F
                                  : static_cast<float>(args.attrs.get_double("scale"))},
          .num_items = static_cast<int>(out.row_elements() / kSize)};
}

template <const RowsOp& kOp, bool kPacked>
BoundLaunch bind(Device& /*device*/, const KernelArgs& args) {
  return [args](Stream& stream, const StepLengths&) {
    const TensorView& out = args.outputs[kOp.first.out];
    visit_element(out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      constexpr int kSize = kPacked ? Pack<T>::kSize : 1;
      const auto first = make_copy<T, kSize>(args, kOp.first);
      const auto second = make_copy<T, kSize>(args, kOp.second);
      const int64_t items = std::max(first.num_items, second.num_items);
      if (items == 0) return;
      const int64_t threads = std::min(kMaxThreads, round_up(items, 32));
      launch(stream,
             {.blocks =
                  dim3(static_cast<unsigned>(out.num_rows()),
                       static_cast<unsigned>(div_up(items, threads)), second.num_items > 0 ? 2 : 1),
              .threads = static_cast<unsigned>(threads)},
             copy_rows_kernel<T, kSize>, first, second, kOp.starts_step);
    });
  };
}

}  // namespace

std::span<const Kernel> row_kernels() {
  static constexpr std::array<Kernel, 4> kRows = {{
      {"embedding",
       "embedding.packed",
       is_packed<kEmbedding>,
       nullptr,
       bind<kEmbedding, true>,
       {"last_tokens"}},
      {"embedding", "embedding.scalar", nullptr, nullptr, bind<kEmbedding, false>, {"last_tokens"}},
      {"gather_rows",
       "gather_rows.packed",
       is_packed<kGatherRows>,
       nullptr,
       bind<kGatherRows, true>,
       {"residual"}},
      {"gather_rows",
       "gather_rows.scalar",
       nullptr,
       nullptr,
       bind<kGatherRows, false>,
       {"residual"}},
  }};
  return kRows;
}

}  // namespace encore::cuda
