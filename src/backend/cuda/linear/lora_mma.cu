// Kernels of lora_shrink and lora_expand for many rows, on tensor cores. A warp takes 16 rows at a
// time and finds out which adapter slots they have. Mostly there is only one, as neighbouring rows
// are tokens of one sequence. The warp multiplies all 16 rows by the weights in each of these
// slots, and each row keeps the sums of its own slot.
//
// A dot product may take its columns in any order, if both operands use the same order. So a lane
// loads 16 bytes of a row at once, where the tensor cores' layout (mma.cuh) would make it load 4.
// Of 32 columns, lane t of four has columns 8 t to 8 t + 7. The outputs of lora_expand are dealt to
// lanes in the same way.
//
// A row's sums have one order, whichever rows stand beside it.
#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/linear/lora.cuh"
#include "backend/cuda/linear/lora.h"
#include "backend/cuda/mma.cuh"

namespace encore::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kTileRows = 16;
constexpr int kTileSums = 8;      // columns of a product's second operand
constexpr int kStepColumns = 32;  // columns of x that a warp takes at a time
constexpr int kWarpOutputs = 32;
constexpr int kRankStep = 16;
// The number of blocks that share the adapter slots of a tile's 16 rows. Beside a prompt, sequences
// that decode may have a slot of their own each, and one slot takes a block 2 to 4 us.
constexpr int kSlotBlocks = 8;

// Returns, in lanes 0 to 15 of a warp, the adapter slots of a tile's 16 rows. -1 stands for a row
// without an adapter, or for no row.
__device__ __forceinline__ int load_slots(const int32_t* adapters, int first_row, int num_rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return lane < kTileRows && first_row + lane < num_rows ? adapters[first_row + lane] : -1;
}

// Calls `visit(slot)` for each different adapter slot that lanes 0 to 15 of the warp hold, in the
// order of rows. Where several blocks share the adapter slots (blockIdx.z), each block visits only
// its own share.
template <class Visit>
__device__ __forceinline__ void for_each_slot(int slot_of_lane, Visit visit) {
  unsigned left = __ballot_sync(0xffffffffU, slot_of_lane >= 0);
  int others = static_cast<int>(blockIdx.z);  // adapter slots to skip before this block's next one
#pragma unroll 1
  while (left != 0) {
    const int slot = __shfl_sync(0xffffffffU, slot_of_lane, __ffs(static_cast<int>(left)) - 1);
    left &= ~__ballot_sync(0xffffffffU, slot_of_lane == slot);
    if (--others >= 0) continue;
    others = static_cast<int>(gridDim.z) - 1;
    visit(slot);
  }
}

template <typename T>
struct ManyShrinkArgs {
  const T* x;
  int64_t x_stride;
  const T* a;
  int64_t slot_stride;
  const int32_t* adapters;
  float* h;
  int64_t h_stride;
  int num_rows;
  int num_columns;
  int num_sums;
};

