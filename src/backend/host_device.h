// ENCORE_HOST_DEVICE: in front of a function that host code and kernels of every device share.
#pragma once

#if defined(__CUDACC__)
#define ENCORE_HOST_DEVICE __host__ __device__
#else
// Always inlined, so that no copy compiled for one instruction set is shared with code for another.
#define ENCORE_HOST_DEVICE [[gnu::always_inline]]
#endif
