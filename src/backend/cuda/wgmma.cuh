// Products of the tensor cores of a warpgroup, with both operands in shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>

namespace encore::cuda {

// Describes rows of 64 columns of 16 bits, as copy_box() lays them out, from `address` on. Adding
// kNextColumns goes 16 columns to the right.
__device__ __forceinline__ uint64_t describe_rows(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62U;
  constexpr uint64_t kBytesBetweenRowsOf8 = uint64_t{1024 / 16} << 32U;
  constexpr uint64_t kUnused = uint64_t{1} << 16U;
  return kSwizzle128 | kBytesBetweenRowsOf8 | kUnused | ((address & 0x3ffffU) / 16);
}
constexpr uint64_t kNextColumns = 16 * 2 / 16;

// Before the first product that uses registers or shared memory written by ordinary instructions.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `kPending` of the groups committed are under way.
template <int kPending>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from using `sums` before the products waited for above this line.
template <int kCount>
__device__ __forceinline__ void settle(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    asm volatile("" : "+f"(sums[i])::"memory");
}

template <typename T>
inline constexpr char kWgmmaType[] = ".bf16.bf16";
template <>
inline constexpr char kWgmmaType<__half>[] = ".f16.f16";

// sums [64, kRows] += a [64, 16] b [kRows, 16]^T, started. In lane l of the warpgroup's warp w,
// sums[4 j + 2 h + i] is of row 16 w + 8 h + l / 4 and column 8 j + 2 (l % 4) + i.
template <typename T, int kRows>
__device__ __forceinline__ void start_product(float (&sums)[kRows / 2], uint64_t a, uint64_t b) {
  if constexpr (kRows == 8) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32%6 {"
        "%0, %1, %2, %3}, "
        "%4, %5, 1, 1, 1, 0, 0;"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "l"(a), "l"(b), "C"(kWgmmaType<T>));
  } else if constexpr (kRows == 16) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32%10 {"
        "%0, %1, %2, %3, %4, %5, %6, %7}, "
        "%8, %9, 1, 1, 1, 0, 0;"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7])
        : "l"(a), "l"(b), "C"(kWgmmaType<T>));
  } else if constexpr (kRows == 32) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32%18 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "%16, %17, 1, 1, 1, 0, 0;"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]),
          "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15])
        : "l"(a), "l"(b), "C"(kWgmmaType<T>));
  } else {
    static_assert(kRows == 64);
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32%34 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, 1, 1, 1, 0, 0;"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7]), "+f"(sums[8]), "+f"(sums[9]), "+f"(sums[10]),
          "+f"(sums[11]), "+f"(sums[12]), "+f"(sums[13]), "+f"(sums[14]), "+f"(sums[15]),
          "+f"(sums[16]), "+f"(sums[17]), "+f"(sums[18]), "+f"(sums[19]), "+f"(sums[20]),
          "+f"(sums[21]), "+f"(sums[22]), "+f"(sums[23]), "+f"(sums[24]), "+f"(sums[25]),
          "+f"(sums[26]), "+f"(sums[27]), "+f"(sums[28]), "+f"(sums[29]), "+f"(sums[30]),
          "+f"(sums[31])
        : "l"(a), "l"(b), "C"(kWgmmaType<T>));
  }
}

}  // namespace encore::cuda
