// fused_linear: one kernel of ours for up to four rows, as far as their norm fits it, and for a few
// more with silu_mul and no norm in front; otherwise its parts, of which that may be one.
#include "backend/fused_linear.h"

#include <array>

#include "backend/cuda/kernels.h"
#include "backend/cuda/linear/gemm.h"
#include "backend/cuda/linear/gemv.h"
#include "backend/cuda/linear/linear.h"
#include "backend/cuda/linear/skinny_gemm.h"
#include "backend/cuda/parts.h"

namespace encore::cuda {
namespace {

Workspace workspace(const KernelArgs& args) {
  return parts_workspace(linear_parts(args));
}
BoundLaunch bind(Device& device, const KernelArgs& args) {
  return bind_parts(device, linear_parts(args));
}

}  // namespace

std::span<const Kernel> fused_linear_kernels() {
  static constexpr std::array<Kernel, 5> kRows = {{
      {"fused_linear", "fused_linear.gemv", accepts_gemv, nullptr, bind_gemv},
      {"fused_linear", "fused_linear.fastest", accepts_fastest, fastest_workspace, bind_fastest},
      {"fused_linear", "fused_linear.skinny_gemm", accepts_skinny_gemm, nullptr, bind_skinny_gemm},
      {"fused_linear", "fused_linear.gemm", accepts_gemm, nullptr, bind_gemm},
      {"fused_linear", "fused_linear.parts", nullptr, workspace, bind},
  }};
  return kRows;
}

}  // namespace encore::cuda
