// Sorts the pairs of a row and one of its experts by expert, so that a product reads an expert's
// weights once for many of its rows. A place is a position in that order.
//
// Only the device knows which experts rows choose. So grids and memory are sized for the most
// places and tiles that there can be, and a block of a product without a tile ends at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include <cuda_runtime.h>

#include "backend/device.h"
#include "backend/kernel.h"

namespace encore::cuda {

// A tile of one expert's pairs: places [first, first + count).
struct RowTile {
  int expert;
  int first;
  int count;
};

// Says how pairs are sorted and cut into tiles.
struct Tiling {
  int max_rows;     // the most rows of a tile, a multiple of the granularity
  int granularity;  // a power of two that divides the first place of each expert and of each tile
  // True: products lie in the order of places, and the place of each pair is written down. False:
  // products lie in the order of pairs.
  bool by_place;
  // True: each block of a product sorts the pairs for itself (sorted_pairs.cuh). False: a launch
  // sorts them.
  bool in_blocks = false;
};

// Holds the operands and the results of sorting. The places of each expert are cut into as few
// tiles as possible, all of equal size. Units: strides are in elements.
struct SortedPairs {
  Tiling tiling;
  // The experts of each row. A number that is negative, or not below num_experts, means no expert.
  const int32_t* experts;
  int64_t experts_stride;
  int num_pairs;
  int top_k;
  int num_experts;
  // At each place: its pair, or, where products lie in the order of places, the pair's row.
  int32_t* sources = nullptr;
  // The place of each pair that has an expert; null: nobody asks for places.
  int32_t* places = nullptr;
  RowTile* tiles = nullptr;
  int32_t* num_tiles = nullptr;

  // Returns the expert of a pair, or a negative number where it has none. Reads from the L2 cache,
  // because a launch that reads before its inputs are complete may find an earlier step's experts
  // in its L1 cache.
  [[nodiscard]] __device__ int expert_of(int pair) const {
    int64_t at = pair;
    if (experts_stride != top_k) at = pair / top_k * experts_stride + pair % top_k;
    const int expert = __ldcg(experts + at);
    return expert < num_experts ? expert : -1;
  }
  [[nodiscard]] __host__ __device__ int64_t max_tiles() const {
    return num_pairs / tiling.max_rows + most_chosen();
  }
  // Returns the most places that pairs take, padding included. It bounds the rows of the hidden
  // values and of the products.
  [[nodiscard]] __host__ __device__ int64_t max_places() const {
    return num_pairs + int64_t{most_chosen()} * (tiling.granularity - 1);
  }
  [[nodiscard]] __host__ __device__ int most_chosen() const {
    return num_pairs < num_experts ? num_pairs : num_experts;
  }
};

// Holds a part of the rows of an expert_mlp: those that are sorted together. The launches for these
// rows pass their results on in the op's scratch.
struct ExpertPart {
  SortedPairs sorted;
  TensorView x;
  TensorView weights;
  TensorView y;
  // The values between the two products, for each pair, and the products of the second one, which
  // combining adds up. Both lie in the order that the tiling names.
  TensorView hidden;
  TensorView products;
};

// Returns the operands for sorting the first `num_rows` rows. The pointers to the results of
// sorting are null.
SortedPairs sorted_pairs(const KernelArgs& args, const Tiling& tiling, int64_t num_rows);
Workspace expert_parts_workspace(const KernelArgs& args, const Tiling& tiling);
// Returns the part that begins with row `first`.
ExpertPart expert_part(const KernelArgs& args, const Tiling& tiling, int64_t first);
// Launches each part of the rows: sorting, the two products of `multiply`, and the weighted sum of
// each row's products, in the order in which the row lists its experts.
void launch_parts(Stream& stream, const KernelArgs& args, const Tiling& tiling,
                  const std::function<void(const ExpertPart& part)>& multiply);

}  // namespace encore::cuda
