// A tile of expert_gemm.cu's kernel: what its threads are told, where it lies in shared memory, and which part of it a
// block computes.
#pragma once

#include "backend/cuda/experts/matrices.cuh"
#include "backend/cuda/experts/sorted_pairs.cuh"
#include "backend/cuda/fp8.h"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/linear/gemm_tiles.cuh"
#include "backend/cuda/linear/tensor_map.h"

namespace encore::cuda::expert_gemm {

using gemm::kConsumers;
using gemm::kTurnRows;
using gemm::Worker;

constexpr int kProductOutputs = 64;  // of a tensor core's product
constexpr int kProducts = 2;         // a warpgroup's, beside each other in the outputs
constexpr int kWarpgroupOutputs = kProducts * kProductOutputs;
constexpr int kTileOutputs = kConsumers * kWarpgroupOutputs;
constexpr int kHalfOutputs = kTileOutputs / 2;  // that a copy brings
constexpr int kStoredRows = 8;  // of a box of finished outputs; tiles begin at a multiple of it
constexpr int kCopyThreads = 128;
constexpr int kThreads = gemm::kConsumerThreads + kCopyThreads;

// A step of weights is a box, beside which lie one box of the rows or, as codes have half as many bytes, two.
template <typename Stored>
struct Step {
  static constexpr int kRowBoxes = kIsFp8<Stored> ? 2 : 1;
  static constexpr int kColumns = kRowBoxes * kBoxColumns;
  static constexpr int kBlockRows = 144 / kRowBoxes;  // of a tile of pairs, at most
  // The warpgroup that copies leaves registers to those that multiply. Fewer rows take fewer.
  static constexpr int kRegistersOfCopies = kIsFp8<Stored> ? 40 : 56;
  static constexpr int kRegistersOfProducts = kIsFp8<Stored> ? 232 : 224;
};

template <typename T, typename Stored>
struct GemmArgs {
  SortedPairs sorted;
  // The rows that are multiplied: in the first product those of x, and behind it those of places.
  const T* rows;
  uint32_t row_pieces;  // of 16 bytes, from one row to the next
  int columns;
  int num_steps;
  int of_outputs;  // tiles of outputs that a tile of rows meets
  // The first product, with gate and up. Stored is silu(gate) * up: half as many as the product's outputs.
  bool silu_mul;
  // The blocks of a cluster. Two share weights of an expert, whose rows they take in halves.
  int blocks;
  ExpertMatrices<Stored> matrices;
  CUtensorMap weight;
  CUtensorMap out;  // rows of places
};

// Shared memory of a block: a ring of stages, each a step of the tile's weights and of the
// block's rows; finished outputs on their way out, in whose place pairs are sorted before; barriers; and the list of
// tiles of a block that sorts.
template <typename Stored>
struct Layout {
  static constexpr int kBlockRows = Step<Stored>::kBlockRows;
  static constexpr int kWeightBytes = kTileOutputs * kBoxRowBytes;
  static constexpr int kRowBoxBytes = kBlockRows * kBoxRowBytes;
  static constexpr int kRowBytes = Step<Stored>::kRowBoxes * kRowBoxBytes;
  static constexpr int kStageBytes = kWeightBytes + kRowBytes;
  static constexpr int kStagedRows = 72;                           // of finished outputs, at once
  static constexpr int kStagedBytes = kStagedRows * kBoxRowBytes;  // of a warpgroup: 64 outputs
  static constexpr int kStages = (gemm::kMostSharedBytes - kConsumers * kStagedBytes -
                                  gemm::kBarrierBytes - static_cast<int>(sizeof(OwnList))) /
                                 kStageBytes;
  static constexpr int kStagingAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kStagingAt + kConsumers * kStagedBytes;
  static constexpr int kListAt = kBarriersAt + gemm::kBarrierBytes;
  static constexpr int kBytes = kListAt + static_cast<int>(sizeof(OwnList));
  // The copies of each thread that copies rows say when they have come, and the thread that copies weights says how
  // many bytes of those will.
  using Barriers = gemm::StageBarriers<kStages, kCopyThreads + 1>;

  uint32_t base;
  int blocks;

  [[nodiscard]] __device__ uint32_t weights(uint32_t stage) const {
    return base + stage * kStageBytes;
  }
  [[nodiscard]] __device__ uint32_t rows(uint32_t stage) const {
    return weights(stage) + kWeightBytes;
  }
  [[nodiscard]] __device__ uint32_t staging(int warpgroup) const {
    return base + kStagingAt + static_cast<uint32_t>(warpgroup * kStagedBytes);
  }
  [[nodiscard]] __device__ Barriers barriers() const { return {base + kBarriersAt, blocks}; }
};

// A block's part of a tile: some rows of an expert by kTileOutputs of its outputs, which the blocks of a
// cluster have in common. With silu_mul outputs are by turns 8 gates and the 8 that they gate.
struct Part {
  int expert;
  int first;   // place of the first row
  int count;   // rows; 0 where there are enough for the other block only
  int output;  // the first

  // The tensor cores' columns: the rows, and as many more as make a product.
  [[nodiscard]] __device__ __forceinline__ int columns() const {
    constexpr int kSmall = 64;  // up to here products have a multiple of 16 columns
    const int granularity = count > kSmall ? 8 : 16;
    return max(16, (count + granularity - 1) / granularity * granularity);
  }
};

// The tiles of outputs of a tile of rows come one after the other, so those at work share rows; an expert's
// tiles of rows follow each other, and share weights.
template <class Args>
__device__ __forceinline__ Part part_of(const Args& args, const TileList& list, int index,
                                        int rank) {
  const RowTile tile = list.tile(index / args.of_outputs);
  const int rows = args.blocks == 1
                       ? tile.count
                       : ((tile.count + 1) / 2 + kStoredRows - 1) / kStoredRows * kStoredRows;
  return {tile.expert, tile.first + rank * rows, max(0, min(rows, tile.count - rank * rows)),
          index % args.of_outputs * kTileOutputs};
}

}  // namespace encore::cuda::expert_gemm
