// Computes all_reduce_add_rms_norm of two ranks in one launch, with one block for each row. The
// block sends its row's vectors, adds up the vectors of all ranks in registers, adds the residual
// and normalizes. The results have the same bits as those of separate launches for all_reduce and
// the norm, which are used where they are faster.
#include "backend/all_reduce_norm.h"

#include <array>

#include "backend/cuda/collectives/all_ranks.h"
#include "backend/cuda/collectives/collectives.h"
#include "backend/cuda/collectives/exchange.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/rows/norm.cuh"
#include "backend/tuning.h"

namespace encore::cuda {
namespace {

constexpr int kNumRanks = 2;

template <typename T, int kPacks>
__global__ void __launch_bounds__(kMaxNormThreads)
    all_reduce_norm_kernel(const __grid_constant__ ExchangeArgs<T> exchange,
                           const __grid_constant__ NormArgs<T> norm) {
  constexpr int kSize = Pack<T>::kSize;
  allow_next_kernel();
  const int64_t row = blockIdx.x;
  const int num_packs = norm.group_size / kSize;
  Pack<T> weights[kPacks];
  Packs<kPacks>(norm.weight, norm.group_size).load(weights);
  wait_for_inputs();

  const push::Part& part = exchange.part;
  ExchangePort<T, true> port(exchange);
  const auto index = [&](int p) {
    return p * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x);
  };
  const auto own = [&](int p) {
    return push::sendable<Numbers<T>::kElementBytes>(port.input(row * num_packs + index(p)));
  };
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    if (index(p) < num_packs)
      push::send<kNumRanks>(port, part, part.places + row * num_packs + index(p), own(p));
  }
  const Packs<kPacks> residual(norm.residual + row * norm.residual_stride, norm.group_size);
  const Packs<kPacks> sum(norm.sum + row * norm.sum_stride, norm.group_size);
  const Packs<kPacks> out(norm.out + row * norm.out_stride, norm.group_size);
  Pack<T> packs[kPacks];
  residual.load(packs);
  float values[kPacks][kSize];
  float squares = 0;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    push::Vector reduced{};
    if (index(p) < num_packs) {
      push::Vector vectors[kNumRanks] = {};
      push::take<kNumRanks>(port, part, part.places + row * num_packs + index(p),
                            push::others(part), vectors);
      push::put_own<kNumRanks>(part, own(p), vectors);
      reduced = push::sum_of<Numbers<T>, kNumRanks>(part, vectors);
    }
    packs[p] = add_packs(reinterpret_cast<const Pack<T>&>(reduced), packs[p]);
    sum.store(p, packs[p]);
    unpack(packs[p], values[p]);
    add_products(values[p], values[p], squares);
  }
  const float scale = rsqrtf(block_sum(squares) * norm.per_element + norm.eps);
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    float weight[kSize];
    unpack(weights[p], weight);
#pragma unroll
    for (int i = 0; i < kSize; ++i)
      values[p][i] = values[p][i] * scale * (weight[i] + norm.offset);
    out.store(p, to_pack<T>(values[p]));
  }
}

constexpr int64_t kLongest = 4 * 1024 * 1024;  // for longer inputs two shots are faster

int64_t row_bytes(const KernelArgs& args) {
  const TensorView& x = args.inputs["x"];
  return x.row_elements() * size_of(x.dtype);
}

// Returns whether one launch is likely to be faster than separate launches of all_reduce and the
// norm. It is not where one block has much to send, as for a single long row of x. Source: measured
// on H200s with NVLink.
bool is_likely(const KernelArgs& args) {
  constexpr int64_t kLongRow = 16 * 1024;
  const int64_t rows = args.inputs["x"].num_rows();
  return rows * row_bytes(args) <= kLongest / 2 && (rows > 1 || row_bytes(args) < kLongRow);
}

