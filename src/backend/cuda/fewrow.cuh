// The kernel of fewrow.cu: what the threads of a block do.
#pragma once

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/wgmma.cuh"

namespace encore::cuda::fewrow {

constexpr int kBoxColumns = 64;
constexpr int kRowBytes = 2 * kBoxColumns;  // of a box
constexpr int kProductOutputs = 64;         // of one tensor core product
constexpr int kMaxProducts = 4;             // above each other in a tile
constexpr int kMaxTileOutputs = kMaxProducts * kProductOutputs;
constexpr int kConsumers = 128;  // threads
constexpr int kThreads = kConsumers + 32;

struct FewRowArgs {
  CUtensorMap weight;
  CUtensorMap x;
  const void* bias;  // null: none
  void* out;
  int64_t out_stride;
  bool out_is_float;
  bool out_in_pairs;  // neighbouring outputs may be written at once
  int num_rows;
  int num_outputs;
  int num_steps;  // stages that a tile takes, in all blocks of a cluster
  int tile_outputs;
  int num_tiles;
  int stage_boxes;
  int num_stages;
  int cluster;
  bool whole_stages;  // a copy brings all boxes of a stage, not one
};

// Where things are in shared memory: a ring of stages, each some boxes of weights and, further up,
// of x; partial sums from the cluster; barriers.
struct Layout {
  uint32_t weights;
  uint32_t x;
  uint32_t partials;
  uint32_t barriers;
  uint32_t weight_box_bytes;
  uint32_t x_box_bytes;
  uint32_t stage_boxes;
  uint32_t num_stages;

  __device__ __forceinline__ Layout(const FewRowArgs& args, uint32_t base, uint32_t padded_rows) {
    weight_box_bytes = static_cast<uint32_t>(args.tile_outputs * kRowBytes);
    x_box_bytes = padded_rows * kRowBytes;
    stage_boxes = static_cast<uint32_t>(args.stage_boxes);
    num_stages = static_cast<uint32_t>(args.num_stages);
    weights = base;
    x = weights + num_stages * stage_boxes * weight_box_bytes;
    partials = x + num_stages * stage_boxes * x_box_bytes;
    const bool splits = args.cluster > 1;
    barriers = partials + (splits ? static_cast<uint32_t>(args.tile_outputs) * padded_rows * 4 : 0);
  }
  [[nodiscard]] __device__ uint32_t weight_box(uint32_t stage, uint32_t box) const {
    return weights + (stage * stage_boxes + box) * weight_box_bytes;
  }
  [[nodiscard]] __device__ uint32_t x_box(uint32_t stage, uint32_t box) const {
    return x + (stage * stage_boxes + box) * x_box_bytes;
  }
  [[nodiscard]] __device__ uint32_t full(uint32_t stage) const { return barriers + stage * 8; }
  [[nodiscard]] __device__ uint32_t empty(uint32_t stage) const {
    return barriers + (num_stages + stage) * 8;
  }
  [[nodiscard]] __device__ uint32_t partials_full() const { return barriers + 2 * num_stages * 8; }
};

// What a block works on, stage by stage: its share of the columns of one tile after the other.
struct Work {
  int tile;
  int step;
  int first;
  int end;
  int stride;
  int num_tiles;

