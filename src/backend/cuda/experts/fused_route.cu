// Computes fused_route of few rows in one launch, with a cluster of blocks for each row.
//
// Each block normalizes the whole row, which is short, and multiplies it by its share of the
// router's weight. As much of that share of the weight as fits shared memory is loaded while the
// previous launch still runs. Logits go to the shared memory of the first block, whose first warp
// chooses the experts. The norm's result and the sum may lie over x and the residual, so they are
// written after all blocks of the cluster have read these.
#include <algorithm>

#include <cooperative_groups.h>

#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/route.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/rows/block_sum.cuh"
#include "backend/cuda/rows/chunk.cuh"
#include "backend/cuda/tile_copy.cuh"

namespace encore::cuda {
namespace {

namespace cg = cooperative_groups;

constexpr int kRouterBlocks = 8;  // blocks of a cluster
constexpr int kRouterWarps = 8;
constexpr int kRouterThreads = kRouterWarps * kRouteLanes;
constexpr int kMaxRowPacks = 4;   // packs of a row per thread, at most
constexpr int64_t kMaxRows = 32;  // more rows would read the router's weight too often
constexpr int64_t kMaxExperts = 1024;
// The most bytes of the router's weight that a block keeps.
constexpr int64_t kMaxHeldBytes = 128 * 1024;

// The arguments of the kernel. Units: strides are in elements.
template <typename T>
struct FusedRouteArgs {
  RouteArgs route;
  const T* x;
  int64_t x_stride;
  const T* residual;
  int64_t residual_stride;
  T* sum;
  int64_t sum_stride;
  T* y;
  int64_t y_stride;
  const T* norm;
  const T* weight;  // [E,columns]
  int columns;
  int num_held;       // rows of the weight that a block keeps in shared memory
  float per_element;  // 1 / columns
  float eps;
  float offset;  // added to the norm's weight
};

// Returns how many of the weight's rows that a block multiplies it keeps in shared memory.
template <typename T>
int num_held_rows(int64_t columns, int64_t num_experts) {
  const int64_t rows = div_up(num_experts, kRouterBlocks * kRouterWarps) * kRouterWarps;
  const int64_t row_bytes = columns * static_cast<int64_t>(sizeof(T));
  return static_cast<int>(std::min(rows, kMaxHeldBytes / row_bytes));
}

// Returns the bytes of a block's shared memory: the rows of the weight that it keeps, the
// normalized row, the logits, and as many numbers as there are logits for the choice.
template <typename T>
int64_t shared_bytes(const FusedRouteArgs<T>& args) {
  return (args.num_held + 1) * args.columns * static_cast<int64_t>(sizeof(T)) +
         2 * args.route.rule.num_experts * static_cast<int64_t>(sizeof(float));
}

template <typename T, bool kAdd>
__global__ void __launch_bounds__(kRouterThreads)
    fused_route_kernel(const __grid_constant__ FusedRouteArgs<T> args) {
  constexpr int kSize = Pack<T>::kSize;
  extern __shared__ __align__(16) uint8_t router_memory[];
  T* const held = reinterpret_cast<T*>(router_memory);
  T* const normed = held + static_cast<int64_t>(args.num_held) * args.columns;
  float* const logits = reinterpret_cast<float*>(normed + args.columns);
  const int num_experts = args.route.rule.num_experts;
  const cg::cluster_group cluster = cg::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kRouteLanes;
  const int64_t row = blockIdx.x / kRouterBlocks;
  // Calls `visit(place, e)` for the experts whose logits this warp computes.
  const auto visit_experts = [&](auto visit) {
    int place = warp;
    for (int e = rank * kRouterWarps + warp; e < num_experts; e += kRouterBlocks * kRouterWarps) {
      visit(place, e);
      place += kRouterWarps;
    }
  };
  const auto weight_of = [&](int e) {
    return args.weight + static_cast<int64_t>(e) * args.columns;
  };
  const int first_column = thread % kRouteLanes * kSize;
  constexpr int kColumnsOfWarp = kRouteLanes * kSize;
  allow_next_kernel();
  visit_experts([&](int place, int e) {
    if (place >= args.num_held) return;
    const uint32_t to = shared_address(held + static_cast<int64_t>(place) * args.columns);
    for (int i = first_column; i < args.columns; i += kColumnsOfWarp)
      copy_async(to + static_cast<uint32_t>(i * sizeof(T)), weight_of(e) + i, true);
  });
  commit_copies();
  Pack<T> norms[kMaxRowPacks];
#pragma unroll
  for (int p = 0; p < kMaxRowPacks; ++p) {
    const int column = (p * kRouterThreads + thread) * kSize;
    if (column < args.columns) norms[p] = load_pack(args.norm + column);
  }
  wait_for_inputs();

  Pack<T> packs[kMaxRowPacks];  // packs of x, or of its sum with the residual
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kMaxRowPacks; ++p) {
    const int column = (p * kRouterThreads + thread) * kSize;
    if (column >= args.columns) break;
    packs[p] = load_pack(args.x + row * args.x_stride + column);
    if constexpr (kAdd) {
      packs[p] =
          add_packs(packs[p], load_pack(args.residual + row * args.residual_stride + column));
    }
    float values[kSize];
    unpack(packs[p], values);
#pragma unroll
    for (const float value : values)
      squares = __fmaf_rn(value, value, squares);
  }
  const float scale = rsqrtf(block_sum(squares) * args.per_element + args.eps);
  cluster.sync();  // all blocks have started, and have read x and the residual

#pragma unroll
  for (int p = 0; p < kMaxRowPacks; ++p) {
    const int column = (p * kRouterThreads + thread) * kSize;
    if (column >= args.columns) break;
    float values[kSize];
    float weights[kSize];
    unpack(packs[p], values);
    unpack(norms[p], weights);
#pragma unroll
    for (int i = 0; i < kSize; ++i)
      values[i] = values[i] * scale * (weights[i] + args.offset);
    const Pack<T> result = to_pack<T>(values);
    store_pack(normed + column, result);
    if (thread % kRouterBlocks != rank) continue;
    store_pack(args.y + row * args.y_stride + column, result);
    if constexpr (kAdd) store_pack(args.sum + row * args.sum_stride + column, packs[p]);
  }
  __syncthreads();

