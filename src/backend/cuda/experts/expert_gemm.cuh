// Defines the kernel of expert_gemm.cu, and the warpgroups in it that multiply.
#pragma once

#include "backend/cuda/experts/expert_gemm_copies.cuh"
#include "backend/cuda/experts/expert_gemm_tile.cuh"
#include "backend/cuda/launch.h"
#include "backend/cuda/linear/codes.cuh"
#include "backend/cuda/mma.cuh"
#include "backend/cuda/wgmma.cuh"

namespace encore::cuda::expert_gemm {

// A warpgroup that multiplies 128 outputs of the tile with all of the block's rows. In lane l of
// warp w, sums[m][4 j + 2 h + i] belongs to output 64 m + 16 w + 8 h + l / 4 and row 8 j + 2 (l %
// 4) + i.
template <typename T, typename Stored>
struct Consumer {
  using L = Layout<Stored>;
  static constexpr int kRowBlocks = L::kBlockRows / 8;
  static constexpr int kMostColumns = (L::kBlockRows + 15) / 16 * 16;
  using Sums = float[kProducts][kMostColumns / 2];

  const GemmArgs<T, Stored>& args;
  const TileList& list;
  L layout;
  int warpgroup;
  int warp;  // number of the warp in its warpgroup
  int lane;
  Sums sums;

  __device__ __forceinline__ void run(const Worker& worker) {
    const uint32_t other_empty = args.blocks > 1 ? layout.barriers().other_empty(worker.rank) : 0;
    const int end = list.num_tiles * args.of_outputs;
    Slot slot;
    for (int index = worker.cluster; index < end; index += worker.num_clusters) {
      const Part part = part_of(args, list, index, worker.rank);
      add<16>(part, slot, other_empty);
      if (args.silu_mul) {
        store_gated(part);
      } else {
        store(part);
      }
    }
    if (warp == 0) gemm::wait_for_stores();
  }

  // Computes the sums of a tile over all its steps, with tensor-core products that have at least as
  // many columns as the tile. A sum has the same bits for every number of columns.
  template <int kColumns>
  __device__ __forceinline__ void add(const Part& part, Slot& slot, uint32_t other_empty) {
    if constexpr (kColumns < L::kBlockRows) {
      constexpr int kNext = kColumns + (kColumns < 64 || kIsFp8<Stored> ? 16 : 8);
      if (part.columns() > kColumns) {
        add<kNext>(part, slot, other_empty);
        return;
      }
    }
    if constexpr (kIsFp8<Stored>) {
      add_codes<kColumns>(part, slot, other_empty);
    } else {
      add_floats<kColumns>(slot, other_empty);
    }
  }
  template <int kColumns>
  __device__ __forceinline__ void add_floats(Slot& slot, uint32_t other_empty) {
    const auto barriers = layout.barriers();
    uint32_t last = 0;
    int step = 0;
    do {
      wait_for_phase(barriers.full(slot.number), slot.parity);
      // cp.async wrote the rows through the generic proxy, but the tensor cores read through the
      // async proxy, which needs a fence.
      publish_to_copies();
      const uint32_t weights = describe_rows(weights_of(slot.number));
      const uint32_t rows = describe_rows(layout.rows(slot.number));
      begin_products();
#pragma unroll
      for (int k = 0; k < kBoxColumns / 16; ++k) {
#pragma unroll
        for (int m = 0; m < kProducts; ++m) {
          start_product<T, kColumns>(part_of_sums<0, kColumns>(sums[m]),
                                     weights + m * kProductOutputs * kNextRow + k * kNextColumns,
                                     rows + k * kNextColumns, step > 0 || k > 0 ? 1 : 0);
        }
      }
      commit_products();
      wait_for_products<1>();
      if (step > 0) barriers.leave(last, other_empty, lane);
      last = slot.number;
      slot.advance(L::kStages);
    } while (++step < args.num_steps);
    wait_for_products<0>();
    barriers.leave(last, other_empty, lane);
#pragma unroll
    for (int m = 0; m < kProducts; ++m)
      settle(part_of_sums<0, kColumns>(sums[m]));
  }

