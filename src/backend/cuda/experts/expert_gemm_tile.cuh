// Describes a tile of expert_gemm.cu's kernel: the arguments of the kernel, its shared memory, and
// the part of a tile that each block computes.
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

constexpr int kProductOutputs = 64;  // outputs of one tensor-core product
constexpr int kProducts = 2;  // products of a warpgroup, which lie side by side in the outputs
constexpr int kWarpgroupOutputs = kProducts * kProductOutputs;
constexpr int kTileOutputs = kConsumers * kWarpgroupOutputs;
constexpr int kHalfOutputs = kTileOutputs / 2;  // outputs whose weights one copy brings
// Rows in a box of finished outputs. The first place of a tile is a multiple of this number.
constexpr int kStoredRows = 8;
constexpr int kCopyThreads = 128;
constexpr int kThreads = gemm::kConsumerThreads + kCopyThreads;

// Sizes of one step. A step has one box of weights and, beside it, one box of rows; for codes,
// which have half as many bytes, it has two boxes of rows.
template <typename Stored>
struct Step {
  static constexpr int kRowBoxes = kIsFp8<Stored> ? 2 : 1;
  static constexpr int kColumns = kRowBoxes * kBoxColumns;
  static constexpr int kBlockRows = 144 / kRowBoxes;  // the most rows of a tile that a block takes
  // Registers per thread. The warpgroup that copies leaves registers to those that multiply; with
  // codes it copies fewer rows, which takes fewer registers.
  static constexpr int kRegistersOfCopies = kIsFp8<Stored> ? 40 : 56;
  static constexpr int kRegistersOfProducts = kIsFp8<Stored> ? 232 : 224;
};

template <typename T, typename Stored>
struct GemmArgs {
  SortedPairs sorted;
  // The rows that are multiplied: rows of x in the first product, rows of places in the second.
  const T* rows;
  uint32_t row_pieces;  // 16-byte pieces from one row to the next
  int columns;
  int num_steps;
  int of_outputs;  // tiles of outputs for each tile of rows
  // True for the first product, with gate and up. It stores silu(gate) * up, half as many values as
  // the product has outputs.
  bool silu_mul;
  // The blocks of a cluster: 1 or 2. Two blocks share the weights of an expert, and each takes half
  // of its rows.
  int blocks;
  ExpertMatrices<Stored> matrices;
  CUtensorMap weight;
  CUtensorMap out;  // rows of places
};

// Lays out a block's shared memory: a ring of stages, each with a step of the tile's weights and of
// the block's rows; finished outputs on their way out (the same bytes serve for sorting pairs
// before); barriers; and the list of tiles of a block that sorts.
template <typename Stored>
struct Layout {
  static constexpr int kBlockRows = Step<Stored>::kBlockRows;
  static constexpr int kWeightBytes = kTileOutputs * kBoxRowBytes;
  static constexpr int kRowBoxBytes = kBlockRows * kBoxRowBytes;
  static constexpr int kRowBytes = Step<Stored>::kRowBoxes * kRowBoxBytes;
  static constexpr int kStageBytes = kWeightBytes + kRowBytes;
  static constexpr int kStagedRows = 72;  // rows of finished outputs at a time
  // Bytes of one warpgroup's 64 outputs.
  static constexpr int kStagedBytes = kStagedRows * kBoxRowBytes;
  static constexpr int kStages = (gemm::kMostSharedBytes - kConsumers * kStagedBytes -
                                  gemm::kBarrierBytes - static_cast<int>(sizeof(OwnList))) /
                                 kStageBytes;
  static constexpr int kStagingAt = kStages * kStageBytes;
  static constexpr int kBarriersAt = kStagingAt + kConsumers * kStagedBytes;
  static constexpr int kListAt = kBarriersAt + gemm::kBarrierBytes;
  static constexpr int kBytes = kListAt + static_cast<int>(sizeof(OwnList));
  // The barriers of the ring. At a full barrier, each thread that copies rows arrives when its
  // copies are complete, and the thread that copies weights announces how many bytes of weights
  // will come.
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

// A block's part of a tile: some rows of an expert and kTileOutputs of its outputs. All blocks of a
// cluster have the same outputs. With silu_mul, the outputs are by turns 8 of gate and the 8 of up
// that belong to them.
struct Part {
  int expert;
  int first;   // place of the first row
  int count;   // rows; 0 where all rows fit the other block
  int output;  // number of the first output

  // Returns the number of columns of the tensor-core products: the rows, rounded up to a size that
  // products can have.
  [[nodiscard]] __device__ __forceinline__ int columns() const {
    constexpr int kSmall = 64;  // up to this many rows, products have a multiple of 16 columns
    const int granularity = count > kSmall ? 8 : 16;
    return max(16, (count + granularity - 1) / granularity * granularity);
  }
};

// Returns the part of a block. The tiles of outputs of one tile of rows follow each other, so
// blocks that run at the same time share rows; the tiles of rows of an expert follow each other, so
// they share weights.
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
