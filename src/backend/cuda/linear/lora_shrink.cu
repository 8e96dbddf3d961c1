// Kernels of lora_shrink. A block reads the adapter slots of its rows itself, so nothing is sorted
// and the host prepares nothing. If none of its rows has an adapter, the block ends.
//
// With few rows a block takes one row. It reads the row's adapter slot before the launches in front
// have ended, and fetches the adapter's data, which stays constant while the adapter slot is in
// use. Behind the wait for those launches it reads the slot again, and fetches anew if the first
// value was wrong.
//
// Many rows are multiplied on tensor cores (lora_mma.cu) where shapes allow it. Otherwise a block
// takes several rows, and for neighbouring rows with the same adapter slot it reads the adapter's
// data once. The sums of a row are added in one order, whichever rows stand beside it.
#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/lora.cuh"
#include "backend/cuda/linear/lora.h"
#include "backend/cuda/rows/chunk.cuh"

namespace encore::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRowsOfMany = 8;  // rows of a block, in a launch of many rows
static_assert(kRowsOfMany <= kWarps);

// The arguments of the kernels. Units: strides in elements.
template <typename T>
struct ShrinkArgs {
  const T* x;
  int64_t x_stride;
  const T* residual;  // null: none
  int64_t residual_stride;
  const T* norm;  // null: none
  const T* a;
  int64_t slot_stride;
  const int32_t* adapters;
  float* h;
  int64_t h_stride;
  int num_slots;
  int num_rows;
  int num_columns;
  int num_sums;  // sums in a row: N
  float per_element;
  float eps;
  float offset;
};

// Loads elements of a row of x, and adds the residual if there is one.
template <typename T, bool kPacked>
__device__ __forceinline__ void load_x(const ShrinkArgs<T>& args, int row, int column,
                                       float (&values)[Chunk<T, kPacked>::kSize]) {
  using Elements = Chunk<T, kPacked>;
  Elements::load(args.x + row * args.x_stride, column, values);
  if (args.residual == nullptr) return;
  float others[Elements::kSize];
  Elements::load(args.residual + row * args.residual_stride, column, others);
#pragma unroll
  for (int i = 0; i < Elements::kSize; ++i)
    values[i] = to_float(from_float<T>(values[i] + others[i]));
}

// Returns 1 / the root of a row's mean square, in every lane.
template <typename T, bool kPacked>
__device__ __forceinline__ float norm_scale(const ShrinkArgs<T>& args, int row) {
  using Elements = Chunk<T, kPacked>;
  float squares = 0;
  for (int i = static_cast<int>(threadIdx.x) % 32 * Elements::kSize; i < args.num_columns;
       i += 32 * Elements::kSize) {
    float values[Elements::kSize];
    load_x<T, kPacked>(args, row, i, values);
#pragma unroll
    for (const float value : values)
      squares = __fmaf_rn(value, value, squares);
  }
  return rsqrtf(warp_sum(squares) * args.per_element + args.eps);
}

// A warp takes one row of A, and multiplies each of the block's rows of x by it.
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
      load_x<T, kPacked>(args, first_row + r, i, values);
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

// Returns the sum over the block in every thread. `warps` is shared memory that nothing else uses.
__device__ __forceinline__ float block_sum(float value, float (&warps)[kWarps]) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (const float of_warp : warps)
    sum += of_warp;
  return sum;
}

// Makes the compiler load a pack at this point, not where it is used first.
template <typename T>
__device__ __forceinline__ Pack<T> load_pack_now(const T* address) {
  const uint4 bits = load_global(reinterpret_cast<const uint4*>(address));
  return reinterpret_cast<const Pack<T>&>(bits);
}
// A thread's packs of a row: the pack with the thread's index and every kThreads-th behind it.
// Packs beyond the row's end are zero.
template <typename T, int kPacks>
struct RowPacks {
  Pack<T> packs[kPacks] = {};

  __device__ __forceinline__ void fetch(const T* row, int num_packs) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int i = static_cast<int>(threadIdx.x) + p * kThreads;
      if (i < num_packs) packs[p] = load_pack_now(row + i * Pack<T>::kSize);
    }
  }
};

