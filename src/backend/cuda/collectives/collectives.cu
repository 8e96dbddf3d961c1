// Kernels of all_reduce, all_gather and gather_logits between the GPUs of ranks. They run the
// exchange of backend/push.h with one thread for each vector. A GPU that has no peers only copies.
#include "backend/cuda/collectives/collectives.h"

#include <algorithm>
#include <array>

#include "backend/advance.h"
#include "backend/cuda/collectives/all_ranks.h"
#include "backend/cuda/collectives/exchange.cuh"
#include "backend/cuda/kernels.h"
#include "backend/sampling.h"
#include "backend/tuning.h"

namespace encore::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksOfOneShot =
    4 * kMultiprocessors;  // blocks for long inputs; all of them fit a chip at once
// The launch behind an exchange that is shorter than this may start at once. Behind a longer
// exchange it may start only when the exchange has sent all its data, because a launch that waits
// on the same multiprocessors slows the exchange down. Units: vectors. Source: on H200s, the late
// start makes an all_reduce of 256 KB 6 % faster, or 26 % with a norm behind it, and an all_reduce
// of 128 KB 11 % slower.
constexpr int64_t kLongExchange = 256 * 1024 / push::kVectorBytes;

enum class Form : uint8_t { kOneShot, kTwoShots, kGather };

template <typename T, Form kForm, int kMost, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    exchange_kernel(const __grid_constant__ ExchangeArgs<T> args) {
  const bool is_long = args.part.count >= kLongExchange;
  if (!is_long) allow_next_kernel();
  wait_for_inputs();
  ExchangePort<T, kPacked> port(args);
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t num_threads = static_cast<int64_t>(gridDim.x) * kThreads;
  if constexpr (kForm == Form::kOneShot) {
    push::all_reduce_in_one_shot<Numbers<T>, kMost>(port, args.part, thread, num_threads);
  } else if constexpr (kForm == Form::kTwoShots) {
    push::all_reduce_in_two_shots<Numbers<T>, kMost>(port, args.part, thread, num_threads);
  } else {
    push::all_gather<Numbers<T>::kElementBytes, kMost>(port, args.part, thread, num_threads);
  }
}

// The number of the step until which a burst of steps runs. The host tells it to rank 0 through
// `mark`, and rank 0 sends it to all ranks as one extra vector behind the vectors of x.
struct BurstEnd {
  const uint32_t* mark;  // in the host's memory
  uint32_t* run_until;
  int64_t vector;  // the index of the extra vector
};

template <typename T, bool kPacked>
class PortWithBurstEnd : public ExchangePort<T, kPacked> {
 public:
  using Base = ExchangePort<T, kPacked>;

  __device__ PortWithBurstEnd(const ExchangeArgs<T>& args, const BurstEnd& end)
      : Base(args), end_(end) {}
  // Reads the host's mark only once, because the host may change it at any time.
  __device__ Vector input(int64_t vector) {
    if (vector != end_.vector) return Base::input(vector);
    if (!has_read_) word_ = ld_relaxed<Scope::kSystem>(end_.mark);
    has_read_ = true;
    return push::vector_of(word_);
  }
  __device__ void output(int rank, int64_t vector, const Vector& value) const {
    if (vector != end_.vector) return Base::output(rank, vector, value);
    if (rank == 0) *end_.run_until = push::word_of(value);
  }

 private:
  BurstEnd end_;
  uint32_t word_ = 0;
  bool has_read_ = false;
};

template <typename T, int kMost, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    gather_with_burst_end_kernel(const __grid_constant__ ExchangeArgs<T> args, const BurstEnd end) {
  allow_next_kernel();
  wait_for_inputs();
  PortWithBurstEnd<T, kPacked> port(args, end);
  push::all_gather<Numbers<T>::kElementBytes, kMost>(
      port, args.part, static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x,
      static_cast<int64_t>(gridDim.x) * kThreads);
}

