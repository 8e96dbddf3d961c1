// Brings the rows of a linear with one to four rows to the tensor cores. Workers fetch their shares
// of the rows, normalize them together, and write them to shared memory in the order in which lanes
// multiply them.
#pragma once

#include "backend/cuda/hopper.cuh"
#include "backend/cuda/linear/gemv_args.h"

namespace encore::cuda::gemv {

// The worker threads, which do everything except copying weights. The index of the first worker
// thread is a multiple of kWorkers.
struct Workers {
  static __device__ __forceinline__ int index() { return static_cast<int>(threadIdx.x) % kWorkers; }
  static __device__ __forceinline__ int warp() { return index() / 32; }
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ void meet() {
    asm volatile("bar.sync 1, %0;" ::"n"(kWorkers) : "memory");
  }
};

// Deals the workers to the rows, equally many to each row.
template <int kRows>
struct RowWorkers {
  static constexpr int kCount = kWorkers / kRows;
  static __device__ __forceinline__ int row() { return Workers::index() / kCount; }
  static __device__ __forceinline__ int index() { return Workers::index() % kCount; }
};

// Returns the sum over the workers of a row, in each of them.
template <int kRows>
__device__ __forceinline__ float row_sum(float value) {
  constexpr int kWarpsOfRow = kWarps / kRows;
  __shared__ __align__(16) float partial[kWarps];
  value = warp_sum(value);
  if (Workers::lane() == 0) partial[Workers::warp()] = value;
  Workers::meet();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWarpsOfRow; i += 2) {
    const auto* pair =
        reinterpret_cast<const float2*>(partial + RowWorkers<kRows>::row() * kWarpsOfRow + i);
    sum += pair->x + pair->y;
  }
  return sum;
}

// A worker's share of a row, in registers: kLoads loads of 16 bytes, which are zeros beyond the
// row's end.
template <int kLoads>
struct RowShare {
  uint4 loads[kLoads];
};

// Tells which of a row's 16-byte loads a worker makes: the load with its own index, and every
// kCount-th behind it.
template <int kRows>
class Loads {
 public:
  using Mine = RowWorkers<kRows>;

  __device__ __forceinline__ Loads(int num_rows, int num_loads)
      : num_((Mine::row() < num_rows ? num_loads : 0) - Mine::index()) {
    compute_now(num_);
  }
  [[nodiscard]] __device__ __forceinline__ bool has(int i) const { return i * Mine::kCount < num_; }

 private:
  int num_;  // the number of loads from the worker's first one on
};

// The address of a worker's share of a row in memory.
template <int kRows>
class RowPlace : public Loads<kRows> {
 public:
  using typename Loads<kRows>::Mine;

  // If `rows` is null, all loads give zeros.
  template <typename T>
  __device__ __forceinline__ RowPlace(const GemvArgs<T>& args, const T* rows, int64_t stride)
      : Loads<kRows>(rows != nullptr ? args.num_rows : 0, args.num_loads()),
        at_(reinterpret_cast<const uint4*>(rows + Mine::row() * stride) + Mine::index()) {
    compute_now(at_);
  }
  // Fetches the worker's loads from number `first` on.
  template <int kLoads>
  __device__ __forceinline__ void fetch(RowShare<kLoads>& share, int first = 0) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      share.loads[i] = uint4{};
      if (this->has(first + i)) share.loads[i] = load_global(at_ + (first + i) * Mine::kCount);
    }
  }

 private:
  const uint4* at_;
};

// Holds the rows of x in shared memory, box by box. Within a box they lie row by row, in the order
// in which lanes multiply them by a weight stored as W. A piece is 16 bytes of the weight. Of each
// pair of columns in a piece, the columns of even pieces come first, then those of odd pieces. Rows
// are padded with zeros up to the number of columns of whole stages of the ring.
template <typename W, int kRows>
class XRows : public Loads<kRows> {
 public:
  using typename Loads<kRows>::Mine;

