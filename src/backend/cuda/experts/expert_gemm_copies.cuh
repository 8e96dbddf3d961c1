// Defines the warpgroup of expert_gemm.cu's kernel that copies.
#pragma once

#include "backend/cuda/experts/expert_gemm_tile.cuh"
#include "backend/cuda/tile_copy.cuh"

namespace encore::cuda::expert_gemm {

// Makes the copies to shared memory that this thread has started arrive at a barrier when all of
// them are complete.
__device__ __forceinline__ void arrive_when_copied(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// Copies a box of weights. A tile of rows reads weights once, so caches should evict them first and
// keep rows and products. With kShared, the box goes to the same place in both blocks of the
// cluster, and each block's barrier counts its bytes. With kByTurns, the rows of the map alternate,
// as in gemm::copy_pairs().
template <bool kShared, bool kByTurns>
__device__ __forceinline__ void copy_weights_once(uint32_t target, const CUtensorMap& map, int3 at,
                                                  uint32_t barrier) {
  constexpr uint16_t kBoth = 3;
  if constexpr (kShared && kByTurns) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
        "cluster.L2::cache_hint [%0], [%1, {%2, %3, %3, %4, %5}], [%6], %7, %8;" ::"r"(target),
        "l"(&map), "r"(at.x), "r"(0), "r"(at.y / gemm::kPairRows), "r"(at.z), "r"(barrier),
        "h"(kBoth), "l"(kEvictFirst)
        : "memory");
  } else if constexpr (kShared) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
        "cluster.L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6, %7;" ::"r"(target),
        "l"(&map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(barrier), "h"(kBoth), "l"(kEvictFirst)
        : "memory");
  } else if constexpr (kByTurns) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%2, %3, %3, %4, %5}], [%6], %7;" ::"r"(target),
        "l"(&map), "r"(at.x), "r"(0), "r"(at.y / gemm::kPairRows), "r"(at.z), "r"(barrier),
        "l"(kEvictFirst)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(target),
        "l"(&map), "r"(at.x), "r"(at.y), "r"(at.z), "r"(barrier), "l"(kEvictFirst)
        : "memory");
  }
}

// The warpgroup that copies. Each thread copies the same 16-byte piece of every 16th row. One
// thread has the copy engine bring this block's share of the weights to all blocks of the cluster.
template <typename T, typename Stored>
struct Producer {
  using L = Layout<Stored>;
  static constexpr int kPieces = kBoxRowBytes / 16;
  static constexpr int kRowsAtOnce = kCopyThreads / kPieces;
  static constexpr int kCopies = (L::kBlockRows + kRowsAtOnce - 1) / kRowsAtOnce;

  const GemmArgs<T, Stored>& args;
  const TileList& list;
  L layout;
  int rank;
  int thread;
  bool copies_weights;

  // Copies all steps of the block's tiles. Weights are constants, so those of the first stages are
  // copied before the rows are complete.
  __device__ __forceinline__ void run(const Worker& worker) const {
    const auto barriers = layout.barriers();
    const int piece = thread % kPieces;
    const int row = thread / kPieces;
    const uint32_t target =
        static_cast<uint32_t>(row * kBoxRowBytes + (piece ^ row % kPieces) * 16);
    const int end = list.num_tiles * args.of_outputs;
    const int ahead = worker.cluster < end ? min(args.num_steps, L::kStages) : 0;
    if (copies_weights && ahead > 0) {
      const Part part = part_of(args, list, worker.cluster, rank);
#pragma unroll 1
      for (int step = 0; step < ahead; ++step)
        copy_weights(part, static_cast<uint32_t>(step), step);
    }
    __syncwarp();
    wait_for_inputs();
    allow_next_kernel();
    Slot slot;
    int first_weights = ahead;
    for (int index = worker.cluster; index < end; index += worker.num_clusters) {
      const Part part = part_of(args, list, index, rank);
      const int num_rows = part.columns();
      // The index of this thread's first piece in each of its rows. Rows behind the part's last may
      // be any row, because nobody reads the columns that the product makes of them.
      uint32_t from[kCopies];
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int r = row + i * kRowsAtOnce;
        int source = 0;
        if (r < part.count) {
          const int place = part.first + r;
          source = args.silu_mul ? list.row(place) : place;
        }
        from[i] = static_cast<uint32_t>(source) * args.row_pieces + static_cast<uint32_t>(piece);
      }
#pragma unroll 1
      for (int step = 0; step < args.num_steps; ++step) {
        wait_for_phase(barriers.empty(slot.number), slot.parity ^ 1U);
        if (copies_weights && step >= first_weights) copy_weights(part, slot.number, step);
#pragma unroll
        for (int box = 0; box < Step<Stored>::kRowBoxes; ++box) {
          copy_rows(from, num_rows, step * Step<Stored>::kColumns + box * kBoxColumns,
                    layout.rows(slot.number) + box * L::kRowBoxBytes + target);
        }
        arrive_when_copied(barriers.full(slot.number));
        slot.advance(L::kStages);
      }
      first_weights = 0;
    }
  }

  // Copies this thread's 16-byte pieces of a box of rows that begins at column `column`.
  __device__ __forceinline__ void copy_rows(const uint32_t (&from)[kCopies], int num_rows,
                                            int column, uint32_t to) const {
    const auto* const rows = reinterpret_cast<const uint4*>(args.rows) + column / 8;
    const bool is_valid = column + thread % kPieces * 8 < args.columns;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (i * kRowsAtOnce >= num_rows) break;
      if (i * kRowsAtOnce + thread / kPieces >= L::kBlockRows) break;
      copy_async(to + static_cast<uint32_t>(i * kRowsAtOnce * kBoxRowBytes), rows + from[i],
                 is_valid);
    }
  }
  // Copies this block's share of a step's weights: all of them, or one half, which goes to both
  // blocks.
  __device__ __forceinline__ void copy_weights(const Part& part, uint32_t stage, int step) const {
    const uint32_t full = layout.barriers().full(stage);
    arrive_expecting(full, L::kWeightBytes);
    if (args.blocks > 1) {
      copy_half<true>(part, stage, step, rank);
    } else {
      copy_half<false>(part, stage, step, 0);
      copy_half<false>(part, stage, step, 1);
    }
  }
  template <bool kShared>
  __device__ __forceinline__ void copy_half(const Part& part, uint32_t stage, int step,
                                            int half) const {
    const int first = half * kHalfOutputs;
    const uint32_t to = layout.weights(stage) + static_cast<uint32_t>(first * kBoxRowBytes);
    const int3 at = make_int3(step * Step<Stored>::kColumns, part.output + first, part.expert);
    const uint32_t full = layout.barriers().full(stage);
    if (args.silu_mul) {
      copy_weights_once<kShared, true>(to, args.weight, at, full);
    } else {
      copy_weights_once<kShared, false>(to, args.weight, at, full);
    }
  }
};

}  // namespace encore::cuda::expert_gemm
