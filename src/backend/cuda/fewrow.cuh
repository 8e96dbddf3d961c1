// The kernel of fewrow.cu: what the threads of a block do.
#pragma once

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/wgmma.cuh"

namespace encore::cuda::fewrow {

constexpr int kBoxColumns = 64;
constexpr int kRowBytes = 2 * kBoxColumns;  // of a box
constexpr int kProductOutputs = 64;         // of one tensor core product
constexpr int kMaxProducts = 4;             // above each other in a warpgroup's tile

// How the work is cut, and the operands. A step is what a stage of the ring holds.
template <class Epilogue>
struct FewRowArgs {
  CUtensorMap weight;
  CUtensorMap x;
  Epilogue epilogue;
  int num_steps;  // of a tile, in all blocks of a cluster
  int tile_outputs;
  int num_tiles;
  int stage_boxes;
  int num_stages;
  int cluster;        // 2: two blocks sum up a tile, each half of the columns
  bool whole_stages;  // a copy brings all boxes of a stage, not one
};

// Where things are in shared memory: a ring of stages, each some boxes of weights and, further up,
// of x; partial sums from the other block of the cluster; barriers.
struct Layout {
  uint32_t weights;
  uint32_t x;
  uint32_t partials;
  uint32_t barriers;
  uint32_t weight_box_bytes;
  uint32_t x_box_bytes;
  uint32_t stage_boxes;
  uint32_t num_stages;

  template <class Args>
  __device__ __forceinline__ Layout(const Args& args, uint32_t base, uint32_t padded_rows,
                                    uint32_t partial_bytes) {
    weight_box_bytes = static_cast<uint32_t>(args.tile_outputs * kRowBytes);
    x_box_bytes = padded_rows * kRowBytes;
    stage_boxes = static_cast<uint32_t>(args.stage_boxes);
    num_stages = static_cast<uint32_t>(args.num_stages);
    weights = base;
    x = weights + num_stages * stage_boxes * weight_box_bytes;
    partials = x + num_stages * stage_boxes * x_box_bytes;
    barriers = partials + (args.cluster > 1 ? partial_bytes : 0);
  }
  [[nodiscard]] __device__ uint32_t weight_box(uint32_t stage, uint32_t box) const {
    return weights + (stage * stage_boxes + box) * weight_box_bytes;
  }
  [[nodiscard]] __device__ uint32_t x_box(uint32_t stage, uint32_t box) const {
    return x + (stage * stage_boxes + box) * x_box_bytes;
  }
  [[nodiscard]] __device__ uint32_t stage_bytes() const {
    return stage_boxes * (weight_box_bytes + x_box_bytes);
  }
  [[nodiscard]] __device__ uint32_t full(uint32_t stage) const { return barriers + stage * 8; }
  [[nodiscard]] __device__ uint32_t empty(uint32_t stage) const {
    return barriers + (num_stages + stage) * 8;
  }
  [[nodiscard]] __device__ uint32_t partials_full() const { return barriers + 2 * num_stages * 8; }
};

// What a block works on, step by step: its share of the columns of one tile after the other.
struct Work {
  int tile;
  int step;
  int first;
  int end;
  int stride;
  int num_tiles;

  template <class Args>
  __device__ __forceinline__ Work(const Args& args, int rank) {
    tile = static_cast<int>(blockIdx.x) / args.cluster;
    first = args.num_steps * rank / args.cluster;
    end = args.num_steps * (rank + 1) / args.cluster;
    step = first;
    stride = static_cast<int>(gridDim.x) / args.cluster;
    num_tiles = args.num_tiles;
  }
  [[nodiscard]] __device__ bool done() const { return tile >= num_tiles; }
  [[nodiscard]] __device__ bool ends_tile() const { return step + 1 == end; }
  __device__ __forceinline__ void next() {
    if (++step < end) return;
    step = first;
    tile += stride;
  }
};

// A stage of the ring, and how often the ring has gone round.
struct Slot {
  uint32_t stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void next(uint32_t num_stages) {
    if (++stage < num_stages) return;
    stage = 0;
    parity ^= 1U;
  }
};

// The thread that fills the ring.
template <class Args>
struct Producer {
  const Args& args;
  const Layout& layout;
  int rank;

