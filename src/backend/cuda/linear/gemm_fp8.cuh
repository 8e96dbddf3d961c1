// The device code of gemm_fp8.cu's kernel.
#pragma once

#include "backend/cuda/fp8.h"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/gemm_tiles.cuh"
#include "backend/cuda/linear/tensor_map.h"
#include "backend/cuda/linear/turns.cuh"
#include "backend/cuda/wgmma.cuh"
#include "base/scale_block.h"

namespace encore::cuda::gemm_fp8 {

using gemm::kBarrierBytes;
using gemm::kBlocks;
using gemm::kConsumers;
using gemm::kMostSharedBytes;
using gemm::kTurnRows;
using gemm::StageBarriers;
using gemm::Tiles;
using gemm::Worker;

constexpr int kPartRows = 64;  // rows of a warpgroup's products
constexpr int kTileRows = kConsumers * kPartRows;
constexpr int kThreads = gemm::kConsumerThreads + 128;  // the last warpgroup copies
// The warpgroup that copies gives up registers, which the multiplying warpgroups take.
constexpr int kRegistersOfCopies = 40;
constexpr int kRegistersOfProducts = 232;
constexpr int kStepColumns = kBoxRowBytes;  // codes
constexpr int kStoredColumns = 32;          // columns of a box of finished outputs

template <typename T>
struct GemmArgs {
  int num_steps;  // steps of as many columns as a box has
  Tiles tiles;
  int num_outputs;
  bool silu_mul;  // the kernel stores silu(gate) * up: half as many outputs as the product has
  // Is true where a cluster's blocks work on neighbouring rows for the same outputs, so that they
  // share weights. Otherwise they work on neighbouring outputs of the same rows, and share x. Each
  // copies half of the shared operand for both.
  bool shares_weight;
  const T* bias;  // null: none
  // The weight has a scale for each output or, where scale_columns is not 0, one for each block of
  // 128 outputs and 128 columns. The scales of x are ordered by boxes of 128 columns, then by rows.
  const float* weight_scale;
  int scale_columns;
  const float* x_scale;
  int x_scale_stride;
  CUtensorMap weight;
  CUtensorMap x;
  CUtensorMap out;
};

// The layout of a block's shared memory. It holds a ring of stages, each with one box's columns of
// the tile's rows of x and of its weights, and the scales of these rows; finished outputs on their
// way out; and barriers.
template <int kOutputs>
struct Layout {
  static_assert(kOutputs % kStoredColumns == 0 && kOutputs <= 192);
  static constexpr int kXBytes = kTileRows * kBoxRowBytes;
  static constexpr int kWeightBytes = kOutputs * kBoxRowBytes;
  static constexpr int kStageBytes = kXBytes + kWeightBytes;
  static constexpr int kScalesBytes = kTileRows * 4;
  static constexpr int kStagedBoxBytes = kPartRows * kStoredColumns * 2;
  // The bytes of staging memory for each warpgroup.
  static constexpr int kStagedBytes = kOutputs / kStoredColumns * kStagedBoxBytes;
  static constexpr int kStages =
      (kMostSharedBytes - kConsumers * kStagedBytes - kBarrierBytes) / (kStageBytes + kScalesBytes);
  static constexpr int kStagingAt = kStages * kStageBytes;
  static constexpr int kScalesAt = kStagingAt + kConsumers * kStagedBytes;
  static constexpr int kBarriersAt = kScalesAt + kStages * kScalesBytes;
  static constexpr int kBytes = kBarriersAt + kBarrierBytes;

  uint32_t base;

  [[nodiscard]] __device__ uint32_t x(uint32_t stage) const { return base + stage * kStageBytes; }
  [[nodiscard]] __device__ uint32_t weights(uint32_t stage) const { return x(stage) + kXBytes; }
  [[nodiscard]] __device__ uint32_t scales(uint32_t stage) const {
    return base + kScalesAt + stage * kScalesBytes;
  }
  [[nodiscard]] __device__ uint32_t staging(int warpgroup) const {
    return base + kStagingAt + static_cast<uint32_t>(warpgroup * kStagedBytes);
  }
  [[nodiscard]] __device__ StageBarriers<kStages> barriers() const { return {base + kBarriersAt}; }
};

// The corner of a block's part of a tile: its first row of x and its first output. With silu_mul,
// outputs are counted as they lie in a tile: 8 gates, the 8 outputs that they gate, the next 8
// gates.
struct Corner {
  int row;
  int output;
};

template <int kOutputs, class Args>
__device__ __forceinline__ Corner corner_of(const Args& args, int tile, int rank) {
  const Tiles::Place at = args.tiles.at(tile);
  if (args.shares_weight)
    return {(at.row_tile * kBlocks + rank) * kTileRows, at.output_tile * kOutputs};
  return {at.row_tile * kTileRows, (at.output_tile * kBlocks + rank) * kOutputs};
}

// The copies that gemm::fill_ring() runs. This block copies half of the operand that the cluster's
// blocks share to both of them.
template <typename T, int kOutputs>
struct Copies {
  using L = Layout<kOutputs>;

