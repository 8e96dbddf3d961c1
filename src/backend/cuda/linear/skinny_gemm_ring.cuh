// The copying side of skinny_gemm.cu's kernel: the rings of stages in shared memory, the order of a
// block's work, and the threads that fill the rings.
#pragma once

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/linear/tensor_map.h"

namespace encore::cuda::skinny_gemm {

// The number of rows of the weight whose sums are kept together. With silu_mul, 8 rows of the gates
// alternate with the 8 rows that they gate.
constexpr int kBlockRows = 8;
constexpr int kPairRows = 2 * kBlockRows;

// Copies a box as copy_box_once() (hopper.cuh) copies it, but by a map of five dimensions. Rows of
// the box alternate: 8 rows of the weight's first half (the gates), then 8 rows of its second half.
// `at.y` is the first row in that order.
__device__ __forceinline__ void copy_pairs_once(uint32_t target, const CUtensorMap& map, int3 at,
                                                uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3, %3, %4, %5}], [%6], policy;\n"
      "}\n" ::"r"(target),
      "l"(&map), "r"(at.x), "r"(0), "r"(at.y / kPairRows), "r"(at.z), "r"(barrier)
      : "memory");
}

constexpr int kMaxStages = 31;
// The bytes of one barrier. Barriers lie at the beginning of shared memory: for each of the two
// rings (weights and x) first the barriers at which copies arrive, then those at which consumers
// arrive, and behind both rings one more barrier.
constexpr int kBarrierBytes = 8;
constexpr int kRingBarriersBytes = 2 * kMaxStages * kBarrierBytes;
constexpr int kBarriersBytes = 1024;
static_assert(2 * kRingBarriersBytes + kBarrierBytes <= kBarriersBytes);

// A ring of stages in shared memory, with its barriers. Copies fill the stages, and the multiplying
// warpgroups (consumers) release them.
struct Ring {
  uint32_t base;
  uint32_t barriers;
  uint32_t box_bytes;
  uint32_t stage_bytes;
  uint32_t num_stages;

  [[nodiscard]] __device__ uint32_t stage(uint32_t i) const { return base + i * stage_bytes; }
  [[nodiscard]] __device__ uint32_t full(uint32_t i) const { return barriers + i * kBarrierBytes; }
  [[nodiscard]] __device__ uint32_t empty(uint32_t i) const {
    return full(i) + kMaxStages * kBarrierBytes;
  }
  // Initializes the barriers at which copies arrive, for the stages from `first` on.
  __device__ __forceinline__ void init_full(uint32_t first) const {
#pragma unroll 1
    for (uint32_t i = first; i < num_stages; ++i)
      init_barrier(full(i), 1);
  }
  // Initializes the barriers at which consumers arrive.
  __device__ __forceinline__ void init_empty(int num_consumers) const {
#pragma unroll 1
    for (uint32_t i = 0; i < num_stages; ++i)
      init_barrier(empty(i), num_consumers);
  }
};

// The layout of a block's shared memory. Barriers come first, then the ring of weights. The
// kernel's arguments give the offsets of the parts behind the ring of weights.
struct Layout {
  Ring weights;
  Ring x;
  uint32_t x_scales;
  uint32_t staging;
  uint32_t partials;
  uint32_t partials_full;

  template <class Args>
  __device__ __forceinline__ Layout(const Args& args, uint32_t base)
      : weights(ring(base + kBarriersBytes, base, args.stage_boxes, args.tile_outputs,
                     args.weight_stages)),
        x(ring(base + static_cast<uint32_t>(args.x_offset), base + kRingBarriersBytes,
               args.x_stage_boxes, args.x_rows, args.x_stages)),
        x_scales(base + static_cast<uint32_t>(args.x_scales_offset)),
        staging(base + static_cast<uint32_t>(args.staging_offset)),
        partials(base + static_cast<uint32_t>(args.partials_offset)),
        partials_full(base + 2 * kRingBarriersBytes) {}

 private:
  static __device__ __forceinline__ Ring ring(uint32_t base, uint32_t barriers, int boxes,
                                              int box_rows, int num_stages) {
    const auto box_bytes = static_cast<uint32_t>(box_rows * kBoxRowBytes);
    return {base, barriers, box_bytes, static_cast<uint32_t>(boxes) * box_bytes,
            static_cast<uint32_t>(num_stages)};
  }
};

// The corner of a tile: its first output and its first row of x.
struct Corner {
  int output;
  int row;
};

// Walks over a block's work step by step: over the block's share of the columns of its first tile,
// then of its next tile, and so on. Two row tiles with the same outputs follow each other, so that
// the second one reads its weights from the L2 cache.
struct Work {
  int tile;
  int step;
  int first;
  int end;
  int stride;
  int num_tiles;

  template <class Args>
  __device__ __forceinline__ Work(const Args& args, int rank) {
    const int both = args.cluster - 1;  // 0 or 1, to shift by instead of dividing
    tile = static_cast<int>(blockIdx.x) >> both;
    first = (args.num_steps * rank) >> both;
    end = (args.num_steps * (rank + 1)) >> both;
    step = first;
    stride = args.num_workers;
    num_tiles = args.num_tiles;
  }
  [[nodiscard]] __device__ bool done() const { return tile >= num_tiles; }
  template <class Args>
  [[nodiscard]] __device__ __forceinline__ Corner corner(const Args& args) const {
    const int both = args.row_tiles - 1;  // 0 or 1, to shift by instead of dividing
    return {(tile >> both) * args.tile_outputs, (tile & both) * args.x_rows};
  }
  [[nodiscard]] __device__ bool ends_tile() const { return step + 1 == end; }
  __device__ __forceinline__ void next() {
    if (++step < end) return;
    step = first;
    tile += stride;
  }
};