// Computes x times A of adapters. A block takes 16 rows and, of each row, kTiles x 8 of the sums.
// Of the different adapter slots that these rows have, it takes every kSlotBlocks-th. For each of
// these slots, the warps share the columns of x, and then their partial sums are added up.
template <typename T, int kTiles>
__global__ void __launch_bounds__(kThreads)
    lora_shrink_tile_kernel(const __grid_constant__ ManyShrinkArgs<T> args) {
  constexpr int kSums = kTiles * kTileSums;
  __shared__ float partial[kWarps][kTileRows][kSums];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int first_row = static_cast<int>(blockIdx.y) * kTileRows;
  const int first_sum = static_cast<int>(blockIdx.x) * kSums;
  begin_kernel();
  const int slot_of_lane = load_slots(args.adapters, first_row, args.num_rows);
  // Rows beyond the last row of x, and sums beyond the last sum of a row, are computed from the
  // data of the last one. Their results are not stored.
  const auto row_of = [&](int row) {
    return args.x + min(first_row + row, args.num_rows - 1) * args.x_stride + t * 8;
  };
  const T* const upper = row_of(g);
  const T* const lower = row_of(g + 8);
  for_each_slot(slot_of_lane, [&](int slot) {
    float sums[kTiles][4] = {};
    const T* a[kTiles];
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int sum = min(first_sum + j * kTileSums + g, args.num_sums - 1);
      a[j] =
          args.a + slot * args.slot_stride + static_cast<int64_t>(sum) * args.num_columns + t * 8;
    }
#pragma unroll 2
    for (int column = warp * kStepColumns; column < args.num_columns;
         column += kWarps * kStepColumns) {
      const uint4 above = *reinterpret_cast<const uint4*>(upper + column);
      const uint4 below = *reinterpret_cast<const uint4*>(lower + column);
      uint4 of_a[kTiles];
#pragma unroll
      for (int j = 0; j < kTiles; ++j)
        of_a[j] = *reinterpret_cast<const uint4*>(a[j] + column);
      const uint32_t even[4] = {above.x, below.x, above.y, below.y};
      const uint32_t odd[4] = {above.z, below.z, above.w, below.w};
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        multiply_add<T>(sums[j], even, of_a[j].x, of_a[j].y);
        multiply_add<T>(sums[j], odd, of_a[j].z, of_a[j].w);
      }
    }
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int sum = j * kTileSums + 2 * t;
      *reinterpret_cast<float2*>(&partial[warp][g][sum]) = {sums[j][0], sums[j][1]};
      *reinterpret_cast<float2*>(&partial[warp][g + 8][sum]) = {sums[j][2], sums[j][3]};
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kSums; i += kThreads) {
      const int row = i / kSums;
      const int sum = i % kSums;
      if (first_row + row >= args.num_rows || first_sum + sum >= args.num_sums) continue;
      if (args.adapters[first_row + row] != slot) continue;
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w)
        total += partial[w][row][sum];
      args.h[(first_row + row) * args.h_stride + first_sum + sum] = total;
    }
    __syncthreads();  // the sums have been read
  });
}

template <typename T>
struct ManyExpandArgs {
  const T* base;
  int64_t base_stride;
  T* y;  // may be the same memory as base
  int64_t y_stride;
  int num_rows;
  int num_outputs;  // outputs of y
  LoraArgs<T> lora;
};

// The numbers h of a tile's 16 rows (x times A, in float) as the first operand of a product, which
// has 16 bits. So each number is split into the part that 16 bits hold and the remainder, and both
// are multiplied.
template <typename T>
struct SplitH {
  uint32_t high[4];
  uint32_t low[4];

  // `upper` and `lower` are the lane's four numbers h of row g and of row g + 8 of the tile, where
  // g = lane / 4.
  __device__ __forceinline__ SplitH(const float4& upper, const float4& lower) {
    split(upper.x, upper.y, 0);
    split(lower.x, lower.y, 1);
    split(upper.z, upper.w, 2);
    split(lower.z, lower.w, 3);
  }
  __device__ __forceinline__ void split(float first, float second, int i) {
    high[i] = pack_pair<T>(first, second);
    const float2 rounded = unpack_pair<T>(high[i]);
    low[i] = pack_pair<T>(first - rounded.x, second - rounded.y);
  }
};

// The sums that adapters add to 16 rows and 32 outputs from `output` on, held by a warp. With g =
// lane / 4 and t = lane % 4, a lane has 8 outputs of rows g and g + 8, which begin with output 8 t.
// sums[j] has outputs 8 t + 2 j and 8 t + 2 j + 1, first of row g, then of row g + 8.
template <typename T>
struct ExpandedTile {
  float sums[4][4] = {};

