// Computes the sums of a tile in skinny_gemm.cu's kernel where the weight is 8-bit codes.
#pragma once

#include "backend/cuda/fp8.h"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/linear/codes.cuh"
#include "backend/cuda/linear/skinny_gemm_tile.cuh"
#include "backend/cuda/mma.cuh"
#include "base/scale_block.h"

namespace encore::cuda::skinny_gemm {

// The scales of the outputs whose sums a thread has. Where each output has a scale, these are the
// scales; where blocks of 128 x 128 have scales, it holds the address at which the scales of the
// output's row of blocks begin.
template <int kProducts>
struct Scales {
  const float* weight_scale = nullptr;
  int scale_columns = 0;
  float of_output[kProducts][2] = {};
  int blocks_at[kProducts][2] = {};

  template <class Consumer, class Corner>
  __device__ __forceinline__ Scales(const Consumer& consumer, Corner corner) {
    if constexpr (Consumer::kOfCodes) {
      weight_scale = consumer.args.weight_scale;
      scale_columns = consumer.args.scale_columns;
      consumer.for_each_own_output(corner, [&](int p, int h, int row) {
        if (scale_columns == 0) {
          of_output[p][h] = weight_scale[row];
        } else {
          blocks_at[p][h] = row / static_cast<int>(kScaleBlock) * scale_columns;
        }
      });
    }
  }
  // Finds the scales of a box of 128 columns. Blocks of the weight must have scales.
  __device__ __forceinline__ void of_box(int box, float (&scales)[kProducts][2]) const {
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        scales[p][h] = __ldg(weight_scale + blocks_at[p][h] + min(box, scale_columns - 1));
      }
    }
  }
};

// Computes a warpgroup's sums of a tile, as Tile does for 16-bit weights, for a weight of codes. x
// is in XType: T, for which codes are widened on their way to the tensor cores, or codes as well.
// Where a box of 128 columns has scales, the sums of the box are multiplied by them before they are
// added to those of other boxes. The boxes of a stage are dealt to kTurnsOfTile warpgroups, and a
// stage has at least as many boxes.
template <typename T, typename XType, int kRowsOfTile, int kProductsOfTile, int kTurnsOfTile>
struct CodesTile {
  using Weight = Float8;
  using X = XType;
  static constexpr int kRows = kRowsOfTile;
  static constexpr int kProducts = kProductsOfTile;
  static constexpr int kTurns = kTurnsOfTile;
  // Codes are widened while the products of the two half boxes before them are running, also those
  // of the stage before. These products read their weights from registers.
  static constexpr int kUnderWay = kIsFp8<X> ? 0 : 2;
  static constexpr bool kReadsWeightsLate = false;
  static constexpr int kRowBlocks = kRows / 8;

  using Sums = float[kProducts][kRows / 2];

  Sums sums;
  Sums box_sums;

  __device__ __forceinline__ void add(bool adds, const StageBoxes& boxes,
                                      const Scales<kProducts>& scales) {
    folds_ = kIsFp8<X> || scales.scale_columns > 0;
    if (!adds) clear();
    uint32_t old = adds ? 1 : 0;
#pragma unroll 1
    for (int box = kTurns == 1 ? 0 : boxes.turn; box < boxes.count; box += kTurns) {
      multiply(box_sums, boxes, static_cast<uint32_t>(box), folds_ ? 0 : old);
      old = 1;
      if (!folds_) continue;
      wait_for_products<0>();
      fold(box_sums, boxes, box, scales);
    }
  }

