// Instantiates the kernels of decode attention with heads of 64 elements.
#include "backend/cuda/attention/decode_kernel.cuh"

namespace encore::cuda::decode {

template BoundLaunch bind_decode<64>(Device& device, const KernelArgs& args);
template BoundLaunch bind_fused_decode<64>(Device& device, const Fused& fused);

}  // namespace encore::cuda::decode