// The arguments of gather_logits: an all_gather of only those rows of logits from which sampling
// needs all values.
struct LogitsArgs {
  ExchangeArgs<float> exchange;
  const SamplingRow* sampling;
  const int32_t* kv_lens;
  uint32_t rows_each;  // rows of logits for each sequence
};

template <bool kPacked>
class LogitsPort : public ExchangePort<float, kPacked> {
 public:
  __device__ explicit LogitsPort(const LogitsArgs& args)
      : ExchangePort<float, kPacked>(args.exchange), logits_(args) {}

  // Asks for both rows in which the vector may have elements, since it may hold the end of one row
  // of logits and the beginning of the next.
  [[nodiscard]] __device__ bool wants(int64_t vector) const {
    const uint32_t first = static_cast<uint32_t>(vector) * this->kSize;
    const uint32_t last = min(first + this->kSize, this->args_.num_elements) - 1;
    return wants_row(first / this->args_.num_columns) || wants_row(last / this->args_.num_columns);
  }

 private:
  [[nodiscard]] __device__ bool wants_row(uint32_t row) const {
    const int64_t vocabulary =
        static_cast<int64_t>(this->args_.num_columns) * this->args_.part.num_ranks;
    return logits_.sampling[row / logits_.rows_each].needs_all_logits(logits_.kv_lens[row],
                                                                      vocabulary);
  }

  const LogitsArgs& logits_;
};

template <int kMost, bool kPacked>
__global__ void __launch_bounds__(kThreads)
    gather_logits_kernel(const __grid_constant__ LogitsArgs args) {
  const push::Part& part = args.exchange.part;
  const bool is_long = part.count >= kLongExchange;
  if (!is_long) allow_next_kernel();
  wait_for_inputs();
  LogitsPort<kPacked> port(args);
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  push::all_gather<sizeof(float), kMost>(port, part, thread,
                                         static_cast<int64_t>(gridDim.x) * kThreads);
}

__global__ void pattern_kernel(uint32_t* words, uint32_t seed, int64_t count) {
  begin_kernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step)
    words[i] = static_cast<uint32_t>(i) * 0x9e3779b1U ^ seed * 0x85ebca6bU;
}

template <typename T>
using ExchangeKernel = void (*)(ExchangeArgs<T>);

template <typename T, Form kForm>
ExchangeKernel<T> kernel_of(int num_ranks, bool is_packed) {
  if (!is_packed) return exchange_kernel<T, kForm, 8, false>;
  if (num_ranks <= 2) return exchange_kernel<T, kForm, 2, true>;
  return num_ranks <= 4 ? exchange_kernel<T, kForm, 4, true> : exchange_kernel<T, kForm, 8, true>;
}

template <typename T>
ExchangeKernel<T> kernel_of(Form form, int num_ranks, bool is_packed) {
  switch (form) {
    case Form::kOneShot:
      return kernel_of<T, Form::kOneShot>(num_ranks, is_packed);
    case Form::kTwoShots:
      return kernel_of<T, Form::kTwoShots>(num_ranks, is_packed);
    default:
      return kernel_of<T, Form::kGather>(num_ranks, is_packed);
  }
}

bool is_packed(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  return is_aligned(x) && is_aligned(args.outputs["y"]) &&
         x.row_elements() * size_of(x.dtype) % push::kVectorBytes == 0;
}

