// Sorts pairs of a row and one of its experts by counting: blocks count the pairs of each expert,
// add the counts up, and give each pair its place in the order of experts.
#include "backend/cuda/experts/sorted_pairs.cuh"

#include <cooperative_groups.h>

#include "backend/cuda/experts/experts.h"
#include "backend/cuda/launch.h"
#include "base/rounding.h"

namespace encore::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kSortThreads = 1024;
// Blocks of a cluster, where there are more pairs than one block takes.
constexpr unsigned kSortBlocks = 8;
constexpr int kPairsOfOneBlock = 4 * kSortThreads;
constexpr int kCountsPerExpert = 2;

// Sorts by expert the (row, expert) pairs of one ExpertPart. The grid is one cluster. In each
// block, every expert has a thread that adds up the counts of all blocks for it.
__global__ void __launch_bounds__(kSortThreads)
    sort_pairs_kernel(const __grid_constant__ SortedPairs args) {
  constexpr int kWarps = kSortThreads / kSortLanes;
  extern __shared__ int32_t counts[];               // numbers of this block's pairs, by expert
  int32_t* const next = counts + args.num_experts;  // the place of this block's next pair
  __shared__ FirstOfExpert of_warps[kWarps];
  const auto thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < args.num_experts; e += kSortThreads)
    counts[e] = 0;
  begin_kernel();
  const cg::cluster_group cluster = cg::this_cluster();
  const auto rank = static_cast<int>(cluster.block_rank());
  const auto num_blocks = static_cast<int>(cluster.num_blocks());
  __syncthreads();
  // Calls `visit(pair, expert)` for each of this block's pairs that has an expert. It reads
  // kReadAtOnce experts at once.
  constexpr int kReadAtOnce = 4;
  const auto visit_pairs = [&](auto visit) {
    const int next_pair = num_blocks * kSortThreads;
    for (int first = rank * kSortThreads + thread; first < args.num_pairs;
         first += kReadAtOnce * next_pair) {
      int experts[kReadAtOnce];
#pragma unroll
      for (int i = 0; i < kReadAtOnce; ++i) {
        const int pair = first + i * next_pair;
        experts[i] = pair < args.num_pairs ? args.expert_of(pair) : -1;
      }
#pragma unroll
      for (int i = 0; i < kReadAtOnce; ++i) {
        if (experts[i] >= 0) visit(first + i * next_pair, experts[i]);
      }
    }
  };
  visit_pairs([&](int /*pair*/, int expert) { atomicAdd(&counts[expert], 1); });
  cluster.sync();
  FirstOfExpert end;
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
    const FirstOfExpert first = place_expert(args.tiling, count, kWarps, end, of_warps);
    if (expert < args.num_experts) next[expert] = first.place + in_blocks_before;
    if (rank == 0) list_tiles(args.tiling, expert, count, first, args.tiles);
    __syncthreads();
  }
  if (rank == 0 && thread == 0) *args.num_tiles = end.tile;
  // The order of an expert's rows changes no bit of the result, so atomic additions, whose order
  // varies, may give the rows their places.
  visit_pairs([&](int pair, int expert) {
    const int place = atomicAdd(&next[expert], 1);
    args.sources[place] = args.tiling.by_place ? pair / args.top_k : pair;
    if (args.places != nullptr) args.places[pair] = place;
  });
  cluster.sync();  // a block must not end while others read its counts
}

// The arguments of combine_experts_kernel. Units: strides are in elements.
template <typename T>
struct CombineArgs {
  SortedPairs sorted;
  const T* products;
  const float* weights;
  int64_t weights_stride;
  T* y;
  int64_t y_stride;
  int width;
};

// Adds up the weighted products of each row. The grid is (rows, parts of a row), and a thread has
// one pack of a row. Shared memory holds, for each of the row's products, its place (-1 for none)
// and its weight.
//
// The products allow this launch to start once rows have chosen their experts and pairs have their
// places.
template <typename T>
__global__ void combine_experts_kernel(const __grid_constant__ CombineArgs<T> args) {
  constexpr int kSize = Pack<T>::kSize;
  extern __shared__ int32_t places_of_row[];
  const SortedPairs& sorted = args.sorted;
  auto* const weights_of_row = reinterpret_cast<float*>(places_of_row + sorted.top_k);
  allow_next_kernel();
  const int64_t row = blockIdx.x;
  for (int k = static_cast<int>(threadIdx.x); k < sorted.top_k; k += static_cast<int>(blockDim.x)) {
    const auto pair = static_cast<int>(row * sorted.top_k + k);
    const bool is_chosen = sorted.expert_of(pair) >= 0;
    places_of_row[k] = !is_chosen                 ? -1
                       : sorted.places == nullptr ? pair
                                                  : __ldcg(sorted.places + pair);
    weights_of_row[k] = __ldcg(args.weights + row * args.weights_stride + k);
  }
  __syncthreads();
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x) * kSize;
  if (column >= args.width) return;
  wait_for_inputs();
  float sums[kSize] = {};
