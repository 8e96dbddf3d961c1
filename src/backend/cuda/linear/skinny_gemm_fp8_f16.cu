// The kernels of skinny_gemm.cu for a weight of 8-bit codes. The rows of x are in f16, or were
// before they were rounded to codes.
#include "backend/cuda/linear/skinny_gemm_variants.cuh"

namespace encore::cuda::skinny_gemm {

template <>
std::span<const Variant<__half>> widened_variants<__half>() {
  static constexpr auto kAll =
      variants_of_codes<__half, __half>(std::make_integer_sequence<int, 4 * 2>());
  return kAll;
}

template <>
std::span<const Variant<__half>> code_variants<__half>() {
  static constexpr auto kAll =
      variants_of_codes<__half, Float8>(std::make_integer_sequence<int, 8 * 2>());
  return kAll;
}

}  // namespace encore::cuda::skinny_gemm
