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
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/tile_copy.cuh"

namespace encore::cuda {
namespace {

constexpr int64_t kRowsPerPart = 4096;  // bounds the memory between the launches
constexpr int kSortThreads = 1024;
constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

// A block of a product takes some rows of one expert, and kOutputs outputs of each of two sets.
constexpr int kWarps = 4;
constexpr int kOutputsPerWarp = 16;  // of a set
constexpr int kOutputs = kWarps * kOutputsPerWarp;
constexpr int kSets = 2;
constexpr int kDepth = 64;  // columns in a stage of shared memory
constexpr int kPieces = kDepth / 8;
constexpr int kStages = 4;
constexpr int kFewRows = 16;  // in a tile
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
template <typename T>
struct ProductArgs {
  const T* rows;  // that are multiplied: row `pair / pairs_per_row`
  int64_t rows_stride;
  int pairs_per_row;
  const T* weight;      // [E,O,columns]
  int64_t weight_rows;  // O
  T* out;               // [pairs,num_outputs]
  int num_outputs;
  int columns;
  const int32_t* sorted;
  const RowTile* tiles;
  const int32_t* num_tiles;
};

template <int kRows>
struct Stage {
  static constexpr int kWeightBytes = kSets * kOutputs * kDepth * 2;
  static constexpr int kRowBytes = kRows * kDepth * 2;
  static constexpr int kBytes = kWeightBytes + kRowBytes;
};

// Multiplies a tile of rows by an expert's matrix. If `kGated`, the two sets of outputs are rows of
// gate and of up, and the kernel writes silu(gate) * up; else the sets lie side by side, and it
// writes both. The grid is (blocks of outputs, tiles).
template <typename T, int kRows, bool kGated>
__global__ void __launch_bounds__(kWarps* kLanes)
    expert_product_kernel(const __grid_constant__ ProductArgs<T> args) {
  constexpr int kThreads = kWarps * kLanes;
  constexpr int kRowsPerCopy = kThreads / kPieces;  // rows that the block copies at once
  constexpr int kWeightCopies = kSets * kOutputs / kRowsPerCopy;
  constexpr int kCopiesPerSet = kWeightCopies / kSets;
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
  const int first_output = static_cast<int>(blockIdx.x) * kOutputsPerBlock;
  if (thread < kRows) pairs[thread] = thread < tile.count ? args.sorted[tile.first + thread] : -1;
  __syncthreads();

  const int copied_row = thread / kPieces;
  const int piece = thread % kPieces;
  const int64_t set_rows = kGated ? args.num_outputs : kOutputs;
  const T* const weight =
      args.weight + (tile.expert * args.weight_rows + first_output + copied_row) * args.columns +
      piece * 8;
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
  const uint32_t copied_to = tile_offset<kDepth>(copied_row, piece);
  const auto copy_stage = [&](int step) {
    const uint32_t stage = shared + static_cast<uint32_t>(step % kStages * Stage<kRows>::kBytes);
    const int column = step * kDepth;
    const bool is_inside = column + piece * 8 < args.columns;
#pragma unroll
    for (int i = 0; i < kWeightCopies; ++i) {
      const int set = i / kCopiesPerSet;
      const int row = i % kCopiesPerSet * kRowsPerCopy;
      const int output = first_output + copied_row + row + (kGated ? 0 : set * kOutputs);
      const bool is_valid = is_inside && output < args.num_outputs;
      const T* const from =
          is_valid ? weight + (set * set_rows + row) * args.columns + column : args.weight;
      const uint32_t to = stage + copied_to + static_cast<uint32_t>(i * kRowsPerCopy * kDepth * 2);
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
      const bool is_valid = is_inside && rows[i] != nullptr;
      copy_async(stage + Stage<kRows>::kWeightBytes + copied_to +
                     static_cast<uint32_t>(i * kRowsPerCopy * kDepth * 2),
                 is_valid ? rows[i] + column : args.rows, is_valid);
    }
  };

  float sums[kTiles][kSets][2][4] = {};
  const int num_steps = (args.columns + kDepth - 1) / kDepth;
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < num_steps) copy_stage(step);
    commit_copies();
  }
  for (int step = 0; step < num_steps; ++step) {
    wait_for_copies<kStages - 2>();
    __syncthreads();  // of all threads; and nobody reads the stage before any more
    if (step + kStages - 1 < num_steps) copy_stage(step + kStages - 1);
    commit_copies();
    const uint32_t stage = shared + static_cast<uint32_t>(step % kStages * Stage<kRows>::kBytes);
#pragma unroll
    for (int k = 0; k < kPieces / 2; ++k) {
      uint32_t weights[kSets][4];
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        const int row = set * kOutputs + warp * kOutputsPerWarp + lane / 16 * 8 + lane % 8;
        load_matrices(weights[set], stage + tile_offset<kDepth>(row, 2 * k + lane / 8 % 2));
      }
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        uint32_t x[4];
        load_matrices(x, stage + Stage<kRows>::kWeightBytes +
                             tile_offset<kDepth>(t * 16 + lane % 16, 2 * k + lane / 16));
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
          multiply_add<T>(sums[t][set][0], x, weights[set][0], weights[set][1]);
          multiply_add<T>(sums[t][set][1], x, weights[set][2], weights[set][3]);
        }
      }
    }
  }

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
        const float* const first = sums[t][0][n] + half * 2;
        const float* const second = sums[t][1][n] + half * 2;
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
    const int64_t rows = std::min(args.inputs["x"].num_rows(), kRowsPerPart);
    pairs = rows * args.inputs["experts"].shape[1];
    max_tiles = pairs / rows_per_tile + std::min(pairs, down.shape[0]);
    const auto take = [&](int64_t size) {
      constexpr int64_t kAlignment = 256;
      const int64_t place = bytes;
      bytes += round_up(size, kAlignment);
      return place;
    };
    sorted = take(pairs * static_cast<int64_t>(sizeof(int32_t)));
    tiles = take(max_tiles * static_cast<int64_t>(sizeof(RowTile)));
    num_tiles = take(sizeof(int32_t));
    hidden = take(pairs * down.shape[2] * size_of(down.dtype));
    products = take(pairs * down.shape[1] * size_of(down.dtype));
  }
};

