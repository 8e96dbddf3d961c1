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
  const float* fill;           // value of rows whose id is no row; null: 0
  const int32_t* last_tokens;  // what an id of -2 - i stands for; null: nothing
  int num_last_tokens;
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

// Block (output row, part of the row); a thread copies kSize elements.
template <typename T, int kSize>
__global__ void copy_rows_kernel(Target<T> out, Source<T> source, int num_items, bool starts_step) {
  if (!starts_step) allow_next_kernel();
  wait_for_inputs();
  if (starts_step) allow_next_kernel();
  const int item = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (item >= num_items) return;
  const int64_t row = blockIdx.x;
  const int64_t column = static_cast<int64_t>(item) * kSize;
  const int64_t id = source_row(source, row);
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

// What the two ops call their operands; one without `fill` and `last_tokens` looks for none.
struct Names {
  std::string_view source;
  std::string_view ids;
  std::string_view out;
  // The first launch of a step lets no other start before all of the last step has ended, so that
  // whatever follows may read lengths, page tables and old K and V before it waits for its own
  // predecessor.
  bool starts_step;
};
constexpr Names kEmbedding{"table", "ids", "x", true};
constexpr Names kGatherRows{"x", "rows", "y", false};

template <const Names& kNames>
bool is_packed(const KernelArgs& args) {
  const TensorView& out = args.outputs[kNames.out];
  return is_aligned(out) && is_aligned(args.inputs[kNames.source]) &&
         out.row_elements() * size_of(out.dtype) % 16 == 0;
}

template <typename T, int kSize>
void launch_copy(Stream& stream, const TensorView& out, const Source<T>& source, bool starts_step) {
  const int64_t items = out.row_elements() / kSize;
  if (items == 0) return;
  const int64_t threads = std::min(kMaxThreads, round_up(items, 32));
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(out.num_rows()),
                         static_cast<unsigned>(div_up(items, threads))),
          .threads = static_cast<unsigned>(threads)},
         copy_rows_kernel<T, kSize>, Target<T>{out.as<T>(), out.row_stride}, source,
         static_cast<int>(items), starts_step);
}

template <const Names& kNames, bool kPacked>
BoundLaunch bind(Device& /*device*/, const KernelArgs& args) {
  const TensorView out = args.outputs[kNames.out];
  const TensorView source = args.inputs[kNames.source];
  const auto* ids = args.inputs[kNames.ids].as<const int32_t>();
  const TensorView* fills = args.inputs.find("fill");
  const float* fill = fills == nullptr ? nullptr : fills->as<const float>();
  const TensorView* last = args.inputs.find("last_tokens");
  const auto* last_tokens = last == nullptr ? nullptr : last->as<const int32_t>();
  const int num_last_tokens = last == nullptr ? 0 : static_cast<int>(last->shape[0]);
  return [=](Stream& stream, const StepLengths&) {
    visit_element(out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      launch_copy<T, kPacked ? Pack<T>::kSize : 1>(
          stream, out,
          {source.as<const T>(), source.row_stride, source.num_rows(), ids, fill, last_tokens,
           num_last_tokens},
          kNames.starts_step);
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
      {"gather_rows", "gather_rows.packed", is_packed<kGatherRows>, nullptr,
       bind<kGatherRows, true>},
      {"gather_rows", "gather_rows.scalar", nullptr, nullptr, bind<kGatherRows, false>},
  }};
  return kRows;
}

}  // namespace encore::cuda
