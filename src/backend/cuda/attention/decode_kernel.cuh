// Defines the kernels of decode attention and their launch for one head size. The files that
// instantiate them include this header.
#pragma once

#include "backend/cuda/attention/decode_launch.cuh"

namespace encore::cuda::decode {

// Computes decode attention of one step. Each y of the grid is one share of the batch's KV (see
// work.cuh). The blocks along x have the same share: they divide its query rows or, with kClusters,
// they are a cluster that divides the keys of each step of the loop.
template <typename Params, int C, int kTiles, bool kClusters>
__global__ void __launch_bounds__(kThreads,
                                  residency(C, kTiles, sizeof(typename Params::Kv)).blocks)
    attention_decode(const __grid_constant__ Params params,
                     const __grid_constant__ DecodePlan plan) {
  allow_next_kernel();
  extern __shared__ __align__(kTileAlignment) uint8_t shared[];
  const int number = static_cast<int>(blockIdx.x);
  const Worker worker{.row_block = kClusters ? 0 : number,
                      .number = static_cast<int>(blockIdx.y),
                      .count = static_cast<int>(gridDim.y),
                      .rank = kClusters ? number : 0,
                      .ranks = kClusters ? plan.ranks : 1};
  constexpr int kStages = residency(C, kTiles, sizeof(typename Params::Kv)).stages;
  attend_share<Params, C, kTiles, kStages, kClusters>(params, plan, worker, shared);
}

template <typename Params>
BoundLaunch bind_kernel(Grid grid, void (*kernel)(Params, DecodePlan), const Params& params,
                        const DecodePlan& plan) {
  allow_shared_memory(kernel, kBlockShared);
  if (grid.cluster > 1 && grid.blocks.y > 0) {
    const auto most = static_cast<unsigned>(max_active_clusters(grid, kernel));
    grid.blocks.y = std::min(grid.blocks.y, std::max(1U, most));
  }
  return [=](Stream& stream, const StepLengths&) { launch(stream, grid, kernel, params, plan); };
}

inline DecodePlan plan_of(const DecodeSizes& sizes, const KernelArgs& args, int head_size) {
  DecodePlan plan = sizes.plan;
  plan.values = static_cast<float*>(args.scratch);
  plan.softmaxes = reinterpret_cast<float2*>(plan.values + sizes.num_partials * head_size);
  plan.counters = args.counters;
  return plan;
}

template <int C, typename Params>
BoundLaunch bind_launch(Device& device, const KernelArgs& args, const Params& params) {
  const DecodeSizes sizes = decode_sizes(args, params.fresh.count);
  const int64_t shares =
      std::min(sizes.shares, max_shares(sizes, chip(device).num_multiprocessors));
  DecodePlan plan = plan_of(sizes, args, C);
  const int64_t heads = int64_t{params.num_sequences} * params.kv_heads;
  plan.even_heads = shares > 0 && unevenness(heads, shares) <= kEven;
  const Grid grid{.blocks = dim3(static_cast<unsigned>(plan.row_blocks * plan.ranks),
                                 static_cast<unsigned>(shares)),
                  .threads = kThreads,
                  .shared_bytes = static_cast<size_t>(sizes.shared_bytes),
                  .cluster = static_cast<unsigned>(plan.ranks)};
  const auto bind_with = [&](auto kernel) {
    return bind_kernel<Params>(grid, kernel, params, plan);
  };
  if constexpr (C <= kMostClusterHeadSize) {
    if (plan.ranks > 1) return bind_with(attention_decode<Params, C, 1, true>);
  }
  switch (div_up(plan.rows_per_block, kTileRows)) {
    case 1:
      return bind_with(attention_decode<Params, C, 1, false>);
    case 2:
      return bind_with(attention_decode<Params, C, 2, false>);
    default:
      return bind_with(attention_decode<Params, C, most_row_tiles(C), false>);
  }
}

template <typename T, typename Kv>
AttentionParams<T, Kv> fused_params(const Fused& fused) {
  const Views& in = fused.write.inputs;
  const TensorView& q = in["q"];
  const TensorView& k = in["k"];
  const TensorView& v = in["v"];
  const TensorView& k_cache = fused.write.outputs["k_cache"];
  AttentionParams<T, Kv> params = attention_params<T, Kv>(fused.attend);
  params.q = q.as<T>();
  params.q_stride = q.row_stride;
  NewTokens<T, Kv>& fresh = params.fresh;
  fresh.count = *fused.attend.step.q;
  fresh.k = k.as<T>();
  fresh.k_stride = k.row_stride;
  fresh.v = v.as<T>();
  fresh.v_stride = v.row_stride;
  fresh.positions = in["positions"].as<int32_t>();
  fresh.inv_freq = in["inv_freq"].as<float>();
  fresh.slots = in["slots"].as<int32_t>();
  fresh.k_cache = k_cache.as<Kv>();
  fresh.v_cache = fused.write.outputs["v_cache"].as<Kv>();
  fresh.num_slots = k_cache.shape[0] * k_cache.shape[2];
  if (const TensorView* q_norm = in.find("q_norm")) {
    fresh.q_norm = q_norm->as<T>();
    fresh.k_norm = in["k_norm"].as<T>();
    fresh.eps = static_cast<float>(fused.write.attrs.get_double("eps"));
    fresh.norm_offset = norm_offset(fused.write.attrs);
  }
  return params;
}

template <int C>
BoundLaunch bind_decode(Device& device, const KernelArgs& args) {
  return visit_tensor_core_types(args, [&](auto element, auto kv) {
    using T = typename decltype(element)::type;
    using Kv = typename decltype(kv)::type;
    return bind_launch<C>(device, args, attention_params<T, Kv>(args));
  });
}

template <int C>
BoundLaunch bind_fused_decode(Device& device, const Fused& fused) {
  return visit_tensor_core_types(fused.attend, [&](auto element, auto kv) {
    using T = typename decltype(element)::type;
    using Kv = typename decltype(kv)::type;
    return bind_launch<C>(device, fused.attend, fused_params<T, Kv>(fused));
  });
}

}  // namespace encore::cuda::decode
