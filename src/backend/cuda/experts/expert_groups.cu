// expert_mlp of rows that are sorted by expert, so that an expert's weights are read once for every
// tile of its rows. In four launches for each part of the rows:
//
//   sort       counts and sorts the pairs of a row and an expert, and lists the tiles of each expert
//   gate_up    h = silu(gate x) * (up x) of each pair, of gathered rows of x
//   down       the products of each pair, rounded
//   combine    their sum by the weights of the row, in the order of its list
//
// Grids are those of the most tiles that there can be; blocks beyond the list end at once, so nothing
// on the host depends on what rows choose. A product's sum runs over the columns 16 at a time, whatever
// tile its row is in.
#include <algorithm>

#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/matrices.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/tile_copy.cuh"

namespace encore::cuda {
namespace {

constexpr int kSortThreads = 1024;
constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

// A block of a product takes some rows of one expert, and kOutputs outputs of each of two sets.
constexpr int kWarps = 4;
constexpr int kOutputsPerWarp = 16;  // of a set
constexpr int kOutputs = kWarps * kOutputsPerWarp;
constexpr int kSets = 2;
constexpr int kRowPieces = 8;  // of 16 bytes, of a row of weights in a stage of shared memory
constexpr int kFewRows = 16;   // in a tile
constexpr int kManyRows = 64;

// The rows of a tile belong to one expert: they are `count` of the sorted pairs, from `first` on.
struct RowTile {
  int expert;
  int first;
  int count;
};

struct SortArgs {
  const int32_t* experts;
  int64_t experts_stride;
  int num_pairs;
  int top_k;
  int num_experts;
  int rows_per_tile;
  int32_t* sorted;  // pairs by expert
  RowTile* tiles;
  int32_t* num_tiles;
};

// Sorts the pairs by expert, and cuts each expert's pairs into tiles. It runs as one block.
__global__ void __launch_bounds__(kSortThreads)
    sort_pairs_kernel(const __grid_constant__ SortArgs args) {
  extern __shared__ int32_t next_place[];  // of each expert; before that, its pairs
  begin_kernel();
  const int thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < args.num_experts; e += kSortThreads)
    next_place[e] = 0;
  __syncthreads();
  const auto expert_of = [&](int pair) {
    return args.experts[pair / args.top_k * args.experts_stride + pair % args.top_k];
  };
  const auto is_expert = [&](int expert) { return expert >= 0 && expert < args.num_experts; };
  for (int pair = thread; pair < args.num_pairs; pair += kSortThreads) {
    const int expert = expert_of(pair);
    if (is_expert(expert)) atomicAdd(&next_place[expert], 1);
  }
  __syncthreads();
  if (thread < kLanes) {
    int first = 0;
    int num_tiles = 0;
    for (int base = 0; base < args.num_experts; base += kLanes) {
      const int expert = base + thread;
      const int count = expert < args.num_experts ? next_place[expert] : 0;
      const int tiles = (count + args.rows_per_tile - 1) / args.rows_per_tile;
      int places_through = count;  // this expert's too
      int tiles_through = tiles;
#pragma unroll
      for (int lanes = 1; lanes < kLanes; lanes *= 2) {
        const int places = __shfl_up_sync(kAllLanes, places_through, lanes);
        const int others = __shfl_up_sync(kAllLanes, tiles_through, lanes);
        if (thread >= lanes) {
          places_through += places;
          tiles_through += others;
        }
      }
      const int place = first + places_through - count;
      const int tile = num_tiles + tiles_through - tiles;
      if (expert < args.num_experts) next_place[expert] = place;
      for (int i = 0; i < tiles; ++i) {
        const int done = i * args.rows_per_tile;
        args.tiles[tile + i] = {expert, place + done, min(args.rows_per_tile, count - done)};
      }
      first += __shfl_sync(kAllLanes, places_through, kLanes - 1);
      num_tiles += __shfl_sync(kAllLanes, tiles_through, kLanes - 1);
    }
    if (thread == 0) *args.num_tiles = num_tiles;
  }
  __syncthreads();
  // The order of an expert's rows shows in no bit of the result, so atomics may hand out their
  // places.
  for (int pair = thread; pair < args.num_pairs; pair += kSortThreads) {
    const int expert = expert_of(pair);
    if (is_expert(expert)) args.sorted[atomicAdd(&next_place[expert], 1)] = pair;
  }
}

// Strides count elements.
template <typename T, typename Stored>
struct ProductArgs {
  const T* rows;  // that are multiplied: row `pair / pairs_per_row`
  int64_t rows_stride;
  int pairs_per_row;
  ExpertMatrices<Stored> matrices;
  T* out;  // [pairs,num_outputs]
  int num_outputs;
  const int32_t* sorted;
  const RowTile* tiles;
  const int32_t* num_tiles;
};

// A stage of shared memory: kDepth columns of weights, in a tile of rows of kRowPieces 16-byte pieces,
// and of rows that they are multiplied with. Of codes a stage has twice the columns of floats, so that
// as many bytes of weights come with each step.
template <typename Stored, int kRows>
struct Stage {
  static constexpr int kPieceElements = 16 / static_cast<int>(sizeof(Stored));
  static constexpr int kDepth = kRowPieces * kPieceElements;
  static constexpr int kCount = kIsFp8<Stored> ? 3 : 4;  // that a block has
  static constexpr int kWeightRowBytes = kRowPieces * 16;
  static constexpr int kWeightBytes = kSets * kOutputs * kWeightRowBytes;
  static constexpr int kRowBytes = kRows * kDepth * 2;
  static constexpr int kBytes = kWeightBytes + kRowBytes;

