// Offers all_reduce to the kernels of ops that contain one.
#pragma once

#include "backend/cuda/device/device.h"
#include "backend/kernel.h"
#include "backend/push.h"

namespace encore::cuda {

// Returns the number of shots with which all_reduce is fastest between these GPUs, as the tuner
// found. REQUIRES: every rank calls it.
push::Shots all_reduce_shots(CudaDevice& device, const KernelArgs& args);
BoundLaunch bind_all_reduce(CudaDevice& device, const KernelArgs& args, push::Shots shots);

}  // namespace encore::cuda
