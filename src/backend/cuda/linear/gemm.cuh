// The kernel of gemm.cu: what the threads of a block do.
#pragma once

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/tensor_map.h"
#include "backend/cuda/wgmma.cuh"

namespace encore::cuda::gemm {

constexpr int kProductOutputs = 64;  // of a warpgroup's products
constexpr int kConsumers = 2;        // warpgroups that multiply
constexpr int kConsumerThreads = kConsumers * 128;
constexpr int kThreads = kConsumerThreads + 32;  // a warp copies
constexpr int kTileOutputs = kConsumers * kProductOutputs;
constexpr int kBlocks = 2;  // of a cluster: neighbours in the outputs, of the same rows
constexpr int kClusterOutputs = kBlocks * kTileOutputs;
// With silu_mul the rows of a tile's weights are by turns 8 gates and the 8 that they gate.
constexpr int kTurnRows = 8;
constexpr int kPairRows = 2 * kTurnRows;

template <typename T>
struct GemmArgs {
  int num_steps;  // of 64 columns
  int num_tiles;  // of a cluster
  int output_tiles;
  int row_tiles;
  int group_rows;  // row tiles that meet all outputs before the next do
  int num_outputs;
  bool silu_mul;  // stored is silu(gate) * up: half as many as the product's outputs
  const T* bias;  // null: none
  CUtensorMap weight;
  CUtensorMap x;
  CUtensorMap out;
};

// Shared memory of a block: a ring of stages, each 64 columns of the tile's weights and of its rows
// of x; finished outputs on their way out; barriers.
template <int kRows>
struct Layout {
  static_assert(kRows % 16 == 0 && kRows <= 256);
  static constexpr int kMostBytes = 227 * 1024;
  static constexpr int kWeightBytes = kTileOutputs * kBoxRowBytes;
  static constexpr int kXBytes = kRows * kBoxRowBytes;
  static constexpr int kStageBytes = kWeightBytes + kXBytes;
  // A box of 64 outputs: of a warpgroup half of the tile's rows at a time, or, with silu_mul, all
  // rows of the tile, whose outputs are half as many.
  static constexpr int kStagedRows = kRows / 2;
  static constexpr int kStagedBytes = kStagedRows * kBoxRowBytes;  // of a warpgroup
  static constexpr int kBarrierBytes = 1024;
  static constexpr int kStages =
      (kMostBytes - kConsumers * kStagedBytes - kBarrierBytes) / kStageBytes;
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
  [[nodiscard]] __device__ uint32_t full(uint32_t stage) const {
    return base + kBarriersAt + stage * 8;
  }
  [[nodiscard]] __device__ uint32_t empty(uint32_t stage) const { return full(kStages + stage); }

  // A stage is full when this block's copies and the other's have come, and empty when the warps
  // that multiply have left it in both blocks, as each block's copy of x goes to both.
  __device__ __forceinline__ void init() const {
    for (uint32_t i = 0; i < kStages; ++i) {
      init_barrier(full(i), 1);
      init_barrier(empty(i), kBlocks * kConsumerThreads / 32);
    }
    publish_barriers();
  }
};

// The corner of a block's part of a tile: its first output and its first row of x.
struct Corner {
  int output;
  int row;
};

template <int kRows, class Args>
__device__ __forceinline__ Corner corner(const Args& args, int tile, int rank) {
  const int group_tiles = args.group_rows * args.output_tiles;
  const int first_row = tile / group_tiles * args.group_rows;
  const int in_group = tile % group_tiles;
  const int rows = min(args.group_rows, args.row_tiles - first_row);
  return {(in_group / rows * kBlocks + rank) * kTileOutputs, (first_row + in_group % rows) * kRows};
}

// Copies as copy_box() does, to the same place in all blocks of the cluster, whose barriers get the
// bytes.
__device__ __forceinline__ void copy_box_to_cluster(uint32_t target, const CUtensorMap& map,
                                                    int3 at, uint32_t barrier) {
  constexpr uint16_t kAll = (1U << kBlocks) - 1;
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
      "cluster"
      " [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(target),
      "l"(&map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(barrier), "h"(kAll)
      : "memory");
}
// A box of a map whose rows come by turns, 8 of the gates' half of the weight and 8 of the other;
// `output` is the first in that order.
__device__ __forceinline__ void copy_pairs(uint32_t target, const CUtensorMap& map, int column,
                                           int output, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %3, %4, %3}], [%5];" ::"r"(target),
      "l"(&map), "r"(column), "r"(0), "r"(output / kPairRows), "r"(barrier)
      : "memory");
}
// Stores a box; what lies outside of the tensor is not written.
__device__ __forceinline__ void store_box(const CUtensorMap& map, int3 at, uint32_t source) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
      "r"(at.x), "r"(at.y), "r"(at.z), "r"(source)
      : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until this thread's stores have read their sources.
