// lora_shrink and lora_expand. A block looks at the slots of its rows itself, so nothing is sorted and
// the host prepares nothing; where none of them has an adapter, it ends.
//
// With few rows a block takes one row. It reads the row's slot before the launches before have ended and
// fetches what lies there: adapters are constants to whoever has their slot. Behind the wait it reads the slot
// again, and fetches anew where it guessed wrong.
//
// Many rows are multiplied on tensor cores (lora_mma.cu) where shapes allow it; else a block takes several rows,
// and neighbours of one slot read it once. A row's sums have one order, whichever rows stand beside it.
#include "backend/cuda/linear/lora.h"

#include <algorithm>
#include <array>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/lora.cuh"
#include "backend/cuda/rows/chunk.cuh"

namespace encore::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kRowsOfMany = 8;  // of a block, in a launch of many rows
constexpr int kManyRows = 257;
static_assert(kRowsOfMany <= kWarps);

// Units: strides in elements.
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
  int num_sums;  // of a row: N
  float per_element;
  float eps;
  float offset;
};

template <typename T>
struct ExpandArgs {
  const T* base;
  int64_t base_stride;
  T* y;  // may be base
  int64_t y_stride;
  int num_rows;
  int num_outputs;  // of y
  LoraArgs<T> lora;
};

// A row of x, with the residual where there is one.
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

// 1 / the root of a row's mean square, in every lane.
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

// The sum over the block, in every thread. `warps`: shared memory that nothing else uses.
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

// Loads a pack here, not where it is used first.
template <typename T>
__device__ __forceinline__ Pack<T> load_pack_now(const T* address) {
  const uint4 bits = load_global(reinterpret_cast<const uint4*>(address));
  return reinterpret_cast<const Pack<T>&>(bits);
}
__device__ __forceinline__ float load_now(const float* address) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(address) : "memory");
  return value;
}
template <typename T>
__device__ __forceinline__ T load_now(const T* address) {
  uint16_t bits;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(bits) : "l"(address) : "memory");
  return reinterpret_cast<const T&>(bits);
}

// A thread's packs of a row: its own and every kThreads-th behind it, zeros beyond the row's end.
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

// A block takes kSums rows of A and a row of x.
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
  x.fetch(args.x + row * args.x_stride, num_packs);
  const int slot = load_slot(args.adapters + row);
  if (slot < 0) return;
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
#pragma unroll
      for (const float value : values)
        squares = __fmaf_rn(value, value, squares);
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

// Rounds base and what an adapter adds to it.
template <typename T>
__device__ __forceinline__ float rounded_sum(T base, float sum) {
  return to_float(from_float<T>(to_float(base) + sum));
}

// A thread takes one column of a row; with silu_mul both that it is made of.
template <typename T, bool kSiluMul>
__global__ void __launch_bounds__(kThreads)
    lora_expand_row_kernel(const __grid_constant__ ExpandArgs<T> args) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kHalves = kSiluMul ? 2 : 1;
  constexpr int kAhead = 2;            // packs of b that are fetched early
  constexpr int kPerPack = kSize / 4;  // packs of h beside one
  allow_next_kernel();
  const int row = static_cast<int>(blockIdx.y);
  const int column = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const bool has_output = column < args.num_outputs;
  Pack<T> weights[kHalves][kAhead] = {};
  const auto fetch_slot = [&](int slot) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const T* b = lora_row(args.lora, slot, column + half * args.num_outputs);
#pragma unroll
      for (int p = 0; p < kAhead; ++p) {
        if (p * kSize < args.lora.rank) weights[half][p] = load_pack(b + p * kSize);
      }
    }
  };
  const int guess = guess_slot(args.lora.adapters + row, args.lora.num_slots);
  if (guess >= 0 && has_output) fetch_slot(guess);
  wait_for_inputs();
  if (!has_output) return;
  T* y = args.y + row * args.y_stride + column;
  T base[kHalves];
  Pack<float> h[kHalves][kAhead * kPerPack] = {};
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int output = column + half * args.num_outputs;
    base[half] = load_now(args.base + row * args.base_stride + output);
    const float* of_row = lora_h(args.lora, row, output);
