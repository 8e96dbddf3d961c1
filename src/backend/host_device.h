// Macros that declare functions shared by the host and kernels.
//
//   ENCORE_HOST_DEVICE     a function of either
//   ENCORE_DEVICE_OR_TWIN  a function of kernels, which tests compile for threads that stand for a device's
//   ENCORE_UNROLL          in front of a loop of few iterations, over arrays that belong into registers
#pragma once

#if defined(__CUDACC__)
#define ENCORE_HOST_DEVICE __host__ __device__
#define ENCORE_DEVICE_OR_TWIN __device__ __forceinline__
#define ENCORE_UNROLL _Pragma("unroll")
#else
// Host functions are always inlined, so that code for one instruction set never calls a copy that
// was compiled for another.
#define ENCORE_HOST_DEVICE [[gnu::always_inline]]
#define ENCORE_DEVICE_OR_TWIN inline
#define ENCORE_UNROLL _Pragma("GCC unroll 8")
#endif
