// The device code of gemm.cu's kernel.
#pragma once

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/gemm_tiles.cuh"
#include "backend/cuda/linear/tensor_map.h"
#include "backend/cuda/wgmma.cuh"

namespace encore::cuda::gemm {

constexpr int kProductOutputs = 64;              // outputs of a warpgroup's products
constexpr int kThreads = kConsumerThreads + 32;  // one more warp copies
constexpr int kTileOutputs = kConsumers * kProductOutputs;
// The outputs of a cluster's tile. The two blocks work on neighbouring outputs of the same rows.
constexpr int kClusterOutputs = kBlocks * kTileOutputs;

template <typename T>
struct GemmArgs {
  int num_steps;  // steps of 64 columns
  Tiles tiles;
  int num_outputs;
  bool silu_mul;  // the kernel stores silu(gate) * up: half as many outputs as the product has
  const T* bias;  // null: none
  CUtensorMap weight;
  CUtensorMap x;
  CUtensorMap out;
};

// The layout of a block's shared memory. It holds a ring of stages, each with 64 columns of the
// tile's weights and of its rows of x; finished outputs on their way out; and barriers.
template <int kRows>
struct Layout {
  static_assert(kRows % 16 == 0 && kRows <= 256);
  static constexpr int kWeightBytes = kTileOutputs * kBoxRowBytes;
  static constexpr int kXBytes = kRows * kBoxRowBytes;
  static constexpr int kStageBytes = kWeightBytes + kXBytes;
  // A warpgroup stages its 64 outputs of half of the tile's rows at a time, in one box in shared
  // memory. With silu_mul, where the tile has half as many outputs, the two warpgroups together
  // stage all its rows in one box.
  static constexpr int kStagedRows = kRows / 2;
  static constexpr int kStagedBytes = kStagedRows * kBoxRowBytes;  // for each warpgroup
  static constexpr int kStages =
      (kMostSharedBytes - kConsumers * kStagedBytes - kBarrierBytes) / kStageBytes;
  static constexpr int kStagingAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kStagingAt + kConsumers * kStagedBytes;
  static constexpr int kBytes = kBarriersAt + kBarrierBytes;

  uint32_t base;

  [[nodiscard]] __device__ uint32_t weights(uint32_t stage) const {
    return base + stage * kStageBytes;
  }
  [[nodiscard]] __device__ uint32_t x(uint32_t stage) const {
    return weights(stage) + kWeightBytes;
  }
  [[nodiscard]] __device__ uint32_t staging(int warpgroup) const {
    return base + kStagingAt + static_cast<uint32_t>(warpgroup * kStagedBytes);
  }
  [[nodiscard]] __device__ StageBarriers<kStages> barriers() const { return {base + kBarriersAt}; }
};

// The corner of a block's part of a tile: its first output and its first row of x.
struct Corner {
  int output;
  int row;
};

template <int kRows>
__device__ __forceinline__ Corner corner_of(const Tiles& tiles, int tile, int rank) {
  const Tiles::Place at = tiles.at(tile);
  return {(at.output_tile * kBlocks + rank) * kTileOutputs, at.row_tile * kRows};
}

// The copies that fill_ring() runs. This block copies half of the tile's rows of x to both blocks.
template <typename T, int kRows>
struct Copies {
  using L = Layout<kRows>;
  static constexpr int kHalfRows = kRows / kBlocks;

  const GemmArgs<T>& args;
  L layout;
  int rank;

  [[nodiscard]] __device__ __forceinline__ Corner corner(int tile) const {
    return corner_of<kRows>(args.tiles, tile, rank);
  }
  __device__ __forceinline__ void copy_weights(uint32_t stage, Corner at, int step) const {
    const uint32_t full = layout.barriers().full(stage);
    arrive_expecting(full, L::kStageBytes);
    if (args.silu_mul) {
      copy_pairs(layout.weights(stage), args.weight, step * kBoxColumns, at.output, full);
    } else {
      copy_box(layout.weights(stage), args.weight, make_int3(step * kBoxColumns, at.output, 0),
               full);
    }
  }
  __device__ __forceinline__ void copy_x(uint32_t stage, Corner at, int step) const {
    const int first = rank * kHalfRows;
    copy_box_to_cluster(layout.x(stage) + static_cast<uint32_t>(first * kBoxRowBytes), args.x,
                        make_int3(step * kBoxColumns, at.row + first, 0),
                        layout.barriers().full(stage));
  }
};

// A warpgroup that multiplies. It computes 64 outputs of the tile for all of its rows. In lane l of
// warp w, sums[4 j + 2 h + i] belongs to output 16 w + 8 h + l / 4 and row 8 j + 2 (l % 4) + i.
template <typename T, int kRows>
struct Consumer {
  using L = Layout<kRows>;
  static constexpr int kRowBlocks = kRows / 8;

  const GemmArgs<T>& args;
  L layout;
  int warpgroup;
  int warp;  // the warp's index in the warpgroup
  int lane;
  float sums[kRows / 2];

