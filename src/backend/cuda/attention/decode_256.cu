// Instantiates the kernels of decode attention with heads of 256 elements.
#include "backend/cuda/attention/decode_kernel.cuh"

namespace encore::cuda::decode {

template BoundLaunch bind_decode<256>(Device& device, const KernelArgs& args);
template BoundLaunch bind_fused_decode<256>(Device& device, const Fused& fused);

}  // namespace encore::cuda::decode
