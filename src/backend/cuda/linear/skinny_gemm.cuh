// The device code of skinny_gemm.cu's kernel.
#pragma once

#include <bit>

#include "backend/cuda/fp8.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/skinny_gemm_codes.cuh"
#include "backend/cuda/linear/skinny_gemm_ring.cuh"
#include "backend/cuda/linear/skinny_gemm_tile.cuh"
#include "backend/cuda/linear/turns.cuh"

namespace encore::cuda::skinny_gemm {

__device__ __forceinline__ void synchronize_warpgroup(int warpgroup) {
  asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
}

// Stores an 8 x 8 matrix of 16-bit elements, transposed. Each lane holds two neighbours in a row of
// the matrix. Lanes 0 to 7 give the addresses of the result's rows.
__device__ __forceinline__ void store_transposed(uint32_t address, uint32_t pair) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address),
               "r"(pair)
               : "memory");
}

// A warpgroup that multiplies (a consumer of the rings of weights and of x).
//
// The code behind the last product is on the critical path of every step and runs once (launch.h),
// so it is kept short. Its addresses are computed in Epilogue before x has arrived.
template <typename T, class TilePart, int kWarpgroups>
struct Consumer {
  static constexpr int kRows = TilePart::kRows;
  static constexpr int kProducts = TilePart::kProducts;
  // Is true where products that are still running read the last stage of x, so that it is released
  // one stage later.
  static constexpr bool kReadsXLate = TilePart::kUnderWay > 0;
  static constexpr bool kReadsWeightsLate = TilePart::kReadsWeightsLate;
  // The number of warpgroups that take turns with the columns of the tile; the first of them gets
  // all sums in the end. If it is 1, each warpgroup has its own part of the tile's outputs instead.
  static constexpr int kTurns = TilePart::kTurns;
  static constexpr int kParts = kWarpgroups / kTurns;
  static_assert(kTurns == 1 || (kTurns == 2 && kParts == 1));
  static constexpr bool kOfCodes = kIsFp8<typename TilePart::Weight>;
  // The number of outputs in the warpgroup's part of a tile.
  static constexpr int kOutputs = kProducts * kProductOutputs;
  // In the staging memory a row is 16 bytes longer than its outputs, which avoids bank conflicts.
  static constexpr int kStagedRowBytes = kOutputs * 2 + 16;
  // A tile whose outputs need more staging memory than this is stored in two halves, one after the
  // other. Units: bytes.
  static constexpr int kMostStagedBytes = 56 * 1024;
  static constexpr bool kStagesHalves = kParts * kRows * kStagedRowBytes > kMostStagedBytes;
  // Half of a tile's blocks of rows. If their number is odd, the lower half has one more.
  static constexpr int kHalf = (TilePart::kRowBlocks + 1) / 2;
  static constexpr int kHalfRows = kHalf * 8;
  // The memory for the partial sums that a block of a cluster receives, which belong to half of the
  // tile's rows.
  static constexpr int kPartialBytes = kParts * kOutputs * kHalfRows * 4;
  // The memory where the second of two warpgroups that take turns leaves its sums.
  static constexpr int kTurnBytes = kTurns == 1 ? 0 : kOutputs * kRows * 4;

  const SkinnyGemmArgs<T>& args;
  const Layout& layout;
  int rank;
  int warpgroup;
  float bias[kProducts][2] = {};