#pragma unroll
    for (int i = 0; i < kAhead * kPerPack; ++i) {
      if (i * 4 < args.lora.rank) h[half][i] = load_pack_now(of_row + i * 4);
    }
  }
  const int slot = load_slot(args.lora.adapters + row);
  if (slot < 0 && !kSiluMul && args.y == args.base) return;
  float values[kHalves];
#pragma unroll
  for (int half = 0; half < kHalves; ++half)
    values[half] = to_float(base[half]);
  if (slot >= 0) {
    if (slot != guess) fetch_slot(slot);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      float sum = 0;
#pragma unroll
      for (int p = 0; p < kAhead; ++p) {
        float of_b[kSize];
        unpack(weights[half][p], of_b);
#pragma unroll
        for (int i = 0; i < kSize; ++i)
          sum = __fmaf_rn(h[half][p * kPerPack + i / 4].values[i % 4], of_b[i], sum);
      }
      const int output = column + half * args.num_outputs;
      const T* b = lora_row(args.lora, slot, output);
      const float* of_row = lora_h(args.lora, row, output);
      for (int k = kAhead * kSize; k < args.lora.rank; k += kSize)
        add_lora_pack<T>(load_pack(b + k), of_row + k, sum);
      values[half] = rounded_sum(base[half], sum);
    }
  }
  if constexpr (kSiluMul) {
    *y = from_float<T>(silu<T>(values[0]) * values[1]);
  } else {
    *y = from_float<T>(values[0]);
  }
}

// A thread takes one column of the block's rows; with silu_mul both that it is made of.
template <typename T, bool kPacked, bool kSiluMul>
__global__ void __launch_bounds__(kThreads)
    lora_expand_kernel(const __grid_constant__ ExpandArgs<T> args) {
  constexpr int kHalves = kSiluMul ? 2 : 1;
  const int column = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int first_row = static_cast<int>(blockIdx.y) * kRowsOfMany;
  begin_kernel();
  if (column >= args.num_outputs) return;
  const int end = min(args.num_rows, first_row + kRowsOfMany);
  for (int row = first_row; row < end; ++row) {
    const int slot = args.lora.adapters[row];
    T* y = args.y + row * args.y_stride + column;
    if (slot < 0 && !kSiluMul && args.y == args.base) continue;
    float values[kHalves];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int output = column + half * args.num_outputs;
      const T base = args.base[row * args.base_stride + output];
      values[half] = to_float(base);
      if (slot < 0) continue;
      if constexpr (kPacked) {
        values[half] = rounded_sum(base, lora_sum(args.lora, slot, row, output));
      } else {
        const T* b = lora_row(args.lora, slot, output);
        const float* h = lora_h(args.lora, row, output);
        float sum = 0;
        for (int k = 0; k < args.lora.rank; ++k)
          sum = __fmaf_rn(h[k], to_float(b[k]), sum);
        values[half] = rounded_sum(base, sum);
      }
    }
    if constexpr (kSiluMul) {
      *y = from_float<T>(silu<T>(values[0]) * values[1]);
    } else {
      *y = from_float<T>(values[0]);
    }
  }
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

constexpr int kMostPacks = 8;  // of a thread

int64_t packs_of_thread(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  return div_up(x.row_elements() * size_of(x.dtype), 16 * kThreads);
}

