// The kernel of gemv.cu, gemv_fp8.cu and gemv_lora.cu, and the functions that bind it.
#pragma once

#include <algorithm>

#include "backend/cuda/linear/gemv.cuh"

namespace encore::cuda::gemv {

constexpr int kThreads = kWorkers + 32;
// The largest number of the ring's stages whose copies are under way at once in the ring's first
// round. A load of x waits in the memory's queue behind them.
constexpr uint32_t kWindow = 3;

// The thread that copies weights into the ring's stages.
template <typename T, typename W>
struct Producer {
  const CUtensorMap& weight;
  const Ring& ring;
  SlotWalk<T, W> walk;
  uint32_t slot = 0;  // the stage to be filled next, in the ring's first round

  __device__ __forceinline__ void copy() {
    walk.copy(weight, ring, slot++);
    walk.next();
  }
  // Initializes the ring's barriers. Where workers meet late, because they fetch a norm's weights
  // first, it also starts the first copy as soon as its stage has a barrier, since memory has
  // little else to do then. (Elsewhere an early copy would disturb the launches in front, and cost
  // 0.2 to 1.7 % of a step's time.)
  __device__ __forceinline__ void begin(bool workers_meet_late) {
    prefetch_map(weight);
    ring.init(0, 1);
    if (workers_meet_late && !walk.done()) copy();
    ring.init(1, ring.num_slots - 1);
  }
  __device__ __forceinline__ void run() {
#pragma unroll 1
    while (slot < ring.num_slots && !walk.done()) {
      if (slot >= kWindow) wait_for_phase(ring.full(slot - kWindow), 0);
      copy();
    }
#pragma unroll 1
    for (Slot next; !walk.done(); walk.next(), next.advance(ring.num_slots)) {
      wait_for_phase(ring.empty(next.number), next.parity);
      walk.copy(weight, ring, next.number);
    }
  }
};

// The part of a launch's arguments that says what is added to products.
template <typename T>
struct WithAdapters {
  LoraArgs<T> args;
  using Added = Adapters<T>;
  [[nodiscard]] __device__ __forceinline__ Added added() const { return {args}; }
};
struct WithoutAdapters {
  using Added = NoAdapters;
  [[nodiscard]] __device__ __forceinline__ Added added() const { return {}; }
};

// Shared memory holds the ring, x, and the sums. kLoads is the number of loads of 16 bytes of x
// whose results a worker keeps in registers: with a norm all its loads of a row, otherwise those
// that are under way at once.
template <typename T, typename W, class With, int kRows, bool kNormalizes, int kLoads>
__global__ void __launch_bounds__(kThreads, kLoads > 2 ? 1 : 2)
    gemv_kernel(const __grid_constant__ GemvArgs<T> args,
                const __grid_constant__ CUtensorMap weight, int num_slots,
                const __grid_constant__ With with) {
  extern __shared__ __align__(kSlotAlignment) uint8_t shared[];
  allow_next_kernel();
  const Ring ring(shared, num_slots);
  const uint8_t* x_at = shared + Ring::bytes(num_slots);
  if (threadIdx.x >= kWorkers) {
    Producer<T, W> producer{weight, ring, {args}};
    const bool produces = elect_lane();
    if (produces) producer.begin(kNormalizes);
    __syncthreads();
    if (produces) producer.run();
    return;
  }
  const XRows<W, kRows> x(x_at, args.num_rows, args.num_loads());
  x.clear_rest(args.slots_per_tile);
  const Products<W, kRows> products(x_at + kRows * args.slots_per_tile * kSlotColumns<W> * 2);
  const Part<W, kRows> part(args);
  const RowPlace<kRows> row(args, args.x, args.x_stride);
  RowShare<kLoads> values;
  auto added = with.added();
  if constexpr (kNormalizes) {
    const RowPlace<kRows> other(args, args.residual, args.residual_stride);
    const Norm<T, kRows, kLoads> norm(args);
    RowShare<kLoads> residual;
    __syncthreads();
    wait_for_inputs();
    row.fetch(values);
    other.fetch(residual);
    added.look(part, args.num_rows);
    norm.apply(values, residual, x);
  } else {
    __syncthreads();
    wait_for_inputs();
    added.look(part, args.num_rows);
#pragma unroll 1
    for (int first = 0; row.has(first); first += kLoads) {
      row.fetch(values, first);
      x.put(values, first);
    }
  }
  added.prefetch(part, args.num_outputs);
  Workers::meet();
  Slot next;
  products.multiply(
      args, part, ring, next, x,
      [&](int of_row, int output, float value) { store_output(args, of_row, output, value); },
      added);
}

template <typename T, typename W, class With, int kRows, bool kNormalizes>
auto kernel_of(int64_t loads) {
  if (loads <= 1) return gemv_kernel<T, W, With, kRows, kNormalizes, 1>;
  if (loads <= 2) return gemv_kernel<T, W, With, kRows, kNormalizes, 2>;
  if (loads <= kMaxNormLoads) return gemv_kernel<T, W, With, kRows, kNormalizes, kMaxNormLoads>;
  return gemv_kernel<T, W, With, kRows, false, 8>;
}
template <typename T, typename W, class With, int kRows>
auto kernel_of(const GemvArgs<T>& gemv) {
  const int64_t loads = num_loads(kRows, gemv.num_columns);
  return gemv.norm == nullptr ? kernel_of<T, W, With, kRows, false>(loads)
                              : kernel_of<T, W, With, kRows, true>(loads);
}
template <typename T, typename W, class With>
auto kernel_for(const GemvArgs<T>& gemv) {
  switch (padded_rows(gemv.num_rows)) {
    case 1:
      return kernel_of<T, W, With, 1>(gemv);
    case 2:
      return kernel_of<T, W, With, 2>(gemv);
    default:
      return kernel_of<T, W, With, kMaxRows>(gemv);
  }
}

// Decides how large a block is. Blocks of the next launch start beside it where they fit, and their
// rings are full of weights when the launch in front of them ends. But two blocks of one launch
// must not share a multiprocessor while another is idle, because that multiprocessor would have
// twice as much to do. So of two launches that follow each other, one gets blocks that take more
// than half of a multiprocessor, and the other gets blocks that fit beside them. The large blocks
// are those of launches without a norm, whose outputs have the width of the model; launches with a
// norm, whose inputs have this width, get small blocks. In wide models long rings are worth more,
// so every block takes more than half.
struct Room {
  int num_slots = 0;
  int64_t shared_bytes = 0;
};
template <typename T>
Room room_of(const GemvArgs<T>& gemv, DType stored) {
  constexpr int kNarrow = 2048;
  constexpr int kNarrowSlots = 6;
  constexpr int kWideSlots = 7;
  constexpr int64_t kMoreThanHalf = 115 * kKilobyte;
  const int64_t sums =
      sums_bytes(padded_rows(gemv.num_rows), gemv.units_each + 1, gemv.tiles_per_unit());
  const bool gives_width = gemv.norm == nullptr;
  const bool is_narrow = (gives_width ? gemv.num_outputs : gemv.num_columns) <= kNarrow;
  Room room{.num_slots = is_narrow ? kNarrowSlots : kWideSlots};
  const auto bytes = [&] {
    return shared_bytes(gemv.num_rows, gemv.num_columns, stored, room.num_slots, sums);
  };
  while (bytes() > kMaxSharedBytes)
    --room.num_slots;
  room.shared_bytes = std::max(bytes(), gives_width || !is_narrow ? kMoreThanHalf : 0);
  return room;
}

// Binds a launch with x in T and a weight that is stored as W.
template <typename T, typename W, class With = WithoutAdapters>
BoundLaunch bind_for(Device& device, const KernelArgs& args, const With& with = {}) {
  const int blocks = chip(device).num_multiprocessors;
  const GemvArgs<T> gemv = gemv_args<T, W>(args, blocks);
  const auto kernel = kernel_for<T, W, With>(gemv);
  allow_shared_memory(kernel, kMaxSharedBytes);
  const Room room = room_of(gemv, linear_operands(args).weight->dtype);
  const Grid grid{.blocks = static_cast<unsigned>(blocks),
                  .threads = kThreads,
                  .shared_bytes = static_cast<size_t>(room.shared_bytes)};
  return [gemv, weight = weight_map(args), grid, kernel, num_slots = room.num_slots, with](
             Stream& stream, const StepLengths&) {
    launch(stream, grid, kernel, gemv, weight, num_slots, with);
  };
}

}  // namespace encore::cuda::gemv