  __device__ __forceinline__ void run() {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const auto let_go = [&](const Ring& ring, const Slot& slot) {
      if (lane == 0) arrive(ring.empty(slot.number));
    };
    const uint32_t part_offset = static_cast<uint32_t>(part()) * kOutputs * kBoxRowBytes;
    const Peer peer(*this);
    Work work(args, rank);
    Slot weights;
    Slot x;
    [[maybe_unused]] bool is_first_tile = true;
    while (!work.done()) {
      const Corner corner = work.corner(args);
      load_bias(corner);
      const Scales<kProducts> scales(*this, corner);
      const Epilogue epilogue(*this, corner);
      TilePart part;
      Slot last_weights;
      Slot last_x;
      bool first = true;
      bool last = false;
      do {
        last = work.ends_tile();
        wait_for_phase(layout.weights.full(weights.number), weights.parity);
        wait_for_phase(layout.x.full(x.number), x.parity);
        part.add(!first,
                 {.weights = layout.weights.stage(weights.number) + part_offset,
                  .weight_box_bytes = layout.weights.box_bytes,
                  .x = layout.x.stage(x.number),
                  .x_box_bytes = layout.x.box_bytes,
                  .x_scales = layout.x_scales +
                              x.number * static_cast<uint32_t>(args.stage_boxes * args.x_rows * 4),
                  .count = args.stage_boxes,
                  .first = work.step * args.stage_boxes,
                  .turn = warpgroup},
                 scales);
        wait_for_products<TilePart::kUnderWay>();
        if (!kReadsWeightsLate) {
          let_go(layout.weights, weights);
        } else if (!first) {
          let_go(layout.weights, last_weights);
        }
        if (!kReadsXLate) {
          let_go(layout.x, x);
        } else if (!first) {
          let_go(layout.x, last_x);
        }
        last_weights = weights;
        last_x = x;
        first = false;
        weights.advance(layout.weights.num_stages);
        x.advance(layout.x.num_stages);
        work.next();
      } while (!last);
      if (kReadsXLate) {
        wait_for_products<0>();
        if (kReadsWeightsLate) let_go(layout.weights, last_weights);
        let_go(layout.x, last_x);
      }
      part.settle_all();
      if constexpr (kTurns > 1) {
        if (warpgroup > 0) {
          if (!is_first_tile) meet_at<kTurns * 128>(kTurnsFree);
          leave_sums(part);
          is_first_tile = false;
          continue;
        }
        take_sums(part);
      }
      if (args.cluster > 1) exchange(part, peer);  // a block of a cluster has only one tile
      finish(part, corner, epilogue, scales);
      if (!work.done()) free_staging();
    }
    if constexpr (kTurns > 1) {
      __syncwarp();
      if (warpgroup > 0 && args.cluster > 1) wait_for_cluster();
    }
  }

  // Returns the index of this warpgroup's part of the tile's outputs.
  [[nodiscard]] __device__ __forceinline__ int part() const { return kTurns == 1 ? warpgroup : 0; }

  // Announces that the staging memory may be written again: to the other warpgroup where two take
  // turns, otherwise to the threads of this warpgroup.
  __device__ __forceinline__ void free_staging() const {
    if constexpr (kTurns > 1) {
      announce_at<kTurns * 128>(kTurnsFree);
    } else {
      synchronize_warpgroup(warpgroup);
    }
  }

  // Barriers for warpgroups that take turns. At kTurnsLeft, the second has left its sums in the
  // staging memory. At kTurnsFree, that memory may be written again.
  static constexpr int kTurnsLeft = 3;
  static constexpr int kTurnsFree = 4;

  __device__ __forceinline__ void leave_sums(TilePart& part) const {
    uint32_t at = layout.staging + threadIdx.x % 128 * 8;
    part.for_each_block([&](int /*p*/, int /*j*/, int /*h*/, float first, float second) {
      store_shared_pair(at, {first, second});
      at += 128 * 8;
    });
    __syncwarp();
    announce_at<kTurns * 128>(kTurnsLeft);
  }
  __device__ __forceinline__ void take_sums(TilePart& part) const {
    meet_at<kTurns * 128>(kTurnsLeft);
    uint32_t at = layout.staging + threadIdx.x % 128 * 8;
    part.for_each_block([&](int /*p*/, int /*j*/, int /*h*/, float& first, float& second) {
      const float2 other = load_shared_pair(at);
      first += other.x;
      second += other.y;
      at += 128 * 8;
    });
    synchronize_warpgroup(warpgroup);  // outputs are staged in the same memory
  }