  wait_for_copies<0>();  // no barrier: a lane reads only what it has copied itself
  if (args.route.is_live(row)) {
    float* const first_logits = cluster.map_shared_rank(logits, 0);
    visit_experts([&](int place, int e) {
      const T* const weight =
          place < args.num_held ? held + static_cast<int64_t>(place) * args.columns : weight_of(e);
      float logit = 0;
#pragma unroll 1
      for (int i = first_column; i < args.columns; i += kColumnsOfWarp) {
        float values[kSize];
        float weights[kSize];
        Chunk<T, true>::load(normed, i, values);
        Chunk<T, true>::load(weight, i, weights);
        add_products(values, weights, logit);
      }
      logit = warp_sum(logit);
      if (thread % kRouteLanes == 0) first_logits[e] = logit;
    });
  }
  cluster.sync();  // the first block has all logits, and nobody writes to it any more
  if (rank == 0 && warp == 0) route_row(args.route, row, logits, logits + num_experts);
}

template <typename T>
FusedRouteArgs<T> fused_route_args(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& y = args.outputs["y"];
  FusedRouteArgs<T> result{};
  result.route = route_args(args);
  result.x = x.as<const T>();
  result.x_stride = x.row_stride;
  if (const TensorView* residual = args.inputs.find("residual")) {
    const TensorView& sum = args.outputs["sum"];
    result.residual = residual->as<const T>();
    result.residual_stride = residual->row_stride;
    result.sum = sum.as<T>();
    result.sum_stride = sum.row_stride;
  }
  result.y = y.as<T>();
  result.y_stride = y.row_stride;
  result.norm = args.inputs["norm"].as<const T>();
  result.weight = args.inputs["weight"].as<const T>();
  result.columns = static_cast<int>(x.shape[1]);
  result.num_held = num_held_rows<T>(x.shape[1], args.inputs["weight"].shape[0]);
  result.per_element = 1.0F / static_cast<float>(result.columns);
  result.eps = static_cast<float>(args.attrs.get_double("eps"));
  result.offset = norm_offset(args.attrs);
  return result;
}

template <typename T, bool kAdd>
BoundLaunch bind_typed_route(const KernelArgs& args) {
  const FusedRouteArgs<T> route = fused_route_args<T>(args);
  const int64_t bytes = shared_bytes(route);
  const Grid grid{.blocks = static_cast<unsigned>(args.inputs["x"].num_rows() * kRouterBlocks),
                  .threads = kRouterThreads,
                  .shared_bytes = static_cast<size_t>(bytes),
                  .cluster = kRouterBlocks};
  allow_shared_memory(fused_route_kernel<T, kAdd>, bytes);
  return [route, grid](Stream& stream, const StepLengths&) {
    launch(stream, grid, fused_route_kernel<T, kAdd>, route);
  };
}

}  // namespace

bool accepts_fused_route(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const TensorView& weight = args.inputs["weight"];
  const auto aligned = [&](const TensorView* view) { return view == nullptr || is_aligned(*view); };
  const int64_t row_bytes = x.shape[1] * size_of(x.dtype);
  return !args.batch_invariant && x.num_rows() <= kMaxRows && row_bytes % 16 == 0 &&
         row_bytes / 16 <= int64_t{kMaxRowPacks} * kRouterThreads &&
         weight.shape[0] <= kMaxExperts && aligned(&x) && aligned(&weight) &&
         aligned(&args.inputs["norm"]) && aligned(args.inputs.find("residual")) &&
         aligned(&args.outputs["y"]) && aligned(args.outputs.find("sum"));
}

BoundLaunch bind_fused_route(Device& /*device*/, const KernelArgs& args) {
  return visit_element(args.inputs["x"].dtype, [&](auto tag) -> BoundLaunch {
    using T = typename decltype(tag)::type;
    const bool adds = args.inputs.find("residual") != nullptr;
    return adds ? bind_typed_route<T, true>(args) : bind_typed_route<T, false>(args);
  });
}

}  // namespace encore::cuda