  const GemmArgs<T>& args;
  L layout;
  int rank;

  [[nodiscard]] __device__ __forceinline__ Corner corner(int tile) const {
    return corner_of<kOutputs>(args, tile, rank);
  }
  __device__ __forceinline__ void copy_weights(uint32_t stage, Corner at, int step) const {
    const uint32_t full = layout.barriers().full(stage);
    arrive_expecting(full, L::kStageBytes + scales_bytes(at));
    const int column = step * kStepColumns;
    if (!args.shares_weight) {
      if (args.silu_mul) {
        gemm::copy_pairs(layout.weights(stage), args.weight, column, at.output, full);
      } else {
        copy_box(layout.weights(stage), args.weight, make_int3(column, at.output, 0), full);
      }
      return;
    }
    const int first = rank * (kOutputs / kBlocks);
    const uint32_t target = layout.weights(stage) + static_cast<uint32_t>(first * kBoxRowBytes);
    if (args.silu_mul) {
      gemm::copy_pairs_to_cluster(target, args.weight, column, at.output + first, full);
    } else {
      gemm::copy_box_to_cluster(target, args.weight, make_int3(column, at.output + first, 0), full);
    }
  }
  __device__ __forceinline__ void copy_x(uint32_t stage, Corner at, int step) const {
    const uint32_t full = layout.barriers().full(stage);
    const int column = step * kStepColumns;
    if (args.shares_weight) {
      copy_box(layout.x(stage), args.x, make_int3(column, at.row, 0), full);
    } else {
      const int first = rank * (kTileRows / kBlocks);
      gemm::copy_box_to_cluster(layout.x(stage) + static_cast<uint32_t>(first * kBoxRowBytes),
                                args.x, make_int3(column, at.row + first, 0), full);
    }
    if (const uint32_t bytes = scales_bytes(at); bytes > 0)
      copy_bytes(layout.scales(stage), args.x_scale + int64_t{step} * args.x_scale_stride + at.row,
                 bytes, full);
  }
  // Returns the bytes of the scales of the tile's rows. Rows behind the last row of x have no
  // scales.
  [[nodiscard]] __device__ __forceinline__ uint32_t scales_bytes(Corner at) const {
    return static_cast<uint32_t>(max(0, min(kTileRows, args.x_scale_stride - at.row)) * 4);
  }
};

// Stores four 8 x 8 matrices of 16-bit elements. Each lane holds two neighbours in a row of each
// matrix. Lanes 0 to 7 give the addresses of the first matrix's rows, lanes 8 to 15 those of the
// second, and so on.
__device__ __forceinline__ void store_four(uint32_t address, uint4 pairs) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(pairs.x), "r"(pairs.y), "r"(pairs.z), "r"(pairs.w)
               : "memory");
}

// The scales of those 128 x 128 blocks of the weight in which a tile's outputs lie. Outputs are
// counted in groups of 8. Groups with even numbers lie in at most two blocks of the weight's rows.
// So do groups with odd numbers, which with silu_mul belong to the weight's other half.
struct BlockScales {
  // The first index is the parity of the group. The second is 0 for the first block and 1 for the
  // second.
  const float* of_blocks[2][2];
  int second[2];  // by parity; groups from this number on lie in the second block

  template <int kOutputs, class Args>
  __device__ __forceinline__ static BlockScales of(const Args& args, Corner at) {
    constexpr auto kBlock = static_cast<int>(kScaleBlock);
    const int most_rows = args.num_outputs / kBlock + (args.num_outputs % kBlock > 0 ? 1 : 0);
    BlockScales result;
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const int row = args.silu_mul ? at.output / 2 + odd * (args.num_outputs / 2) : at.output;
      const int left = (kBlock - row % kBlock) / kTurnRows;  // groups that lie in the first block
      result.second[odd] = args.silu_mul ? 2 * left : left;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        result.of_blocks[odd][i] =
            args.weight_scale + int64_t{min(row / kBlock + i, most_rows - 1)} * args.scale_columns;
      }
    }
    return result;
  }
};