__device__ __forceinline__ void wait_for_stores_to_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Waits until what this thread has stored is written.
__device__ __forceinline__ void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// The thread that fills the ring.
template <typename T, int kRows>
struct Producer {
  using L = Layout<kRows>;
  static constexpr int kHalfRows = kRows / kBlocks;

  const GemmArgs<T>& args;
  L layout;
  int rank;
  int first_tile;
  int num_clusters;

  __device__ __forceinline__ void copy_weights(uint32_t stage, Corner at, int step) const {
    const uint32_t full = layout.full(stage);
    arrive_expecting(full, L::kStageBytes);
    if (args.silu_mul) {
      copy_pairs(layout.weights(stage), args.weight, step * kBoxColumns, at.output, full);
    } else {
      copy_box(layout.weights(stage), args.weight, make_int3(step * kBoxColumns, at.output, 0),
               full);
    }
  }
  // Copies this block's half of the rows, for both blocks.
  __device__ __forceinline__ void copy_x(uint32_t stage, Corner at, int step) const {
    const int first = rank * kHalfRows;
    copy_box_to_cluster(layout.x(stage) + static_cast<uint32_t>(first * kBoxRowBytes), args.x,
                        make_int3(step * kBoxColumns, at.row + first, 0), layout.full(stage));
  }
  // Runs the copies. Weights are constants, so the first stages' weights are copied while the
  // launch before still runs.
  __device__ __forceinline__ void run() const {
    const Corner first = corner<kRows>(args, first_tile, rank);
    const int ahead = min(args.num_steps, L::kStages);
    for (int step = 0; step < ahead; ++step)
      copy_weights(static_cast<uint32_t>(step), first, step);
    wait_for_inputs();
    Slot slot;
    for (; slot.number < static_cast<uint32_t>(ahead); ++slot.number)
      copy_x(slot.number, first, static_cast<int>(slot.number));
    if (slot.number == L::kStages) slot = {0, 1};
    int step = ahead;
    for (int tile = first_tile; tile < args.num_tiles; tile += num_clusters) {
      const Corner at = corner<kRows>(args, tile, rank);
      for (; step < args.num_steps; ++step) {
        wait_for_phase(layout.empty(slot.number), slot.parity ^ 1U);
        copy_weights(slot.number, at, step);
        copy_x(slot.number, at, step);
        slot.advance(L::kStages);
      }
      step = 0;
    }
  }
};

// Stores two 8 x 8 matrices of 16-bit elements, of which each lane has two neighbours in a row of
// each, with rows and columns exchanged. Lanes 0 to 7 say where each row of the first result goes,
// the next 8 those of the second.
__device__ __forceinline__ void store_two_transposed(uint32_t address, uint32_t first,
                                                     uint32_t second) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
               "r"(first), "r"(second)
               : "memory");
}

