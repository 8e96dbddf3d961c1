// linear and fused_linear with more rows than few and less than many: two kernels compete. Declared
// for linear.cc's and fused_linear.cc's tables.
#pragma once

#include "backend/kernel.h"

namespace encore::cuda {

// What both the skinny GEMM and cuBLASLt take, from 33 rows on. Runs the faster one, as the
// tuner found; in fused_linear, silu_mul behind cuBLASLt's product is a launch that counts.
bool accepts_fastest(const KernelArgs& args);
Workspace fastest_workspace(const KernelArgs& args);
BoundLaunch bind_fastest(Device& device, const KernelArgs& args);

}  // namespace encore::cuda