  // Calls `copy(i, place)` for each copy that a step takes of some rows' columns; `place` is where
  // a tensor map finds them.
  template <class Copy>
  __device__ __forceinline__ void for_each_copy(int step, int row, Copy copy) {
    if (args.whole_stages) {
      copy(0U, make_int3(0, row, step * args.stage_boxes));
      return;
    }
    for (int i = 0; i < args.stage_boxes; ++i) {
      const int box = step * args.stage_boxes + i;
      copy(static_cast<uint32_t>(i), make_int3(box * kBoxColumns, row, 0));
    }
  }
  __device__ __forceinline__ void copy_weights(const Work& work, uint32_t stage) {
    arrive_expecting(layout.full(stage), layout.stage_bytes());
    const int first_output = work.tile * args.tile_outputs;
    for_each_copy(work.step, first_output, [&](uint32_t i, int3 place) {
      copy_box_once(layout.weight_box(stage, i), args.weight, place, layout.full(stage));
    });
  }
  __device__ __forceinline__ void copy_x(const Work& work, uint32_t stage) {
    for_each_copy(work.step, 0, [&](uint32_t i, int3 place) {
      copy_box(layout.x_box(stage, i), args.x, place, layout.full(stage));
    });
  }

  // Before the launches before have ended: weights alone.
  __device__ __forceinline__ void fill() {
    Work work(args, rank);
    for (uint32_t stage = 0; stage < layout.num_stages && !work.done(); ++stage, work.next()) {
      copy_weights(work, stage);
    }
  }
  __device__ __forceinline__ void run() {
    wait_for_inputs();
    Work work(args, rank);
    for (uint32_t stage = 0; stage < layout.num_stages && !work.done(); ++stage, work.next()) {
      copy_x(work, stage);
    }
    for (Slot slot; !work.done(); work.next(), slot.next(layout.num_stages)) {
      wait_for_phase(layout.empty(slot.stage), slot.parity);
      copy_weights(work, slot.stage);
      copy_x(work, slot.stage);
    }
  }
};

// Exchanges the two indices of an 8 x 8 matrix of 16-bit elements, two neighbours per lane.
__device__ __forceinline__ uint32_t transpose(uint32_t pair) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

template <typename T>
__device__ __forceinline__ uint32_t pack_pair(float first, float second) {
  const T values[2] = {from_float<T>(first), from_float<T>(second)};
  return reinterpret_cast<const uint32_t&>(values);
}

// What becomes of finished sums. An epilogue is called by whole warps with blocks of 8 outputs of 8
// rows, from `output` and `row` on: lane l has the sums of output + l / 4 and rows row + 2 (l % 4)
// + {0, 1}. This one adds the bias, rounds and stores.
template <typename T>
struct Store {
  using Element = T;

  const T* bias;  // null: none
  void* out;
  int64_t stride;
  bool is_float;
  bool in_pairs;  // neighbouring outputs may be written at once
  int num_rows;
  int num_outputs;

  __device__ __forceinline__ void operator()(int output, int row, float2 sums) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int own = output + lane / 4;
    if (bias != nullptr && own < num_outputs) {
      const float value = to_float(bias[own]);
      sums.x += value;
      sums.y += value;
    }
    if (is_float) {
      const int own_row = row + 2 * (lane % 4);
      float* target = static_cast<float*>(out) + own_row * stride + own;
      if (own < num_outputs && own_row < num_rows) target[0] = sums.x;
      if (own < num_outputs && own_row + 1 < num_rows) target[stride] = sums.y;
    } else {
      store_pair(output + 2 * (lane % 4), row + lane / 4, transpose(pack_pair<T>(sums.x, sums.y)));
    }
  }

