// Kernels of lora_expand. As in lora_shrink (lora_shrink.cu), a block reads the adapter slots of
// its rows itself. With few rows, it fetches the adapter's data that it needs before the launches
// in front have ended.
#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/lora.cuh"
#include "backend/cuda/linear/lora.h"

namespace encore::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMostSums = kThreads;  // sums of a row of h that a block keeps in shared memory
constexpr int kRowsOfMany = 8;       // rows of a block, in a launch of many rows

template <typename T>
struct ExpandArgs {
  const T* base;
  int64_t base_stride;
  T* y;  // may be the same memory as base
  int64_t y_stride;
  int num_rows;
  int num_outputs;  // outputs of y
  int num_sums;     // sums in a row of h
  LoraArgs<T> lora;
};

// Adds the adapter's part of each output to `base`, and rounds the sum to T.
template <typename T>
__device__ __forceinline__ float rounded_sum(T base, float sum) {
  return to_float(from_float<T>(to_float(base) + sum));
}

// Makes the compiler load the value at this point, not where it is used first.
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

// A thread computes one column of kRows rows of y. With silu_mul it computes the column of the gate
// and the column that it gates, from which the column of y is made.
template <typename T, int kRows, bool kSiluMul>
__global__ void __launch_bounds__(kThreads)
    lora_expand_rows_kernel(const __grid_constant__ ExpandArgs<T> args) {
  constexpr int kSize = Pack<T>::kSize;
  constexpr int kHalves = kSiluMul ? 2 : 1;
  constexpr int kAhead = 2;  // packs of a row of b that are fetched early
  __shared__ __align__(16) float h[kRows][kMostSums];
  allow_next_kernel();
  const int first_row = static_cast<int>(blockIdx.y) * kRows;
  const int column = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const bool has_output = column < args.num_outputs;
  const int32_t* const adapters = args.lora.adapters + first_row;
  Pack<T> weights[kRows][kHalves][kAhead] = {};
  const auto fetch_slot = [&](int r, int slot) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const T* b = lora_row(args.lora, slot, column + half * args.num_outputs);
#pragma unroll
      for (int p = 0; p < kAhead; ++p) {
        if (p * kSize < args.lora.rank) weights[r][half][p] = load_pack(b + p * kSize);
      }
    }
  };
  int guesses[kRows];
  bool has_guess = false;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    guesses[r] = first_row + r < args.num_rows ? guess_slot(adapters + r, args.lora.num_slots) : -1;
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    has_guess |= guesses[r] >= 0;
    if (guesses[r] >= 0 && has_output) fetch_slot(r, guesses[r]);
  }
  wait_for_inputs();
  float own_h[kRows] = {};
  T base[kRows][kHalves];
  const auto load_inputs = [&] {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (first_row + r >= args.num_rows) continue;
      if (threadIdx.x < args.num_sums)
        own_h[r] = load_now(args.lora.h + (first_row + r) * args.lora.h_stride + threadIdx.x);
      if (!has_output) continue;
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        base[r][half] = load_now(args.base + (first_row + r) * args.base_stride + column +
                                 half * args.num_outputs);
      }
    }
  };
  // Where no row seems to have an adapter, inputs are not loaded yet, so that the block can end as
  // soon as it knows.
  const bool expects_work = has_guess || kSiluMul || args.y != args.base;
  if (expects_work) load_inputs();
  int slots[kRows];
  bool has_any = kSiluMul || args.y != args.base;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    slots[r] = first_row + r < args.num_rows ? load_slot(adapters + r) : -1;
    has_any |= slots[r] >= 0;
  }
  if (!has_any) return;
  if (!expects_work) load_inputs();
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (slots[r] >= 0 && slots[r] != guesses[r] && has_output) fetch_slot(r, slots[r]);
    if (threadIdx.x < args.num_sums) h[r][threadIdx.x] = own_h[r];
  }
  __syncthreads();
  if (!has_output) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first_row + r;
    if (row >= args.num_rows) break;
    float values[kHalves];
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      values[half] = to_float(base[r][half]);
      if (slots[r] < 0) continue;
      const int output = column + half * args.num_outputs;
      const float* of_row = h[r] + lora_block_of(args.lora, output) * args.lora.rank;
      float sum = 0;
#pragma unroll
      for (int p = 0; p < kAhead; ++p) {
        if (p * kSize < args.lora.rank) add_lora_pack(weights[r][half][p], of_row + p * kSize, sum);
      }
      const T* b = lora_row(args.lora, slots[r], output);
      for (int k = kAhead * kSize; k < args.lora.rank; k += kSize)
        add_lora_pack<T>(load_pack(b + k), of_row + k, sum);
      values[half] = rounded_sum(base[r][half], sum);
    }
    T* y = args.y + row * args.y_stride + column;
    if constexpr (kSiluMul) {
      *y = from_float<T>(silu<T>(values[0]) * values[1]);
    } else {
      *y = from_float<T>(values[0]);
    }
  }
}

// A thread computes one column of the block's rows of y. With silu_mul it computes the column of
// the gate and the column that it gates, from which the column of y is made.
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

unsigned blocks_for(int64_t count, int64_t per_block) {
  return static_cast<unsigned>(div_up(count, per_block));
}

bool has_packed_rank(const KernelArgs& args) {
  return has_packed_lora(args.inputs["h"], args.inputs["b"], args.attrs);
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
          .num_sums = static_cast<int>(args.inputs["h"].row_elements()),
          .lora = lora_args<T>(args.inputs["h"], args.inputs["b"], args.inputs["adapters"],
                               args.attrs)};
}

// Binds a kernel whose blocks take `rows_each` rows each.
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

// With at most 8 rows, a block takes one row, so that many blocks share the reading of few
// adapters' weights. With more rows it takes several rows, so that it keeps enough bytes in flight.
template <typename T>
BoundLaunch bind_expand_rows_of(const KernelArgs& args) {
  constexpr int64_t kHandful = 8;
  const bool has_several = args.inputs["base"].num_rows() > kHandful;
  const ExpandArgs<T> expand = expand_args<T>(args);
  if (args.attrs.find("epilogue") == nullptr) {
    return has_several ? launch_expand<T>(expand, lora_expand_rows_kernel<T, 4, false>, 4)
                       : launch_expand<T>(expand, lora_expand_rows_kernel<T, 1, false>, 1);
  }
  return has_several ? launch_expand<T>(expand, lora_expand_rows_kernel<T, 2, true>, 2)
                     : launch_expand<T>(expand, lora_expand_rows_kernel<T, 1, true>, 1);
}

}  // namespace

bool accepts_expand_rows(const KernelArgs& args) {
  return args.inputs["base"].num_rows() < kManyRowsWithAdapters && has_packed_rank(args) &&
         args.inputs["h"].row_elements() <= kMostSums;
}

BoundLaunch bind_expand_rows(Device& /*device*/, const KernelArgs& args) {
  return visit_element(args.inputs["base"].dtype, [&](auto tag) {
    return bind_expand_rows_of<typename decltype(tag)::type>(args);
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

}  // namespace encore::cuda
