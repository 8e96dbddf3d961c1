// The kernel of gemv.cu for weights of 8-bit codes, which are widened exactly in registers.
#include "backend/cuda/linear/gemv.h"
#include "backend/cuda/linear/gemv_launch.cuh"

namespace encore::cuda {

BoundLaunch bind_gemv_fp8(Device& device, const KernelArgs& args) {
  return args.inputs["x"].dtype == DType::kF16
             ? gemv::bind_for<__half, Float8>(device, args)
             : gemv::bind_for<__nv_bfloat16, Float8>(device, args);
}

}  // namespace encore::cuda