// A block takes kSums rows of A and one row of x.
template <typename T, int kSums, int kPacks, bool kNormalizes>
__global__ void __launch_bounds__(kThreads)
    lora_shrink_row_kernel(const __grid_constant__ ShrinkArgs<T> args) {
  constexpr int kSize = Pack<T>::kSize;
  __shared__ float squares_of_warps[kWarps];
  __shared__ float sums_of_warps[kSums][kWarps];
  allow_next_kernel();
  const int row = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * kSums;
  const int num_packs = args.num_columns / kSize;
  RowPacks<T, kPacks> weights[kSums];
  const auto fetch_slot = [&](int slot) {
    const T* a = args.a + slot * args.slot_stride;
#pragma unroll
    for (int n = 0; n < kSums; ++n) {
      if (first + n < args.num_sums)
        weights[n].fetch(a + static_cast<int64_t>(first + n) * args.num_columns, num_packs);
    }
  };
  const int guess = guess_slot(args.adapters + row, args.num_slots);
  if (guess >= 0) fetch_slot(guess);
  RowPacks<T, kNormalizes ? kPacks : 1> norms;
  if constexpr (kNormalizes) norms.fetch(args.norm, num_packs);
  wait_for_inputs();
  RowPacks<T, kPacks> x;
  const auto fetch_x = [&] { x.fetch(args.x + row * args.x_stride, num_packs); };
  if (guess >= 0) fetch_x();
  const int slot = load_slot(args.adapters + row);
  if (slot < 0) return;
  if (guess < 0) fetch_x();
  if (slot != guess) fetch_slot(slot);
  if constexpr (kNormalizes) {
    if (args.residual != nullptr) {
      RowPacks<T, kPacks> others;
      others.fetch(args.residual + row * args.residual_stride, num_packs);
#pragma unroll
      for (int p = 0; p < kPacks; ++p)
        x.packs[p] = add_packs(x.packs[p], others.packs[p]);
    }
  }
  [[maybe_unused]] float scale = 1;
  if constexpr (kNormalizes) {
    float squares = 0;
#pragma unroll
    for (const Pack<T>& pack : x.packs) {
      float values[kSize];
      unpack(pack, values);
      add_products(values, values, squares);
    }
    scale = rsqrtf(block_sum(squares, squares_of_warps) * args.per_element + args.eps);
  }
  float sums[kSums] = {};
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    float values[kSize];
    unpack(x.packs[p], values);
    if constexpr (kNormalizes) {
      float norm[kSize];
      unpack(norms.packs[p], norm);
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        values[i] = to_float(from_float<T>(values[i] * scale * (norm[i] + args.offset)));
    }
#pragma unroll
    for (int n = 0; n < kSums; ++n) {
      float of_a[kSize];
      unpack(weights[n].packs[p], of_a);
#pragma unroll
      for (int i = 0; i < kSize; ++i)
        sums[n] = __fmaf_rn(values[i], of_a[i], sums[n]);
    }
  }
#pragma unroll
  for (int n = 0; n < kSums; ++n) {
    const float sum = warp_sum(sums[n]);
    if (threadIdx.x % 32 == 0) sums_of_warps[n][threadIdx.x / 32] = sum;
  }
  __syncthreads();
  const int n = static_cast<int>(threadIdx.x);
  if (n >= kSums || first + n >= args.num_sums) return;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w)
    sum += sums_of_warps[n][w];
  args.h[row * args.h_stride + first + n] = sum;
}

bool is_pack_wise(const TensorView& view, int64_t columns) {
  return is_aligned(view) && columns * size_of(view.dtype) % 16 == 0;
}

unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>(div_up(count, per_block));
}

template <typename T>
ShrinkArgs<T> shrink_args(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& a = args.inputs["a"];
  const TensorView& h = args.outputs["h"];
  ShrinkArgs<T> shrink{};
  shrink.x = x.as<const T>();
  shrink.x_stride = x.row_stride;
  if (const TensorView* residual = args.inputs.find("residual")) {
    shrink.residual = residual->as<const T>();
    shrink.residual_stride = residual->row_stride;
  }
  if (const TensorView* norm = args.inputs.find("norm")) {
    shrink.norm = norm->as<const T>();
    shrink.eps = static_cast<float>(args.attrs.get_double("eps"));
    shrink.offset = norm_offset(args.attrs);
  }
  shrink.a = a.as<const T>();
  shrink.slot_stride = a.row_stride;
  shrink.adapters = args.inputs["adapters"].as<const int32_t>();
  shrink.h = h.as<float>();
  shrink.h_stride = h.row_stride;
  shrink.num_slots = static_cast<int>(a.shape[0]);
  shrink.num_rows = static_cast<int>(x.num_rows());
  shrink.num_columns = static_cast<int>(x.row_elements());
  shrink.num_sums = static_cast<int>(a.shape[1]);
  shrink.per_element = 1.0F / static_cast<float>(x.row_elements());
  return shrink;
}