  static __device__ __forceinline__ uint32_t weight_offset(int row, int piece) {
    return tile_offset<kWeightRowBytes / 2>(row, piece);
  }
};

// The second operands of the products of 16 columns with a warp's outputs of both sets: of the first
// 8 outputs of a set in [0] and [1], of the others in [2] and [3].
template <typename T, typename Stored>
__device__ __forceinline__ void load_weights(uint32_t (&weights)[kSets][4], uint32_t stage, int k) {
  using Tile = Stage<Stored, kFewRows>;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int first = static_cast<int>(threadIdx.x) / kLanes * kOutputsPerWarp + lane % 8;
  if constexpr (kIsFp8<Stored>) {
    // A word of codes has both operands of a lane (codes.cuh), so four matrices are those of both sets.
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

// A thread's sums: of kTiles tiles of 16 rows, the two sets, and two times 8 outputs of a set.
template <int kTiles>
using ProductSums = float[kTiles][kSets][2][4];

// Scales of the outputs that a thread has sums of, in one group of columns.
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
  // Adds the group's sums to those of all columns, and begins anew.
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

// Multiplies a tile of rows by an expert's matrix. If `kGated`, the two sets of outputs are rows of
// gate and of up, and the kernel writes silu(gate) * up; else the sets lie side by side, and it
// writes both. The grid is (blocks of outputs, tiles).
template <typename T, typename Stored, int kRows, bool kGated>
__global__ void __launch_bounds__(kWarps* kLanes)
    expert_product_kernel(const __grid_constant__ ProductArgs<T, Stored> args) {
  using Tile = Stage<Stored, kRows>;
  constexpr int kThreads = kWarps * kLanes;
  constexpr int kDepth = Tile::kDepth;
  constexpr int kPieces = kDepth / 8;  // of 16 bytes, of a row
  constexpr int kStages = Tile::kCount;
  constexpr int kWeightRowsPerCopy = kThreads / kRowPieces;  // that the block copies at once
  constexpr int kWeightCopies = kSets * kOutputs / kWeightRowsPerCopy;
  constexpr int kCopiesPerSet = kWeightCopies / kSets;
  constexpr int kRowsPerCopy = kThreads / kPieces;
  constexpr int kRowCopies = kRows / kRowsPerCopy;
  constexpr int kTiles = kRows / 16;  // of the tensor cores
  constexpr int kOutputsPerBlock = kGated ? kOutputs : kSets * kOutputs;
  extern __shared__ __align__(128) uint8_t stages[];
  __shared__ int32_t pairs[kRows];
  begin_kernel();
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
      // Where an expert has many rows, its other tiles read its weights as well, so these stay in
      // caches.
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

  ProductSums<kTiles> sums = {};  // of codes: of the columns that share a scale
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
    __syncthreads();  // of all threads; and nobody reads the stage before any more
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

// Strides count elements.
template <typename T>
struct CombineArgs {
  const T* products;  // [pairs,width]
  const int32_t* experts;
  int64_t experts_stride;
  const float* weights;
  int64_t weights_stride;
  T* y;
  int64_t y_stride;
  int num_experts;
  int top_k;
  int width;
};

// Adds up the products of each row's experts by the row's weights. The grid is (rows, parts of a
// row); a thread has one pack of a row.
template <typename T>
__global__ void combine_experts_kernel(const __grid_constant__ CombineArgs<T> args) {
  constexpr int kSize = Pack<T>::kSize;
  begin_kernel();
  const int64_t row = blockIdx.x;
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kSize;
  if (column >= args.width) return;
  float sums[kSize] = {};
#pragma unroll 4
  for (int k = 0; k < args.top_k; ++k) {
    const int expert = args.experts[row * args.experts_stride + k];
    if (expert < 0 || expert >= args.num_experts) continue;
    const float weight = args.weights[row * args.weights_stride + k];
    float products[kSize];
    unpack(load_pack(args.products + (row * args.top_k + k) * args.width + column), products);
#pragma unroll
    for (int i = 0; i < kSize; ++i)
      sums[i] = fmaf(weight, products[i], sums[i]);
  }
  store_pack(args.y + row * args.y_stride + column, to_pack<T>(sums));
}

// Lays out the scratch in which the launches of one part of the rows hand each other their results.
struct Between {
  int64_t pairs;
  int64_t max_tiles;
  int64_t sorted = 0;  // bytes in front of each
  int64_t tiles = 0;
  int64_t num_tiles = 0;
  int64_t hidden = 0;
  int64_t products = 0;
  int64_t bytes = 0;

  Between(const KernelArgs& args, int rows_per_tile) {
    const TensorView& down = args.inputs["down"];
    const int64_t size = size_of(args.inputs["x"].dtype);
    const int64_t rows = std::min(args.inputs["x"].num_rows(), kExpertRowsPerPart);
    pairs = rows * args.inputs["experts"].shape[1];
    max_tiles = pairs / rows_per_tile + std::min(pairs, down.shape[0]);
    const auto take = [&](int64_t num_bytes) {
      constexpr int64_t kAlignment = 256;
      const int64_t place = bytes;
      bytes += round_up(num_bytes, kAlignment);
      return place;
    };
    sorted = take(pairs * static_cast<int64_t>(sizeof(int32_t)));
    tiles = take(max_tiles * static_cast<int64_t>(sizeof(RowTile)));
    num_tiles = take(sizeof(int32_t));
    hidden = take(pairs * down.shape[2] * size);
    products = take(pairs * down.shape[1] * size);
  }
};

// Returns the rows in a tile, which are few where experts get few rows each.
int rows_per_tile(const KernelArgs& args) {
  constexpr int64_t kRowsWorthATile = 24;
  const int64_t num_experts = args.inputs["down"].shape[0];
  return num_pairs(args) <= kRowsWorthATile * num_experts ? kFewRows : kManyRows;
}

// Launches the product of all tiles with the matrices of a weight, of floats or of codes.
template <typename T, int kRows, bool kGated>
void launch_product(Stream& stream, const KernelArgs& args, const char* name, const T* rows,
                    int64_t rows_stride, T* out, const SortArgs& sort, int64_t max_tiles) {
  const auto launch_stored = [&](auto tag) {
    using Stored = typename decltype(tag)::type;
    constexpr int kOutputsPerBlock = kGated ? kOutputs : kSets * kOutputs;
    const ProductArgs<T, Stored> product{
        .rows = rows,
        .rows_stride = rows_stride,
        .pairs_per_row = kGated ? sort.top_k : 1,
        .matrices = matrices_of<Stored>(args, name, kGated ? kSets : 1),
        .out = out,
        .num_outputs = static_cast<int>(args.inputs[name].shape[1]) / (kGated ? 2 : 1),
        .sorted = sort.sorted,
        .tiles = sort.tiles,
        .num_tiles = sort.num_tiles};
    launch(stream,
           {.blocks = dim3(static_cast<unsigned>(div_up(product.num_outputs, kOutputsPerBlock)),
                           static_cast<unsigned>(max_tiles)),
            .threads = kWarps * kLanes,
            .shared_bytes =
                static_cast<size_t>(Stage<Stored, kRows>::kCount * Stage<Stored, kRows>::kBytes)},
           expert_product_kernel<T, Stored, kRows, kGated>, product);
  };
  if (args.inputs[name].dtype == DType::kFP8) {
    launch_stored(TypeTag<Float8>{});
  } else {
    launch_stored(TypeTag<T>{});
  }
}

// Enqueues the launches of rows [first, first + count).
template <typename T, int kRows>
void launch_part(Stream& stream, const KernelArgs& args, int64_t first, int64_t count) {
  const TensorView& x = args.inputs["x"];
  const TensorView& experts = args.inputs["experts"];
  const TensorView& weights = args.inputs["weights"];
  const TensorView& down = args.inputs["down"];
  const TensorView& y = args.outputs["y"];
  const Between between(args, kRows);
  auto* const scratch = static_cast<std::byte*>(args.scratch);
  const auto top_k = static_cast<int>(experts.shape[1]);
  const auto num_experts = static_cast<int>(down.shape[0]);
  const auto width = static_cast<int>(x.shape[1]);
  const auto inner = static_cast<int>(down.shape[2]);
  const int32_t* const part_experts = experts.as<const int32_t>() + first * experts.row_stride;
  const SortArgs sort{.experts = part_experts,
                      .experts_stride = experts.row_stride,
                      .num_pairs = static_cast<int>(count) * top_k,
                      .top_k = top_k,
                      .num_experts = num_experts,
                      .rows_per_tile = kRows,
                      .sorted = reinterpret_cast<int32_t*>(scratch + between.sorted),
                      .tiles = reinterpret_cast<RowTile*>(scratch + between.tiles),
                      .num_tiles = reinterpret_cast<int32_t*>(scratch + between.num_tiles)};
  launch(stream,
         {.blocks = 1, .threads = kSortThreads, .shared_bytes = sizeof(int32_t) * num_experts},
         sort_pairs_kernel, sort);
  const int64_t max_tiles = sort.num_pairs / kRows + std::min(sort.num_pairs, num_experts);
  auto* const hidden = reinterpret_cast<T*>(scratch + between.hidden);
  auto* const products = reinterpret_cast<T*>(scratch + between.products);
  launch_product<T, kRows, true>(stream, args, "gate_up", x.as<const T>() + first * x.row_stride,
                                 x.row_stride, hidden, sort, max_tiles);
  launch_product<T, kRows, false>(stream, args, "down", hidden, inner, products, sort, max_tiles);
  const CombineArgs<T> combine{.products = products,
                               .experts = part_experts,
                               .experts_stride = experts.row_stride,
                               .weights = weights.as<const float>() + first * weights.row_stride,
                               .weights_stride = weights.row_stride,
                               .y = y.as<T>() + first * y.row_stride,
                               .y_stride = y.row_stride,
                               .num_experts = num_experts,
                               .top_k = top_k,
                               .width = width};
  constexpr int64_t kMaxThreads = 256;
  const int64_t packs = width / Pack<T>::kSize;
  const int64_t threads = std::min(kMaxThreads, round_up(packs, kLanes));
  launch(
      stream,
      {.blocks = dim3(static_cast<unsigned>(count), static_cast<unsigned>(div_up(packs, threads))),
       .threads = static_cast<unsigned>(threads)},
      combine_experts_kernel<T>, combine);
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
    const int64_t num_rows = args.inputs["x"].num_rows();
    for (int64_t first = 0; first < num_rows; first += kExpertRowsPerPart)
      launch_part<T, kRows>(stream, args, first, std::min(kExpertRowsPerPart, num_rows - first));
  };
}

}  // namespace

Workspace expert_groups_workspace(const KernelArgs& args) {
  return {.scratch_bytes = Between(args, rows_per_tile(args)).bytes};
}

BoundLaunch bind_expert_groups(Device& /*device*/, const KernelArgs& args) {
  const bool has_few_rows = rows_per_tile(args) == kFewRows;
  if (args.inputs["x"].dtype == DType::kF16) {
    return has_few_rows ? bind_tiles<__half, kFewRows>(args) : bind_tiles<__half, kManyRows>(args);
  }
  return has_few_rows ? bind_tiles<__nv_bfloat16, kFewRows>(args)
                      : bind_tiles<__nv_bfloat16, kManyRows>(args);
}

}  // namespace encore::cuda