// A warpgroup that multiplies: 64 outputs of the tile, all of its rows. In lane l of warp w,
// sums[4 j + 2 h + i] is of output 16 w + 8 h + l / 4 and row 8 j + 2 (l % 4) + i.
template <typename T, int kRows>
struct Consumer {
  using L = Layout<kRows>;
  static constexpr int kRowBlocks = kRows / 8;

  const GemmArgs<T>& args;
  L layout;
  int rank;
  int warpgroup;
  int warp;  // of the warpgroup
  int lane;
  float sums[kRows / 2];

  __device__ __forceinline__ void release(uint32_t stage, uint32_t other_empty) const {
    if (lane != 0) return;
    arrive(layout.empty(stage));
    arrive_remote_relaxed(other_empty + stage * 8);
  }

  __device__ __forceinline__ void run(int first_tile, int num_clusters) {
    const uint32_t other_empty = address_at(layout.empty(0), static_cast<uint32_t>(1 - rank));
    Slot slot;
    for (int tile = first_tile; tile < args.num_tiles; tile += num_clusters) {
      const Corner at = corner<kRows>(args, tile, rank);
      add(slot, other_empty);
      finish(at);
    }
    if (threadIdx.x % 128 == 0) wait_for_stores();
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t weights(uint32_t stage) const {
    return describe_rows(layout.weights(stage) +
                         static_cast<uint32_t>(warpgroup) * kProductOutputs * kBoxRowBytes);
  }
  // Sets the sums to those of all steps of a tile.
  __device__ __forceinline__ void add(Slot& slot, uint32_t other_empty) {
    uint32_t last = 0;
    int step = 0;
    do {
      wait_for_phase(layout.full(slot.number), slot.parity);
      const uint32_t a = weights(slot.number);
      const uint32_t b = describe_rows(layout.x(slot.number));
      begin_products();
#pragma unroll
      for (int k = 0; k < kBoxColumns / 16; ++k)
        start_product<T, kRows>(sums, a + k * kNextColumns, b + k * kNextColumns,
                                step > 0 || k > 0 ? 1 : 0);
      commit_products();
      wait_for_products<1>();
      if (step > 0) release(last, other_empty);
      last = slot.number;
      slot.advance(L::kStages);
    } while (++step < args.num_steps);
    wait_for_products<0>();
    release(last, other_empty);
    settle(sums);
  }
  [[nodiscard]] __device__ __forceinline__ int first_output(Corner at) const {
    return at.output + warpgroup * kProductOutputs;
  }
  // The row of the weight that makes the output 16 warp + 8 h + lane / 4 of this warpgroup.
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
    // Lanes 0 to 7 have the first 8 outputs of the warp, the next 8 the others.
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

  // Stores the outputs of both warpgroups, which are 64 together.
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
  // The product is rounded before silu, as that of a launch of its own would be.
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
  const auto rank = static_cast<int>(cluster_rank());
  const int cluster = static_cast<int>(blockIdx.x) / kBlocks;
  const int num_clusters = static_cast<int>(gridDim.x) / kBlocks;
  // The warp's number, equal in all lanes in a way that the compiler knows: tensor cores take
  // uniform registers.
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x / 32), 0);
  if (threadIdx.x == 0) {
    layout.init();
    prefetch_map(args.out);
  }
  __syncwarp();
  arrive_at_cluster();
  wait_for_cluster();
  if (warp >= kConsumerThreads / 32) {
    if (warp == kConsumerThreads / 32 && elect_lane())
      Producer<T, kRows>{args, layout, rank, cluster, num_clusters}.run();
    __syncwarp();
  } else {
    Consumer<T, kRows>{args, layout, rank, warp / 4, warp % 4, static_cast<int>(threadIdx.x % 32)}
        .run(cluster, num_clusters);
  }
  // Neither block goes while the other may still copy to it or arrive at its barriers.
  arrive_at_cluster();
  wait_for_cluster();
}

}  // namespace encore::cuda::gemm