  // Computes the sums of a tile over all its steps for weights of FP8 codes, which are widened on
  // their way to the tensor cores. The sums of each step are multiplied by the scales of their
  // outputs, and added to the sums of earlier steps.
  template <int kColumns>
  __device__ __forceinline__ void add_codes(const Part& part, Slot& slot, uint32_t other_empty) {
    const auto barriers = layout.barriers();
    int scales_at[kProducts][2];
#pragma unroll
    for (int m = 0; m < kProducts; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        scales_at[m][h] = scale_of(part, m, h);
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i)
        sums[m][i] = 0;
    }
#pragma unroll 1
    for (int step = 0; step < args.num_steps; ++step) {
      const int column_block = step * Step<Stored>::kColumns >> args.matrices.column_shift;
      float scales[kProducts][2];
#pragma unroll
      for (int m = 0; m < kProducts; ++m) {
#pragma unroll
        for (int h = 0; h < 2; ++h)
          scales[m][h] = __ldg(args.matrices.scales + scales_at[m][h] + column_block);
      }
      wait_for_phase(barriers.full(slot.number), slot.parity);
      publish_to_copies();  // as in add_floats()
      float products[kProducts][kColumns / 2];
      multiply_codes<kColumns>(products, slot.number);
      wait_for_products<0>();
      barriers.leave(slot.number, other_empty, lane);
      slot.advance(L::kStages);
#pragma unroll
      for (int m = 0; m < kProducts; ++m) {
        settle(products[m]);
#pragma unroll
        for (int i = 0; i < kColumns / 2; ++i)
          sums[m][i] = fmaf(products[m][i], scales[m][i / 2 % 2], sums[m][i]);
      }
    }
  }
  template <int kColumns>
  __device__ __forceinline__ void multiply_codes(float (&products)[kProducts][kColumns / 2],
                                                 uint32_t stage) const {
    constexpr int kGroups = kBoxRowBytes / 16;  // groups of 16 codes
    // The lane's row in a 16 x 32 part of the weight: lanes in turn have 8 rows, the next 8 rows,
    // and both again 16 columns further.
    const int row = warp * 16 + lane % 16;
    const uint32_t codes_at = weights_of(stage) + static_cast<uint32_t>(row * kBoxRowBytes);
#pragma unroll
    for (int group = 0; group < kGroups; group += 2) {
      uint32_t weights[kProducts][2][4];
      wait_for_products<1>();  // only the last product may still read its registers
#pragma unroll
      for (int m = 0; m < kProducts; ++m) {
        uint32_t codes[4];
        load_matrices(codes, codes_at + m * kProductOutputs * kBoxRowBytes +
                                 static_cast<uint32_t>((group + lane / 16 ^ row % 8) * 16));
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          widen_codes<T>(codes[2 * k], weights[m][k][0], weights[m][k][2]);
          widen_codes<T>(codes[2 * k + 1], weights[m][k][1], weights[m][k][3]);
        }
      }
      const uint32_t rows = describe_rows(layout.rows(stage) + group / 4 * L::kRowBoxBytes) +
                            group % 4 * kNextColumns;
      begin_products();
#pragma unroll
      for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int m = 0; m < kProducts; ++m) {
          start_wide_product<kColumns>(products[m], weights[m][k], rows + k * kNextColumns,
                                       group + k > 0 ? 1 : 0);
        }
      }
      commit_products();
    }
  }
  // Starts a product whose first operand is in registers. It has more columns than start_product()
  // allows.
  template <int kColumns>
  static __device__ __forceinline__ void start_wide_product(float (&products)[kColumns / 2],
                                                            const uint32_t (&weights)[4],
                                                            uint32_t rows, uint32_t adds) {
    constexpr int kMost = 64;
    constexpr int kFirst = kColumns < kMost ? kColumns : kMost;
    start_product<T, kFirst>(part_of_sums<0, kFirst>(products), weights, rows, adds);
    if constexpr (kColumns > kFirst) {
      constexpr int kRest = kColumns - kFirst;
      start_product<T, kRest>(part_of_sums<kFirst, kRest>(products), weights,
                              rows + kFirst * kNextRow, adds);
    }
  }
  // Returns the index of the scales of output 64 m + 16 warp + 8 h + lane / 4. For outputs beyond
  // the last, it returns the index for the last.
  [[nodiscard]] __device__ __forceinline__ int scale_of(const Part& part, int m, int h) const {
    const auto& matrices = args.matrices;
    const int first = part.output + warpgroup * kWarpgroupOutputs + m * kProductOutputs + 16 * warp;
    const int set = args.silu_mul ? h : 0;
    const int output = args.silu_mul ? first / 2 + lane / 4 : first + 8 * h + lane / 4;
    return static_cast<int>(
        matrices.scales_of(part.expert, set, min(output, matrices.set_rows - 1)) - matrices.scales);
  }

  // Returns the part of the thread's sums that belongs to columns [kFirst, kFirst + kColumns) of a
  // product.
  template <int kFirst, int kColumns, int kCount>
  static __device__ __forceinline__ float (&part_of_sums(float (&all)[kCount]))[kColumns / 2] {
    static_assert((kFirst + kColumns) / 2 <= kCount);
    return reinterpret_cast<float(&)[kColumns / 2]>(all[kFirst / 2]);
  }
  // Returns the shared-memory address of this warpgroup's weights in a stage.
  [[nodiscard]] __device__ __forceinline__ uint32_t weights_of(uint32_t stage) const {
    return layout.weights(stage) +
           static_cast<uint32_t>(warpgroup * kWarpgroupOutputs * kBoxRowBytes);
  }

  // Calls `stage(j)` for each block j of 8 rows, which writes to the staging area, and stores the
  // area as the 64 outputs from `output` on. It handles kStagedRows rows at a time.
  template <class Stage>
  __device__ __forceinline__ void store_staged(const Part& part, int output, Stage stage) const {
    constexpr int kBlocksAtOnce = L::kStagedRows / 8;
#pragma unroll
    for (int first = 0; first < kRowBlocks; first += kBlocksAtOnce) {
      if (8 * first >= part.count) break;
      if (warp == 0) gemm::wait_for_stores_to_read();
      meet_at<128>(1 + warpgroup);
#pragma unroll
      for (int j = first; j < min(first + kBlocksAtOnce, kRowBlocks); ++j) {
        if (8 * j >= part.count) break;
        stage(j, static_cast<uint32_t>((j - first) * 8 * kBoxRowBytes));
      }
      publish_to_copies();
      meet_at<128>(1 + warpgroup);
      // Each lane of the first warp stores a box.
      static_assert(kBlocksAtOnce <= 32);
      const int row = (first + lane) * kStoredRows;
      if (warp != 0 || lane >= kBlocksAtOnce || row >= part.count) continue;
      gemm::store_box(
          args.out, make_int3(output, part.first + row, 0),
          layout.staging(warpgroup) + static_cast<uint32_t>(lane * kStoredRows * kBoxRowBytes));
    }
  }
  // Stores the 64 outputs of each product, one product after the other.
  __device__ __forceinline__ void store(const Part& part) {
    // Lanes 0 to 7 have the warp's first 8 outputs, and the next 8 lanes the other 8.
    const uint32_t target = target_of(2 * warp + lane / 8 % 2);
#pragma unroll
    for (int m = 0; m < kProducts; ++m) {
      store_staged(part, part.output + warpgroup * kWarpgroupOutputs + m * kProductOutputs,
                   [&](int j, uint32_t at) {
                     const float* const four = &sums[m][4 * j];
                     gemm::store_two_transposed(target + at, pack_pair<T>(four[0], four[1]),
                                                pack_pair<T>(four[2], four[3]));
                   });
    }
  }
  // Stores the 64 outputs that both products make together; each product has 8 of every 16 outputs
  // of a warp.
  __device__ __forceinline__ void store_gated(const Part& part) {
    // Lanes 0 to 7 have the outputs of the first product, and the next 8 lanes those of the second
    // product.
    const uint32_t target = target_of(4 * (lane / 8 % 2) + warp);
    store_staged(part, (part.output + warpgroup * kWarpgroupOutputs) / 2, [&](int j, uint32_t at) {
      gemm::store_two_transposed(target + at, gated(0, j), gated(1, j));
    });
  }
  [[nodiscard]] __device__ __forceinline__ uint32_t gated(int m, int j) const {
    const float* const four = &sums[m][4 * j];
    return pack_pair<T>(silu<T>(four[0]) * four[2], silu<T>(four[1]) * four[3]);
  }
  // Returns the address in the staging area at which the lane's row of 8 rows has its 8 outputs.
  [[nodiscard]] __device__ __forceinline__ uint32_t target_of(int piece) const {
    const int row = lane % 8;
    return layout.staging(warpgroup) +
           static_cast<uint32_t>(row * kBoxRowBytes + (piece ^ row) * 16);
  }
};

