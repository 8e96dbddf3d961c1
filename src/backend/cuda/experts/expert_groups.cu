// Computes expert_mlp of sorted pairs (sorted_pairs.h) with products of warps. An expert's weights
// are read once for every tile of its rows.
//
//   gate_up    h = silu(gate x) * (up x) of each pair, of gathered rows of x
//   down       the products of each pair, rounded
//
// A product's sum runs over the columns 16 at a time, whatever tile its row is in.
#include <type_traits>

#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/matrices.cuh"
#include "backend/cuda/experts/sorted_pairs.h"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/tile_copy.cuh"

namespace encore::cuda {
namespace {

constexpr int kLanes = 32;

// The sizes of a product's block. It takes some rows of one expert, and kOutputs outputs of each of
// two sets.
constexpr int kWarps = 4;
constexpr int kOutputsPerWarp = 16;  // outputs of a set per warp
constexpr int kOutputs = kWarps * kOutputsPerWarp;
constexpr int kSets = 2;
constexpr int kRowPieces = 8;  // 16-byte pieces of a row of weights in a stage of shared memory
constexpr int kFewRows = 16;   // rows of a small tile
constexpr int kManyRows = 64;

// The arguments of one product. Units: strides are in elements.
template <typename T, typename Stored>
struct ProductArgs {
  const T* rows;  // the rows that are multiplied; a pair has row `pair / pairs_per_row`
  int64_t rows_stride;
  int pairs_per_row;
  ExpertMatrices<Stored> matrices;
  T* out;  // [pairs,num_outputs]
  int num_outputs;
  const int32_t* sorted;
  const RowTile* tiles;
  const int32_t* num_tiles;
};

// A stage of shared memory: kDepth columns of weights, as rows of kRowPieces 16-byte pieces, and
// kDepth columns of the rows that the weights are multiplied with. For codes, a stage has twice as
// many columns as for floats, so that each step brings as many bytes of weights.
template <typename Stored, int kRows>
struct Stage {
  static constexpr int kPieceElements = 16 / static_cast<int>(sizeof(Stored));
  static constexpr int kDepth = kRowPieces * kPieceElements;
  static constexpr int kCount = kIsFp8<Stored> ? 3 : 4;  // stages of a block
  static constexpr int kWeightRowBytes = kRowPieces * 16;
  static constexpr int kWeightBytes = kSets * kOutputs * kWeightRowBytes;
  static constexpr int kRowBytes = kRows * kDepth * 2;
  static constexpr int kBytes = kWeightBytes + kRowBytes;

  static __device__ __forceinline__ uint32_t weight_offset(int row, int piece) {
    return tile_offset<kWeightRowBytes / 2>(row, piece);
  }
};

// Loads the second operands for products of 16 columns with a warp's outputs of both sets. [0] and
// [1] belong to the first 8 outputs of a set, [2] and [3] to the other 8.
template <typename T, typename Stored>
__device__ __forceinline__ void load_weights(uint32_t (&weights)[kSets][4], uint32_t stage, int k) {
  using Tile = Stage<Stored, kFewRows>;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int first = static_cast<int>(threadIdx.x) / kLanes * kOutputsPerWarp + lane % 8;
  if constexpr (kIsFp8<Stored>) {
    // One 32-bit word of codes has both operands of a lane (codes.cuh), so four matrices serve both
    // sets.
    uint32_t codes[kSets * 2];
    const int row = lane / 16 * kOutputs + lane / 8 % 2 * 8 + first;
    load_matrices(codes, stage + Tile::weight_offset(row, k));
#pragma unroll
    for (int i = 0; i < kSets * 2; ++i)
      widen_codes<T>(codes[i], weights[i / 2][i % 2 * 2], weights[i / 2][i % 2 * 2 + 1]);
  } else {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
      const int row = set * kOutputs + lane / 16 * 8 + first;
      load_matrices(weights[set], stage + Tile::weight_offset(row, 2 * k + lane / 8 % 2));
    }
  }
}

// A thread's sums, by tile of 16 rows, by set, and by half (8 outputs) of a set's 16 outputs.
template <int kTiles>
using ProductSums = float[kTiles][kSets][2][4];

// Holds the scales of the outputs for which a thread has sums, in one group of columns.
template <typename T, typename Stored, bool kGated>
class OutputScales {
 public:
  __device__ __forceinline__ OutputScales(const ProductArgs<T, Stored>& args, int expert,
                                          int first_output) {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int output = first_output + i / 2 * 8 + i % 2 + (kGated ? 0 : set * kOutputs);
        // Outputs beyond the last are not stored, so any scale will do.
        rows_[set][i] =
            args.matrices.scales_of(expert, kGated ? set : 0, min(output, args.num_outputs - 1));
      }
    }
  }
  __device__ __forceinline__ void load(int group) {
#pragma unroll
    for (int set = 0; set < kSets; ++set) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        scales_[set][i] = rows_[set][i][group];
    }
  }
  // Adds the sums of one group of columns, multiplied by their scales, to the sums over all
  // columns, and sets the sums of the group to zero.
  template <int kTiles>
  __device__ __forceinline__ void add(ProductSums<kTiles>& sums, ProductSums<kTiles>& total) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float& sum = sums[t][set][i / 4][i % 4];
          float& of_all = total[t][set][i / 4][i % 4];
          of_all = fmaf(sum, scales_[set][i / 4 * 2 + i % 2], of_all);
          sum = 0;
        }
      }
    }
  }

 private:
  const float* rows_[kSets][4];
  float scales_[kSets][4];
};

