// The pairs of a row and one of its experts in the order of the experts, so that an expert's weights are
// read once for many of its rows.
//
// What rows choose is known on the device only. So grids and memory are those of the most places and
// tiles that there can be, and the blocks of a product that find no tile end at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

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
  int granularity;  // an expert's first place, and each tile's, is a multiple of it
  // Do products lie in the order of places? Then the place of each pair is written down. Else they lie in the
  // order of pairs.
  bool by_place;
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
  int32_t* pairs;   // at each place
  int32_t* places;  // of each pair that has an expert; null: not asked for
  RowTile* tiles;
  int32_t* num_tiles;

  [[nodiscard]] int64_t max_tiles() const {
    return num_pairs / tiling.max_rows + std::min(num_pairs, num_experts);
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

Workspace expert_parts_workspace(const KernelArgs& args, const Tiling& tiling);
// Returns the part of the rows from `first` on.
ExpertPart expert_part(const KernelArgs& args, const Tiling& tiling, int64_t first);
// Launches each part: sorting, `multiply`'s two products, and the sums of each row's by its weights, in the order of its
// list.
void launch_parts(Stream& stream, const KernelArgs& args, const Tiling& tiling,
                  const std::function<void(const ExpertPart& part)>& multiply);

}  // namespace encore::cuda