// A warpgroup that multiplies. It computes all outputs of the tile for 64 of its rows. In lane l of
// warp w, sums[4 j + 2 h + i] belongs to row 16 w + 8 h + l / 4 and output 8 j + 2 (l % 4) + i.
template <typename T, int kOutputs>
struct Consumer {
  using L = Layout<kOutputs>;
  static constexpr int kGroups = kOutputs / 8;

  const GemmArgs<T>& args;
  L layout;
  int warpgroup;
  int warp;  // the warp's index in the warpgroup
  int lane;
  float sums[kOutputs / 2];

  __device__ __forceinline__ void run(const Worker& worker) {
    const uint32_t other_empty = layout.barriers().other_empty(worker.rank);
    Slot slot;
    for (int tile = worker.cluster; tile < args.tiles.number; tile += worker.num_clusters) {
      const Corner at = corner_of<kOutputs>(args, tile, worker.rank);
      if (args.scale_columns > 0) {
        add_blocks(at, slot, other_empty);
      } else {
        add_rows(at, slot, other_empty);
      }
      if (args.bias != nullptr) {
        for_each_output(at, [&](float& sum, int row) { sum += to_float(args.bias[row]); });
      }
      store(at);
    }
    if (threadIdx.x % 128 == 0) gemm::wait_for_stores();
  }

