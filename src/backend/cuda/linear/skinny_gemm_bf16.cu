// The kernels of skinny_gemm.cu for operands in bf16.
#include "backend/cuda/linear/skinny_gemm_variants.cuh"

namespace encore::cuda::skinny_gemm {

template <>
std::span<const Variant<__nv_bfloat16>> variants<__nv_bfloat16>() {
  static constexpr auto kAll = all_plain_variants<__nv_bfloat16>();
  return kAll;
}

}  // namespace encore::cuda::skinny_gemm
