// Sorting by counting: blocks count the pairs of each expert, add up, and hand out places.
#include "backend/cuda/experts/sorted_pairs.h"

#include <cooperative_groups.h>

#include "backend/cuda/experts/experts.h"
#include "backend/cuda/launch.h"
#include "base/rounding.h"

namespace encore::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kSortThreads = 1024;
constexpr unsigned kSortBlocks = 8;  // of a cluster, for more pairs than one block takes
constexpr int kPairsOfOneBlock = 4 * kSortThreads;
constexpr int kCountsPerExpert = 2;
constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

// The sum of the numbers of this lane and of those before it.
__device__ __forceinline__ int sum_through(int number) {
  const auto lane = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int lanes = 1; lanes < kLanes; lanes *= 2) {
    const int before = __shfl_up_sync(kAllLanes, number, lanes);
    if (lane >= lanes) number += before;
  }
  return number;
}

// The grid is one cluster. A thread adds up the pairs of an expert.
__global__ void __launch_bounds__(kSortThreads)
    sort_pairs_kernel(const __grid_constant__ SortedPairs args) {
  constexpr int kWarps = kSortThreads / kLanes;
  extern __shared__ int32_t counts[];               // of this block's pairs, by expert
  int32_t* const next = counts + args.num_experts;  // the place of this block's next pair
  __shared__ int32_t places_of_warp[kWarps];        // of the experts of a warp's threads
  __shared__ int32_t tiles_of_warp[kWarps];
  const auto thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < args.num_experts; e += kSortThreads)
    counts[e] = 0;
  begin_kernel();
  const cg::cluster_group cluster = cg::this_cluster();
  const auto rank = static_cast<int>(cluster.block_rank());
  const auto num_blocks = static_cast<int>(cluster.num_blocks());
  __syncthreads();
  // Calls `visit(pair, expert)` for this block's pairs that have an expert.
  const auto visit_pairs = [&](auto visit) {
    for (int pair = rank * kSortThreads + thread; pair < args.num_pairs;
         pair += num_blocks * kSortThreads) {
      const int expert = args.experts[pair / args.top_k * args.experts_stride + pair % args.top_k];
      if (expert >= 0 && expert < args.num_experts) visit(pair, expert);
    }
  };
  visit_pairs([&](int /*pair*/, int expert) { atomicAdd(&counts[expert], 1); });
  cluster.sync();
  int first_place = 0;
  int first_tile = 0;
  for (int base = 0; base < args.num_experts; base += kSortThreads) {
    const int expert = base + thread;
    int count = 0;
    int in_blocks_before = 0;
#pragma unroll
    for (unsigned block = 0; block < kSortBlocks; ++block) {
      if (static_cast<int>(block) >= num_blocks || expert >= args.num_experts) break;
      if (static_cast<int>(block) == rank) in_blocks_before = count;
      count += *cluster.map_shared_rank(counts + expert, block);
    }
    const auto padded = [&](int places) {
      return (places + args.tiling.granularity - 1) / args.tiling.granularity *
             args.tiling.granularity;
    };
    const int places = padded(count);
    const int tiles = (count + args.tiling.max_rows - 1) / args.tiling.max_rows;
    const int places_through = sum_through(places);
    const int tiles_through = sum_through(tiles);
    if (thread % kLanes == kLanes - 1) {
      places_of_warp[thread / kLanes] = places_through;
      tiles_of_warp[thread / kLanes] = tiles_through;
    }
    __syncthreads();
    int place = first_place + places_through - places;
    int tile = first_tile + tiles_through - tiles;
    for (int warp = 0; warp < kWarps; ++warp) {
      first_place += places_of_warp[warp];
      first_tile += tiles_of_warp[warp];
      if (warp >= thread / kLanes) continue;
      place += places_of_warp[warp];
      tile += tiles_of_warp[warp];
    }
    if (expert < args.num_experts) next[expert] = place + in_blocks_before;
    if (rank == 0 && tiles > 0) {
      const int rows = padded((count + tiles - 1) / tiles);
      for (int i = 0; i < tiles; ++i)
        args.tiles[tile + i] = {expert, place + i * rows, max(0, min(rows, count - i * rows))};
    }
    __syncthreads();
  }
  if (rank == 0 && thread == 0) *args.num_tiles = first_tile;
  // The order of an expert's rows shows in no bit of the result, so atomics may hand out their
  // places.
  visit_pairs([&](int pair, int expert) {
    const int place = atomicAdd(&next[expert], 1);
    args.pairs[place] = pair;
    if (args.places != nullptr) args.places[pair] = place;
  });
  cluster.sync();  // nobody reads the counts of a block that has ended
}

// Strides count elements.
template <typename T>
struct CombineArgs {
  const T* products;
  const int32_t* places;  // null: that of a pair is its number
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

// The grid is (rows, parts of a row); a thread has one pack of a row.
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
    const int64_t pair = row * args.top_k + k;
    const int64_t place = args.places == nullptr ? pair : args.places[pair];
    float products[kSize];
    unpack(load_pack(args.products + place * args.width + column), products);
#pragma unroll
    for (int i = 0; i < kSize; ++i)
      sums[i] = fmaf(weight, products[i], sums[i]);
  }
  store_pack(args.y + row * args.y_stride + column, to_pack<T>(sums));
}

