// The row of a linear with one row, on its way to the tensor cores: workers fetch their shares of
// it, normalize it together, and write it to shared memory as lanes multiply it.
#pragma once

#include "backend/cuda/gemv_args.h"
#include "backend/cuda/hopper.cuh"

namespace encore::cuda::gemv {

__device__ __forceinline__ uint4 load_shared(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}
__device__ __forceinline__ void store_shared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

// The threads that do all but the copying of weights. The first of them is a multiple of kWorkers.
struct Workers {
  static __device__ __forceinline__ int index() { return static_cast<int>(threadIdx.x) % kWorkers; }
  static __device__ __forceinline__ int warp() { return index() / 32; }
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ void meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(kWorkers) : "memory");
  }
};

// Sum over the workers, in every one of them.
__device__ __forceinline__ float workers_sum(float value) {
  __shared__ float4 partial[kWarps / 4];
  value = warp_sum(value);
  if (Workers::lane() == 0) reinterpret_cast<float*>(partial)[Workers::warp()] = value;
  Workers::meet();
  float sum = 0;
#pragma unroll
  for (const float4& four : partial)
    sum += (four.x + four.y) + (four.z + four.w);
  return sum;
}

// A worker's share of a row, in registers: kLoads times 16 bytes, zeros beyond its end.
template <int kLoads>
struct RowShare {
  uint4 loads[kLoads];
};

// Which of a row's loads of 16 bytes are a worker's: its index, and all that are kWorkers further.
class Loads {
 public:
  __device__ __forceinline__ explicit Loads(int num_loads) : num_(num_loads - Workers::index()) {
    compute_now(num_);
  }
  [[nodiscard]] __device__ __forceinline__ bool has(int i) const { return i * kWorkers < num_; }

 private:
  int num_;  // from the worker's first one on
};

// Where a worker finds its share of a row in memory.
class RowPlace : public Loads {
 public:
  // Null: a row of zeros.
  template <typename T>
  __device__ __forceinline__ RowPlace(const T* row, int num_loads)
      : Loads(row != nullptr ? num_loads : 0),
        at_(reinterpret_cast<const uint4*>(row) + Workers::index()) {
    compute_now(at_);
  }
  // The loads from `first` on.
  template <int kLoads>
  __device__ __forceinline__ void fetch(RowShare<kLoads>& share, int first = 0) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      share.loads[i] = uint4{};
      if (has(first + i)) share.loads[i] = load_global(at_ + (first + i) * kWorkers);
    }
  }

 private:
  const uint4* at_;
};

// x in shared memory, box by box as lanes multiply it: of each pair of columns of a piece, the even
// pieces', then the odd ones'. Up to the end of a slot it is zero.
class XRow : public Loads {
 public:
  __device__ __forceinline__ XRow(const uint8_t* shared, int num_loads)
      : Loads(num_loads),
        lane_at_(shared_address(shared) +
                 static_cast<uint32_t>((Workers::warp() * kBoxLoads + Workers::lane() % kBoxLoads) *
                                       16)),
        put_at_(shared_address(shared) + offset(Workers::index())) {
    compute_now(lane_at_);
    compute_now(put_at_);
  }
  // The worker's share, the loads from `first` on.
  template <int kLoads>
  __device__ __forceinline__ void put(const RowShare<kLoads>& share, int first = 0) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (has(first + i)) put(first + i, share.loads[i]);
    }
  }
  // What the last slot has beyond the row.
  __device__ __forceinline__ void clear_rest(int slots_per_tile) const {
    const Loads all(slots_per_tile * kSlotColumns / kColumnsPerLoad);
#pragma unroll 1
    for (int i = 0; all.has(i); ++i) {
      if (!has(i)) put(i, uint4{});
    }
  }
  // Where this lane reads the first box of its warp; the next one is kNextBox further.
  [[nodiscard]] __device__ __forceinline__ uint32_t lane_at() const {
    return lane_at_;
  }
  static constexpr uint32_t kNextBox = kWarps * kBoxLoads * 16;

 private:
  static __device__ __forceinline__ uint32_t offset(int load) {
    const int piece = load % kBoxLoads;
    return static_cast<uint32_t>((load - piece) * 16 + piece % 2 * 64 + piece / 2 * 4);
  }
  __device__ __forceinline__ void put(int i, const uint4& values) const {
    const uint32_t at = put_at_ + static_cast<uint32_t>(i * kWorkers * 16);
    store_shared(at, values.x);
    store_shared(at + 16, values.y);
    store_shared(at + 32, values.z);
    store_shared(at + 48, values.w);
  }

  uint32_t lane_at_;
  uint32_t put_at_;
};

__device__ __forceinline__ float rsqrt_fast(float x) {
  float result;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
template <typename T>
__device__ __forceinline__ void unpack_load(const uint4& bits, float (&out)[kColumnsPerLoad]) {
  unpack(reinterpret_cast<const Pack<T>&>(bits), out);
}

// The norm in front: what a worker computes of it before x is there.
template <typename T, int kLoads>
class Norm {
 public:
  __device__ __forceinline__ explicit Norm(const GemvArgs<T>& args)
      : per_column_(args.per_column),
        eps_(args.eps),
        sum_(reinterpret_cast<uint4*>(args.sum) + Workers::index()),
        first_(static_cast<int>(blockIdx.x) * args.sum_loads - Workers::index()),
        end_(args.sum == nullptr
                 ? first_
                 : min(first_ + args.sum_loads, args.num_loads() - Workers::index())) {
    RowShare<kLoads> weights;
    RowPlace(args.norm, args.num_loads()).fetch(weights);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      unpack_load<T>(weights.loads[i], weights_[i]);
#pragma unroll
      for (float& weight : weights_[i])
        compute_now(weight);
    }
    compute_now(per_column_);
    compute_now(eps_);
    compute_now(sum_);
    compute_now(first_);
    compute_now(end_);
  }

  // Adds the residual, normalizes and writes the row to shared memory. Every block does so for
  // itself; each writes its part of the sum, where that is wanted. `values` becomes the sum. All
  // workers.
  __device__ __forceinline__ void apply(RowShare<kLoads>& values, const RowShare<kLoads>& residual,
                                        const XRow& x) const {
    float row[kLoads][kColumnsPerLoad];
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      uint4& bits = values.loads[i];
      const uint4& other = residual.loads[i];
      bits = {add_pairs<T>(bits.x, other.x), add_pairs<T>(bits.y, other.y),
              add_pairs<T>(bits.z, other.z), add_pairs<T>(bits.w, other.w)};
      if (i * kWorkers >= first_ && i * kWorkers < end_) store_global(sum_ + i * kWorkers, bits);
      unpack_load<T>(bits, row[i]);
#pragma unroll
      for (const float value : row[i])
        squares = fmaf(value, value, squares);
    }
    RowShare<kLoads> normed;
    const float scale = rsqrt_fast(fmaf(workers_sum(squares), per_column_, eps_));
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const auto pair = [&](int first) {
        return pack_pair<T>(row[i][first] * scale * weights_[i][first],
                            row[i][first + 1] * scale * weights_[i][first + 1]);
      };
      normed.loads[i] = {pair(0), pair(2), pair(4), pair(6)};
    }
    x.put(normed);
  }

 private:
  float weights_[kLoads][kColumnsPerLoad];
  float per_column_;
  float eps_;
  uint4* sum_;
  int first_;  // of the sum's loads that the block writes, from the worker's first one on
  int end_;
};

}  // namespace encore::cuda::gemv
