#include "backend/cuda/attention/gather_test.h"

#include <algorithm>

#include "backend/cuda/attention/decode.cuh"
#include "backend/cuda/launch.h"

namespace encore::cuda::decode {
namespace {

constexpr int kHeadSize = 64;
constexpr unsigned kLateNanoseconds = 20'000;
constexpr int kMostGatherings = 32;

struct Gatherings {
  int count = 0;
  int active[kMostGatherings] = {};
};

__global__ void gather_parts(Gatherings gatherings, int late, float* sums) {
  begin_kernel();
  extern __shared__ __align__(16) uint8_t shared[];
  const Worker worker{.rank = static_cast<int>(blockIdx.x), .ranks = static_cast<int>(gridDim.x)};
  const Exchange<kHeadSize> exchange(shared, 1, worker.ranks);
  ClusterGather cluster;
  cluster.begin(exchange, worker);
  float part = 1.0F;
  for (int rank = 0; rank < worker.rank; ++rank)
    part *= 10.0F;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = 0; i < gatherings.count; ++i) {
    if (worker.rank == late) __nanosleep(kLateNanoseconds);
    __syncthreads();
    const int row = thread / kWarpSize * exchange.tile_rows;
    if (thread % kWarpSize == 0) exchange.softmaxes[row] = {0.0F, 1.0F};
    for (int column = thread % kWarpSize; column < kHeadSize; column += kWarpSize) {
      exchange.values[row * Exchange<kHeadSize>::kStride + column] =
          static_cast<float>(i + 1) * part;
    }
    __syncthreads();
    const int active = gatherings.active[i];
    cluster.gather(exchange, worker, {.active = active, .rows = 1, .chunk = i}, 1.0F);
    if (!worker.leads()) continue;
    for_each_four<kHeadSize>(1, [&](int, int column) {
      float2 softmax;
      const float4 four = exchange.read(0, column, 1.0F, kWarps + active - 1, softmax);
      atomicAdd(sums + i, four.x + four.y + four.z + four.w);
    });
  }
}

}  // namespace

void gather_from_drifting_blocks(Stream& stream, int ranks, const std::vector<int>& active,
                                 int late, float* sums) {
  Gatherings gatherings{.count = static_cast<int>(active.size())};
  ENCORE_CHECK(gatherings.count <= kMostGatherings, "{} gatherings", gatherings.count);
  std::copy(active.begin(), active.end(), gatherings.active);
  const auto num_blocks = static_cast<unsigned>(ranks);
  const auto num_floats = static_cast<size_t>(exchange_floats(kHeadSize, 1, ranks));
  const Grid grid{.blocks = num_blocks,
                  .threads = kThreads,
                  .shared_bytes = num_floats * sizeof(float),
                  .cluster = num_blocks};
  launch(stream, grid, gather_parts, gatherings, late, sums);
}

}  // namespace encore::cuda::decode