  // The rows that this block finishes: all rows or, in a cluster, one half. The first block takes
  // the lower half. After an exchange, a block's sums lie where those of the lower half lie,
  // whichever half it finishes. If the upper half is smaller, its last block of rows is unused.
  [[nodiscard]] __device__ __forceinline__ int first_row(Corner corner) const {
    return corner.row + rank * kHalfRows;
  }
  [[nodiscard]] __device__ __forceinline__ int num_rows(Corner corner) const {
    const int end = min(corner.row + args.x_rows, args.out.num_rows);
    return min(args.cluster == 1 ? kRows : kHalfRows, end - first_row(corner));
  }
  template <int kWhich, class Visit>
  __device__ __forceinline__ void for_each_of_half(TilePart& part, Visit visit) const {
    part.for_each_block([&](int p, int j, int h, float& first, float& second) {
      if (j / kHalf == kWhich) visit(p, j, h, first, second);
    });
  }
  template <class Visit>
  __device__ __forceinline__ void for_each_finished(TilePart& part, Visit visit) const {
    for_each_of_half<0>(part, visit);
    if (args.cluster == 1) for_each_of_half<1>(part, visit);
  }
  // Return the first output and the number of outputs of this warpgroup's part of a tile. With
  // silu_mul, outputs are counted as they lie in the tile: 8 gates, the 8 outputs that they gate,
  // the next 8 gates.
  [[nodiscard]] __device__ __forceinline__ int first_output(Corner corner) const {
    return corner.output + part() * kOutputs;
  }
  [[nodiscard]] __device__ __forceinline__ int num_outputs(Corner corner) const {
    return min(min(kOutputs, args.tile_outputs - part() * kOutputs),
               args.out.num_outputs - first_output(corner));
  }
  // Returns the row of the weight that makes an output, which is counted as first_output() counts.
  [[nodiscard]] __device__ __forceinline__ int weight_row(int output) const {
    if (!args.silu_mul) return output;
    const int half = output / kBlockRows % 2;
    return output / kPairRows * kBlockRows + output % kBlockRows + half * args.out.num_outputs / 2;
  }

