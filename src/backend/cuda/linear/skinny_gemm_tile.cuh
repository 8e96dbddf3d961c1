// The arguments of skinny_gemm.cu's kernel, and the sums of a tile on the tensor cores.
#pragma once

#include "backend/cuda/linear/tensor_map.h"
#include "backend/cuda/wgmma.cuh"

namespace encore::cuda::skinny_gemm {

constexpr int kProductOutputs = 64;  // outputs of one product on the tensor cores
// The largest number of rows of x with which the products of columns are added to two sums by
// turns. Products of few rows are few and short, and each waits for the one before it on the same
// sum, so two sums are faster. With more rows, all columns are added to one sum, in order.
constexpr int kMostRowsOfTwoSums = 32;

// The place of a product's outputs, and the operations that are applied before they are stored.
template <typename T>
struct Output {
  const T* bias;  // null: none
  void* data;
  int64_t stride;
  bool is_float;
  bool in_packs;  // true: 16 bytes of a row may be written at once
  int num_rows;
  int num_outputs;  // outputs of the product
};

// The operands of a launch, and how its work is cut. A step is the work of one stage of a ring.
template <typename T>
struct SkinnyGemmArgs {
  // These fields come first, in at most 64 bytes, because a block reads them before its first copy
  // (launch.h).
  int cluster;      // 2: two blocks sum up a tile, with half of the columns each
  int num_workers;  // blocks of the launch, or its clusters
  int num_tiles;
  int num_steps;  // steps of a tile, in all blocks of a cluster together
  int tile_outputs;
  int row_tiles;  // tiles that share outputs: one or two
  int stage_boxes;
  int weight_stages;
  int stages_in_flight;  // the number of stages of weights that may be on their way
  bool whole_stages;     // true: a copy brings all boxes of a stage; false: one box
  bool silu_mul;  // the kernel stores silu(gate) * up: half as many outputs as the product has

  int x_rows;  // rows of a row tile; products of further rows are arbitrary and not stored
  int x_stages;
  int x_stage_boxes;  // boxes of x that belong to stage_boxes boxes of the weight
  int num_boxes;      // boxes in a row of the weight
  // The scales of operands in codes. The weight has one for each output or, where scale_columns is
  // not 0, one for each block of 128 outputs and 128 columns. The scales of x are ordered by boxes
  // of 128 columns, then by rows.
  const float* weight_scale;
  int scale_columns;
  const float* x_scale;
  int x_scale_stride;
  // The offsets in shared memory of the ring of x, of the scales of its stages, of finished outputs
  // on their way out, and of partial sums from the other block of the cluster. Without clusters no
  // memory is reserved for partial sums.
  int x_offset;
  int x_scales_offset;
  int staging_offset;
  int partials_offset;
  Output<T> out;
  CUtensorMap weight;
  CUtensorMap x;
};

// The addresses of a stage's boxes in shared memory. `weights` is this warpgroup's part of the
// first box of the weight, and `x` is the first box of x.
struct StageBoxes {
  uint32_t weights;
  uint32_t weight_box_bytes;
  uint32_t x;
  uint32_t x_box_bytes;
  uint32_t x_scales;  // the scales, where x is codes
  int count;          // the number of boxes of the weight
  int first;          // the index of the first box
  int turn;           // the first box that this warpgroup takes, where warpgroups take turns
};

// The sums of a warpgroup's part of a tile, which has kProducts x 64 outputs and kRows rows. They
// come in blocks of 8 outputs and 8 rows. Block (p, j, h) begins at output 64 p + 16 warp + 8 h and
// row 8 j. In it, lane l has the sums of output l / 4 and rows 2 (l % 4) + {0, 1}.
template <typename T, int kRowsOfTile, int kProductsOfTile>
struct Tile {
  using Weight = T;
  using X = T;
  static constexpr int kRows = kRowsOfTile;
  static constexpr int kProducts = kProductsOfTile;
  static constexpr int kTurns = 1;
  // The number of groups of products that may still be running when those of the next stage begin.
  // With many rows, products overlap across stages. With few rows copies take most of the time, so
  // each stage is released as soon as possible.
  static constexpr int kUnderWay = kRows >= 96 ? 1 : 0;
  // Is true where products that are still running read the weights of their stage from shared
  // memory, so that the stage is released one stage later.
  static constexpr bool kReadsWeightsLate = kUnderWay > 0;
  static constexpr int kSets = kRows <= kMostRowsOfTwoSums ? 2 / kProducts : 1;
  static constexpr int kRowBlocks = kRows / 8;

  float sums[kProducts * kSets][kRows / 2];

  // Starts the products of a stage's boxes. In the first stage of a tile `adds` is false, and the
  // products replace the old sums.
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

  // Completes the sums after the last product.
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
  // Calls `visit(p, j, h, first, second)` for each block of sums. The call may change the thread's
  // two sums.
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