bool accepts(const KernelArgs& args) {
  const auto aligned = [](const TensorView& view) { return is_aligned(view); };
  const bool are_two =
      args.attrs.find("ranks") != nullptr && args.attrs.get_int("ranks") == kNumRanks;
  const int64_t bytes = row_bytes(args);
  return are_two && std::all_of(args.inputs.begin(), args.inputs.end(), aligned) &&
         std::all_of(args.outputs.begin(), args.outputs.end(), aligned) &&
         args.inputs["weight"].num_bytes() == bytes && bytes % 16 == 0 &&
         bytes / 16 <= kMaxPacks * kMaxNormThreads &&
         args.inputs["x"].num_rows() * bytes <= kLongest;
}

template <typename T>
BoundLaunch bind_typed(CudaDevice& device, const KernelArgs& args) {
  const Rank rank = device.rank();
  const auto norm = norm_args<T>(args);
  auto exchange = exchange_args<T>(device, args, "all_reduce_add_rms_norm");
  const int64_t num_packs = norm.group_size / Pack<T>::kSize;
  const push::Plan plan{.memory = {},
                        .self = rank.index,
                        .num_ranks = rank.size,
                        .shots = push::Shots::kOne,
                        .num_vectors = args.inputs["x"].num_rows() * num_packs};
  ENCORE_CHECK(plan.num_parts() <= 1);
  if (plan.num_vectors > 0) exchange.part = plan.part(args.exchange_buffer, 0);
  const auto kernel = num_packs <= kMaxNormThreads ? all_reduce_norm_kernel<T, 1>
                                                   : all_reduce_norm_kernel<T, kMaxPacks>;
  load_code(kernel);
  const Grid grid{
      .blocks = static_cast<unsigned>(args.inputs["x"].num_rows()),
      .threads = static_cast<unsigned>(std::min(kMaxNormThreads, round_up(num_packs, 32)))};
  return [exchange, norm, grid, kernel](Stream& stream, const StepLengths&) {
    launch(stream, grid, kernel, exchange, norm);
  };
}

BoundLaunch bind_fused(CudaDevice& device, const KernelArgs& args) {
  return visit_element(args.inputs["x"].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return bind_typed<T>(device, args);
  });
}

// Binds two launches: all_reduce in `shots` shots, and the norm.
BoundLaunch bind_apart(CudaDevice& device, const KernelArgs& args, push::Shots shots) {
  const Parts parts = all_reduce_norm_parts(args);
  const KernelArgs& norm = parts.parts.back().args;
  return [sum = bind_all_reduce(device, parts.parts.front().args, shots),
          normalize = device.kernels().choose("rms_norm", norm).bind(device, norm)](
             Stream& stream, const StepLengths& lengths) {
    sum(stream, lengths);
    normalize(stream, lengths);
  };
}

enum class Form : uint8_t { kFused, kApart };

// Binds either one fused launch or separate launches of all_reduce and the norm, whichever the
// tuner found to be faster.
BoundLaunch bind_fastest(Device& device, const KernelArgs& args) {
  auto& cuda = static_cast<CudaDevice&>(device);
  const push::Shots shots = all_reduce_shots(cuda, all_reduce_norm_parts(args).parts.front().args);
  const auto text = [](Form form) -> std::string {
    return form == Form::kFused ? "fused" : "apart";
  };
  const auto bind = [shots](Form form, CudaDevice& on, const KernelArgs& own) {
    return form == Form::kFused ? bind_fused(on, own) : bind_apart(on, own, shots);
  };
  std::vector<Form> forms{Form::kFused, Form::kApart};
  if (!is_likely(args)) std::swap(forms[0], forms[1]);
  const Form fastest =
      fastest_form<Form>(cuda, "all_reduce_add_rms_norm.push", args, forms, text, bind);
  return bind(fastest, cuda, args);
}

}  // namespace

std::span<const Kernel> all_reduce_norm_kernels() {
  static constexpr std::array<Kernel, 1> kRows = {{
      {.op = "all_reduce_add_rms_norm",
       .name = "all_reduce_add_rms_norm.push",
       .accepts = accepts,
       .bind = bind_fastest,
       .num_nodes = [](const KernelArgs& args) { return is_likely(args) ? 1 : 2; }},
  }};
  return kRows;
}

}  // namespace encore::cuda
