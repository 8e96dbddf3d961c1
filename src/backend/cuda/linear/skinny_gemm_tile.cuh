// The arguments of skinny_gemm.cu's kernel, and the sums of a tile on the tensor cores.
#pragma once

#include "backend/cuda/linear/tensor_map.h"
#include "backend/cuda/wgmma.cuh"

namespace encore::cuda::skinny_gemm {

constexpr int kProductOutputs = 64;  // of one tensor core product
// With more rows all columns are added to one sum, in order. With so few two sums may take turns,
// where products are few and short: each waits for the one before on its sum.
constexpr int kMostRowsOfTwoSums = 32;

// The place of a product's outputs, and the operations on the way there.
template <typename T>
struct Output {
  const T* bias;  // null: none
  void* data;
  int64_t stride;
  bool is_float;
  bool in_packs;  // 16 bytes of a row may be written at once
  int num_rows;
  int num_outputs;  // of the product
};

// The operands, and the way in which the work is cut. A step is what a stage of a ring holds.
template <typename T>
struct SkinnyGemmArgs {
  // The fields that a block reads in front of its first copy come first: 64 bytes at most
  // (launch.h).
  int cluster;      // 2: two blocks sum up a tile, each half of the columns
  int num_workers;  // blocks of the launch, or clusters
  int num_tiles;
  int num_steps;  // of a tile, in all blocks of a cluster
  int tile_outputs;
  int row_tiles;  // of the same outputs: one or two
  int stage_boxes;
  int weight_stages;
  int stages_in_flight;  // of weights: asked for and not yet there
  bool whole_stages;     // a copy brings all boxes of a stage, not one
  bool silu_mul;         // stored is silu(gate) * up: half as many as the product's outputs

  int x_rows;  // of a row tile; further ones of a product are whatever lies behind, and not stored
  int x_stages;
  int x_stage_boxes;  // of x beside stage_boxes of the weight
  int num_boxes;      // of a row of the weight
  // Scales, for operands in codes. The weight has one for each output, or, with scale_columns, one
  // for each 128 outputs and 128 columns. Those of x in codes are ordered by boxes of 128 columns,
  // then by rows.
  const float* weight_scale;
  int scale_columns;
  const float* x_scale;
  int x_scale_stride;
  // Offsets in shared memory: the ring of x, the scales of its stages, finished outputs on their
  // way out, and partial sums from the other block of the cluster (with one block: nothing).
  int x_offset;
  int x_scales_offset;
  int staging_offset;
  int partials_offset;
  Output<T> out;
  CUtensorMap weight;
  CUtensorMap x;
};

// The addresses of a stage's boxes in shared memory: a warpgroup's part of the first box of the
// weight, and the first box of x.
struct StageBoxes {
  uint32_t weights;
  uint32_t weight_box_bytes;
  uint32_t x;
  uint32_t x_box_bytes;
  uint32_t x_scales;  // of x in codes
  int count;          // of the weight
  int first;          // its number
  int turn;           // the warpgroup's first box, where warpgroups take turns
};

// The sums of a warpgroup's part of a tile: kProducts x 64 outputs, kRows rows. They come in blocks
// of 8 outputs of 8 rows. Block (p, j, h) begins at output 64 p + 16 warp + 8 h and row 8 j; lane l
// has the sums of its output l / 4 and rows 2 (l % 4) + {0, 1}.
template <typename T, int kRowsOfTile, int kProductsOfTile>
struct Tile {
  using Weight = T;
  using X = T;
  static constexpr int kRows = kRowsOfTile;
  static constexpr int kProducts = kProductsOfTile;
  static constexpr int kTurns = 1;
  // Groups of products that may be under way when the next stage's begin. With many rows they start
  // before those of the stage before have ended. With few, copies are what takes time, so a stage is
  // let go as soon as it can be.
  static constexpr int kUnderWay = kRows >= 96 ? 1 : 0;
  // Products under way read the weights of their stage in shared memory.
  static constexpr bool kReadsWeightsLate = kUnderWay > 0;
  static constexpr int kSets = kRows <= kMostRowsOfTwoSums ? 2 / kProducts : 1;
  static constexpr int kRowBlocks = kRows / 8;

  float sums[kProducts * kSets][kRows / 2];

  // Starts the products of a stage's boxes. Until the first time the sums are nothing: `adds` is
  // false then.
  template <class AnyScales>
  __device__ __forceinline__ void add(bool adds, const StageBoxes& boxes,
                                      const AnyScales& /*none*/) {
    constexpr uint32_t kNextProduct = kProductOutputs * kNextRow;
    uint32_t a = describe_rows(boxes.weights);
    uint32_t b = describe_rows(boxes.x);
    uint32_t old = adds ? 1 : 0;
    int box = 0;
#pragma unroll 1
    do {  // a loop that may not run at all would make the compiler serialise products
      begin_products();
#pragma unroll
      for (int k = 0; k < kBoxColumns / 16; ++k) {
#pragma unroll
        for (int p = 0; p < kProducts; ++p) {
          start_product<T, kRows>(sums[p * kSets + k % kSets],
                                  a + p * kNextProduct + k * kNextColumns, b + k * kNextColumns,
                                  k < kSets ? old : 1);
        }
      }
      commit_products();
      old = 1;
      a += boxes.weight_box_bytes / kBoxRowBytes * kNextRow;
      b += boxes.x_box_bytes / kBoxRowBytes * kNextRow;
    } while (++box < boxes.count);
  }

  // Called after the last product.
  __device__ __forceinline__ void settle_all() {
#pragma unroll
    for (int i = 0; i < kProducts * kSets; ++i)
      settle(sums[i]);
#pragma unroll
    for (int i = 0; i < kProducts * kSets; ++i) {
      if (i % kSets == 0) continue;
#pragma unroll
      for (int j = 0; j < kRows / 2; ++j)
        sums[i / kSets * kSets][j] += sums[i][j];
    }
  }

  [[nodiscard]] __device__ __forceinline__ float* sums_of(int p, int j, int h) {
    return &sums[p * kSets][4 * j + 2 * h];
  }
  // Calls `visit(p, j, h, first, second)` for each block; it may change the two sums.
  template <class Visit>
  __device__ __forceinline__ void for_each_block(Visit visit) {
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int j = 0; j < kRowBlocks; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h)
          visit(p, j, h, sums[p * kSets][4 * j + 2 * h], sums[p * kSets][4 * j + 2 * h + 1]);
      }
    }
  }
};

}  // namespace encore::cuda::skinny_gemm