  __device__ __forceinline__ Work(const FewRowArgs& args, int rank) {
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

// Where a tensor map finds a box of the columns of x or weights.
__device__ __forceinline__ int3 place(const FewRowArgs& args, int box, int row) {
  return args.whole_stages ? make_int3(0, row, box) : make_int3(box * kBoxColumns, row, 0);
}

__device__ __forceinline__ void copy_weights(const FewRowArgs& args, const Layout& layout,
                                             const Work& work, uint32_t stage) {
  arrive_expecting(layout.full(stage),
                   layout.stage_boxes * (layout.weight_box_bytes + layout.x_box_bytes));
  const int num_copies = args.whole_stages ? 1 : args.stage_boxes;
  for (int i = 0; i < num_copies; ++i) {
    copy_box_once(layout.weight_box(stage, static_cast<uint32_t>(i)), args.weight,
                  place(args, work.step * args.stage_boxes + i, work.tile * args.tile_outputs),
                  layout.full(stage));
  }
}

__device__ __forceinline__ void copy_x(const FewRowArgs& args, const Layout& layout,
                                       const Work& work, uint32_t stage) {
  const int num_copies = args.whole_stages ? 1 : args.stage_boxes;
  for (int i = 0; i < num_copies; ++i) {
    copy_box(layout.x_box(stage, static_cast<uint32_t>(i)), args.x,
             place(args, work.step * args.stage_boxes + i, 0), layout.full(stage));
  }
}

// Fills the ring. By one thread, which has made the barriers.
__device__ __forceinline__ void produce(const FewRowArgs& args, const Layout& layout, int rank) {
  Work ahead(args, rank);
  uint32_t num_ahead = 0;
  for (; num_ahead < layout.num_stages && !ahead.done(); ++num_ahead, ahead.next()) {
    copy_weights(args, layout, ahead, num_ahead);
  }
  wait_for_inputs();
  Work work(args, rank);
  for (uint32_t stage = 0; stage < num_ahead; ++stage, work.next()) {
    copy_x(args, layout, work, stage);
  }
  for (Slot slot; !work.done(); work.next(), slot.next(layout.num_stages)) {
    wait_for_phase(layout.empty(slot.stage), slot.parity);
    copy_weights(args, layout, work, slot.stage);
    copy_x(args, layout, work, slot.stage);
  }
}

// Which eight outputs a warp holds in one half of one product of its tile. Warps and halves in this
// order go to the blocks of a cluster in turn.
struct Group {
  int product;
  int warp;
  int half;

  [[nodiscard]] __device__ int index() const { return 8 * product + 2 * warp + half; }
  [[nodiscard]] __device__ int rank(int cluster) const { return (2 * warp + half) % cluster; }
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

// Writes the sums of 8 outputs from `first` on; whole warps. Lane l has those of output first + l /
// 4 and rows 8 j + 2 (l % 4) + {0, 1}.
template <typename T, int kRows>
__device__ __forceinline__ void write_outputs(const FewRowArgs& args, int first, float bias,
                                              const float (&sums)[kRows / 4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (args.out_is_float) {
    const int output = first + lane / 4;
    if (output >= args.num_outputs) return;
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const int row = 8 * (i / 2) + 2 * (lane % 4) + i % 2;
      if (row < args.num_rows) {
        static_cast<float*>(args.out)[row * args.out_stride + output] = sums[i] + bias;
      }
    }
    return;
  }
  const int output = first + 2 * (lane % 4);
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
    const uint32_t pair = transpose(pack_pair<T>(sums[2 * j] + bias, sums[2 * j + 1] + bias));
    const int row = 8 * j + lane / 4;
    if (row >= args.num_rows || output >= args.num_outputs) continue;
    T* target = static_cast<T*>(args.out) + row * args.out_stride + output;
    if (args.out_in_pairs && output + 1 < args.num_outputs) {
      *reinterpret_cast<uint32_t*>(target) = pair;
    } else {
      target[0] = reinterpret_cast<const T(&)[2]>(pair)[0];
      if (output + 1 < args.num_outputs) target[1] = reinterpret_cast<const T(&)[2]>(pair)[1];
    }
  }
}

// Bias of this lane's output among the 8 from `first` on.
template <typename T>
__device__ __forceinline__ float load_bias(const FewRowArgs& args, int first) {
  const int output = first + static_cast<int>(threadIdx.x) % 32 / 4;
  if (args.bias == nullptr || output >= args.num_outputs) return 0;
  return to_float(static_cast<const T*>(args.bias)[output]);
}

// The sums of one tile, in the registers of a warpgroup.
template <typename T, int kRows, int kProducts>
struct Tile {
  // Two sums that take turns where there is but one product: each waits for the one before on its
  // sum.
  static constexpr int kSets = kProducts == 1 ? 2 : 1;

  float sums[kProducts * kSets][kRows / 2];
  float bias[kProducts][2];  // by half

  __device__ __forceinline__ void start(const FewRowArgs& args, int first_output, int warp) {
#pragma unroll
    for (int i = 0; i < kProducts * kSets; ++i) {
#pragma unroll
      for (int j = 0; j < kRows / 2; ++j)
        sums[i][j] = 0;
    }
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        bias[p][half] = load_bias<T>(args, first_output + 8 * Group{p, warp, half}.index());
      }
    }
  }

