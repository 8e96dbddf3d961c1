// Makes the kernels of skinny_gemm.cu, one for each height and width of a tile. Files of their own
// compile them.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "backend/cuda/linear/skinny_gemm.cuh"

namespace encore::cuda::skinny_gemm {

template <typename T>
struct Variant {
  int rows;
  int outputs;  // the largest number of a tile's outputs
  int warpgroups;
  int turns;            // warpgroups that take turns with the boxes of a stage; 1: none do
  int staged_bytes[2];  // indexed by the number of blocks in a cluster, less one
  int partial_bytes;
  void (*kernel)(SkinnyGemmArgs<T>);
};

constexpr int warpgroups_for(int outputs) {
  return outputs > kProductOutputs ? 2 : 1;
}
constexpr int products_for(int outputs) {
  return outputs / warpgroups_for(outputs) / kProductOutputs;
}

template <typename T, int kOutputs, class TilePart>
constexpr Variant<T> variant() {
  constexpr int kWarpgroups = warpgroups_for(kOutputs) * TilePart::kTurns;
  using Consumers = Consumer<T, TilePart, kWarpgroups>;
  constexpr auto kStagedBytes = [](int cluster) {
    return std::max(Consumers::kTurnBytes, Consumers::kParts * Consumers::staged_bytes(cluster));
  };
  return {TilePart::kRows,
          kOutputs,
          kWarpgroups,
          TilePart::kTurns,
          {kStagedBytes(1), kStagedBytes(2)},
          Consumers::kPartialBytes,
          skinny_gemm_kernel<T, TilePart, kWarpgroups>};
}

// Return the variants of the kernel, sorted by rows, then by outputs: for operands of 16 bits; for
// a weight of codes that are widened to T; and for codes on both sides.
template <typename T>
std::span<const Variant<T>> variants();
template <typename T>
std::span<const Variant<T>> widened_variants();
template <typename T>
std::span<const Variant<T>> code_variants();

// Variants for up to 64 rows come with 64, 128 and 256 outputs. Variants for more rows come with 64
// and 128 outputs, because those with 256 would be no faster.
template <typename T, int kRows, int kOutputs>
constexpr Variant<T> plain_variant() {
  return variant<T, kOutputs, Tile<T, kRows, products_for(kOutputs)>>();
}
template <typename T, int... kLow, int... kHigh>
constexpr auto plain_variants(std::integer_sequence<int, kLow...> /*low*/,
                              std::integer_sequence<int, kHigh...> /*high*/) {
  return std::array{plain_variant<T, 16 + kLow / 3 * 16, (64 << kLow % 3)>()...,
                    plain_variant<T, 72 + kHigh / 2 * 8, (64 << kHigh % 2)>()...};
}
template <typename T>
constexpr auto all_plain_variants() {
  return plain_variants<T>(std::make_integer_sequence<int, 4 * 3>(),
                           std::make_integer_sequence<int, 24 * 2>());
}

// Makes variants with 64 outputs, where two warpgroups take turns, and with 128. With only one
// warpgroup to widen codes or to scale their sums, the tensor cores would wait for it.
template <typename T, typename X, int... kIndex>
constexpr auto variants_of_codes(std::integer_sequence<int, kIndex...> /*each*/) {
  return std::array{variant<T, (64 << kIndex % 2),
                            CodesTile<T, X, 16 + kIndex / 2 * 16, products_for(64 << kIndex % 2),
                                      kIndex % 2 == 0 ? 2 : 1>>()...};
}

}  // namespace encore::cuda::skinny_gemm