// Multiplies a tile of rows by an expert's matrix. With `kGated`, the two sets of outputs are rows
// of gate and of up, and the kernel writes silu(gate) * up. Otherwise the sets lie side by side,
// and the kernel writes both. The grid is (blocks of outputs, tiles).
template <typename T, typename Stored, int kRows, bool kGated>
__global__ void __launch_bounds__(kWarps* kLanes)
    expert_product_kernel(const __grid_constant__ ProductArgs<T, Stored> args) {
  using Tile = Stage<Stored, kRows>;
  constexpr int kThreads = kWarps * kLanes;
  constexpr int kDepth = Tile::kDepth;
  constexpr int kPieces = kDepth / 8;  // 16-byte pieces of a row
  constexpr int kStages = Tile::kCount;
  // Rows of weights that the block copies at once.
  constexpr int kWeightRowsPerCopy = kThreads / kRowPieces;
  constexpr int kWeightCopies = kSets * kOutputs / kWeightRowsPerCopy;
  constexpr int kCopiesPerSet = kWeightCopies / kSets;
  constexpr int kRowsPerCopy = kThreads / kPieces;
  constexpr int kRowCopies = kRows / kRowsPerCopy;
  constexpr int kTiles = kRows / 16;  // tensor-core tiles
  constexpr int kOutputsPerBlock = kGated ? kOutputs : kSets * kOutputs;
  extern __shared__ __align__(128) uint8_t stages[];
  __shared__ int32_t pairs[kRows];
  // Allows the next launch to start only behind wait_for_inputs(), because the next launch reads
  // the experts that rows chose before this launch has ended.
  wait_for_inputs();
  allow_next_kernel();
  if (static_cast<int>(blockIdx.y) >= *args.num_tiles) return;
  const RowTile tile = args.tiles[blockIdx.y];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes;
  const int warp = thread / kLanes;
  const int columns = args.matrices.columns;
  const int first_output = static_cast<int>(blockIdx.x) * kOutputsPerBlock;
  if (thread < kRows) pairs[thread] = thread < tile.count ? args.sorted[tile.first + thread] : -1;
  __syncthreads();

  const int weight_row = thread / kRowPieces;
  const int weight_column = thread % kRowPieces * Tile::kPieceElements;
  const Stored* const weight =
      args.matrices.row(tile.expert, 0, first_output + weight_row) + weight_column;
  const int64_t set_rows = kGated ? args.matrices.set_rows : kOutputs;
  const uint32_t weight_to = Tile::weight_offset(weight_row, thread % kRowPieces);
  const int copied_row = thread / kPieces;
  const int piece = thread % kPieces;
  const T* rows[kRowCopies];
#pragma unroll
  for (int i = 0; i < kRowCopies; ++i) {
    const int pair = pairs[copied_row + i * kRowsPerCopy];
    rows[i] = pair < 0
                  ? nullptr
                  : args.rows + static_cast<int64_t>(pair / args.pairs_per_row) * args.rows_stride +
                        piece * 8;
  }
  const uint32_t shared = shared_address(stages);
  const uint32_t row_to = Tile::kWeightBytes + tile_offset<kDepth>(copied_row, piece);
  const auto copy_stage = [&](int step) {
    const uint32_t stage = shared + static_cast<uint32_t>(step % kStages * Tile::kBytes);
    const int column = step * kDepth;
#pragma unroll
    for (int i = 0; i < kWeightCopies; ++i) {
      const int set = i / kCopiesPerSet;
      const int row = i % kCopiesPerSet * kWeightRowsPerCopy;
      const int output = first_output + weight_row + row + (kGated ? 0 : set * kOutputs);
      const bool is_valid = column + weight_column < columns && output < args.num_outputs;
      const Stored* const from =
          is_valid ? weight + (set * set_rows + row) * columns + column : args.matrices.weight;
      const uint32_t to =
          stage + weight_to + static_cast<uint32_t>(i * kWeightRowsPerCopy * Tile::kWeightRowBytes);
      // Where an expert has many rows, the expert's other tiles read the same weights, so the
      // copies leave the weights in caches.
      if constexpr (kRows == kFewRows) {
        copy_async_once(to, from, is_valid);
      } else {
        copy_async(to, from, is_valid);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowCopies; ++i) {
      const bool is_valid = column + piece * 8 < columns && rows[i] != nullptr;
      copy_async(stage + row_to + static_cast<uint32_t>(i * kRowsPerCopy * kDepth * 2),
                 is_valid ? rows[i] + column : args.rows, is_valid);
    }
  };

  ProductSums<kTiles> sums = {};  // for codes: sums over the columns that share a scale
  ProductSums<kTiles> total = {};
  constexpr int kStepsPerScale = static_cast<int>(kScaleBlock) / kDepth;
  using Scales = OutputScales<T, Stored, kGated>;
  [[maybe_unused]] std::conditional_t<kIsFp8<Stored>, Scales, int> scales = [&] {
    if constexpr (kIsFp8<Stored>) {
      return Scales(args, tile.expert, first_output + warp * kOutputsPerWarp + lane % 4 * 2);
    } else {
      return 0;
    }
  }();
  const int num_steps = (columns + kDepth - 1) / kDepth;
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < num_steps) copy_stage(step);
    commit_copies();
  }
  for (int step = 0; step < num_steps; ++step) {
    if constexpr (kIsFp8<Stored>) {
      if (step % kStepsPerScale == 0) scales.load(step * kDepth >> args.matrices.column_shift);
    }
    wait_for_copies<kStages - 2>();
    __syncthreads();  // all threads' copies have come, and nobody reads the stage any more
    if (step + kStages - 1 < num_steps) copy_stage(step + kStages - 1);
    commit_copies();
    const uint32_t stage = shared + static_cast<uint32_t>(step % kStages * Tile::kBytes);
#pragma unroll 4
    for (int k = 0; k < kPieces / 2; ++k) {
      uint32_t weights[kSets][4];
      load_weights<T, Stored>(weights, stage, k);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        uint32_t x[4];
        load_matrices(x, stage + Tile::kWeightBytes +
                             tile_offset<kDepth>(t * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
          multiply_add<T>(sums[t][set][0], x, weights[set][0], weights[set][1]);
          multiply_add<T>(sums[t][set][1], x, weights[set][2], weights[set][3]);
        }
      }
    }
    if constexpr (kIsFp8<Stored>) {
      if (step % kStepsPerScale == kStepsPerScale - 1 || step + 1 == num_steps)
        scales.add(sums, total);
    }
  }
  ProductSums<kTiles>& products = kIsFp8<Stored> ? total : sums;

  // Writes two neighbouring outputs of a row.
  const auto store = [&](int row, int output, float low, float high) {
    if (pairs[row] < 0 || output >= args.num_outputs) return;
    T* const to = args.out + static_cast<int64_t>(pairs[row]) * args.num_outputs + output;
    *reinterpret_cast<uint32_t*>(to) = pack_pair<T>(low, high);
  };
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int row = t * 16 + half * 8 + lane / 4;
        const int output = first_output + warp * kOutputsPerWarp + n * 8 + lane % 4 * 2;
        const float* const first = products[t][0][n] + half * 2;
        const float* const second = products[t][1][n] + half * 2;
        if constexpr (kGated) {
          store(row, output, silu<T>(first[0]) * second[0], silu<T>(first[1]) * second[1]);
        } else {
          store(row, output, first[0], first[1]);
          store(row, output + kOutputs, second[0], second[1]);
        }
      }
    }
  }
}