bool accepts_shrink_row(const KernelArgs& args) {
  return !args.batch_invariant && args.inputs["x"].num_rows() < kManyRows &&
         has_packed_columns(args) && packs_of_thread(args) <= kMostPacks;
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

// With a handful of rows a block takes one sum, so that many blocks share the bytes of few adapters; with
// more, several, so that it has enough of them on their way.
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

template <typename T>
BoundLaunch bind_shrink_of(const KernelArgs& args) {
  const ShrinkArgs<T> shrink = shrink_args<T>(args);
  const bool is_packed = has_packed_columns(args);
  const bool has_many = shrink.num_rows >= kManyRows;
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

BoundLaunch bind_shrink(Device& /*device*/, const KernelArgs& args) {
  return visit_element(args.inputs["x"].dtype, [&](auto tag) {
    return bind_shrink_of<typename decltype(tag)::type>(args);
  });
}

bool has_packed_rank(const KernelArgs& args) {
  return has_packed_lora(args.inputs["h"], args.inputs["b"], args.attrs);
}

bool accepts_expand_row(const KernelArgs& args) {
  return args.inputs["base"].num_rows() < kManyRows && has_packed_rank(args);
}

template <typename T>
ExpandArgs<T> expand_args(const KernelArgs& args) {
  const TensorView& base = args.inputs["base"];
  const TensorView& y = args.outputs["y"];
  return {.base = base.as<const T>(),
          .base_stride = base.row_stride,
          .y = y.as<T>(),
          .y_stride = y.row_stride,
          .num_rows = static_cast<int>(base.num_rows()),
          .num_outputs = static_cast<int>(y.row_elements()),
          .lora = lora_args<T>(args.inputs["h"], args.inputs["b"], args.inputs["adapters"],
                               args.attrs)};
}

// Binds a kernel whose blocks take `rows_each` rows.
template <typename T>
BoundLaunch launch_expand(const ExpandArgs<T>& expand, void (*kernel)(ExpandArgs<T>),
                          int64_t rows_each) {
  const Grid grid{
      .blocks = {blocks_for(expand.num_outputs, kThreads), blocks_for(expand.num_rows, rows_each)},
      .threads = kThreads};
  return [expand, grid, kernel](Stream& stream, const StepLengths&) {
    launch(stream, grid, kernel, expand);
  };
}

BoundLaunch bind_expand_row(Device& /*device*/, const KernelArgs& args) {
  const bool has_silu_mul = args.attrs.find("epilogue") != nullptr;
  return visit_element(args.inputs["base"].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return launch_expand<T>(
        expand_args<T>(args),
        has_silu_mul ? lora_expand_row_kernel<T, true> : lora_expand_row_kernel<T, false>, 1);
  });
}

BoundLaunch bind_expand(Device& /*device*/, const KernelArgs& args) {
  const bool has_silu_mul = args.attrs.find("epilogue") != nullptr;
  const bool is_packed = has_packed_rank(args);
  return visit_element(args.inputs["base"].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto kernel = is_packed ? (has_silu_mul ? lora_expand_kernel<T, true, true>
                                                  : lora_expand_kernel<T, true, false>)
                                  : (has_silu_mul ? lora_expand_kernel<T, false, true>
                                                  : lora_expand_kernel<T, false, false>);
    return launch_expand<T>(expand_args<T>(args), kernel, kRowsOfMany);
  });
}

}  // namespace

std::span<const Kernel> lora_kernels() {
  static constexpr std::array<Kernel, 6> kRows = {{
      {"lora_shrink",
       "lora_shrink.block_per_row",
       accepts_shrink_row,
       nullptr,
       bind_shrink_row,
       {"residual", "norm"}},
      {"lora_shrink", "lora_shrink.mma", accepts_shrink_tile, nullptr, bind_shrink_tile},
      {"lora_shrink",
       "lora_shrink.warp_per_sum",
       nullptr,
       nullptr,
       bind_shrink,
       {"residual", "norm"}},
      {"lora_expand", "lora_expand.block_per_row", accepts_expand_row, nullptr, bind_expand_row},
      {"lora_expand", "lora_expand.mma", accepts_expand_tile, nullptr, bind_expand_tile},
      {"lora_expand", "lora_expand.thread_per_column", nullptr, nullptr, bind_expand},
  }};
  return kRows;
}

}  // namespace encore::cuda
