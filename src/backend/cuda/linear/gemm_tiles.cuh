// Contains what the GEMMs for many rows, gemm.cuh and gemm_fp8.cuh, have in common. Clusters of two
// blocks walk over the tiles of a product. In each block one thread fills a ring of stages with
// copies, and two warpgroups multiply. Copies also store the boxes of finished outputs.
#pragma once

#include <algorithm>

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/tensor_map.h"

namespace encore::cuda::gemm {

constexpr int kConsumers = 2;  // warpgroups that multiply
constexpr int kConsumerThreads = kConsumers * 128;
constexpr int kConsumerWarps = kConsumerThreads / 32;
constexpr int kBlocks = 2;  // blocks of a cluster
// With silu_mul, the rows of a tile's weights alternate: 8 rows of the gates, then the 8 rows that
// they gate.
constexpr int kTurnRows = 8;
constexpr int kPairRows = 2 * kTurnRows;
constexpr int kMostSharedBytes = 227 * 1024;
constexpr int kBarrierBytes = 1024;  // for the ring's barriers

// The tiles of a product, in the order in which clusters take them. A cluster computes one tile at
// a time.
struct Tiles {
  int number;
  int of_outputs;
  int of_rows;
  int group_rows;  // these row tiles go through all outputs before the next row tiles begin

  struct Place {
    int row_tile;
    int output_tile;
  };
  [[nodiscard]] __device__ __forceinline__ Place at(int tile) const {
    const int group_tiles = group_rows * of_outputs;
    const int first_row = tile / group_tiles * group_rows;
    const int in_group = tile % group_tiles;
    const int rows = min(group_rows, of_rows - first_row);
    return {first_row + in_group % rows, in_group / rows};
  }
};

// Returns the tiles of a product. Shapes: tile_rows and tile_outputs are those of a cluster.
inline Tiles tiles_of(int64_t rows, int64_t tile_rows, int64_t outputs, int64_t tile_outputs) {
  // The largest number of rows that go through all outputs before the next rows begin. With more
  // rows, the data that concurrent tiles read would not fit the L2 cache.
  constexpr int64_t kMaxGroupRows = 2048;
  Tiles tiles{};
  tiles.of_outputs = static_cast<int>(div_up(outputs, tile_outputs));
  tiles.of_rows = static_cast<int>(div_up(rows, tile_rows));
  tiles.number = tiles.of_outputs * tiles.of_rows;
  tiles.group_rows = static_cast<int>(div_up(tiles.of_rows, div_up(rows, kMaxGroupRows)));
  return tiles;
}

// Returns a grid in which all clusters take equally many tiles, as far as the numbers allow.
inline Grid grid_of(const Tiles& tiles, int threads, int shared_bytes, int num_multiprocessors) {
  const int64_t most_clusters = num_multiprocessors / kBlocks;
  const int64_t num_clusters = div_up(tiles.number, div_up(tiles.number, most_clusters));
  return {.blocks = static_cast<unsigned>(num_clusters * kBlocks),
          .threads = static_cast<unsigned>(threads),
          .shared_bytes = static_cast<size_t>(shared_bytes),
          .cluster = kBlocks};
}

// The place of a thread in the grid of grid_of().
struct Worker {
  int rank;  // the block's rank in its cluster
  int cluster;
  int num_clusters;
  // The warp's index in the block. The compiler knows that all lanes have the same value, which it
  // must for the tensor cores, since they take uniform registers.
  int warp;

  [[nodiscard]] __device__ __forceinline__ bool multiplies() const { return warp < kConsumerWarps; }
  // Returns true in the one thread of the block that copies.
  [[nodiscard]] __device__ __forceinline__ bool copies() const {
    return warp == kConsumerWarps && elect_lane();
  }
};

// The barriers of a ring of stages, which lie at `base` in shared memory. A stage is full when
// kFillers threads of this block have arrived and the copies of both blocks have come. It is empty
// when the multiplying warps of all blocks have left it, because copies of a shared operand go to
// all blocks.
template <int kStages, int kFillers = 1>
struct StageBarriers {
  static_assert(2 * kStages * 8 <= kBarrierBytes);

  uint32_t base;
  int blocks = kBlocks;  // blocks of a cluster