  __device__ __forceinline__ XRows(const uint8_t* shared, int num_rows, int num_loads)
      : Loads<kRows>(num_rows, num_loads),
        lane_at_(
            shared_address(shared) +
            static_cast<uint32_t>(
                (Workers::warp() * kXBoxes<W> * kBoxOfRows + Workers::lane() % kBoxOfRows) * 16)),
        put_at_(shared_address(shared) + offset(Mine::row(), Mine::index())) {
    compute_now(lane_at_);
    compute_now(put_at_);
  }
  // Puts the worker's share into shared memory, from load `first` on.
  template <int kLoads>
  __device__ __forceinline__ void put(const RowShare<kLoads>& share, int first = 0) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (this->has(first + i)) put(first + i, share.loads[i]);
    }
  }
  // Clears the columns behind the ends of the rows, up to the end of the last stage of the ring.
  __device__ __forceinline__ void clear_rest(int slots_per_tile) const {
    const Loads<kRows> all(kRows, slots_per_tile * kSlotColumns<W> / kColumnsPerLoad);
#pragma unroll 1
    for (int i = 0; all.has(i); ++i) {
      if (!this->has(i)) put(i, uint4{});
    }
  }
  // Returns the address at which this lane reads the first box of its warp. The next box of x lies
  // kNextBox further. The first box of x for the warp's next box of weights lies kNextOfWarp
  // further.
  [[nodiscard]] __device__ __forceinline__ uint32_t lane_at() const {
    return lane_at_;
  }
  static constexpr uint32_t kNextBox = kRows * kBoxRowBytes;
  static constexpr uint32_t kNextOfWarp = kWarps * kXBoxes<W> * kNextBox;

 private:
  static constexpr int kBoxOfRows = kBoxLoads * kRows;  // loads of one box of all rows

  static __device__ __forceinline__ uint32_t offset(int row, int load) {
    constexpr int kPieceLoads = kXBoxes<W>;
    const int in_box = load % kBoxLoads;
    const int box = load / kBoxLoads;
    const int piece = in_box / kPieceLoads;
    const int word = piece / 2 * kPieceLoads + in_box % kPieceLoads;
    return static_cast<uint32_t>((box * kRows + row) * kBoxRowBytes + piece % 2 * 64 + word * 4);
  }
  __device__ __forceinline__ void put(int i, const uint4& values) const {
    constexpr int kNext = Mine::kCount / kBoxLoads * kRows * kBoxRowBytes;
    const uint32_t at = put_at_ + static_cast<uint32_t>(i * kNext);
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
const __device__ __forceinline__ Pack<T>& as_pack(const uint4& bits) {
  return reinterpret_cast<const Pack<T>&>(bits);
}

// The norm in front of the product. The constructor computes the part that does not depend on x.
template <typename T, int kRows, int kLoads>
class Norm {
 public:
  using Mine = RowWorkers<kRows>;

  __device__ __forceinline__ explicit Norm(const GemvArgs<T>& args)
      : per_column_(args.per_column),
        eps_(args.eps),
        sum_(reinterpret_cast<uint4*>(args.sum + Mine::row() * args.sum_stride) + Mine::index()),
        first_(static_cast<int>(blockIdx.x) * args.sum_loads - Mine::index()),
        end_(args.sum == nullptr || Mine::row() >= args.num_rows
                 ? first_
                 : min(first_ + args.sum_loads, args.num_loads() - Mine::index())) {
    RowShare<kLoads> weights;
    // The workers of every row fetch the same weights.
    RowPlace<kRows>(args, args.norm, 0).fetch(weights);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      unpack(as_pack<T>(weights.loads[i]), weights_[i]);
#pragma unroll
      for (float& weight : weights_[i]) {
        weight += args.norm_offset;
        compute_now(weight);
      }
    }
    compute_now(per_column_);
    compute_now(eps_);
    compute_now(sum_);
    compute_now(first_);
    compute_now(end_);
  }

  // Adds the residual, normalizes the rows and writes them to shared memory. Every block does so
  // for itself, but stores only its own part of the sums with the residual, where they are an
  // output. `values` becomes the sum. All workers call it.
  template <typename W>
  __device__ __forceinline__ void apply(RowShare<kLoads>& values, const RowShare<kLoads>& residual,
                                        const XRows<W, kRows>& x) const {
    float row[kLoads][kColumnsPerLoad];
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const Pack<T> sum = add_packs(as_pack<T>(values.loads[i]), as_pack<T>(residual.loads[i]));
      values.loads[i] = reinterpret_cast<const uint4&>(sum);
      const int next = i * Mine::kCount;
      if (next >= first_ && next < end_) store_global(sum_ + next, values.loads[i]);
      unpack(sum, row[i]);
#pragma unroll
      for (const float value : row[i])
        squares = fmaf(value, value, squares);
    }
    RowShare<kLoads> normed;
    const float scale = rsqrt_fast(fmaf(row_sum<kRows>(squares), per_column_, eps_));
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
  // The first of the sum's loads that the block writes, counted from the worker's first load.
  int first_;
  int end_;
};

}  // namespace encore::cuda::gemv