  // Computes the sums of a tile over all its steps. The tensor cores sum up the 128 columns of a
  // step. Then `fold(products, step, scales of this lane's two rows)` adds these products to the
  // sums in float.
  template <class Fold>
  __device__ __forceinline__ void add(Slot& slot, uint32_t other_empty, Fold fold) {
#pragma unroll
    for (float& sum : sums)
      sum = 0;
    const auto barriers = layout.barriers();
    const auto row = static_cast<uint32_t>(warpgroup * kPartRows + 16 * warp + lane / 4);
    int step = 0;
    do {
      float products[kOutputs / 2];
      wait_for_phase(barriers.full(slot.number), slot.parity);
      const uint32_t a = describe_rows(layout.x(slot.number) +
                                       static_cast<uint32_t>(warpgroup) * kPartRows * kBoxRowBytes);
      const uint32_t b = describe_rows(layout.weights(slot.number));
      begin_products();
#pragma unroll
      for (int k = 0; k < kStepColumns / 32; ++k)
        start_fp8_product<kOutputs>(products, a + k * kNextColumns, b + k * kNextColumns,
                                    k == 0 ? 0 : 1);
      commit_products();
      const uint32_t scales = layout.scales(slot.number) + row * 4;
      const float of_rows[2] = {load_shared_float(scales), load_shared_float(scales + 8 * 4)};
      wait_for_products<0>();
      settle(products);
      fold(products, step, of_rows);
      __syncwarp();
      barriers.leave(slot.number, other_empty, lane);
      slot.advance(L::kStages);
    } while (++step < args.num_steps);
  }
  // Computes the sums of a tile where the weight has a scale for each output.
  __device__ __forceinline__ void add_rows(Corner at, Slot& slot, uint32_t other_empty) {
    add(slot, other_empty,
        [&](const float(&products)[kOutputs / 2], int /*step*/, const float(&of_rows)[2]) {
#pragma unroll
          for (int i = 0; i < kOutputs / 2; ++i)
            sums[i] = fmaf(products[i], of_rows[i / 2 % 2], sums[i]);
        });
    for_each_output(at, [&](float& sum, int row) { sum *= args.weight_scale[row]; });
  }
  // Computes the sums of a tile where blocks of the weight have scales.
  __device__ __forceinline__ void add_blocks(Corner at, Slot& slot, uint32_t other_empty) {
    const auto scales = BlockScales::of<kOutputs>(args, at);
    add(slot, other_empty,
        [&](const float(&products)[kOutputs / 2], int step, const float(&of_rows)[2]) {
          float scale[2][2][2];  // indexed by the parity of the group, the block, the row
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const int block = i / 2 % 2;
            scale[i / 4][block][i % 2] =
                of_rows[i % 2] * __ldg(scales.of_blocks[i / 4][block] + step);
          }
#pragma unroll
          for (int j = 0; j < kGroups; ++j) {
            const bool is_second = j >= scales.second[j % 2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              const float of_group = is_second ? scale[j % 2][1][h] : scale[j % 2][0][h];
              float* const two = &sums[4 * j + 2 * h];
              two[0] = fmaf(products[4 * j + 2 * h], of_group, two[0]);
              two[1] = fmaf(products[4 * j + 2 * h + 1], of_group, two[1]);
            }
          }
        });
  }

  // Calls `visit(sum, row of the weight)` for each sum. Sums of outputs behind the last one get the
  // last row.
  template <class Visit>
  __device__ __forceinline__ void for_each_output(Corner at, Visit visit) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int first = args.silu_mul
                            ? at.output / 2 + j / 2 * kTurnRows + j % 2 * (args.num_outputs / 2)
                            : at.output + j * kTurnRows;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = min(first + 2 * (lane % 4) + i, args.num_outputs - 1);
        visit(sums[4 * j + i], row);
        visit(sums[4 * j + 2 + i], row);
      }
    }
  }

  // Stores the warpgroup's outputs.
  __device__ __forceinline__ void store(Corner at) {
    const int barrier = 1 + warpgroup;
    const bool stores = threadIdx.x % 128 == 0;
    if (stores) gemm::wait_for_stores_to_read();
    meet_at<128>(barrier);
    if (args.silu_mul) {
#pragma unroll
      for (int g = 0; g < kGroups / 2; g += 2)
        stage(g, {gated(2 * g, 0), gated(2 * g, 1), gated(2 * g + 2, 0), gated(2 * g + 2, 1)});
    } else {
#pragma unroll
      for (int g = 0; g < kGroups; g += 2)
        stage(g, {pair(g, 0), pair(g, 1), pair(g + 1, 0), pair(g + 1, 1)});
    }
    publish_to_copies();
    meet_at<128>(barrier);
    if (!stores) return;
    const int halved = args.silu_mul ? 1 : 0;
    const int row = at.row + warpgroup * kPartRows;
#pragma unroll 1
    for (int i = 0; i < (kOutputs / kStoredColumns) >> halved; ++i) {
      gemm::store_box(args.out, make_int3((at.output >> halved) + i * kStoredColumns, row, 0),
                      layout.staging(warpgroup) + static_cast<uint32_t>(i * L::kStagedBoxBytes));
    }
  }
  // Puts two groups of 8 outputs, from `group` on, at their places in a box. A box has rows of 64
  // bytes, whose pieces of 16 bytes are permuted by the number of their pair of rows.
  __device__ __forceinline__ void stage(int group, uint4 pairs) const {
    constexpr int kBoxGroups = kStoredColumns / 8;
    const int row = 16 * warp + lane % 16;
    const int piece = group % kBoxGroups + lane / 16;
    store_four(layout.staging(warpgroup) +
                   static_cast<uint32_t>(group / kBoxGroups * L::kStagedBoxBytes +
                                         row * kStoredColumns * 2 + (piece ^ row / 2 % 4) * 16),
               pairs);
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t pair(int j, int h) const {
    return pack_pair<T>(sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]);
  }
  // Applies silu_mul. The products are rounded first, as they are where silu_mul is a launch of its
  // own.
  [[nodiscard]] __device__ __forceinline__ uint32_t gated(int j, int h) const {
    const float2 gates = unpack_pair<T>(pair(j, h));
    const float2 ups = unpack_pair<T>(pair(j + 1, h));
    return pack_pair<T>(silu<T>(gates.x) * ups.x, silu<T>(gates.y) * ups.y);
  }
};

template <typename T, int kOutputs>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_fp8_kernel(const __grid_constant__ GemmArgs<T> args) {
  extern __shared__ __align__(1024) uint8_t shared[];
  const Layout<kOutputs> layout{shared_address(shared)};
  allow_next_kernel();
  const Worker worker = gemm::begin_gemm(layout.barriers(), args.out);
  if (worker.multiplies()) {
    take_registers<kRegistersOfProducts>();
    Consumer<T, kOutputs>{args, layout, worker.warp / 4, worker.warp % 4,
                          static_cast<int>(threadIdx.x % 32)}
        .run(worker);
  } else {
    give_up_registers<kRegistersOfCopies>();
    if (worker.copies())
      gemm::fill_ring(Copies<T, kOutputs>{args, layout, worker.rank}, layout.barriers(),
                      args.num_steps, args.tiles.number, worker);
    __syncwarp();
  }
  gemm::end_gemm();
}

}  // namespace encore::cuda::gemm_fp8