  __device__ __forceinline__ void add(const LoraArgs<T>& args, int slot_of_lane, int first_row,
                                      int num_rows, int output) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int g = lane / 4;
    const int t = lane % 4;
    const int upper_slot = __shfl_sync(0xffffffffU, slot_of_lane, g);
    const int lower_slot = __shfl_sync(0xffffffffU, slot_of_lane, g + 8);
    const int block = lora_block_of(args, output);
    const auto h_of = [&](int row) {
      return args.h + min(first_row + row, num_rows - 1) * args.h_stride + block * args.rank +
             t * 4;
    };
    const float* const upper = h_of(g);
    const float* const lower = h_of(g + 8);
    for_each_slot(slot_of_lane, [&](int slot) {
      float own[4][4] = {};
#pragma unroll 1
      for (int k = 0; k < args.rank; k += kRankStep) {
        const auto load_h = [&](const float* h, bool is_own) {
          return is_own ? *reinterpret_cast<const float4*>(h + k) : float4{};
        };
        const SplitH<T> h(load_h(upper, upper_slot == slot), load_h(lower, lower_slot == slot));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const T* b = lora_row(args, slot, output + g / 2 * 8 + j * 2 + g % 2) + k + t * 4;
          const uint2 of_b = *reinterpret_cast<const uint2*>(b);
          multiply_add<T>(own[j], h.low, of_b.x, of_b.y);
          multiply_add<T>(own[j], h.high, of_b.x, of_b.y);
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if ((i < 2 ? upper_slot : lower_slot) == slot) sums[j][i] = own[j][i];
        }
      }
    });
  }
  // Returns a pack of base with the adapter's part added and rounded, or unchanged if the row has
  // no adapter. `half` is 0 for row g = lane / 4, and 1 for row g + 8.
  [[nodiscard]] __device__ __forceinline__ Pack<T> onto(const Pack<T>& base, bool has_adapter,
                                                        int half) const {
    if (!has_adapter) return base;
    float values[8];
    unpack(base, values);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      values[i] += sums[i / 2][half * 2 + i % 2];
    return to_pack<T>(values);
  }
};

// A warp computes 16 rows and 32 outputs. With silu_mul it computes 32 gates and the 32 columns
// that they gate, from which the outputs are made.
template <typename T, bool kSiluMul>
__global__ void __launch_bounds__(kThreads)
    lora_expand_tile_kernel(const __grid_constant__ ManyExpandArgs<T> args) {
  constexpr int kHalves = kSiluMul ? 2 : 1;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const int first_row = static_cast<int>(blockIdx.y) * kTileRows;
  const int output = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32) * kWarpOutputs;
  begin_kernel();
  if (output >= args.num_outputs) return;
  const int slot_of_lane = load_slots(args.lora.adapters, first_row, args.num_rows);
  const bool has_any = __any_sync(0xffffffffU, slot_of_lane >= 0);
  if (!has_any && !kSiluMul && args.y == args.base) return;
  const bool has_adapter[2] = {__shfl_sync(0xffffffffU, slot_of_lane, g) >= 0,
                               __shfl_sync(0xffffffffU, slot_of_lane, g + 8) >= 0};
  Pack<T> packs[kHalves][2];
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = min(first_row + g + 8 * i, args.num_rows - 1);
      packs[half][i] =
          load_pack(args.base + row * args.base_stride + output + half * args.num_outputs + t * 8);
    }
  }
  if (has_any) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      ExpandedTile<T> tile;
      tile.add(args.lora, slot_of_lane, first_row, args.num_rows, output + half * args.num_outputs);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        packs[half][i] = tile.onto(packs[half][i], has_adapter[i], i);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + g + 8 * i;
    if (row >= args.num_rows) continue;
    Pack<T> pack = packs[0][i];
    if constexpr (kSiluMul) {
      float gates[8];
      float ups[8];
      unpack(packs[0][i], gates);
      unpack(packs[1][i], ups);
#pragma unroll
      for (int k = 0; k < 8; ++k)
        gates[k] = silu<T>(gates[k]) * ups[k];
      pack = to_pack<T>(gates);
    }
    store_pack(args.y + row * args.y_stride + output + t * 8, pack);
  }
}

bool has_16_bits(const TensorView& view) {
  return view.dtype == DType::kF16 || view.dtype == DType::kBF16;
}

// Calls `visit(TypeTag<T>{})` with the C++ type of a 16-bit dtype.
template <typename Visitor>
BoundLaunch visit_16_bits(DType dtype, Visitor&& visit) {
  return dtype == DType::kF16 ? visit(TypeTag<__half>{}) : visit(TypeTag<__nv_bfloat16>{});
}