  __device__ __forceinline__ void run(const Worker& worker) {
    const uint32_t other_empty = layout.barriers().other_empty(worker.rank);
    Slot slot;
    for (int tile = worker.cluster; tile < args.tiles.number; tile += worker.num_clusters) {
      const Corner at = corner_of<kRows>(args.tiles, tile, worker.rank);
      add(slot, other_empty);
      finish(at);
    }
    if (threadIdx.x % 128 == 0) wait_for_stores();
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t weights(uint32_t stage) const {
    return describe_rows(layout.weights(stage) +
                         static_cast<uint32_t>(warpgroup) * kProductOutputs * kBoxRowBytes);
  }
  // Computes the sums of a tile over all its steps.
  __device__ __forceinline__ void add(Slot& slot, uint32_t other_empty) {
    const auto barriers = layout.barriers();
    uint32_t last = 0;
    int step = 0;
    do {
      wait_for_phase(barriers.full(slot.number), slot.parity);
      const uint32_t a = weights(slot.number);
      const uint32_t b = describe_rows(layout.x(slot.number));
      begin_products();
#pragma unroll
      for (int k = 0; k < kBoxColumns / 16; ++k)
        start_product<T, kRows>(sums, a + k * kNextColumns, b + k * kNextColumns,
                                step > 0 || k > 0 ? 1 : 0);
      commit_products();
      wait_for_products<1>();
      if (step > 0) barriers.leave(last, other_empty, lane);
      last = slot.number;
      slot.advance(L::kStages);
    } while (++step < args.num_steps);
    wait_for_products<0>();
    barriers.leave(last, other_empty, lane);
    settle(sums);
  }
  [[nodiscard]] __device__ __forceinline__ int first_output(Corner at) const {
    return at.output + warpgroup * kProductOutputs;
  }
  // Returns the row of the weight that makes output 16 warp + 8 h + lane / 4 of this warpgroup.
  [[nodiscard]] __device__ __forceinline__ int weight_row(Corner at, int h) const {
    const int output = first_output(at) + 16 * warp + 8 * h + lane / 4;
    if (!args.silu_mul) return output;
    return output / kPairRows * kTurnRows + lane / 4 + h * args.num_outputs / 2;
  }
  __device__ __forceinline__ void add_bias(Corner at) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = weight_row(at, h);
      if (row >= args.num_outputs) continue;
      const float bias = to_float(args.bias[row]);
#pragma unroll
      for (int j = 0; j < kRowBlocks; ++j) {
        sums[4 * j + 2 * h] += bias;
        sums[4 * j + 2 * h + 1] += bias;
      }
    }
  }

  __device__ __forceinline__ void finish(Corner at) {
    if (args.bias != nullptr) add_bias(at);
    if (args.silu_mul) {
      store_gated(at);
    } else {
      store(at);
    }
  }

  // Stores the warpgroup's outputs, half of the rows at a time.
  __device__ __forceinline__ void store(Corner at) {
    const int barrier = 1 + warpgroup;
    const bool stores = threadIdx.x % 128 == 0;
    // Lanes 0 to 7 give the addresses for the warp's first 8 outputs, and lanes 8 to 15 those for
    // its other 8 outputs.
    const uint32_t piece = static_cast<uint32_t>(2 * warp + lane / 8 % 2);
    const uint32_t target = layout.staging(warpgroup) +
                            static_cast<uint32_t>(lane % 8) * kBoxRowBytes +
                            (piece ^ static_cast<uint32_t>(lane % 8)) * 16;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (stores) wait_for_stores_to_read();
      meet_at<128>(barrier);
#pragma unroll
      for (int i = 0; i < kRowBlocks / 2; ++i) {
        const int j = half * (kRowBlocks / 2) + i;
        store_two_transposed(target + i * 8 * kBoxRowBytes,
                             pack_pair<T>(sums[4 * j], sums[4 * j + 1]),
                             pack_pair<T>(sums[4 * j + 2], sums[4 * j + 3]));
      }
      publish_to_copies();
      meet_at<128>(barrier);
      if (stores)
        store_box(args.out, make_int3(first_output(at), at.row + half * L::kStagedRows, 0),
                  layout.staging(warpgroup));
    }
  }

  // Stores the outputs of both warpgroups, which have 64 together after silu_mul.
  __device__ __forceinline__ void store_gated(Corner at) {
    constexpr int kBarrier = 1 + kConsumers;
    const bool stores = threadIdx.x == 0;
    const uint32_t piece = static_cast<uint32_t>(4 * warpgroup + warp);
    const uint32_t target = layout.staging(0) + static_cast<uint32_t>(lane % 16) * kBoxRowBytes +
                            (piece ^ static_cast<uint32_t>(lane % 8)) * 16;
    if (stores) wait_for_stores_to_read();
    meet_at<kConsumerThreads>(kBarrier);
#pragma unroll
    for (int j = 0; j < kRowBlocks; j += 2) {
      store_two_transposed(target + j * 8 * kBoxRowBytes, gated(j), gated(j + 1));
    }
    publish_to_copies();
    meet_at<kConsumerThreads>(kBarrier);
    if (stores) store_box(args.out, make_int3(at.output / 2, at.row, 0), layout.staging(0));
  }
  // Applies silu_mul. The products are rounded first, as they are where silu_mul is a launch of its
  // own.
  [[nodiscard]] __device__ __forceinline__ uint32_t gated(int j) const {
    const float2 gates = unpack_pair<T>(pack_pair<T>(sums[4 * j], sums[4 * j + 1]));
    const float2 ups = unpack_pair<T>(pack_pair<T>(sums[4 * j + 2], sums[4 * j + 3]));
    return pack_pair<T>(silu<T>(gates.x) * ups.x, silu<T>(gates.y) * ups.y);
  }
};

template <typename T, int kRows>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_kernel(const __grid_constant__ GemmArgs<T> args) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const Layout<kRows> layout{shared_address(shared)};
  allow_next_kernel();
  const Worker worker = begin_gemm(layout.barriers(), args.out);
  if (worker.multiplies()) {
    Consumer<T, kRows>{args, layout, worker.warp / 4, worker.warp % 4,
                       static_cast<int>(threadIdx.x % 32)}
        .run(worker);
  } else {
    if (worker.copies())
      fill_ring(Copies<T, kRows>{args, layout, worker.rank}, layout.barriers(), args.num_steps,
                args.tiles.number, worker);
    __syncwarp();
  }
  end_gemm();
}

}  // namespace encore::cuda::gemm