// Calls `copy(i, place)` for each copy that fills a stage with a step's boxes of the rows from
// `row` on. Elements have type E. `place` is the box's place in the tensor map.
template <typename E, class Copy>
__device__ __forceinline__ void for_each_copy(bool whole_stages, int boxes, int step, int row,
                                              Copy copy) {
  constexpr int kColumns = kBoxRowBytes / sizeof(E);
  if (whole_stages) {
    copy(0U, make_int3(0, row, step * boxes));
    return;
  }
#pragma unroll 1
  for (int i = 0; i < boxes; ++i)
    copy(static_cast<uint32_t>(i), make_int3((step * boxes + i) * kColumns, row, 0));
}

// The work of the thread that fills the ring of weights, which are stored as W. It has at most
// stages_in_flight stages on their way from memory. More copies on their way would keep the memory
// no busier, but x would wait behind them, and blocks far from the memory would fall behind.
template <class Args, typename W>
struct WeightProducer {
  const Args& args;
  const Ring& ring;
  Work work;
  Slot target{};
  Slot landed{};
  int num_asked = 0;

  __device__ __forceinline__ void copy() {
    const uint32_t full = ring.full(target.number);
    arrive_expecting(full, ring.stage_bytes);
    for_each_copy<W>(args.whole_stages, args.stage_boxes, work.step, work.corner(args).output,
                     [&](uint32_t i, int3 place) {
                       const uint32_t box = ring.stage(target.number) + i * ring.box_bytes;
                       if (args.silu_mul) {
                         copy_pairs_once(box, args.weight, place, full);
                       } else {
                         copy_box_once(box, args.weight, place, full);
                       }
                     });
    work.next();
    target.advance(ring.num_stages);
    ++num_asked;
  }
  // Starts the first copy, which is the first thing that a block does, because the memory is idle
  // until then. Then initializes the other stages' barriers.
  __device__ __forceinline__ void begin() {
    init_barrier(ring.full(0), 1);
    publish_barriers();
    if (!work.done()) copy();
    ring.init_full(1);
    publish_barriers();
  }
  // Starts copies until the wanted number of stages is on their way.
  __device__ __forceinline__ void ask() {
    while (num_asked < args.stages_in_flight && !work.done())
      copy();
  }
  // Makes all copies of weights but the first. The block's warps must have met at a barrier before,
  // so that the ring's empty barriers are initialized.
  __device__ __forceinline__ void run() {
    while (!work.done()) {
      wait_for_phase(ring.full(landed.number), landed.parity);
      landed.advance(ring.num_stages);
      if (num_asked >= static_cast<int>(ring.num_stages)) {
        wait_for_phase(ring.empty(target.number), target.parity ^ 1U);
      }
      copy();
    }
  }
};

// The work of the thread that fills the ring of x, whose elements have type X. Codes are copied
// with their scales.
template <class Args, typename X>
struct XProducer {
  static constexpr bool kScaled = sizeof(X) == 1;

  const Args& args;
  const Ring& ring;
  uint32_t scales;
  Work work;
  Slot target{};

  __device__ __forceinline__ void begin(int num_consumers) const {
    ring.init_full(0);
    ring.init_empty(num_consumers);
    publish_barriers();
  }
  // Makes the target's phase wait for the bytes of a step's x, whose copies copy() starts later.
  __device__ __forceinline__ void expect() const {
    const int scales_bytes = kScaled ? args.stage_boxes * args.x_rows * 4 : 0;
    arrive_expecting(ring.full(target.number),
                     ring.stage_bytes + static_cast<uint32_t>(scales_bytes));
  }
  __device__ __forceinline__ void copy() {
    const int row = work.corner(args).row;
    for_each_copy<X>(args.whole_stages, args.x_stage_boxes, work.step, row,
                     [&](uint32_t box, int3 place) {
                       copy_box(ring.stage(target.number) + box * ring.box_bytes, args.x, place,
                                ring.full(target.number));
                     });
    if constexpr (kScaled) copy_scales(row);
    work.next();
    target.advance(ring.num_stages);
  }
  // Copies the scales of a stage's boxes. The codes of boxes beyond the last one are zeros, so any
  // scales may stand for theirs.
  __device__ __forceinline__ void copy_scales(int row) const {
    const auto bytes = static_cast<uint32_t>(args.x_rows * 4);
#pragma unroll 1
    for (int i = 0; i < args.stage_boxes; ++i) {
      const int box = min(work.step * args.stage_boxes + i, args.num_boxes - 1);
      const auto place =
          target.number * static_cast<uint32_t>(args.stage_boxes) + static_cast<uint32_t>(i);
      copy_bytes(scales + place * bytes, args.x_scale + int64_t{box} * args.x_scale_stride + row,
                 bytes, ring.full(target.number));
    }
  }
  // Makes all copies of x. `wait` returns when x may be read. The first copy starts right behind
  // the call of `wait`, because everything that does not need x is done before.
  template <class Wait>
  __device__ __forceinline__ void run(Wait wait) {
    const bool has_work = !work.done();
    if (has_work) expect();
    wait();
    if (!has_work) return;
    copy();
    for (uint32_t i = 1; !work.done(); ++i) {
      if (i >= ring.num_stages) wait_for_phase(ring.empty(target.number), target.parity ^ 1U);
      expect();
      copy();
    }
  }
};

}  // namespace encore::cuda::skinny_gemm
