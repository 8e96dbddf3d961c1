// The kernels of skinny_gemm.cu for operands in f16.
#include "backend/cuda/linear/skinny_gemm_variants.cuh"

namespace encore::cuda::skinny_gemm {

template <>
std::span<const Variant<__half>> variants<__half>() {
  static constexpr auto kAll = all_plain_variants<__half>();
  return kAll;
}

}  // namespace encore::cuda::skinny_gemm