template <typename T, int kTiles>
BoundLaunch launch_shrink_tile(const ManyShrinkArgs<T>& shrink) {
  const Grid grid{
      .blocks = {static_cast<unsigned>(div_up(shrink.num_sums, kTiles * kTileSums)),
                 static_cast<unsigned>(div_up(shrink.num_rows, kTileRows)), kSlotBlocks},
      .threads = kThreads};
  return [shrink, grid](Stream& stream, const StepLengths&) {
    launch(stream, grid, lora_shrink_tile_kernel<T, kTiles>, shrink);
  };
}

}  // namespace

bool accepts_shrink_tile(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& a = args.inputs["a"];
  return !args.batch_invariant && x.num_rows() >= kManyRowsWithAdapters && has_16_bits(x) &&
         x.row_elements() % kStepColumns == 0 && is_aligned(x) && is_aligned(a);
}

BoundLaunch bind_shrink_tile(Device& /*device*/, const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& a = args.inputs["a"];
  const TensorView& h = args.outputs["h"];
  return visit_16_bits(x.dtype, [&](auto tag) -> BoundLaunch {
    using T = typename decltype(tag)::type;
    const ManyShrinkArgs<T> shrink{.x = x.as<const T>(),
                                   .x_stride = x.row_stride,
                                   .a = a.as<const T>(),
                                   .slot_stride = a.row_stride,
                                   .adapters = args.inputs["adapters"].as<const int32_t>(),
                                   .h = h.as<float>(),
                                   .h_stride = h.row_stride,
                                   .num_rows = static_cast<int>(x.num_rows()),
                                   .num_columns = static_cast<int>(x.row_elements()),
                                   .num_sums = static_cast<int>(a.shape[1])};
    const int64_t tiles = div_up(a.shape[1], kTileSums);
    if (tiles <= 2) return launch_shrink_tile<T, 2>(shrink);
    if (tiles <= 4) return launch_shrink_tile<T, 4>(shrink);
    return launch_shrink_tile<T, 6>(shrink);
  });
}

bool accepts_expand_tile(const KernelArgs& args) {
  const TensorView& base = args.inputs["base"];
  const TensorView& b = args.inputs["b"];
  const TensorView& y = args.outputs["y"];
  const auto ends = lora_block_ends(args.attrs, b.shape[1]);
  return !args.batch_invariant && base.num_rows() >= kManyRowsWithAdapters && has_16_bits(base) &&
         b.shape[2] % kRankStep == 0 && has_packed_lora(args.inputs["h"], b, args.attrs) &&
         is_aligned(base) && is_aligned(y) && y.row_elements() % kWarpOutputs == 0 &&
         std::ranges::all_of(ends, [](int64_t end) { return end % kWarpOutputs == 0; });
}

BoundLaunch bind_expand_tile(Device& /*device*/, const KernelArgs& args) {
  const TensorView& base = args.inputs["base"];
  const TensorView& y = args.outputs["y"];
  const bool has_silu_mul = args.attrs.find("epilogue") != nullptr;
  return visit_16_bits(base.dtype, [&](auto tag) -> BoundLaunch {
    using T = typename decltype(tag)::type;
    const ManyExpandArgs<T> expand{.base = base.as<const T>(),
                                   .base_stride = base.row_stride,
                                   .y = y.as<T>(),
                                   .y_stride = y.row_stride,
                                   .num_rows = static_cast<int>(base.num_rows()),
                                   .num_outputs = static_cast<int>(y.row_elements()),
                                   .lora = lora_args<T>(args.inputs["h"], args.inputs["b"],
                                                        args.inputs["adapters"], args.attrs)};
    const Grid grid{
        .blocks = {static_cast<unsigned>(div_up(expand.num_outputs, kWarps * kWarpOutputs)),
                   static_cast<unsigned>(div_up(expand.num_rows, kTileRows))},
        .threads = kThreads};
    const auto kernel =
        has_silu_mul ? lora_expand_tile_kernel<T, true> : lora_expand_tile_kernel<T, false>;
    return [expand, grid, kernel](Stream& stream, const StepLengths&) {
      launch(stream, grid, kernel, expand);
    };
  });
}

}  // namespace encore::cuda