bool has_packed_columns(const KernelArgs& args) {
  const int64_t columns = args.inputs["x"].row_elements();
  const TensorView* residual = args.inputs.find("residual");
  const TensorView* norm = args.inputs.find("norm");
  return is_pack_wise(args.inputs["x"], columns) && is_pack_wise(args.inputs["a"], columns) &&
         (residual == nullptr || is_aligned(*residual)) && (norm == nullptr || is_aligned(*norm));
}

constexpr int kMostPacks = 8;  // packs of a row that a thread takes

int64_t packs_of_thread(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  return div_up(x.row_elements() * size_of(x.dtype), 16 * kThreads);
}

template <typename T, int kSums, int kPacks>
BoundLaunch launch_shrink_row(const ShrinkArgs<T>& shrink) {
  const Grid grid{
      .blocks = {blocks_for(shrink.num_sums, kSums), static_cast<unsigned>(shrink.num_rows)},
      .threads = kThreads};
  auto kernel = lora_shrink_row_kernel<T, kSums, kPacks, false>;
  if constexpr (kSums == 1) {
    if (shrink.norm != nullptr) kernel = lora_shrink_row_kernel<T, 1, kPacks, true>;
  }
  return [shrink, grid, kernel](Stream& stream, const StepLengths&) {
    launch(stream, grid, kernel, shrink);
  };
}

template <typename T>
BoundLaunch bind_shrink_of(const KernelArgs& args) {
  const ShrinkArgs<T> shrink = shrink_args<T>(args);
  const bool is_packed = has_packed_columns(args);
  const bool has_many = shrink.num_rows >= kManyRowsWithAdapters;
  const auto kernel =
      has_many ? (is_packed ? lora_shrink_kernel<T, kRowsOfMany, true>
                            : lora_shrink_kernel<T, kRowsOfMany, false>)
               : (is_packed ? lora_shrink_kernel<T, 1, true> : lora_shrink_kernel<T, 1, false>);
  const Grid grid{.blocks = {blocks_for(shrink.num_sums, kWarps),
                             blocks_for(shrink.num_rows, has_many ? kRowsOfMany : 1)},
                  .threads = kThreads};
  return [shrink, grid, kernel](Stream& stream, const StepLengths&) {
    launch(stream, grid, kernel, shrink);
  };
}

}  // namespace

bool accepts_shrink_row(const KernelArgs& args) {
  return !args.batch_invariant && args.inputs["x"].num_rows() < kManyRowsWithAdapters &&
         has_packed_columns(args) && packs_of_thread(args) <= kMostPacks;
}

// With at most 8 rows, a block computes one of the sums of a row of h, so that many blocks share
// the reading of few adapters' weights. With more rows it computes several sums of a row, so that
// it keeps enough bytes in flight.
BoundLaunch bind_shrink_row(Device& /*device*/, const KernelArgs& args) {
  constexpr int64_t kHandful = 8;
  const bool has_several =
      args.inputs["x"].num_rows() > kHandful && args.inputs.find("norm") == nullptr;
  const int64_t packs = packs_of_thread(args);
  return visit_element(args.inputs["x"].dtype, [&](auto tag) -> BoundLaunch {
    using T = typename decltype(tag)::type;
    const ShrinkArgs<T> shrink = shrink_args<T>(args);
    if (packs <= 2) {
      return has_several ? launch_shrink_row<T, 4, 2>(shrink) : launch_shrink_row<T, 1, 2>(shrink);
    }
    if (packs <= 4) {
      return has_several ? launch_shrink_row<T, 2, 4>(shrink) : launch_shrink_row<T, 1, 4>(shrink);
    }
    return launch_shrink_row<T, 1, kMostPacks>(shrink);
  });
}

BoundLaunch bind_shrink(Device& /*device*/, const KernelArgs& args) {
  return visit_element(args.inputs["x"].dtype, [&](auto tag) {
    return bind_shrink_of<typename decltype(tag)::type>(args);
  });
}

}  // namespace encore::cuda
