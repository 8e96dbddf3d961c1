// Gives a thread access to the exchange memory of all ranks (backend/push.h).
//
// A thread waits only for blocks of other GPUs, which no other kernel does (launch.h). This is safe
// because grids are small enough for all their blocks to be resident at once, and equal on all
// ranks. So the block that is waited for runs already or is about to start.
#pragma once

#include "backend/cuda/collectives/exchange.h"
#include "backend/cuda/device/device.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/memory_order.cuh"
#include "backend/push.h"

namespace encore::cuda {

using push::Vector;

inline constexpr int kPollsPerLook = 1024;  // polls of a vector between two looks at the clock

// The rows of an operand of the exchange. Units: elements.
template <typename T>
struct ExchangedRows {
  T* data;
  uint32_t stride;
};

template <typename T>
struct ExchangeArgs {
  push::Part part;
  Vector* memories[push::kMostRanks];  // each rank's exchange memory, by rank
  Vector* own;                         // this rank's exchange memory
  uint32_t* failure;
  uint32_t call;
  uint64_t timeout_ns;
  ExchangedRows<const T> x;
  ExchangedRows<T> y;
  int first_rank;         // the rank whose columns come first in y
  uint32_t num_elements;  // elements of x
  uint32_t num_columns;   // columns of x
};

__device__ __forceinline__ uint64_t now_ns() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Describes numbers of type T as the elements of the vectors that push.h moves.
template <typename T>
struct Numbers {
  static constexpr int kElementBytes = sizeof(T);
  static constexpr int kSize = Pack<T>::kSize;
  struct Sum {
    float values[kSize];
  };
  __device__ static Sum widen(const Vector& vector) {
    Sum sum;
    unpack(reinterpret_cast<const Pack<T>&>(vector), sum.values);
    return sum;
  }
  __device__ static void add(Sum& sum, const Vector& vector) {
    const Sum next = widen(vector);
#pragma unroll
    for (int i = 0; i < kSize; ++i)
      sum.values[i] += next.values[i];
  }
  __device__ static Vector round(const Sum& sum) {
    const Pack<T> pack = to_pack<T>(sum.values);
    return reinterpret_cast<const Vector&>(pack);
  }
};

// A thread's access to the exchange memory of all ranks. Where kPacked is false, rows may have any
// length and alignment.
template <typename T, bool kPacked>
class ExchangePort {
 public:
  static constexpr uint32_t kSize = Pack<T>::kSize;

  __device__ explicit ExchangePort(const ExchangeArgs<T>& args) : args_(args) {}

  __device__ Vector load(int64_t place) const {
    Vector vector;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(vector.word[0]), "=r"(vector.word[1]), "=r"(vector.word[2]),
                   "=r"(vector.word[3])
                 : "l"(__cvta_generic_to_global(args_.own + place))
                 : "memory");
    return vector;
  }
  __device__ void store(int rank, int64_t place, const Vector& vector) const {
    store_at(args_.memories[rank] + place, vector);
  }
  __device__ void clear(int64_t place) const { store_at(args_.own + place, push::empty_vector()); }

  __device__ void starts_waiting() {
    num_polls_ = 0;
    since_ns_ = 0;
  }
  __device__ bool gives_up(uint32_t missing) {
    if (gave_up_) return true;
    if (++num_polls_ % kPollsPerLook != 0) return false;
    const uint64_t now = now_ns();
    if (since_ns_ == 0) since_ns_ = now;
    gave_up_ = ld_relaxed<Scope::kSystem>(args_.failure) != 0;
    if (!gave_up_ && now - since_ns_ > args_.timeout_ns) {
      st_relaxed<Scope::kSystem>(args_.failure, push::failure_word(args_.call, missing));
      gave_up_ = true;
    }
    return gave_up_;
  }

  [[nodiscard]] __device__ static constexpr bool wants(int64_t /*vector*/) { return true; }

  // Allows the next launches to start, if they have not been allowed before. push.h calls it once
  // the thread has sent all its data.
  __device__ void has_sent() const { allow_next_kernel(); }