  __device__ __forceinline__ void load_bias(Corner corner) {
    if (args.out.bias == nullptr) return;
    for_each_own_output(corner,
                        [&](int p, int h, int row) { bias[p][h] = to_float(args.out.bias[row]); });
  }
  // Calls `visit(p, h, row)` for each output whose sums this thread has. `row` is the output's row
  // of the weight.
  template <class Visit>
  __device__ __forceinline__ void for_each_own_output(Corner corner, Visit visit) const {
    const int own = static_cast<int>(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4);
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int output = p * kProductOutputs + own + 8 * h;
        if (output < num_outputs(corner)) visit(p, h, weight_row(first_output(corner) + output));
      }
    }
  }

  // The addresses with which two blocks of a cluster exchange sums: those to which this block
  // sends, and those at which it receives.
  struct Peer {
    uint32_t sums = 0;
    uint32_t barrier = 0;
    uint32_t own_sums;

    __device__ __forceinline__ explicit Peer(const Consumer& consumer)
        : own_sums(consumer.layout.partials + threadIdx.x * 8) {
      if (consumer.args.cluster == 1) return;
      const auto rank = static_cast<uint32_t>(1 - consumer.rank);
      sums = address_at(own_sums, rank);
      barrier = address_at(consumer.layout.partials_full, rank);
      compute_now(sums);
      compute_now(barrier);
      compute_now(own_sums);
    }
    static constexpr int offset(int p, int j, int h) {
      return ((p * kHalf + j % kHalf) * 2 + h) * 128 * kParts * 8;
    }
  };

  // Sends the other block of the cluster the sums of that block's rows, and adds the sums that it
  // receives for its own rows.
  __device__ __forceinline__ void exchange(TilePart& part, const Peer& peer) const {
    const auto send_half = [&](auto half) {
      for_each_of_half<half.value>(part, [&](int p, int j, int h, float first, float second) {
        send(peer.sums + Peer::offset(p, j, h), float2{first, second}, peer.barrier);
      });
    };
    const auto add_half = [&](auto half) {
      for_each_of_half<half.value>(part, [&](int p, int j, int h, float first, float second) {
        const float2 other = load_shared_pair(peer.own_sums + Peer::offset(p, j, h));
        float* sums = part.sums_of(p, j % kHalf, h);
        sums[0] = first + other.x;
        sums[1] = second + other.y;
      });
    };
    __syncwarp();
    wait_for_cluster();
    using Lower = std::integral_constant<int, 0>;
    using Upper = std::integral_constant<int, 1>;
    if (rank == 0) {
      send_half(Upper{});
    } else {
      send_half(Lower{});
    }
    wait_for_phase_of_cluster(layout.partials_full, 0);
    if (rank == 0) {
      add_half(Lower{});
    } else {
      add_half(Upper{});
    }
  }

  // The addresses at which a thread stages its sums, and those between which it copies finished
  // outputs.
  struct Epilogue {
    uint32_t staged;  // in shared memory: the thread's row in the tile's first block of rows
    uint32_t source;  // in shared memory: the thread's first pack of outputs
    T* target;
    int row;    // the row of that pack among the rows that the block finishes
    int end;    // the end of the rows that the block finishes
    int count;  // the number of outputs from that pack on

    __device__ __forceinline__ Epilogue(const Consumer& consumer, Corner corner) {
      const SkinnyGemmArgs<T>& args = consumer.args;
      const int halved = args.silu_mul ? 1 : 0;  // a shift: 1 where one of two outputs is stored
      const uint32_t thread = threadIdx.x % 128;
      const uint32_t pack = thread & ((kRowPacks >> halved) - 1);
      const uint32_t memory = consumer.layout.staging +
                              static_cast<uint32_t>(consumer.part() * staged_bytes(args.cluster));
      const auto output = static_cast<int>(pack * 8);
      row = static_cast<int>(thread >> (std::countr_zero(kRowPacks) - halved));
      staged = memory + thread % 8 * kStagedRowBytes + thread / 32 * 32;
      source = memory + static_cast<uint32_t>(row) * kStagedRowBytes + (pack << halved) * 16;
      count = (consumer.num_outputs(corner) >> halved) - output;
      end = count > 0 ? consumer.num_rows(corner) : 0;
      target = static_cast<T*>(args.out.data) +
               (consumer.first_row(corner) + row) * args.out.stride +
               (consumer.first_output(corner) >> halved) + output;
      compute_now(staged);
      compute_now(source);
      compute_now(target);
      compute_now(row);
      compute_now(end);
      compute_now(count);
    }
    // The number of 16-byte packs in a row of the warpgroup's outputs where silu_mul does not halve
    // them.
    static constexpr uint32_t kRowPacks = kOutputs / 8;
  };

  // Finishes a tile: multiplies by the outputs' scales, adds the bias, applies silu_mul, rounds and
  // stores.
  __device__ __forceinline__ void finish(TilePart& part, Corner corner, const Epilogue& epilogue,
                                         const Scales<kProducts>& scales) const {
    if constexpr (kOfCodes) {
      if (args.scale_columns == 0) {
        for_each_finished(part, [&](int p, int /*j*/, int h, float& first, float& second) {
          first *= scales.of_output[p][h];
          second *= scales.of_output[p][h];
        });
      }
    }
    if (args.out.bias != nullptr) {
      for_each_finished(part, [&](int p, int /*j*/, int h, float& first, float& second) {
        first += bias[p][h];
        second += bias[p][h];
      });
    }
    if (args.out.is_float) {
      store_floats(part, corner);
      return;
    }
    // Outputs go through shared memory, so that each row of the tile is written as a whole.
    const auto stage = [&](int p, int j, int h, float first, float second) {
      const int row = 8 * (kStagesHalves ? j % kHalf : j);
      const int at = row * kStagedRowBytes + (p * kProductOutputs + 8 * h) * 2;
      store_transposed(epilogue.staged + static_cast<uint32_t>(at), pack_pair<T>(first, second));
    };
    if constexpr (kStagesHalves) {
      for_each_of_half<0>(part, stage);
      store_staged(epilogue, 0);
      if (args.cluster > 1) return;
      synchronize_warpgroup(warpgroup);
      for_each_of_half<1>(part, stage);
      store_staged(epilogue, kHalfRows);
    } else {
      for_each_finished(part, stage);
      store_staged(epilogue, 0);
    }
  }
  // Stores the outputs that the warpgroup has staged, which are the block's rows from `first` on.
  __device__ __forceinline__ void store_staged(Epilogue epilogue, int first) const {
    epilogue.target += first * args.out.stride;
    epilogue.end -= first;
    if constexpr (kStagesHalves) epilogue.end = min(epilogue.end, kHalfRows);
    synchronize_warpgroup(warpgroup);
    if (args.silu_mul) {
      store_rows<true>(epilogue);
    } else {
      store_rows<false>(epilogue);
    }
  }

  __device__ __forceinline__ void store_floats(TilePart& part, Corner corner) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x % 128 / 32);
    const int count = num_outputs(corner);
    const int end = first_row(corner) + num_rows(corner);
    for_each_finished(part, [&](int p, int j, int h, float& first, float& second) {
      const int output = p * kProductOutputs + 16 * warp + 8 * h + lane / 4;
      const int row = first_row(corner) + 8 * j + 2 * (lane % 4);
      if (output >= count) return;
      float* target = static_cast<float*>(args.out.data) + row * args.out.stride +
                      first_output(corner) + output;
      if (row < end) target[0] = first;
      if (row + 1 < end) target[args.out.stride] = second;
    });
  }

  template <bool kSiluMul>
  __device__ __forceinline__ void store_rows(const Epilogue& epilogue) const {
    constexpr int kNextRow = 128 / Epilogue::kRowPacks * (kSiluMul ? 2 : 1);
    const bool whole = args.out.in_packs && epilogue.count >= Pack<T>::kSize;
    uint32_t source = epilogue.source;
    T* target = epilogue.target;
#pragma unroll 1
    for (int row = epilogue.row; row < epilogue.end; row += kNextRow) {
      auto pack = std::bit_cast<Pack<T>>(load_shared(source));
      if constexpr (kSiluMul)
        pack = multiply_gates(pack, std::bit_cast<Pack<T>>(load_shared(source + kBlockRows * 2)));
      if (whole) {
        store_global(reinterpret_cast<uint4*>(target), std::bit_cast<uint4>(pack));
      } else {
#pragma unroll
        for (int i = 0; i < pack.kSize; ++i) {
          if (i < epilogue.count) target[i] = pack.values[i];
        }
      }
      source += kNextRow * kStagedRowBytes;
      target += kNextRow * args.out.stride;
    }
  }
  static __device__ __forceinline__ Pack<T> multiply_gates(const Pack<T>& gates,
                                                           const Pack<T>& ups) {
    float values[Pack<T>::kSize];
    float others[Pack<T>::kSize];
    unpack(gates, values);
    unpack(ups, others);
#pragma unroll
    for (int i = 0; i < Pack<T>::kSize; ++i)
      values[i] = silu<T>(values[i]) * others[i];
    return to_pack<T>(values);
  }
  static constexpr __host__ __device__ int staged_bytes(int cluster) {
    return (cluster == 1 && !kStagesHalves ? kRows : kHalfRows) * kStagedRowBytes;
  }
  // Returns the bytes of partial sums that the block with this rank receives.
  static constexpr __device__ int partial_bytes(int rank) {
    return kPartialBytes / kHalf * (rank == 0 ? kHalf : TilePart::kRowBlocks - kHalf);
  }
};