  __device__ __forceinline__ void store_pair(int output, int row, uint32_t pair) const {
    if (row >= num_rows || output >= num_outputs) return;
    T* target = static_cast<T*>(out) + row * stride + output;
    if (in_pairs && output + 1 < num_outputs) {
      *reinterpret_cast<uint32_t*>(target) = pair;
    } else {
      target[0] = reinterpret_cast<const T(&)[2]>(pair)[0];
      if (output + 1 < num_outputs) target[1] = reinterpret_cast<const T(&)[2]>(pair)[1];
    }
  }
};

// The sums of a warpgroup's part of a tile: kProducts x 64 outputs, kRows rows.
template <typename T, int kRows, int kProducts>
struct Tile {
  // Sums that take turns where products are few and short: each waits for the one before on its
  // sum.
  static constexpr int kSets = kProducts > 2 || kProducts* kRows > 128
                                   ? 1
                                   : (kRows <= 64 ? 4 / kProducts : 2);
  static constexpr int kStrips = 2 * kProducts;

  float sums[kProducts * kSets][kRows / 2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kProducts * kSets; ++i) {
#pragma unroll
      for (int j = 0; j < kRows / 2; ++j)
        sums[i][j] = 0;
    }
  }

  // Starts the products of a stage.
  __device__ __forceinline__ void add(const Layout& layout, uint32_t stage, int warpgroup) {
    constexpr uint32_t kNextProduct = kProductOutputs * kNextRow;
    uint32_t box = 0;
#pragma unroll 1
    do {  // a loop that may not run at all would make the compiler serialise products
      const uint32_t weights = describe_rows(layout.weight_box(stage, box)) +
                               static_cast<uint32_t>(warpgroup) * kProducts * kNextProduct;
      const uint32_t x = describe_rows(layout.x_box(stage, box));
      begin_products();
#pragma unroll
      for (int k = 0; k < kBoxColumns / 16; ++k) {
#pragma unroll
        for (int p = 0; p < kProducts; ++p) {
          start_product<T, kRows>(sums[p * kSets + k % kSets],
                                  weights + p * kNextProduct + k * kNextColumns,
                                  x + k * kNextColumns);
        }
      }
      commit_products();
    } while (++box < layout.stage_boxes);
  }

  // After the last product.
  __device__ __forceinline__ void settle_all() {
#pragma unroll
    for (int i = 0; i < kProducts * kSets; ++i)
      settle(sums[i]);
#pragma unroll
    for (int i = 0; i < kProducts * kSets; ++i) {
      if (i % kSets == 0) continue;
#pragma unroll
      for (int j = 0; j < kRows / 2; ++j)
        sums[i / kSets * kSets][j] += sums[i][j];
    }
  }

  // Calls `visit(strip, output, row, sums)` for each of the epilogue's blocks; `output` is among
  // the tile's. A strip is 8 outputs of each warp.
  template <class Visit>
  __device__ __forceinline__ void for_each_block(int warpgroup, Visit visit) const {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      const int output =
          (warpgroup * kProducts + strip / 2) * kProductOutputs + 16 * warp + strip % 2 * 8;
      const float(&part)[kRows / 2] = sums[strip / 2 * kSets];
#pragma unroll
      for (int j = 0; j < kRows / 8; ++j) {
        visit(strip, output, 8 * j,
              float2{part[4 * j + strip % 2 * 2], part[4 * j + strip % 2 * 2 + 1]});
      }
    }
  }
};

// Half of a tile's partial sums, as a block of a cluster gets them from the other, by thread.
template <int kRows, int kProducts, int kWarpgroups>
struct Partials {
  static constexpr int kThreads = 128 * kWarpgroups;
  static constexpr int kBytes = kProducts * kRows / 8 * kThreads * static_cast<int>(sizeof(float2));

  static __device__ __forceinline__ uint32_t offset(int strip, int row) {
    return static_cast<uint32_t>(
        ((strip / 2 * kRows + row) / 8 * kThreads + static_cast<int>(threadIdx.x)) * 8);
  }
};

