// The device code of linears with one row, or up to four (gemv.cu).
//
// Weights arrive in shared memory in the stages of a ring (Slot). A stage holds 1024 columns (2048
// of 8-bit codes) of a tile of 8 outputs, in 16 boxes. The workers fetch x and normalize it. Then
// each of their warps multiplies its own boxes of every stage, and at last the sums of the warps
// are added up. So a warp reads each part of x once for 8 outputs, and its lanes need not exchange
// sums. The arithmetic is about as fast as reading the operands from shared memory.
//
// Weights are the first operand of the tensor cores' product (mma.cuh), whose 16 rows the 8 of a
// tile fill twice: in rows 0 to 7 with the even pieces of 8 columns, in rows 8 to 15 with the odd
// ones. The second operand has the even pieces of row r of x in column 2r and its odd ones in
// column 2r + 1. The sums of output i and row r are [i, 2r] and [i + 8, 2r + 1]. Columns beyond the
// rows of x hold arbitrary values, and their sums are not read.
//
// The code that runs once x has arrived is short (launch.h). Everything that does not depend on x
// is computed before.
//
// The order of additions depends on the number of columns alone.
#pragma once

#include "backend/cuda/fp8.h"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/linear/codes.cuh"
#include "backend/cuda/linear/gemv_row.cuh"
#include "backend/cuda/linear/lora.cuh"
#include "backend/cuda/mma.cuh"

namespace encore::cuda::gemv {

// A ring of num_slots stages in shared memory, with two barriers for each stage. At the barrier
// full(), the copies into the stage have arrived; at the barrier empty(), every warp has read it.
struct Ring {
  uint32_t slots;
  uint32_t barriers;
  uint32_t num_slots;