#pragma unroll 4
  for (int k = 0; k < sorted.top_k; ++k) {
    const int place = places_of_row[k];
    if (place < 0) continue;
    float products[kSize];
    unpack(load_pack(args.products + static_cast<int64_t>(place) * args.width + column), products);
#pragma unroll
    for (int i = 0; i < kSize; ++i)
      sums[i] = fmaf(weights_of_row[k], products[i], sums[i]);
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
  constexpr size_t kBytesOfChoice = sizeof(int32_t) + sizeof(float);
  const TensorView& y = part.y;
  visit_element(y.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const CombineArgs<T> combine{.sorted = part.sorted,
                                 .products = part.products.as<const T>(),
                                 .weights = part.weights.as<const float>(),
                                 .weights_stride = part.weights.row_stride,
                                 .y = y.as<T>(),
                                 .y_stride = y.row_stride,
                                 .width = static_cast<int>(y.shape[1])};
    const int64_t packs = combine.width / Pack<T>::kSize;
    const int64_t threads = std::min(kMaxThreads, round_up(packs, kSortLanes));
    launch(stream,
           {.blocks = dim3(static_cast<unsigned>(y.num_rows()),
                           static_cast<unsigned>(div_up(packs, threads))),
            .threads = static_cast<unsigned>(threads),
            .shared_bytes = static_cast<size_t>(part.sorted.top_k) * kBytesOfChoice},
           combine_experts_kernel<T>, combine);
  });
}

// Lays out the scratch of a part. The members from `sources` to `products` are offsets of arrays.
// Units: bytes.
struct Scratch {
  int64_t max_places;
  int64_t sources = 0;
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
    const SortedPairs sorted = sorted_pairs(args, tiling, rows);
    max_places = sorted.max_places();
    const auto take = [&](int64_t num_bytes) {
      constexpr int64_t kAlignment = 256;
      const int64_t place = bytes;
      bytes += round_up(num_bytes, kAlignment);
      return place;
    };
    if (tiling.by_place) places = take(sorted.num_pairs * kWord);
    if (!tiling.in_blocks) {
      sources = take(max_places * kWord);
      tiles = take(sorted.max_tiles() * static_cast<int64_t>(sizeof(RowTile)));
      num_tiles = take(kWord);
    }
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

SortedPairs sorted_pairs(const KernelArgs& args, const Tiling& tiling, int64_t num_rows) {
  const TensorView& experts = args.inputs["experts"];
  return {.tiling = tiling,
          .experts = experts.as<const int32_t>(),
          .experts_stride = experts.row_stride,
          .num_pairs = static_cast<int>(num_rows * experts.shape[1]),
          .top_k = static_cast<int>(experts.shape[1]),
          .num_experts = static_cast<int>(args.inputs["down"].shape[0])};
}

Workspace expert_parts_workspace(const KernelArgs& args, const Tiling& tiling) {
  return {.scratch_bytes = Scratch(args, tiling).bytes};
}

ExpertPart expert_part(const KernelArgs& args, const Tiling& tiling, int64_t first) {
  const TensorView& x = args.inputs["x"];
  const TensorView& down = args.inputs["down"];
  const int64_t count = std::min(kExpertRowsPerPart, x.num_rows() - first);
  const Scratch scratch(args, tiling);
  const auto at = [&](int64_t bytes) { return static_cast<std::byte*>(args.scratch) + bytes; };
  const auto words = [&](int64_t bytes) { return reinterpret_cast<int32_t*>(at(bytes)); };
  SortedPairs sorted = sorted_pairs(args, tiling, count);
  sorted.experts += first * sorted.experts_stride;
  sorted.sources = words(scratch.sources);
  sorted.places = tiling.by_place ? words(scratch.places) : nullptr;
  sorted.tiles = reinterpret_cast<RowTile*>(at(scratch.tiles));
  sorted.num_tiles = words(scratch.num_tiles);
  return {
      .sorted = sorted,
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
    if (!tiling.in_blocks) sort_pairs(stream, part.sorted);
    multiply(part);
    combine_experts(stream, part);
  }
}

}  // namespace encore::cuda