  __device__ Vector input(int64_t vector) const {
    const uint32_t first = static_cast<uint32_t>(vector) * kSize;
    if constexpr (kPacked) {
      const Pack<T> pack = load_pack(args_.x.data + offset(first, args_.x.stride));
      return reinterpret_cast<const Vector&>(pack);
    } else {
      Pack<T> pack;
      for (uint32_t i = 0; i < kSize; ++i) {
        const bool is_there = first + i < args_.num_elements;
        pack.values[i] = is_there ? args_.x.data[offset(first + i, args_.x.stride)] : T(0.0F);
      }
      return reinterpret_cast<const Vector&>(pack);
    }
  }
  __device__ void output(int rank, int64_t vector, const Vector& value) const {
    const uint32_t first = static_cast<uint32_t>(vector) * kSize;
    const int behind = rank - args_.first_rank;
    const int place = behind < 0 ? behind + args_.part.num_ranks : behind;
    T* const y = args_.y.data + static_cast<int64_t>(place) * args_.num_columns;
    const auto& pack = reinterpret_cast<const Pack<T>&>(value);
    if constexpr (kPacked) {
      store_pack(y + offset(first, args_.y.stride), pack);
    } else {
      for (uint32_t i = 0; i < kSize; ++i) {
        if (first + i < args_.num_elements) y[offset(first + i, args_.y.stride)] = pack.values[i];
      }
    }
  }

 protected:
  const ExchangeArgs<T>& args_;

 private:
  // Returns the distance from the first element to element `index` in an operand with rows `stride`
  // elements apart. The rows have as many columns as x.
  __device__ int64_t offset(uint32_t index, uint32_t stride) const {
    if (stride == args_.num_columns) return index;
    const uint32_t row = index / args_.num_columns;
    return static_cast<int64_t>(row) * stride + (index - row * args_.num_columns);
  }
  __device__ static void store_at(Vector* to, const Vector& vector) {
    asm volatile(
        "st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
        "r"(vector.word[0]), "r"(vector.word[1]), "r"(vector.word[2]), "r"(vector.word[3])
        : "memory");
  }

  uint64_t since_ns_ = 0;
  uint32_t num_polls_ = 0;
  bool gave_up_ = false;
};

// Returns the arguments of a launch's exchange, except for `part`, which the caller sets.
template <typename T>
ExchangeArgs<T> exchange_args(CudaDevice& device, const KernelArgs& args, std::string_view op) {
  const TensorView& x = args.inputs["x"];
  const TensorView& y = args.outputs["y"];
  if (x.shape.num_elements() >= int64_t{1} << 31 || y.row_stride >= int64_t{1} << 31) {
    fail(ErrorKind::kUnsupported, "an exchange of 2^31 numbers or more: lower --max-num-tokens");
  }
  ExchangeArgs<T> common{};
  common.x = {x.as<const T>(), static_cast<uint32_t>(x.row_stride)};
  common.y = {y.as<T>(), static_cast<uint32_t>(y.row_stride)};
  if (args.attrs.find("own_first") != nullptr) common.first_rank = device.rank().index;
  common.num_elements = static_cast<uint32_t>(x.shape.num_elements());
  common.num_columns = static_cast<uint32_t>(x.row_elements());
  if (Exchange* const exchange = device.exchange()) {
    const Rank rank = device.rank();
    for (int other = 0; other < rank.size; ++other)
      common.memories[other] = exchange->memory(other);
    common.own = exchange->memory(rank.index);
    common.failure = exchange->failure(rank.index);
    common.call = exchange->add_call(meeting_text(op, args));
    common.timeout_ns = static_cast<uint64_t>(exchange->timeout().count()) * 1000000U;
  }
  return common;
}

// Loads a kernel's code now, because loading it at the first launch would make other GPUs wait.
template <typename... Params>
void load_code(void (*kernel)(Params...)) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
}

}  // namespace encore::cuda
