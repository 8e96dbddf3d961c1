// all_reduce, for ops that have it in them.
#pragma once

#include "backend/cuda/device/device.h"
#include "backend/kernel.h"
#include "backend/push.h"

namespace encore::cuda {

// The shots in which all_reduce is fastest between these GPUs, as the tuner found. REQUIRES: asked on all ranks.
push::Shots all_reduce_shots(CudaDevice& device, const KernelArgs& args);
BoundLaunch bind_all_reduce(CudaDevice& device, const KernelArgs& args, push::Shots shots);

}  // namespace encore::cuda