  // Completes the sums after the last product.
  __device__ __forceinline__ void settle_all() {
    if (folds_) return;
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
      settle(box_sums[p]);
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i)
        sums[p][i] = box_sums[p][i];
    }
  }

  [[nodiscard]] __device__ __forceinline__ float* sums_of(int p, int j, int h) {
    return &sums[p][4 * j + 2 * h];
  }
  template <class Visit>
  __device__ __forceinline__ void for_each_block(Visit visit) {
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int j = 0; j < kRowBlocks; ++j) {
#pragma unroll
        for (int h = 0; h < 2; ++h)
          visit(p, j, h, sums[p][4 * j + 2 * h], sums[p][4 * j + 2 * h + 1]);
      }
    }
  }

 private:
  bool folds_ = false;

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (float& sum : sums[p])
        sum = 0;
    }
  }

  // Starts the products of a box. Where `adds` is true, they are added to the sums in `into`;
  // otherwise they replace these sums.
  __device__ __forceinline__ void multiply(Sums& into, const StageBoxes& boxes, uint32_t box,
                                           uint32_t adds) {
    if constexpr (kIsFp8<X>) {
      multiply_codes(into, boxes, box);
    } else {
      multiply_widened(into, boxes, box, adds);
    }
  }
  static __device__ __forceinline__ void multiply_codes(Sums& into, const StageBoxes& boxes,
                                                        uint32_t box) {
    constexpr uint32_t kNextProduct = kProductOutputs * kNextRow;
    constexpr uint32_t kSteps = 4;  // steps of 32 columns
    const uint32_t a = describe_rows(boxes.weights + box * boxes.weight_box_bytes);
    const uint32_t b = describe_rows(boxes.x + box * boxes.x_box_bytes);
    begin_products();
#pragma unroll
    for (uint32_t k = 0; k < kSteps; ++k) {
#pragma unroll
      for (uint32_t p = 0; p < kProducts; ++p)
        start_fp8_product<kRows>(into[p], a + p * kNextProduct + k * kNextColumns,
                                 b + k * kNextColumns, k == 0 ? 0 : 1);
    }
    commit_products();
  }
  // Multiplies a box of the weight, which has 128 columns, by the two boxes of x that belong to it.
  // The codes of one half are widened while the half before is multiplied.
  static __device__ __forceinline__ void multiply_widened(Sums& into, const StageBoxes& boxes,
                                                          uint32_t box, uint32_t adds) {
    constexpr uint32_t kHalves = 2;
    constexpr uint32_t kSteps = 4;  // steps of 16 columns
    const uint32_t lane = threadIdx.x % 32;
    // The row of the weight that this lane addresses for a 16 x 32 part: the first 16 lanes address
    // the 16 rows, and the other lanes the same rows, 16 columns further.
    const uint32_t row = threadIdx.x % 128 / 32 * 16 + lane % 16;
    const uint32_t rows_at = boxes.weights + box * boxes.weight_box_bytes + row * kBoxRowBytes;
    const uint32_t x = boxes.x + kHalves * box * boxes.x_box_bytes;
#pragma unroll
    for (uint32_t half = 0; half < kHalves; ++half) {
      uint32_t weights[kProducts][kSteps][4];
      wait_for_products<1>();  // products of the half before the last no longer use their registers
#pragma unroll
      for (uint32_t p = 0; p < kProducts; ++p) {
#pragma unroll
        for (uint32_t k = 0; k < kSteps; k += 2) {
          const uint32_t piece = half * kSteps + k + lane / 16;
          uint32_t codes[4];
          load_matrices(codes,
                        rows_at + p * kProductOutputs * kBoxRowBytes + (piece ^ row % 8) * 16);
          widen_codes<T>(codes[0], weights[p][k][0], weights[p][k][2]);
          widen_codes<T>(codes[1], weights[p][k][1], weights[p][k][3]);
          widen_codes<T>(codes[2], weights[p][k + 1][0], weights[p][k + 1][2]);
          widen_codes<T>(codes[3], weights[p][k + 1][1], weights[p][k + 1][3]);
        }
      }
      const uint32_t b = describe_rows(x + half * boxes.x_box_bytes);
      begin_products();
#pragma unroll
      for (uint32_t k = 0; k < kSteps; ++k) {
#pragma unroll
        for (uint32_t p = 0; p < kProducts; ++p)
          start_product<T, kRows>(into[p], weights[p][k], b + k * kNextColumns,
                                  half + k == 0 ? adds : 1);
      }
      commit_products();
    }
  }

  // Adds the sums of one box of 128 columns, times the box's scales, to the sums of the boxes
  // before it.
  __device__ __forceinline__ void fold(Sums& of_box, const StageBoxes& boxes, int box,
                                       const Scales<kProducts>& scales) {
#pragma unroll
    for (int p = 0; p < kProducts; ++p)
      settle(of_box[p]);
    if (scales.scale_columns > 0) {
      float of_weight[kProducts][2];
      scales.of_box(boxes.first + box, of_weight);
      fold_by(of_box, boxes, box, [&](int p, int h, float of_x) { return of_x * of_weight[p][h]; });
    } else {
      fold_by(of_box, boxes, box, [](int /*p*/, int /*h*/, float of_x) { return of_x; });
    }
  }
  // Adds a box's sums, each times `scale_of(p, h, the scale of its row of x)`.
  template <class ScaleOf>
  __device__ __forceinline__ void fold_by(const Sums& of_box, const StageBoxes& boxes, int box,
                                          ScaleOf scale_of) {
    const uint32_t x_rows = boxes.x_box_bytes / kBoxRowBytes;
    const uint32_t scales_at =
        boxes.x_scales + static_cast<uint32_t>(box) * x_rows * 4 + threadIdx.x % 4 * 8;
#pragma unroll
    for (int j = 0; j < kRowBlocks; ++j) {
      float2 of_x = {1, 1};
      if constexpr (kIsFp8<X>) of_x = load_shared_pair(scales_at + static_cast<uint32_t>(j * 32));
#pragma unroll
      for (int p = 0; p < kProducts; ++p) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int i = 4 * j + 2 * h;
          sums[p][i] = fmaf(of_box[p][i], scale_of(p, h, of_x.x), sums[p][i]);
          sums[p][i + 1] = fmaf(of_box[p][i + 1], scale_of(p, h, of_x.y), sums[p][i + 1]);
        }
      }
    }
  }
};

}  // namespace encore::cuda::skinny_gemm