  // Starts the products of a stage.
  __device__ __forceinline__ void add(const Layout& layout, uint32_t stage) {
    for (uint32_t box = 0; box < layout.stage_boxes; ++box) {
      begin_products();
      const uint64_t weights = describe_rows(layout.weight_box(stage, box));
      const uint64_t x = describe_rows(layout.x_box(stage, box));
#pragma unroll
      for (int k = 0; k < kBoxColumns / 16; ++k) {
#pragma unroll
        for (int p = 0; p < kProducts; ++p) {
          constexpr uint64_t kNextProduct = kProductOutputs * kRowBytes / 16;
          start_product<T, kRows>(sums[p * kSets + k % kSets],
                                  weights + p * kNextProduct + k * kNextColumns,
                                  x + k * kNextColumns);
        }
      }
    }
    commit_products();
  }

  // Waits for all products.
  __device__ __forceinline__ void settle_all() {
    wait_for_products<0>();
#pragma unroll
    for (int i = 0; i < kProducts * kSets; ++i)
      settle(sums[i]);
    if constexpr (kSets == 2) {
#pragma unroll
      for (int j = 0; j < kRows / 2; ++j)
        sums[0][j] += sums[1][j];
    }
  }

  __device__ __forceinline__ void get(int product, int half, float (&values)[kRows / 4]) const {
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const int index = 4 * (i / 2) + i % 2;
      values[i] = half == 0 ? sums[product][index] : sums[product][index + 2];
    }
  }

  // Without a split.
  __device__ __forceinline__ void write(const FewRowArgs& args, int first_output, int warp) const {
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int first = 8 * Group{p, warp, half}.index();
        if (first >= args.tile_outputs) continue;
        float values[kRows / 4];
        get(p, half, values);
        write_outputs<T, kRows>(args, first_output + first, bias[p][half], values);
      }
    }
  }

  // Where partial sums lie: by rank of the sender, by group, then as lanes hold them.
  static __device__ __forceinline__ uint32_t partial_offset(const FewRowArgs& args, int rank,
                                                            int group) {
    const int groups = args.tile_outputs / 8 / args.cluster;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return static_cast<uint32_t>((rank * groups + group / args.cluster) * 8 * kRows * 4 + lane * 8);
  }

  __device__ __forceinline__ void send_partials(const FewRowArgs& args, const Layout& layout,
                                                int rank, int warp) const {
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const Group group{p, warp, half};
        const int to = group.rank(args.cluster);
        if (8 * group.index() >= args.tile_outputs || to == rank) continue;
        const auto peer = static_cast<uint32_t>(to);
        const uint32_t target =
            address_at(layout.partials + partial_offset(args, rank, group.index()), peer);
        const uint32_t barrier = address_at(layout.partials_full(), peer);
#pragma unroll
        for (int j = 0; j < kRows / 8; ++j) {
          send(target + static_cast<uint32_t>(j) * 256,
               {sums[p][4 * j + 2 * half], sums[p][4 * j + 2 * half + 1]}, barrier);
        }
      }
    }
  }

  // Adds the partial sums of the cluster in the order of its ranks, and writes this block's share.
  __device__ __forceinline__ void finish(const FewRowArgs& args, const uint8_t* partials, int rank,
                                         int first_output, int warp) const {
    const int half = rank % 2;
    if (warp % (args.cluster / 2) != rank / 2) return;
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
      const Group group{p, warp, half};
      if (8 * group.index() >= args.tile_outputs) continue;
      float own[kRows / 4];
      get(p, half, own);
      float totals[kRows / 4] = {};
      for (int from = 0; from < args.cluster; ++from) {
        const uint8_t* partial = partials + partial_offset(args, from, group.index());
#pragma unroll
        for (int j = 0; j < kRows / 8; ++j) {
          float2 part{own[2 * j], own[2 * j + 1]};
          if (from != rank) part = *reinterpret_cast<const float2*>(partial + j * 256);
          totals[2 * j] += part.x;
          totals[2 * j + 1] += part.y;
        }
      }
      write_outputs<T, kRows>(args, first_output + 8 * group.index(),
                              half == 0 ? bias[p][0] : bias[p][1], totals);
    }
  }
};

