// The pairs of a row and one of its experts in the order of the experts, so that an expert's weights are
// read once for many of its rows.
//
// What rows choose is known on the device only. So grids and memory are those of the most places and
// tiles that there can be, and the blocks of a product that find no tile end at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include <cuda_runtime.h>

#include "backend/device.h"
#include "backend/kernel.h"

namespace encore::cuda {

// Rows of one expert: the pairs of `count` places, from `first` on.
struct RowTile {
  int expert;
  int first;
  int count;
};

// Says how pairs are sorted and cut into tiles.
struct Tiling {
  int max_rows;     // of a tile, a multiple of the granularity
  int granularity;  // a power of two, of which an expert's first place, and each tile's, is a multiple
  // Do products lie in the order of places? Then the place of each pair is written down. Else they lie in the
  // order of pairs.
  bool by_place;
  // The blocks of a product sort, each for itself (sorted_pairs.cuh); else it is a launch.
  bool in_blocks = false;
};

// The operands and results of sorting. Each expert's places are cut into as few tiles as there can be, all alike.
// Strides count elements.
struct SortedPairs {
  Tiling tiling;
  // The experts of each row; a negative one, or one that is not below num_experts, is none.
  const int32_t* experts;
  int64_t experts_stride;
  int num_pairs;
  int top_k;
  int num_experts;
  int32_t* sources = nullptr;  // at each place: the pair or, where products lie by place, its row
  int32_t* places = nullptr;   // of each pair that has an expert; null: not asked for
  RowTile* tiles = nullptr;
  int32_t* num_tiles = nullptr;

  // The expert of a pair; below 0: none. It comes from the L2 cache, as a launch that reads before its inputs are there
  // may find an earlier step's in its L1 cache.
  [[nodiscard]] __device__ int expert_of(int pair) const {
    int64_t at = pair;
    if (experts_stride != top_k) at = pair / top_k * experts_stride + pair % top_k;
    const int expert = __ldcg(experts + at);
    return expert < num_experts ? expert : -1;
  }
  [[nodiscard]] __host__ __device__ int64_t max_tiles() const {
    return num_pairs / tiling.max_rows + most_chosen();
  }
  // The most places that pairs take, padding included. The hidden values and the products have at
  // most as many rows.
  [[nodiscard]] __host__ __device__ int64_t max_places() const {
    return num_pairs + int64_t{most_chosen()} * (tiling.granularity - 1);
  }
  [[nodiscard]] __host__ __device__ int most_chosen() const {
    return num_pairs < num_experts ? num_pairs : num_experts;
  }
};

// Some rows of an expert_mlp, whose launches hand each other their results in the op's scratch.
struct ExpertPart {
  SortedPairs sorted;
  TensorView x;
  TensorView weights;
  TensorView y;
  // The values between the products of each pair, and those that combining adds up, in the tiling's order.
  TensorView hidden;
  TensorView products;
};

// Returns the operands of the first rows, without places for results.
SortedPairs sorted_pairs(const KernelArgs& args, const Tiling& tiling, int64_t num_rows);
Workspace expert_parts_workspace(const KernelArgs& args, const Tiling& tiling);
// Returns the part of the rows from `first` on.
ExpertPart expert_part(const KernelArgs& args, const Tiling& tiling, int64_t first);
// Launches each part: sorting, `multiply`'s two products, and the sums of each row's by its weights, in the order of its
// list.
void launch_parts(Stream& stream, const KernelArgs& args, const Tiling& tiling,
                  const std::function<void(const ExpertPart& part)>& multiply);

}  // namespace encore::cuda