// Returns how pairs are cut into tiles. Tiles are small where experts get few rows each.
Tiling tiling_of(const KernelArgs& args) {
  constexpr int64_t kRowsWorthATile = 24;
  const int64_t num_experts = args.inputs["down"].shape[0];
  const bool has_few_rows = num_pairs(args) <= kRowsWorthATile * num_experts;
  return {.max_rows = has_few_rows ? kFewRows : kManyRows, .granularity = 1, .by_place = false};
}

// Launches the product of all tiles with the gate_up or the down matrices, which have floats or
// codes.
template <typename T, int kRows, bool kGated>
void launch_product(Stream& stream, const KernelArgs& args, const ExpertPart& part) {
  const char* const name = kGated ? "gate_up" : "down";
  const TensorView& weight = args.inputs[name];
  const TensorView& rows = kGated ? part.x : part.hidden;
  const SortedPairs& sorted = part.sorted;
  const auto launch_stored = [&](auto tag) {
    using Stored = typename decltype(tag)::type;
    constexpr int kOutputsPerBlock = kGated ? kOutputs : kSets * kOutputs;
    const ProductArgs<T, Stored> product{
        .rows = rows.as<const T>(),
        .rows_stride = rows.row_stride,
        .pairs_per_row = kGated ? sorted.top_k : 1,
        .matrices = matrices_of<Stored>(args, name, kGated ? kSets : 1),
        .out = (kGated ? part.hidden : part.products).as<T>(),
        .num_outputs = static_cast<int>(weight.shape[1]) / (kGated ? 2 : 1),
        .sorted = sorted.sources,
        .tiles = sorted.tiles,
        .num_tiles = sorted.num_tiles};
    launch(stream,
           {.blocks = dim3(static_cast<unsigned>(div_up(product.num_outputs, kOutputsPerBlock)),
                           static_cast<unsigned>(sorted.max_tiles())),
            .threads = kWarps * kLanes,
            .shared_bytes =
                static_cast<size_t>(Stage<Stored, kRows>::kCount * Stage<Stored, kRows>::kBytes)},
           expert_product_kernel<T, Stored, kRows, kGated>, product);
  };
  if (weight.dtype == DType::kFP8) {
    launch_stored(TypeTag<Float8>{});
  } else {
    launch_stored(TypeTag<T>{});
  }
}

