// Products of the tensor cores of a warpgroup, with both operands in shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>

namespace encore::cuda {

// Rows of 64 columns of 16 bits, as copy_box() lays them out, from `address` on, are described to
// the tensor cores by two words. This is the one that depends on the address; adding kNextColumns
// goes 16 columns to the right, kNextRow one row down.
__device__ __forceinline__ uint32_t describe_rows(uint32_t address) {
  constexpr uint32_t kUnused = 1U << 16U;
  return kUnused | ((address & 0x3ffffU) / 16);
}
// The other: groups of 8 rows are 1024 bytes apart, their 16-byte pieces permuted within 128 bytes.
constexpr uint32_t kRowLayout = 1U << 30U | 1024 / 16;
constexpr uint32_t kNextColumns = 16 * 2 / 16;
constexpr uint32_t kNextRow = 128 / 16;

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

// The operands of an instruction: inline assembly takes neither arrays nor loops.
#define ENCORE_EIGHT(i)                                                                      \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), \
      "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define ENCORE_SUMS_8 ENCORE_EIGHT(0)
#define ENCORE_SUMS_16 ENCORE_SUMS_8, ENCORE_EIGHT(8)
#define ENCORE_SUMS_24 ENCORE_SUMS_16, ENCORE_EIGHT(16)
#define ENCORE_SUMS_32 ENCORE_SUMS_24, ENCORE_EIGHT(24)
#define ENCORE_SUMS_40 ENCORE_SUMS_32, ENCORE_EIGHT(32)
#define ENCORE_SUMS_48 ENCORE_SUMS_40, ENCORE_EIGHT(40)
#define ENCORE_SUMS_56 ENCORE_SUMS_48, ENCORE_EIGHT(48)
#define ENCORE_SUMS_64 ENCORE_SUMS_56, ENCORE_EIGHT(56)
#define ENCORE_SUMS_72 ENCORE_SUMS_64, ENCORE_EIGHT(64)
#define ENCORE_SUMS_80 ENCORE_SUMS_72, ENCORE_EIGHT(72)
#define ENCORE_SUMS_88 ENCORE_SUMS_80, ENCORE_EIGHT(80)
#define ENCORE_SUMS_96 ENCORE_SUMS_88, ENCORE_EIGHT(88)
#define ENCORE_SUMS_104 ENCORE_SUMS_96, ENCORE_EIGHT(96)
#define ENCORE_SUMS_112 ENCORE_SUMS_104, ENCORE_EIGHT(104)
#define ENCORE_SUMS_120 ENCORE_SUMS_112, ENCORE_EIGHT(112)
#define ENCORE_SUMS_128 ENCORE_SUMS_120, ENCORE_EIGHT(120)
#define ENCORE_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define ENCORE_NAMES_16 ENCORE_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define ENCORE_NAMES_24 ENCORE_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define ENCORE_NAMES_32 ENCORE_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define ENCORE_NAMES_40 ENCORE_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define ENCORE_NAMES_48 ENCORE_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define ENCORE_NAMES_56 ENCORE_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define ENCORE_NAMES_64 ENCORE_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define ENCORE_NAMES_72 ENCORE_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define ENCORE_NAMES_80 ENCORE_NAMES_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define ENCORE_NAMES_88 ENCORE_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define ENCORE_NAMES_96 ENCORE_NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define ENCORE_NAMES_104 ENCORE_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define ENCORE_NAMES_112 ENCORE_NAMES_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define ENCORE_NAMES_120 ENCORE_NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define ENCORE_NAMES_128 ENCORE_NAMES_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
// `count` sums, and the numbers of the operands behind them.
#define ENCORE_PRODUCT(rows, count, first, second, layout, type)              \
  asm volatile("{\n.reg .b64 a, b;\nmov.b64 a, {%" #first ", %" #layout       \
               "};\nmov.b64 b, {%" #second ", %" #layout                      \
               "};\nwgmma.mma_async.sync.aligned.m64n" #rows "k16.f32%" #type \
               " {" ENCORE_NAMES_##count "}, a, b, 1, 1, 1, 0, 0;\n}"         \
               : ENCORE_SUMS_##count                                          \
               : "r"(a), "r"(b), "n"(kRowLayout), "C"(kWgmmaType<T>))

// sums [64, kRows] += a [64, 16] b [kRows, 16]^T, started. In lane l of the warpgroup's warp w,
// sums[4 j + 2 h + i] is of row 16 w + 8 h + l / 4 and column 8 j + 2 (l % 4) + i.
template <typename T, int kRows>
__device__ __forceinline__ void start_product(float (&sums)[kRows / 2], uint32_t a, uint32_t b) {
  if constexpr (kRows == 16) {
    ENCORE_PRODUCT(16, 8, 8, 9, 10, 11);
  } else if constexpr (kRows == 32) {
    ENCORE_PRODUCT(32, 16, 16, 17, 18, 19);
  } else if constexpr (kRows == 48) {
    ENCORE_PRODUCT(48, 24, 24, 25, 26, 27);
  } else if constexpr (kRows == 64) {
    ENCORE_PRODUCT(64, 32, 32, 33, 34, 35);
  } else if constexpr (kRows == 80) {
    ENCORE_PRODUCT(80, 40, 40, 41, 42, 43);
  } else if constexpr (kRows == 96) {
    ENCORE_PRODUCT(96, 48, 48, 49, 50, 51);
  } else if constexpr (kRows == 112) {
    ENCORE_PRODUCT(112, 56, 56, 57, 58, 59);
  } else if constexpr (kRows == 128) {
    ENCORE_PRODUCT(128, 64, 64, 65, 66, 67);
  } else if constexpr (kRows == 144) {
    ENCORE_PRODUCT(144, 72, 72, 73, 74, 75);
  } else if constexpr (kRows == 160) {
    ENCORE_PRODUCT(160, 80, 80, 81, 82, 83);
  } else if constexpr (kRows == 176) {
    ENCORE_PRODUCT(176, 88, 88, 89, 90, 91);
  } else if constexpr (kRows == 192) {
    ENCORE_PRODUCT(192, 96, 96, 97, 98, 99);
  } else if constexpr (kRows == 208) {
    ENCORE_PRODUCT(208, 104, 104, 105, 106, 107);
  } else if constexpr (kRows == 224) {
    ENCORE_PRODUCT(224, 112, 112, 113, 114, 115);
  } else if constexpr (kRows == 240) {
    ENCORE_PRODUCT(240, 120, 120, 121, 122, 123);
  } else if constexpr (kRows == 256) {
    ENCORE_PRODUCT(256, 128, 128, 129, 130, 131);
  } else {
    static_assert(kRows == 0, "no such product");
  }
}

#undef ENCORE_PRODUCT
#undef ENCORE_EIGHT
#undef ENCORE_SUMS_8
#undef ENCORE_NAMES_8
#undef ENCORE_SUMS_16
#undef ENCORE_NAMES_16
#undef ENCORE_SUMS_24
#undef ENCORE_NAMES_24
#undef ENCORE_SUMS_32
#undef ENCORE_NAMES_32
#undef ENCORE_SUMS_40
#undef ENCORE_NAMES_40
#undef ENCORE_SUMS_48
#undef ENCORE_NAMES_48
#undef ENCORE_SUMS_56
#undef ENCORE_NAMES_56
#undef ENCORE_SUMS_64
#undef ENCORE_NAMES_64
#undef ENCORE_SUMS_72
#undef ENCORE_NAMES_72
#undef ENCORE_SUMS_80
#undef ENCORE_NAMES_80
#undef ENCORE_SUMS_88
#undef ENCORE_NAMES_88
#undef ENCORE_SUMS_96
#undef ENCORE_NAMES_96
#undef ENCORE_SUMS_104
#undef ENCORE_NAMES_104
#undef ENCORE_SUMS_112
#undef ENCORE_NAMES_112
#undef ENCORE_SUMS_120
#undef ENCORE_NAMES_120
#undef ENCORE_SUMS_128
#undef ENCORE_NAMES_128

}  // namespace encore::cuda