// Returns the rows in a tile, which are few where experts get few rows each.
int rows_per_tile(const KernelArgs& args) {
  constexpr int64_t kRowsWorthATile = 24;
  const int64_t num_experts = args.inputs["down"].shape[0];
  return num_pairs(args) <= kRowsWorthATile * num_experts ? kFewRows : kManyRows;
}

template <typename T, int kRows, bool kGated>
void launch_product(Stream& stream, const ProductArgs<T>& args, int64_t max_tiles) {
  constexpr int kOutputsPerBlock = kGated ? kOutputs : kSets * kOutputs;
  launch(stream,
         {.blocks = dim3(static_cast<unsigned>(div_up(args.num_outputs, kOutputsPerBlock)),
                         static_cast<unsigned>(max_tiles)),
          .threads = kWarps * kLanes,
          .shared_bytes = static_cast<size_t>(kStages * Stage<kRows>::kBytes)},
         expert_product_kernel<T, kRows, kGated>, args);
}

// Enqueues the launches of rows [first, first + count).
template <typename T, int kRows>
void launch_part(Stream& stream, const KernelArgs& args, int64_t first, int64_t count) {
  const TensorView& x = args.inputs["x"];
  const TensorView& experts = args.inputs["experts"];
  const TensorView& weights = args.inputs["weights"];
  const TensorView& gate_up = args.inputs["gate_up"];
  const TensorView& down = args.inputs["down"];
  const TensorView& y = args.outputs["y"];
  const Between between(args, kRows);
  auto* const scratch = static_cast<std::byte*>(args.scratch);
  const auto top_k = static_cast<int>(experts.shape[1]);
  const auto num_experts = static_cast<int>(gate_up.shape[0]);
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
  ProductArgs<T> product{.rows = x.as<const T>() + first * x.row_stride,
                         .rows_stride = x.row_stride,
                         .pairs_per_row = top_k,
                         .weight = gate_up.as<const T>(),
                         .weight_rows = gate_up.shape[1],
                         .out = reinterpret_cast<T*>(scratch + between.hidden),
                         .num_outputs = inner,
                         .columns = width,
                         .sorted = sort.sorted,
                         .tiles = sort.tiles,
                         .num_tiles = sort.num_tiles};
  launch_product<T, kRows, true>(stream, product, max_tiles);
  product.rows = product.out;
  product.rows_stride = inner;
  product.pairs_per_row = 1;
  product.weight = down.as<const T>();
  product.weight_rows = down.shape[1];
  product.out = reinterpret_cast<T*>(scratch + between.products);
  product.num_outputs = width;
  product.columns = inner;
  launch_product<T, kRows, false>(stream, product, max_tiles);
  const CombineArgs<T> combine{.products = product.out,
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
  allow_shared_memory(expert_product_kernel<T, kRows, true>, kStages * Stage<kRows>::kBytes);
  allow_shared_memory(expert_product_kernel<T, kRows, false>, kStages * Stage<kRows>::kBytes);
  return [args](Stream& stream, const StepLengths&) {
    const int64_t num_rows = args.inputs["x"].num_rows();
    for (int64_t first = 0; first < num_rows; first += kRowsPerPart)
      launch_part<T, kRows>(stream, args, first, std::min(kRowsPerPart, num_rows - first));
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
