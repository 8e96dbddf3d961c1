// lora_shrink and lora_expand. A block looks at the slots of its rows itself, so nothing is sorted and
// the host prepares nothing; where none of them has an adapter, it ends. Rows of one slot read it once,
// as far as they are neighbours in a block. A row's sums have one order, whichever rows stand beside it.
#include <algorithm>
#include <array>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/rows/chunk.cuh"
#include "backend/lora_blocks.h"

namespace encore::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxBlocks = 8;   // products that one was merged of
constexpr int kRowsOfMany = 8;  // of a block, in a launch of many rows
constexpr int kManyRows = 257;  // fewer rows read x less often than A
static_assert(kRowsOfMany <= kWarps);

// Units: strides in elements.
template <typename T>
struct ShrinkArgs {
  const T* x;
  int64_t x_stride;
  const T* norm;  // null: none
  const T* a;
  int64_t slot_stride;
  const int32_t* adapters;
  float* h;
  int64_t h_stride;
  int num_rows;
  int num_columns;
  int num_sums;  // of a row: N
  float per_element;
  float eps;
  float offset;
};

template <typename T>
struct ExpandArgs {
  const T* base;
  int64_t base_stride;
  const float* h;
  int64_t h_stride;
  const T* b;
  int64_t slot_stride;
  const int32_t* adapters;
  T* y;  // may be base
  int64_t y_stride;
  int num_rows;
  int num_columns;
  int rank;
  int block_ends[kMaxBlocks];
};

// 1 / the root of a row's mean square, in every lane.
template <typename T, bool kPacked>
__device__ __forceinline__ float norm_scale(const ShrinkArgs<T>& args, int row) {
  using Elements = Chunk<T, kPacked>;
  const T* x = args.x + row * args.x_stride;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32 * Elements::kSize; i < args.num_columns;
       i += 32 * Elements::kSize) {
    float values[Elements::kSize];
    Elements::load(x, i, values);
#pragma unroll
    for (const float value : values)
      squares = __fmaf_rn(value, value, squares);
  }
  return rsqrtf(warp_sum(squares) * args.per_element + args.eps);
}

