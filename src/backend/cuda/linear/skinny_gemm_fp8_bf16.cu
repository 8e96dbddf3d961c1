// The kernels of skinny_gemm.cu for a weight of 8-bit codes. The rows of x are in bf16, or were
// before they were rounded to codes.
#include "backend/cuda/linear/skinny_gemm_variants.cuh"

namespace encore::cuda::skinny_gemm {

template <>
std::span<const Variant<__nv_bfloat16>> widened_variants<__nv_bfloat16>() {
  static constexpr auto kAll =
      variants_of_codes<__nv_bfloat16, __nv_bfloat16>(std::make_integer_sequence<int, 4 * 2>());
  return kAll;
}

template <>
std::span<const Variant<__nv_bfloat16>> code_variants<__nv_bfloat16>() {
  static constexpr auto kAll =
      variants_of_codes<__nv_bfloat16, Float8>(std::make_integer_sequence<int, 8 * 2>());
  return kAll;
}

}  // namespace encore::cuda::skinny_gemm