template <class Epilogue, int kRows, int kProducts, int kWarpgroups>
struct Consumer {
  using TilePart = Tile<typename Epilogue::Element, kRows, kProducts>;
  using Received = Partials<kRows, kProducts, kWarpgroups>;

  const FewRowArgs<Epilogue>& args;
  const Layout& layout;
  const uint8_t* shared;
  int rank;
  int warpgroup;

  __device__ __forceinline__ void run() {
    Work work(args, rank);
    Slot slot;
    while (!work.done()) {
      const int tile = work.tile;
      TilePart part;
      part.clear();
      bool last = false;
      do {
        last = work.ends_tile();
        wait_for_phase(layout.full(slot.stage), slot.parity);
        part.add(layout, slot.stage, warpgroup);
        wait_for_products<0>();
        if (threadIdx.x % 32 == 0) arrive(layout.empty(slot.stage));
        slot.next(layout.num_stages);
        work.next();
      } while (!last);
      part.settle_all();
      const int first_output = tile * args.tile_outputs;
      if (args.cluster > 1) exchange(part);  // its only tile
      part.for_each_block(warpgroup, [&](int strip, int output, int row, float2 sums) {
        if (output >= args.tile_outputs) return;
        if (args.cluster > 1) {
          if (strip % 2 != rank) return;
          const auto* other =
              reinterpret_cast<const float2*>(shared + Received::offset(strip, row));
          sums.x += other->x;
          sums.y += other->y;
        }
        args.epilogue(first_output + output, row, sums);
      });
    }
  }

  // Each block of the cluster finishes every other strip, and gets the other's sums of it.
  __device__ __forceinline__ void exchange(const TilePart& part) {
    __syncwarp();
    wait_for_cluster();
    const auto peer = static_cast<uint32_t>(1 - rank);
    const uint32_t target = address_at(layout.partials, peer);
    const uint32_t barrier = address_at(layout.partials_full(), peer);
    part.for_each_block(warpgroup, [&](int strip, int /*output*/, int row, float2 sums) {
      if (strip % 2 != rank) send(target + Received::offset(strip, row), sums, barrier);
    });
    wait_for_phase_of_cluster(layout.partials_full(), 0);
  }
};

// Some warpgroups consume, the warp after them produces.
template <class Epilogue, int kRows, int kProducts, int kWarpgroups>
__global__ void __launch_bounds__(128 * kWarpgroups + 32, 1)
    fewrow_kernel(const __grid_constant__ FewRowArgs<Epilogue> args) {
  extern __shared__ __align__(1024) uint8_t shared[];
  using Received = Partials<kRows, kProducts, kWarpgroups>;
  constexpr int kConsumers = 128 * kWarpgroups;
  allow_next_kernel();
  const uint32_t base = shared_address(shared);
  const Layout layout(args, base, kRows, Received::kBytes);
  const int rank = args.cluster == 1 ? 0 : static_cast<int>(cluster_rank());
  Producer<FewRowArgs<Epilogue>> producer{args, layout, rank};
  if (threadIdx.x == kConsumers) {
    for (uint32_t stage = 0; stage < layout.num_stages; ++stage) {
      init_barrier(layout.full(stage), 1);
      init_barrier(layout.empty(stage), kConsumers / 32);
    }
    if (args.cluster > 1) {
      init_barrier(layout.partials_full(), 1);
      arrive_expecting(layout.partials_full(), Received::kBytes);
    }
    publish_barriers();
    producer.fill();
  }
  __syncthreads();
  if (args.cluster > 1) arrive_at_cluster();
  // The same in all lanes, and the compiler knows: tensor cores take uniform registers.
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < kConsumers / 32) {
    wait_for_inputs();
    Consumer<Epilogue, kRows, kProducts, kWarpgroups>{
        args, layout, shared + (layout.partials - base), rank, warp / 4}
        .run();
  } else {
    if (threadIdx.x == kConsumers) producer.run();
    __syncwarp();
    if (args.cluster > 1) wait_for_cluster();
  }
}

}  // namespace encore::cuda::fewrow