// A whole warp announces that it has initialized its part of the block's barriers.
// meet_at_barriers() then waits for all other warps. announce_barriers() does not, for warps that
// need only their own part. The cluster's blocks wait for each other only where they send.
template <int kThreads>
__device__ __forceinline__ void meet_at_barriers(int cluster) {
  asm volatile("barrier.sync.aligned 0, %0;" ::"n"(kThreads) : "memory");
  if (cluster > 1) arrive_at_cluster();
}
template <int kThreads>
__device__ __forceinline__ void announce_barriers(int cluster) {
  asm volatile("barrier.arrive.aligned 0, %0;" ::"n"(kThreads) : "memory");
  if (cluster > 1) arrive_at_cluster();
}

// The kernel. The first warpgroups multiply. A thread of the next warp copies weights, and a thread
// of the last warp copies x.
template <typename T, class TilePart, int kWarpgroups>
__global__ void __launch_bounds__(128 * kWarpgroups + 64, 1)
    skinny_gemm_kernel(const __grid_constant__ SkinnyGemmArgs<T> args) {
  extern __shared__ __align__(1024) uint8_t shared[];
  using Consumers = Consumer<T, TilePart, kWarpgroups>;
  constexpr int kConsumers = 128 * kWarpgroups;
  constexpr int kThreads = kConsumers + 64;
  // Early reads of the next launch, above all of K and V, would compete with the block's own
  // weights, so with many rows the block asks for its weights before it allows the next launch.
  // With few rows it allows the next launch first, so that the next launch starts as early as it
  // can.
  constexpr bool kAsksFirst = TilePart::kRows >= 64;
  if constexpr (!kAsksFirst) allow_next_kernel();
  const Layout layout(args, shared_address(shared));
  const int rank = args.cluster == 1 ? 0 : static_cast<int>(cluster_rank());
  // The warp's index. The compiler knows that all lanes have the same value, which it must for the
  // tensor cores, since they take uniform registers.
  const int warp = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x / 32), 0);
  const Work work(args, rank);
  if (warp == kConsumers / 32) {
    WeightProducer<SkinnyGemmArgs<T>, typename TilePart::Weight> weights{args, layout.weights,
                                                                         work};
    const bool produces = elect_lane();
    if (produces) weights.begin();
    __syncwarp();
    meet_at_barriers<kThreads>(args.cluster);
    if (produces) weights.ask();
    if constexpr (kAsksFirst) allow_next_kernel();
    if (produces) weights.run();
  } else if (warp == kConsumers / 32 + 1) {
    XProducer<SkinnyGemmArgs<T>, typename TilePart::X> x{args, layout.x, layout.x_scales, work};
    const bool produces = elect_lane();
    if (produces) {
      prefetch_map(args.x);
      x.begin(kConsumers / 32);
      if (args.cluster > 1) {
        init_barrier(layout.partials_full, 1);
        publish_barriers();
        arrive_expecting(layout.partials_full, Consumers::partial_bytes(rank));
      }
    }
    __syncwarp();
    announce_barriers<kThreads>(args.cluster);
    if (produces) x.run(wait_for_inputs);
  } else {
    if (warp == 0 && elect_lane()) {
      layout.weights.init_empty(kConsumers / 32);
      publish_barriers();
    }
    __syncwarp();
    meet_at_barriers<kThreads>(args.cluster);
    // When the first of x has arrived, the launches in front have ended, and nothing is stored
    // before that.
    Consumers{args, layout, rank, warp / 4}.run();
    return;
  }
  __syncwarp();
  if (args.cluster > 1) wait_for_cluster();
}

}  // namespace encore::cuda::skinny_gemm