// A warp takes one row of A for each of the block's rows of x.
template <typename T, int kRows, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    lora_shrink_kernel(const __grid_constant__ ShrinkArgs<T> args) {
  using Elements = Chunk<T, kPacked>;
  constexpr int kSize = Elements::kSize;
  __shared__ float shared_scales[kRows];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = static_cast<int>(blockIdx.y) * kRows;
  const int n = static_cast<int>(blockIdx.x) * kWarps + warp;
  begin_kernel();
  int slots[kRows];
  bool has_any = false;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    slots[r] = first_row + r < args.num_rows ? args.adapters[first_row + r] : -1;
    has_any |= slots[r] >= 0;
  }
  if (!has_any) return;
  float scales[kRows];
  if (args.norm != nullptr) {
    if constexpr (kRows == 1) {
      scales[0] = norm_scale<T, kPacked>(args, first_row);
    } else {
      if (warp < kRows && first_row + warp < args.num_rows) {
        const float scale = norm_scale<T, kPacked>(args, first_row + warp);
        if (lane == 0) shared_scales[warp] = scale;
      }
      __syncthreads();
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        scales[r] = shared_scales[r];
    }
  }
  if (n >= args.num_sums) return;
  const T* a = args.a + static_cast<int64_t>(n) * args.num_columns;
  float sums[kRows] = {};
  for (int i = lane * kSize; i < args.num_columns; i += 32 * kSize) {
    float weights[kSize];
    float norms[kSize];
    if (args.norm != nullptr) {
      Elements::load(args.norm, i, norms);
#pragma unroll
      for (float& norm : norms)
        norm += args.offset;
    }
    int loaded = -1;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (slots[r] < 0) continue;
      if (slots[r] != loaded) {
        loaded = slots[r];
        Elements::load(a + loaded * args.slot_stride, i, weights);
      }
      float values[kSize];
      Elements::load(args.x + (first_row + r) * args.x_stride, i, values);
#pragma unroll
      for (int j = 0; j < kSize; ++j) {
        float value = values[j];
        if (args.norm != nullptr) value = to_float(from_float<T>(value * scales[r] * norms[j]));
        sums[r] = __fmaf_rn(value, weights[j], sums[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (slots[r] < 0) continue;
    const float sum = warp_sum(sums[r]);
    if (lane == 0) args.h[(first_row + r) * args.h_stride + n] = sum;
  }
}

// A thread takes one column of the block's rows.
template <typename T, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    lora_expand_kernel(const __grid_constant__ ExpandArgs<T> args) {
  using Elements = Chunk<T, kPacked>;
  constexpr int kSize = Elements::kSize;
  const int column = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int first_row = static_cast<int>(blockIdx.y) * kRowsOfMany;
  int block = 0;
  while (column >= args.block_ends[block] && block + 1 < kMaxBlocks)
    ++block;
  begin_kernel();
  if (column >= args.num_columns) return;
  const float* h = args.h + block * args.rank;
  const T* b = args.b + static_cast<int64_t>(column) * args.rank;
  const int end = min(args.num_rows, first_row + kRowsOfMany);
  for (int row = first_row; row < end; ++row) {
    const int slot = args.adapters[row];
    const T base = args.base[row * args.base_stride + column];
    T* y = args.y + row * args.y_stride + column;
    if (slot < 0) {
      if (args.y != args.base) *y = base;
      continue;
    }
    float sum = 0;
    for (int k = 0; k < args.rank; k += kSize) {
      float weights[kSize];
      Elements::load(b + slot * args.slot_stride, k, weights);
#pragma unroll
      for (int j = 0; j < kSize; ++j)
        sum = __fmaf_rn(h[row * args.h_stride + k + j], weights[j], sum);
    }
    *y = from_float<T>(to_float(base) + sum);
  }
}

bool is_pack_wise(const TensorView& view, int64_t columns) {
  return is_aligned(view) && columns * size_of(view.dtype) % 16 == 0;
}

unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>(div_up(count, per_block));
}

template <typename T>
BoundLaunch bind_shrink_of(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView* norm = args.inputs.find("norm");
  const TensorView& a = args.inputs["a"];
  const TensorView& h = args.outputs["h"];
  ShrinkArgs<T> shrink{};
  shrink.x = x.as<const T>();
  shrink.x_stride = x.row_stride;
  if (norm != nullptr) {
    shrink.norm = norm->as<const T>();
    shrink.eps = static_cast<float>(args.attrs.get_double("eps"));
    shrink.offset = norm_offset(args.attrs);
  }
  shrink.a = a.as<const T>();
  shrink.slot_stride = a.row_stride;
  shrink.adapters = args.inputs["adapters"].as<const int32_t>();
  shrink.h = h.as<float>();
  shrink.h_stride = h.row_stride;
  shrink.num_rows = static_cast<int>(x.num_rows());
  shrink.num_columns = static_cast<int>(x.row_elements());
  shrink.num_sums = static_cast<int>(a.shape[1]);
  shrink.per_element = 1.0F / static_cast<float>(x.row_elements());
  const bool is_packed = is_pack_wise(x, x.row_elements()) && is_pack_wise(a, x.row_elements()) &&
                         (norm == nullptr || is_aligned(*norm));
  const bool has_many = x.num_rows() >= kManyRows;
  const auto kernel =
      has_many ? (is_packed ? lora_shrink_kernel<T, kRowsOfMany, true>
                            : lora_shrink_kernel<T, kRowsOfMany, false>)
               : (is_packed ? lora_shrink_kernel<T, 1, true> : lora_shrink_kernel<T, 1, false>);
  const Grid grid{.blocks = {blocks_for(a.shape[1], kWarps),
                             blocks_for(x.num_rows(), has_many ? kRowsOfMany : 1)},
                  .threads = kThreads};
  return [shrink, grid, kernel](Stream& stream, const StepLengths&) {
    launch(stream, grid, kernel, shrink);
  };
}

BoundLaunch bind_shrink(Device& /*device*/, const KernelArgs& args) {
  return visit_element(args.inputs["x"].dtype, [&](auto tag) {
    return bind_shrink_of<typename decltype(tag)::type>(args);
  });
}

template <typename T>
BoundLaunch bind_expand_of(const KernelArgs& args) {
  const TensorView& base = args.inputs["base"];
  const TensorView& h = args.inputs["h"];
  const TensorView& b = args.inputs["b"];
  const TensorView& y = args.outputs["y"];
  ExpandArgs<T> expand{};
  expand.base = base.as<const T>();
  expand.base_stride = base.row_stride;
  expand.h = h.as<const float>();
  expand.h_stride = h.row_stride;
  expand.b = b.as<const T>();
  expand.slot_stride = b.row_stride;
  expand.adapters = args.inputs["adapters"].as<const int32_t>();
  expand.y = y.as<T>();
  expand.y_stride = y.row_stride;
  expand.num_rows = static_cast<int>(base.num_rows());
  expand.num_columns = static_cast<int>(base.row_elements());
  expand.rank = static_cast<int>(b.shape[2]);
  const std::vector<int64_t> ends = lora_block_ends(args.attrs, base.row_elements());
  if (ends.size() > kMaxBlocks) {
    fail(ErrorKind::kCompile, "lora_expand.thread_per_column: {} lora_blocks, and it takes {}",
         ends.size(), kMaxBlocks);
  }
  std::ranges::fill(expand.block_ends, expand.num_columns);
  std::ranges::copy(ends, expand.block_ends);
  const auto kernel =
      is_pack_wise(b, b.shape[2]) ? lora_expand_kernel<T, true> : lora_expand_kernel<T, false>;
  const Grid grid{.blocks = {blocks_for(base.row_elements(), kThreads),
                             blocks_for(base.num_rows(), kRowsOfMany)},
                  .threads = kThreads};
  return [expand, grid, kernel](Stream& stream, const StepLengths&) {
    launch(stream, grid, kernel, expand);
  };
}

BoundLaunch bind_expand(Device& /*device*/, const KernelArgs& args) {
  return visit_element(args.inputs["base"].dtype, [&](auto tag) {
    return bind_expand_of<typename decltype(tag)::type>(args);
  });
}

}  // namespace

std::span<const Kernel> lora_kernels() {
  static constexpr std::array<Kernel, 2> kRows = {{
      {"lora_shrink", "lora_shrink.warp_per_sum", nullptr, nullptr, bind_shrink, {"norm"}},
      {"lora_expand", "lora_expand.thread_per_column", nullptr, nullptr, bind_expand},
  }};
  return kRows;
}

}  // namespace encore::cuda