template <typename T, int kRows>
BoundLaunch bind_tiles(const KernelArgs& args) {
  const auto allow = [](auto tag) {
    using Stored = typename decltype(tag)::type;
    using Tile = Stage<Stored, kRows>;
    constexpr int64_t kBytes = Tile::kCount * Tile::kBytes;
    allow_shared_memory(expert_product_kernel<T, Stored, kRows, true>, kBytes);
    allow_shared_memory(expert_product_kernel<T, Stored, kRows, false>, kBytes);
  };
  allow(TypeTag<T>{});
  allow(TypeTag<Float8>{});
  return [args](Stream& stream, const StepLengths&) {
    launch_parts(stream, args, tiling_of(args), [&](const ExpertPart& part) {
      launch_product<T, kRows, true>(stream, args, part);
      launch_product<T, kRows, false>(stream, args, part);
    });
  };
}

}  // namespace

Workspace expert_groups_workspace(const KernelArgs& args) {
  return expert_parts_workspace(args, tiling_of(args));
}

BoundLaunch bind_expert_groups(Device& /*device*/, const KernelArgs& args) {
  const bool has_few_rows = tiling_of(args).max_rows == kFewRows;
  if (args.inputs["x"].dtype == DType::kF16) {
    return has_few_rows ? bind_tiles<__half, kFewRows>(args) : bind_tiles<__half, kManyRows>(args);
  }
  return has_few_rows ? bind_tiles<__nv_bfloat16, kFewRows>(args)
                      : bind_tiles<__nv_bfloat16, kManyRows>(args);
}

}  // namespace encore::cuda