template <typename T, int kRows, int kProducts>
__device__ __forceinline__ void consume(const FewRowArgs& args, const Layout& layout, int rank,
                                        const uint8_t* shared, uint32_t base) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const bool signals = threadIdx.x % 32 == 0;
  Work work(args, rank);
  Slot slot;
  while (!work.done()) {
    Tile<T, kRows, kProducts> tile;
    const int first_output = work.tile * args.tile_outputs;
    tile.start(args, first_output, warp);
    uint32_t previous = slot.stage;
    for (bool first = true, last = false; !last; first = false) {
      last = work.ends_tile();
      wait_for_phase(layout.full(slot.stage), slot.parity);
      tile.add(layout, slot.stage);
      wait_for_products<1>();
      if (signals && !first) arrive(layout.empty(previous));
      previous = slot.stage;
      slot.next(layout.num_stages);
      work.next();
    }
    tile.settle_all();
    if (signals) arrive(layout.empty(previous));
    if (args.cluster == 1) {
      tile.write(args, first_output, warp);
    } else {  // its only tile
      __syncwarp();
      wait_for_cluster();
      tile.send_partials(args, layout, rank, warp);
      wait_for_phase(layout.partials_full(), 0);
      tile.finish(args, shared + (layout.partials - base), rank, first_output, warp);
    }
  }
}

// Warps 0 to 3 consume, warp 4 produces.
template <typename T, int kRows, int kProducts>
__global__ void __launch_bounds__(kThreads, 1)
    fewrow_kernel(const __grid_constant__ FewRowArgs args) {
  extern __shared__ __align__(1024) uint8_t shared[];
  allow_next_kernel();
  const uint32_t base = shared_address(shared);
  const Layout layout(args, base, kRows);
  const int rank = args.cluster == 1 ? 0 : static_cast<int>(cluster_rank());
  const bool is_producer = threadIdx.x == kConsumers;
  if (is_producer) {
    for (uint32_t stage = 0; stage < layout.num_stages; ++stage) {
      init_barrier(layout.full(stage), 1);
      init_barrier(layout.empty(stage), kConsumers / 32);
    }
    if (args.cluster > 1) {
      init_barrier(layout.partials_full(), 1);
      const int groups = args.tile_outputs / 8 / args.cluster;
      arrive_expecting(layout.partials_full(),
                       static_cast<uint32_t>((args.cluster - 1) * groups * 8 * kRows * 4));
    }
    publish_barriers();
  }
  __syncthreads();
  if (args.cluster > 1) arrive_at_cluster();
  if (threadIdx.x < kConsumers) {
    wait_for_inputs();
    consume<T, kRows, kProducts>(args, layout, rank, shared, base);
  } else {
    if (is_producer) {
      produce(args, layout, rank);
    } else {
      wait_for_inputs();
    }
    __syncwarp();
    if (args.cluster > 1) wait_for_cluster();
  }
}

}  // namespace encore::cuda::fewrow