  [[nodiscard]] __device__ __forceinline__ uint32_t full(uint32_t stage) const {
    return base + stage * 8;
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t empty(uint32_t stage) const {
    return full(kStages + stage);
  }
  __device__ __forceinline__ void init() const {
    for (uint32_t i = 0; i < kStages; ++i) {
      init_barrier(full(i), kFillers);
      init_barrier(empty(i), blocks * kConsumerWarps);
    }
    publish_barriers();
  }
  // Returns the address, in the cluster's other block, of the barrier at which stage 0 of that
  // block's ring is emptied.
  [[nodiscard]] __device__ __forceinline__ uint32_t other_empty(int rank) const {
    return address_at(empty(0), static_cast<uint32_t>(1 - rank));
  }
  // Tells all blocks that this lane's warp has left the stage. Only lane 0 of the warp does so.
  __device__ __forceinline__ void leave(uint32_t stage, uint32_t other_empty, int lane) const {
    if (lane != 0) return;
    arrive(empty(stage));
    if (blocks > 1) arrive_remote_relaxed(other_empty + stage * 8);
  }
};

// Copies a box as copy_box() (hopper.cuh) copies it, but to the same place in the shared memory of
// all blocks of the cluster. The barrier of each block counts the bytes.
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
// Copies a box of a map whose rows alternate: 8 rows of the weight's first half (the gates), then 8
// rows of its second half. `output` is the box's first row in that order.
__device__ __forceinline__ void copy_pairs(uint32_t target, const CUtensorMap& map, int column,
                                           int output, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %3, %4, %3}], [%5];" ::"r"(target),
      "l"(&map), "r"(column), "r"(0), "r"(output / kPairRows), "r"(barrier)
      : "memory");
}
// Copies a box of alternating gate and up rows as copy_pairs() does, but to the same place in the
// shared memory of all blocks of the cluster. The barrier of each block counts the bytes.
__device__ __forceinline__ void copy_pairs_to_cluster(uint32_t target, const CUtensorMap& map,
                                                      int column, int output, uint32_t barrier) {
  constexpr uint16_t kAll = (1U << kBlocks) - 1;
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
      "cluster"
      " [%0], [%1, {%2, %3, %3, %4, %3}], [%5], %6;" ::"r"(target),
      "l"(&map), "r"(column), "r"(0), "r"(output / kPairRows), "r"(barrier), "h"(kAll)
      : "memory");
}
// Stores two 8 x 8 matrices of 16-bit elements, transposed. Each lane holds two neighbours in a row
// of each matrix. Lanes 0 to 7 give the addresses of the first result's rows, and lanes 8 to 15
// those of the second.
__device__ __forceinline__ void store_two_transposed(uint32_t address, uint32_t first,
                                                     uint32_t second) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
               "r"(first), "r"(second)
               : "memory");
}

// Stores a box of outputs from shared memory in a tensor. Elements outside of the tensor are not
// written.
__device__ __forceinline__ void store_box(const CUtensorMap& map, int3 at, uint32_t source) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
      "r"(at.x), "r"(at.y), "r"(at.z), "r"(source)
      : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until this thread's box stores have read their shared memory, so that it may be written
// again.
__device__ __forceinline__ void wait_for_stores_to_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
// Waits until the data that this thread's copies stored has been written.
__device__ __forceinline__ void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Fills the ring with the operands of a cluster's tiles. For each stage it calls
// `copies.copy_weights(stage, corner of the tile, step)`, then `copies.copy_x(stage, corner,
// step)`. Weights are constants, so those of the first stages are copied while the launch in front
// still runs.
template <int kStages, class Copies>
__device__ __forceinline__ void fill_ring(const Copies& copies,
                                          const StageBarriers<kStages>& barriers, int num_steps,
                                          int num_tiles, const Worker& worker) {
  const auto first = copies.corner(worker.cluster);
  const int ahead = min(num_steps, kStages);
  for (int step = 0; step < ahead; ++step)
    copies.copy_weights(static_cast<uint32_t>(step), first, step);
  wait_for_inputs();
  Slot slot;
  for (; slot.number < static_cast<uint32_t>(ahead); ++slot.number)
    copies.copy_x(slot.number, first, static_cast<int>(slot.number));
  if (slot.number == kStages) slot = {0, 1};
  int step = ahead;
  for (int tile = worker.cluster; tile < num_tiles; tile += worker.num_clusters) {
    const auto at = copies.corner(tile);
#pragma unroll 1
    for (; step < num_steps; ++step) {
      wait_for_phase(barriers.empty(slot.number), slot.parity ^ 1U);
      copies.copy_weights(slot.number, at, step);
      copies.copy_x(slot.number, at, step);
      slot.advance(kStages);
    }
    step = 0;
  }
}

__device__ __forceinline__ void meet_in_cluster() {
  arrive_at_cluster();
  wait_for_cluster();
}

// Begins a kernel: initializes the barriers. When it returns, all blocks of the cluster know them.
template <class Barriers>
__device__ __forceinline__ Worker begin_gemm(const Barriers& barriers, const CUtensorMap& out) {
  const Worker worker{static_cast<int>(cluster_rank()),
                      static_cast<int>(blockIdx.x) / barriers.blocks,
                      static_cast<int>(gridDim.x) / barriers.blocks,
                      __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x / 32), 0)};
  if (threadIdx.x == 0) {
    barriers.init();
    prefetch_map(out);
  }
  __syncwarp();
  meet_in_cluster();
  return worker;
}
// Ends a kernel. Neither block exits while the other may still copy to it or arrive at its
// barriers.
__device__ __forceinline__ void end_gemm() {
  meet_in_cluster();
}

}  // namespace encore::cuda::gemm