template <typename T>
BoundLaunch bind_typed(CudaDevice& device, const KernelArgs& args, Form form) {
  const TensorView& x = args.inputs["x"];
  const Rank rank = device.rank();
  const int64_t bytes = x.shape.num_elements() * static_cast<int64_t>(sizeof(T));
  const push::Plan plan{.memory = {},
                        .self = rank.index,
                        .num_ranks = rank.size,
                        .shots = form == Form::kTwoShots ? push::Shots::kTwo : push::Shots::kOne,
                        .num_vectors = div_up(bytes, push::kVectorBytes)};
  const auto common =
      exchange_args<T>(device, args, form == Form::kGather ? "all_gather" : "all_reduce");
  const ExchangeKernel<T> kernel = kernel_of<T>(form, rank.size, is_packed(args));
  load_code(kernel);
  return [plan, common, kernel, form, buffer = args.exchange_buffer](Stream& stream,
                                                                     const StepLengths&) {
    for (int64_t index = 0; index < plan.num_parts(); ++index) {
      ExchangeArgs<T> own = common;
      own.part = plan.part(buffer, index);
      const bool is_cut = form == Form::kTwoShots;
      const int64_t items = is_cut ? div_up(own.part.count, plan.num_ranks) : own.part.count;
      const int64_t most = is_cut ? kMultiprocessors : kBlocksOfOneShot;
      const Grid grid{.blocks = static_cast<unsigned>(std::min(div_up(items, kThreads), most)),
                      .threads = kThreads};
      launch(stream, grid, kernel, own);
    }
  };
}

template <typename T>
BoundLaunch bind_gather_with_burst_end(CudaDevice& device, const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  const Rank rank = device.rank();
  const int64_t num_vectors =
      div_up(x.shape.num_elements() * static_cast<int64_t>(sizeof(T)), push::kVectorBytes);
  const push::Plan plan{
      .memory = {}, .self = rank.index, .num_ranks = rank.size, .num_vectors = num_vectors + 1};
  const BurstEnd end{.mark = args.inputs["ring_marks"].as<const uint32_t>() + advance_op::kRunUntil,
                     .run_until = args.outputs["run_until"].as<uint32_t>(),
                     .vector = num_vectors};
  const auto common = exchange_args<T>(device, args, "all_gather");
  const auto kernel = is_packed(args) ? gather_with_burst_end_kernel<T, push::kMostRanks, true>
                                      : gather_with_burst_end_kernel<T, push::kMostRanks, false>;
  load_code(kernel);
  return [=, buffer = args.exchange_buffer](Stream& stream, const StepLengths&) {
    for (int64_t index = 0; index < plan.num_parts(); ++index) {
      ExchangeArgs<T> own = common;
      own.part = plan.part(buffer, index);
      const Grid grid{.blocks = static_cast<unsigned>(
                          std::min(div_up(own.part.count, kThreads), kBlocksOfOneShot)),
                      .threads = kThreads};
      launch(stream, grid, kernel, own, end);
    }
  };
}

BoundLaunch bind_gather(Device& device, const KernelArgs& args) {
  auto& cuda = static_cast<CudaDevice&>(device);
  return visit_element(args.inputs["x"].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (args.inputs.find("ring_marks") != nullptr) return bind_gather_with_burst_end<T>(cuda, args);
    return bind_typed<T>(cuda, args, Form::kGather);
  });
}

BoundLaunch bind_reduce(Device& device, const KernelArgs& args) {
  auto& cuda = static_cast<CudaDevice&>(device);
  return bind_all_reduce(cuda, args, all_reduce_shots(cuda, args));
}

using LogitsKernel = void (*)(LogitsArgs);

LogitsKernel logits_kernel_of(int num_ranks, bool is_packed) {
  if (!is_packed) return gather_logits_kernel<8, false>;
  if (num_ranks <= 2) return gather_logits_kernel<2, true>;
  return num_ranks <= 4 ? gather_logits_kernel<4, true> : gather_logits_kernel<8, true>;
}

