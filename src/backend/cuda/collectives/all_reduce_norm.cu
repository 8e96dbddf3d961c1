// all_reduce_add_rms_norm of two ranks in one launch, a block a row: it sends the row's vectors, adds up those of all
// ranks in registers, adds the residual and normalizes. Bits are those of the ops apart.
#include <array>

#include "backend/cuda/collectives/exchange.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/rows/norm.cuh"

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

// Is it faster than the ops apart? Not where one block has much to send: a long row alone, or to several
// ranks. Source: measured on H200s with NVLink.
bool pays(const ir::Attrs& attrs, int64_t num_rows, int64_t row_bytes) {
  constexpr int64_t kLongest = 2 * 1024 * 1024;  // then two shots are faster
  constexpr int64_t kLongRow = 16 * 1024;
  const bool are_two = attrs.find("ranks") != nullptr && attrs.get_int("ranks") == kNumRanks;
  return are_two && num_rows * row_bytes <= kLongest && (num_rows > 1 || row_bytes < kLongRow);
}

bool accepts(const KernelArgs& args) {
  const auto aligned = [](const TensorView& view) { return is_aligned(view); };
  const TensorView& x = args.inputs["x"];
  const int64_t row_bytes = x.row_elements() * size_of(x.dtype);
  return std::all_of(args.inputs.begin(), args.inputs.end(), aligned) &&
         std::all_of(args.outputs.begin(), args.outputs.end(), aligned) &&
         args.inputs["weight"].num_bytes() == row_bytes && row_bytes % 16 == 0 &&
         row_bytes / 16 <= kMaxPacks * kMaxNormThreads && pays(args.attrs, x.num_rows(), row_bytes);
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

BoundLaunch bind(Device& device, const KernelArgs& args) {
  return visit_element(args.inputs["x"].dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return bind_typed<T>(static_cast<CudaDevice&>(device), args);
  });
}

}  // namespace

std::span<const Kernel> all_reduce_norm_kernels() {
  static constexpr std::array<Kernel, 1> kRows = {{
      {"all_reduce_add_rms_norm", "all_reduce_add_rms_norm.push", accepts, nullptr, bind},
  }};
  return kRows;
}

}  // namespace encore::cuda