void sort_pairs(Stream& stream, const SortedPairs& sorted) {
  const unsigned blocks = sorted.num_pairs <= kPairsOfOneBlock ? 1 : kSortBlocks;
  launch(
      stream,
      {.blocks = blocks,
       .threads = kSortThreads,
       .shared_bytes = sizeof(int32_t) * kCountsPerExpert * static_cast<size_t>(sorted.num_experts),
       .cluster = blocks},
      sort_pairs_kernel, sorted);
}

void combine_experts(Stream& stream, const ExpertPart& part) {
  constexpr int64_t kMaxThreads = 256;
  const TensorView& y = part.y;
  visit_element(y.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const CombineArgs<T> combine{.products = part.products.as<const T>(),
                                 .places = part.sorted.places,
                                 .experts = part.sorted.experts,
                                 .experts_stride = part.sorted.experts_stride,
                                 .weights = part.weights.as<const float>(),
                                 .weights_stride = part.weights.row_stride,
                                 .y = y.as<T>(),
                                 .y_stride = y.row_stride,
                                 .num_experts = part.sorted.num_experts,
                                 .top_k = part.sorted.top_k,
                                 .width = static_cast<int>(y.shape[1])};
    const int64_t packs = combine.width / Pack<T>::kSize;
    const int64_t threads = std::min(kMaxThreads, round_up(packs, kLanes));
    launch(stream,
           {.blocks = dim3(static_cast<unsigned>(y.num_rows()),
                           static_cast<unsigned>(div_up(packs, threads))),
            .threads = static_cast<unsigned>(threads)},
           combine_experts_kernel<T>, combine);
  });
}

// Lays out the scratch of a part: bytes in front of each.
struct Scratch {
  int64_t num_pairs;
  int64_t max_places;  // of the rows of hidden and products, too
  int64_t pairs = 0;
  int64_t places = 0;
  int64_t tiles = 0;
  int64_t num_tiles = 0;
  int64_t hidden = 0;
  int64_t products = 0;
  int64_t bytes = 0;

  Scratch(const KernelArgs& args, const Tiling& tiling) {
    constexpr int64_t kWord = sizeof(int32_t);
    const TensorView& down = args.inputs["down"];
    const int64_t size = size_of(args.inputs["x"].dtype);
    const int64_t rows = std::min(args.inputs["x"].num_rows(), kExpertRowsPerPart);
    num_pairs = rows * args.inputs["experts"].shape[1];
    const int64_t most_chosen = std::min(num_pairs, down.shape[0]);
    max_places = num_pairs + most_chosen * (tiling.granularity - 1);
    const auto take = [&](int64_t num_bytes) {
      constexpr int64_t kAlignment = 256;
      const int64_t place = bytes;
      bytes += round_up(num_bytes, kAlignment);
      return place;
    };
    pairs = take(max_places * kWord);
    if (tiling.by_place) places = take(num_pairs * kWord);
    tiles =
        take((num_pairs / tiling.max_rows + most_chosen) * static_cast<int64_t>(sizeof(RowTile)));
    num_tiles = take(kWord);
    hidden = take(max_places * down.shape[2] * size);
    products = take(max_places * down.shape[1] * size);
  }
};

TensorView rows_of(const TensorView& view, int64_t first, int64_t count) {
  TensorView rows(
      static_cast<std::byte*>(view.data) + first * view.row_stride * size_of(view.dtype),
      view.dtype, {count, view.shape[1]});
  rows.row_stride = view.row_stride;
  return rows;
}

}  // namespace

Workspace expert_parts_workspace(const KernelArgs& args, const Tiling& tiling) {
  return {.scratch_bytes = Scratch(args, tiling).bytes};
}

ExpertPart expert_part(const KernelArgs& args, const Tiling& tiling, int64_t first) {
  const TensorView& x = args.inputs["x"];
  const TensorView& down = args.inputs["down"];
  const int64_t count = std::min(kExpertRowsPerPart, x.num_rows() - first);
  const TensorView experts = rows_of(args.inputs["experts"], first, count);
  const Scratch scratch(args, tiling);
  const auto at = [&](int64_t bytes) { return static_cast<std::byte*>(args.scratch) + bytes; };
  const auto words = [&](int64_t bytes) { return reinterpret_cast<int32_t*>(at(bytes)); };
  return {
      .sorted = {.tiling = tiling,
                 .experts = experts.as<const int32_t>(),
                 .experts_stride = experts.row_stride,
                 .num_pairs = static_cast<int>(experts.shape.num_elements()),
                 .top_k = static_cast<int>(experts.shape[1]),
                 .num_experts = static_cast<int>(down.shape[0]),
                 .pairs = words(scratch.pairs),
                 .places = tiling.by_place ? words(scratch.places) : nullptr,
                 .tiles = reinterpret_cast<RowTile*>(at(scratch.tiles)),
                 .num_tiles = words(scratch.num_tiles)},
      .x = rows_of(x, first, count),
      .weights = rows_of(args.inputs["weights"], first, count),
      .y = rows_of(args.outputs["y"], first, count),
      .hidden = TensorView(at(scratch.hidden), x.dtype, {scratch.max_places, down.shape[2]}),
      .products = TensorView(at(scratch.products), x.dtype, {scratch.max_places, down.shape[1]})};
}

void launch_parts(Stream& stream, const KernelArgs& args, const Tiling& tiling,
                  const std::function<void(const ExpertPart& part)>& multiply) {
  for (int64_t first = 0; first < args.inputs["x"].num_rows(); first += kExpertRowsPerPart) {
    const ExpertPart part = expert_part(args, tiling, first);
    sort_pairs(stream, part.sorted);
    multiply(part);
    combine_experts(stream, part);
  }
}

}  // namespace encore::cuda