BoundLaunch bind_gather_logits(Device& device, const KernelArgs& args) {
  auto& cuda = static_cast<CudaDevice&>(device);
  KernelArgs gather = args;  // operands under the names that all_gather uses
  gather.outputs = {{"y", args.outputs["logits"]}};
  const TensorView& x = args.inputs["x"];
  const TensorView& sampling = args.inputs["sampling"];
  ENCORE_CHECK(sampling.row_elements() == kSamplingWords);
  const Rank rank = cuda.rank();
  const push::Plan plan{
      .memory = {},
      .self = rank.index,
      .num_ranks = rank.size,
      .num_vectors = div_up(x.shape.num_elements() * size_of(x.dtype), push::kVectorBytes)};
  const LogitsArgs common{
      exchange_args<float>(cuda, gather, "gather_logits"), sampling.as<const SamplingRow>(),
      args.inputs["kv_lens"].as<const int32_t>(),
      static_cast<uint32_t>(x.num_rows() / std::max<int64_t>(1, sampling.num_rows()))};
  const LogitsKernel kernel = logits_kernel_of(rank.size, is_packed(gather));
  load_code(kernel);
  return [plan, common, kernel, buffer = args.exchange_buffer](Stream& stream, const StepLengths&) {
    for (int64_t index = 0; index < plan.num_parts(); ++index) {
      LogitsArgs own = common;
      own.exchange.part = plan.part(buffer, index);
      const int64_t blocks = std::min(div_up(own.exchange.part.count, kThreads), kBlocksOfOneShot);
      launch(stream, {.blocks = static_cast<unsigned>(blocks), .threads = kThreads}, kernel, own);
    }
  };
}

bool has_floats(const KernelArgs& args) {
  return is_float(args.inputs["x"].dtype);
}

}  // namespace

push::Shots all_reduce_shots(CudaDevice& device, const KernelArgs& args) {
  using push::Shots;
  const int64_t bytes = args.inputs["x"].shape.num_elements() * size_of(args.inputs["x"].dtype);
  const int64_t longest_one_shot = push::longest_one_shot(device.rank().size);
  const Shots likely = bytes <= longest_one_shot ? Shots::kOne : Shots::kTwo;
  // The forms of all_reduce (one shot, two shots) are only measured where the length of x is within
  // a factor of kNear of the length at which they should be equally fast.
  constexpr int64_t kNear = 4;
  const bool is_near = bytes * kNear >= longest_one_shot && bytes <= longest_one_shot * kNear;
  if (device.rank().size == 1 || !is_near) return likely;
  const std::vector<Shots> forms{likely, likely == Shots::kOne ? Shots::kTwo : Shots::kOne};
  return fastest_form<Shots>(
      device, fmt::format("all_reduce.push of {}", device.rank().size), args, forms,
      [](Shots shots) { return shots == Shots::kOne ? "one shot" : "two shots"; },
      [](Shots shots, CudaDevice& rank, const KernelArgs& on) {
        return bind_all_reduce(rank, on, shots);
      });
}

BoundLaunch bind_all_reduce(CudaDevice& device, const KernelArgs& args, push::Shots shots) {
  return visit_element(args.inputs["x"].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return bind_typed<T>(device, args,
                         shots == push::Shots::kOne ? Form::kOneShot : Form::kTwoShots);
  });
}

void launch_pattern(Stream& stream, void* device, uint32_t seed, int64_t num_words) {
  constexpr int64_t kBlocks = 256;
  launch(stream, {.blocks = static_cast<unsigned>(kBlocks), .threads = kThreads}, pattern_kernel,
         static_cast<uint32_t*>(device), seed, num_words);
}

uint32_t pattern_word(uint32_t seed, int64_t index) {
  return static_cast<uint32_t>(index) * 0x9e3779b1U ^ seed * 0x85ebca6bU;
}

std::span<const Kernel> collective_kernels() {
  static constexpr std::array<Kernel, 3> kRows = {{
      {"all_reduce", "all_reduce.push", has_floats, nullptr, bind_reduce},
      {"all_gather", "all_gather.push", has_floats, nullptr, bind_gather, {"ring_marks"}},
      {"gather_logits", "gather_logits.push", nullptr, nullptr, bind_gather_logits},
  }};
  return kRows;
}

}  // namespace encore::cuda