// Computes one of the two products of experts. When the first product has its inputs, the experts
// that rows chose are complete, and so is the order of pairs where a launch has sorted them. The
// first product then allows the second to start, which loads its first weights while the first
// product ends.
template <typename T, typename Stored>
__global__ void __launch_bounds__(kThreads, 1)
    expert_gemm_kernel(const __grid_constant__ GemmArgs<T, Stored> args) {
  using L = Layout<Stored>;
  extern __shared__ __align__(1024) uint8_t shared[];
  const L layout{shared_address(shared), args.blocks};
  auto& own = *reinterpret_cast<OwnList*>(shared + L::kListAt);
  const BlockSort<kThreads> sort(args.sorted, own, shared + L::kStagingAt);
  const bool sorts = args.sorted.tiling.in_blocks;
  if (sorts) sort.clear();
  const Worker worker = gemm::begin_gemm(layout.barriers(), args.out);
  if (args.silu_mul) wait_for_inputs();
  const int num_tiles =
      sorts ? sort.run(args.silu_mul && blockIdx.x == 0) : __ldcg(args.sorted.num_tiles);
  const TileList list{args.sorted, own, num_tiles};
  if (worker.multiplies()) {
    take_registers<Step<Stored>::kRegistersOfProducts>();
    wait_for_inputs();
    Consumer<T, Stored>{
        args, list, layout, worker.warp / 4, worker.warp % 4, static_cast<int>(threadIdx.x % 32)}
        .run(worker);
  } else {
    give_up_registers<Step<Stored>::kRegistersOfCopies>();
    Producer<T, Stored>{args,
                        list,
                        layout,
                        worker.rank,
                        static_cast<int>(threadIdx.x) - gemm::kConsumerThreads,
                        worker.copies()}
        .run(worker);
    __syncwarp();
  }
  gemm::end_gemm();
}

}  // namespace encore::cuda::expert_gemm