  static __host__ __device__ constexpr int64_t bytes(int64_t num_slots) {
    return num_slots * (kSlotBytes + 16);
  }
  // `shared` has bytes(num_slots) bytes, aligned to kSlotAlignment.
  __device__ __forceinline__ Ring(const uint8_t* shared, int num_slots)
      : slots(shared_address(shared)),
        barriers(slots + static_cast<uint32_t>(num_slots * kSlotBytes)),
        num_slots(static_cast<uint32_t>(num_slots)) {}
  // Initializes the barriers of `count` stages of the ring, from stage `first` on. One thread calls
  // it.
  __device__ __forceinline__ void init(uint32_t first, uint32_t count) const {
#pragma unroll 1
    for (uint32_t i = first; i < first + count; ++i) {
      init_barrier(full(i), 1);
      init_barrier(empty(i), kWarps);
    }
    publish_barriers();
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t at(uint32_t slot) const {
    return slots + slot * static_cast<uint32_t>(kSlotBytes);
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t full(uint32_t slot) const {
    return barriers + slot * 16;
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t empty(uint32_t slot) const {
    return full(slot) + 8;
  }
};

// Walks over a block's part of a weight, in the order in which its pieces fill stages of the ring.
// The block takes one unit after another (neighbouring units go to different blocks). A unit is one
// tile of 8 outputs or, with silu_mul, a tile of gates and the tile of the outputs that they gate.
// The block takes all columns of each tile.
template <typename T, typename W>
struct SlotWalk {
  const GemvArgs<T>& args;
  int unit = static_cast<int>(blockIdx.x);
  int tile = 0;
  int step = 0;

  [[nodiscard]] __device__ __forceinline__ bool done() const { return unit >= args.num_units; }
  __device__ __forceinline__ void next() {
    if (++step < args.slots_per_tile) return;
    step = 0;
    if (++tile < args.tiles_per_unit()) return;
    tile = 0;
    unit += static_cast<int>(gridDim.x);
  }
  // Fills a stage of the ring. Columns beyond the weight's end arrive as zeros.
  __device__ __forceinline__ void copy(const CUtensorMap& weight, const Ring& ring,
                                       uint32_t slot) const {
    const int row = unit * kTileOutputs + tile * args.num_outputs;
    const uint32_t full = ring.full(slot);
    arrive_expecting(full, kSlotBytes);
    if (args.whole_slots) {
      copy_box_once(ring.at(slot), weight, make_int3(0, row, step * kSlotBoxes), full);
      return;
    }
#pragma unroll 1
    for (int box = 0; box < kSlotBoxes; ++box) {
      copy_box_once(ring.at(slot) + static_cast<uint32_t>(box * kBoxBytes), weight,
                    make_int3(step * kSlotColumns<W> + box * kSlotColumns<W> / kSlotBoxes, row, 0),
                    full);
    }
  }
};

// A warp's sums of a tile. The weight is stored as W.
template <typename T, typename W>
struct Sums {
  float low[4] = {};   // sums of one half of the boxes' pieces
  float high[4] = {};  // sums of the other half

  // Multiplies a box. `box` is the address at which this lane reads the box of weights (see at()),
  // and `x_at` is the address at which it reads the first box of x for it. The next box of x lies
  // `next_x` further.
  __device__ __forceinline__ void add(uint32_t box, uint32_t x_at, uint32_t next_x) {
    constexpr uint32_t kNextPieces = 64;  // bytes, permuted
    const uint4 x = load_shared(x_at);
    uint32_t pieces[4];
    load_matrices(pieces, box);
    if constexpr (kIsFp8<W>) {
      add_codes(pieces, x);
      load_matrices(pieces, box ^ kNextPieces);
      add_codes(pieces, load_shared(x_at + next_x));
    } else {
      multiply_add<T>(low, pieces, x.x, x.y);
      load_matrices(pieces, box ^ kNextPieces);
      multiply_add<T>(high, pieces, x.z, x.w);
    }
  }
  // Multiplies four pieces of 16 codes of the weight by the codes' elements of x, and adds the
  // products to the warp's sums.
  __device__ __forceinline__ void add_codes(const uint32_t (&pieces)[4], const uint4& x) {
    uint32_t weights[4];
    widen_codes<T>(pieces[0], weights[0], weights[2]);
    widen_codes<T>(pieces[1], weights[1], weights[3]);
    multiply_add<T>(low, weights, x.x, x.y);
    widen_codes<T>(pieces[2], weights[0], weights[2]);
    widen_codes<T>(pieces[3], weights[1], weights[3]);
    multiply_add<T>(high, weights, x.z, x.w);
  }
  static __device__ __forceinline__ uint32_t at() {
    const int row = Workers::lane() % kTileOutputs;
    const int piece = Workers::lane() / kTileOutputs;
    return static_cast<uint32_t>(row * kBoxRowBytes + (piece ^ row) * 16);
  }
  // Returns the complete sum of this warp for output lane / 4 of the tile and row lane % 4 of x.
  [[nodiscard]] __device__ __forceinline__ float total() const {
    return (low[0] + low[3]) + (high[0] + high[3]);
  }
};

// The scales of 8-bit codes that a worker needs next. Where blocks of 128 x 128 have scales, these
// are the scales of its warp's boxes of a tile, one in each lane. Otherwise they are the scales of
// the outputs that the worker finishes.
struct Scales {
  float box = 1;
  float output = 1;
  float gated = 1;  // the scale of the output that `output` gates

  template <typename T>
  __device__ __forceinline__ void fetch_boxes(const GemvArgs<T>& args, int first_output) {
    if (args.scale_columns == 0) return;
    const int number = Workers::lane() * kWarps + Workers::warp();
    if (number < args.scale_columns)
      box = args.scale[first_output / kScaleBlock * args.scale_columns + number];
  }
  template <typename T>
  __device__ __forceinline__ void fetch_outputs(const GemvArgs<T>& args, int of) {
    if (args.scale_columns > 0 || of >= args.num_outputs) return;
    output = args.scale[of];
    if (args.silu_mul) gated = args.scale[args.num_outputs + of];
  }
  // Returns the scale of the warp's box with that number.
  [[nodiscard]] __device__ __forceinline__ float of_box(int number) const {
    return __shfl_sync(0xffffffffU, box, number);
  }
};

// The outputs that a block computes. The weight is stored as W.
template <typename W, int kRows>
struct Part {
  static constexpr int kBatchUnits = batch_units(kRows);

  int num_units;
  int tiles_per_unit;
  int slots_per_tile;
  // The result that this worker finishes: the index of its unit in a batch of units, its output in
  // the first batch, and its row.
  int worker_unit;
  int output;
  int row;
  Scales scales;

  template <typename T>
  __device__ __forceinline__ explicit Part(const GemvArgs<T>& args)
      : num_units(args.units_each + (static_cast<int>(blockIdx.x) < args.units_left ? 1 : 0)),
        tiles_per_unit(args.tiles_per_unit()),
        slots_per_tile(args.slots_per_tile),
        worker_unit(Workers::index() / kTileOutputs % kBatchUnits),
        output((static_cast<int>(blockIdx.x) + worker_unit * static_cast<int>(gridDim.x)) *
                   kTileOutputs +
               Workers::index() % kTileOutputs),
        row(Workers::index() / kTileOutputs / kBatchUnits) {
    compute_now(num_units);
    compute_now(tiles_per_unit);
    compute_now(slots_per_tile);
    compute_now(worker_unit);
    compute_now(output);
    compute_now(row);
    if constexpr (kIsFp8<W>) {
      scales.fetch_boxes(args, static_cast<int>(blockIdx.x) * kTileOutputs);
      scales.fetch_outputs(args, output);
      compute_now(scales.box);
      compute_now(scales.output);
      compute_now(scales.gated);
    }
  }
};

// Leaves the products as they are, where a launch has no adapters.
struct NoAdapters {
  template <typename Part>
  __device__ __forceinline__ void look(const Part& /*part*/, int /*num_rows*/) {}
  template <typename Part>
  __device__ __forceinline__ void prefetch(const Part& /*part*/, int /*num_outputs*/) const {}
  [[nodiscard]] __device__ __forceinline__ float plus(float value, int /*row*/,
                                                      int /*output*/) const {
    return value;
  }
};
// Adds the adapters' part to products. All results of a worker belong to one row.
template <typename T>
struct Adapters {
  const LoraArgs<T>& args;
  int slot = -1;

  // Reads the adapter slot of the worker's row. It is called when the launches in front have ended.
  template <typename Part>
  __device__ __forceinline__ void look(const Part& part, int num_rows) {
    if (part.row < num_rows) slot = load_slot(args.adapters + part.row);
  }
  // Starts to fetch the adapter's weights that the worker's first result needs.
  template <typename Part>
  __device__ __forceinline__ void prefetch(const Part& part, int num_outputs) const {
    if (slot < 0 || part.output >= num_outputs) return;
#pragma unroll 1
    for (int tile = 0; tile < part.tiles_per_unit; ++tile)
      prefetch_to_l2(lora_row(args, slot, part.output + tile * num_outputs));
  }
  [[nodiscard]] __device__ __forceinline__ float plus(float value, int row, int output) const {
    return slot < 0 ? value : value + lora_sum(args, slot, row, output);
  }
};

// Multiplies the weights in the ring's stages by x, which lies in shared memory. Each warp sums up
// its own boxes of every stage, and then the sums of the warps are added up.
template <typename W, int kRows>
class Products {
 public:
  // `sums` has sums_bytes() of shared memory, aligned to 16.
  __device__ __forceinline__ explicit Products(const uint8_t* sums)
      : box_at_(static_cast<uint32_t>(Workers::warp() * kBoxBytes) + Sums<__half, W>::at()),
        sum_at_(shared_address(sums) + sum_offset(Workers::lane() % 4, Workers::lane() / 4) +
                static_cast<uint32_t>(Workers::warp() * 4)),
        output_at_(shared_address(sums) +
                   sum_offset(Workers::index() / kTileOutputs / batch_units(kRows),
                              Workers::index() % kTileOutputs)) {
    compute_now(box_at_);
    compute_now(sum_at_);
    compute_now(output_at_);
  }

  // Multiplies the block's part of the weight by x. One thread calls `put(row, output, value)` for
  // each output of the block. `next` is the stage of the ring that is read next. All workers call
  // multiply(), after they have met behind the writes to x. They must meet again before x or the
  // sums are written again.
  template <typename T, typename Put, typename Added = NoAdapters>
  __device__ __forceinline__ void multiply(const GemvArgs<T>& args, Part<W, kRows> part,
                                           const Ring& ring, Slot& next, const XRows<W, kRows>& x,
                                           Put&& put, const Added& added = {}) const {
    if (part.num_units == 0) return;
    [[maybe_unused]] int first_output = static_cast<int>(blockIdx.x) * kTileOutputs;
#pragma unroll 1
    while (true) {
      const int num_units = min(Part<W, kRows>::kBatchUnits, part.num_units);
      uint32_t sum_at = sum_at_;
      int left = num_units * part.tiles_per_unit;
#pragma unroll 1
      do {
        const Scales scales = part.scales;
        if constexpr (kIsFp8<W>) {
          first_output = output_of_next_tile(args, first_output);
          part.scales.fetch_boxes(args, first_output);
        }
        multiply_tile(args, part.slots_per_tile, ring, next, x, sum_at, scales);
        sum_at += kTileSums;
      } while (--left > 0);
      Workers::meet();
      if (part.worker_unit < num_units && part.output < args.num_outputs &&
          part.row < args.num_rows) {
        put(part.row, part.output, finish(args, part, added));
      }
      part.num_units -= num_units;
      if (part.num_units == 0) return;
      part.output += num_units * static_cast<int>(gridDim.x) * kTileOutputs;
      if constexpr (kIsFp8<W>) part.scales.fetch_outputs(args, part.output);
      Workers::meet();  // the sums have been read
    }
  }

 private:
  // Returns the first output of the block's tile behind the one that begins with `output`, or 0
  // beyond the weight's end.
  template <typename T>
  static __device__ __forceinline__ int output_of_next_tile(const GemvArgs<T>& args, int output) {
    const int step = static_cast<int>(gridDim.x) * kTileOutputs;
    int next = output + step;
    if (args.silu_mul)
      next = output < args.num_outputs ? output + args.num_outputs : next - args.num_outputs;
    return next < args.num_outputs * args.tiles_per_unit() ? next : 0;
  }
  template <typename T>
  __device__ __forceinline__ void multiply_tile(const GemvArgs<T>& args, int num_slots,
                                                const Ring& ring, Slot& next,
                                                const XRows<W, kRows>& x, uint32_t sum_at,
                                                const Scales& scales) const {
    Sums<T, W> sums;
    // These two are used only where blocks of the weight have scales: the sum, times the scales,
    // over the boxes so far, and the number of the next box. No warp has more than 32 boxes of a
    // tile.
    [[maybe_unused]] float scaled = 0;
    [[maybe_unused]] int number = 0;
    uint32_t x_at = x.lane_at();
    // A stage of the ring is released only in front of the next stage, behind the products of its
    // own boxes, which have waited for the loads from it. An arrival at a barrier does not wait for
    // loads. Without a branch in between, the assembler put the arrival in front of the products,
    // and the stage was filled again before a load had its data.
    uint32_t read = 0;  // the barrier of the stage that was read last
#pragma unroll 1
    do {
      if (read != 0) let_go(read);
      wait_for_phase(ring.full(next.number), next.parity);
      const uint32_t box = ring.at(next.number) + box_at_;
#pragma unroll
      for (int j = 0; j < kBoxesPerWarp; ++j) {
        sums.add(box + static_cast<uint32_t>(j * kWarps * kBoxBytes), x_at,
                 XRows<W, kRows>::kNextBox);
        x_at += XRows<W, kRows>::kNextOfWarp;
        if constexpr (kIsFp8<W>) {
          if (args.scale_columns > 0) {
            scaled = fmaf(scales.of_box(number++), sums.total(), scaled);
            sums = {};
          }
        }
      }
      read = ring.empty(next.number);
      next.advance(ring.num_slots);
    } while (--num_slots > 0);
    float total = sums.total();
    if constexpr (kIsFp8<W>) total += scaled;
    let_go(read);
    if (Workers::lane() % 4 < kRows) store_shared(sum_at, __float_as_uint(total));
  }
  static __device__ __forceinline__ void let_go(uint32_t empty) {
    __syncwarp();  // every lane has read the stage
    if (Workers::lane() == 0) arrive(empty);
  }
  static constexpr uint32_t kTileSums = tile_sums_bytes(kRows);

  static __device__ __forceinline__ uint32_t sum_offset(int row, int output) {
    return static_cast<uint32_t>((row * kTileOutputs + output) * kWarps * 4);
  }
  static __device__ __forceinline__ float sum_of_warps(uint32_t at) {
    const uint4 low = load_shared(at);
    const uint4 high = load_shared(at + 16);
    const auto sum = [](const uint4& of) {
      return (__uint_as_float(of.x) + __uint_as_float(of.y)) +
             (__uint_as_float(of.z) + __uint_as_float(of.w));
    };
    return sum(low) + sum(high);
  }
  template <typename T, typename Added>
  __device__ __forceinline__ float finish(const GemvArgs<T>& args, const Part<W, kRows>& part,
                                          const Added& added) const {
    const uint32_t at =
        output_at_ + static_cast<uint32_t>(part.worker_unit * part.tiles_per_unit * kTileSums);
    float value = sum_of_warps(at);
    if constexpr (kIsFp8<W>) value *= part.scales.output;
    if (args.bias != nullptr) value += to_float(args.bias[part.output]);
    value = added.plus(value, part.row, part.output);
    if (part.tiles_per_unit == 1) return value;
    float other = sum_of_warps(at + kTileSums);
    if constexpr (kIsFp8<W>) other *= part.scales.gated;
    if (args.bias != nullptr) other += to_float(args.bias[args.num_outputs + part.output]);
    other = added.plus(other, part.row, args.num_outputs + part.output);
    if (!args.out_is_float) {
      value = to_float(from_float<T>(value));
      other = to_float(from_float<T>(other));
    }
    return silu<T>(value) * other;
  }

  uint32_t box_at_;
  uint32_t sum_at_;
  uint32_t output_at_;
};

template <typename T>
__device__ __forceinline__ void store_output(const GemvArgs<T>& args, int row, int output,
                                             float value) {
  const int64_t at = row * args.out_stride + output;
  if (args.out_is_float) {
    static_cast<float*>(args.out)[at] = value;
  } else {
    static_cast<T*>(args.out)[at] = from_float<T>(value);
  }
}

}  // namespace encore::cuda::gemv
