// The kernels of gemm.cu of codes.
#include "backend/cuda/linear/gemm.cuh"

namespace encore::cuda::gemm {
namespace {

constexpr int kCount = 5;  // up to 192 rows

template <typename T>
constexpr auto kVariants = make_variants<T, Float8>(std::make_integer_sequence<int, kCount>());

}  // namespace

template <>
std::span<const Variant<__half>> code_variants<__half>() {
  return kVariants<__half>;
}
template <>
std::span<const Variant<__nv_bfloat16>> code_variants<__nv_bfloat16>() {
  return kVariants<__nv_bfloat16>;
}

}  // namespace encore::cuda::gemm
