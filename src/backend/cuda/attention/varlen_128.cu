// Instantiates the kernels of attention of prompts and mixed steps with heads of 128 elements.
#include "backend/cuda/attention/varlen_kernel.cuh"

namespace encore::cuda::varlen {

template BoundLaunch bind_varlen<128>(Device& device, const KernelArgs& args);

}  // namespace encore::cuda::varlen
