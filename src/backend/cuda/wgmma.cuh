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

// The operands of an instruction, 16 sums at a time and 8 at the end: inline assembly takes neither
// arrays nor loops.
#define ENCORE_SUMS_8(i)                                                                     \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), \
      "+f"(sums[i + 5]), "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define ENCORE_SUMS_16(i) ENCORE_SUMS_8(i), ENCORE_SUMS_8(i + 8)
#define ENCORE_NAMES_0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define ENCORE_NAMES_16 \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define ENCORE_NAMES_32 \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define ENCORE_NAMES_48 \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define ENCORE_NAMES_16_TO_23 "%16, %17, %18, %19, %20, %21, %22, %23"
#define ENCORE_NAMES_32_TO_39 "%32, %33, %34, %35, %36, %37, %38, %39"
#define ENCORE_NAMES_48_TO_55 "%48, %49, %50, %51, %52, %53, %54, %55"

// sums [64, kRows] += a [64, 16] b [kRows, 16]^T, started. In lane l of the warpgroup's warp w,
// sums[4 j + 2 h + i] is of row 16 w + 8 h + l / 4 and column 8 j + 2 (l % 4) + i.
template <typename T, int kRows>
__device__ __forceinline__ void start_product(float (&sums)[kRows / 2], uint32_t a, uint32_t b) {
  if constexpr (kRows == 16) {
    asm volatile(
        "{\n.reg .b64 a, b;\nmov.b64 a, {%8, %10};\nmov.b64 b, {%9, "
        "%10};\nwgmma.mma_async.sync.aligned.m64n16k16.f32%11 {"
        "%0, %1, %2, %3, %4, %5, %6, %7}, "
        "a, b, 1, 1, 1, 0, 0;\n}"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3]), "+f"(sums[4]), "+f"(sums[5]),
          "+f"(sums[6]), "+f"(sums[7])
        : "r"(a), "r"(b), "n"(kRowLayout), "C"(kWgmmaType<T>));
  } else if constexpr (kRows == 32) {
    asm volatile(
        "{\n.reg .b64 a, b;\nmov.b64 a, {%16, %18};\nmov.b64 b, {%17, "
        "%18};\nwgmma.mma_async.sync.aligned.m64n32k16.f32%19 {" ENCORE_NAMES_0
        "}, "
        "a, b, 1, 1, 1, 0, 0;\n}"
        : ENCORE_SUMS_16(0)
        : "r"(a), "r"(b), "n"(kRowLayout), "C"(kWgmmaType<T>));
  } else if constexpr (kRows == 48) {
    asm volatile(
        "{\n.reg .b64 a, b;\nmov.b64 a, {%24, %26};\nmov.b64 b, {%25, "
        "%26};\nwgmma.mma_async.sync.aligned.m64n48k16.f32%27 {" ENCORE_NAMES_0
        ", " ENCORE_NAMES_16_TO_23
        "}, "
        "a, b, 1, 1, 1, 0, 0;\n}"
        : ENCORE_SUMS_16(0), ENCORE_SUMS_8(16)
        : "r"(a), "r"(b), "n"(kRowLayout), "C"(kWgmmaType<T>));
  } else if constexpr (kRows == 64) {
    asm volatile(
        "{\n.reg .b64 a, b;\nmov.b64 a, {%32, %34};\nmov.b64 b, {%33, "
        "%34};\nwgmma.mma_async.sync.aligned.m64n64k16.f32%35 {" ENCORE_NAMES_0 ", " ENCORE_NAMES_16
        "}, "
        "a, b, 1, 1, 1, 0, 0;\n}"
        : ENCORE_SUMS_16(0), ENCORE_SUMS_16(16)
        : "r"(a), "r"(b), "n"(kRowLayout), "C"(kWgmmaType<T>));
  } else if constexpr (kRows == 80) {
    asm volatile(
        "{\n.reg .b64 a, b;\nmov.b64 a, {%40, %42};\nmov.b64 b, {%41, "
        "%42};\nwgmma.mma_async.sync.aligned.m64n80k16.f32%43 {" ENCORE_NAMES_0 ", " ENCORE_NAMES_16
        ", " ENCORE_NAMES_32_TO_39
        "}, "
        "a, b, 1, 1, 1, 0, 0;\n}"
        : ENCORE_SUMS_16(0), ENCORE_SUMS_16(16), ENCORE_SUMS_8(32)
        : "r"(a), "r"(b), "n"(kRowLayout), "C"(kWgmmaType<T>));
  } else if constexpr (kRows == 96) {
    asm volatile(
        "{\n.reg .b64 a, b;\nmov.b64 a, {%48, %50};\nmov.b64 b, {%49, "
        "%50};\nwgmma.mma_async.sync.aligned.m64n96k16.f32%51 {" ENCORE_NAMES_0 ", " ENCORE_NAMES_16
        ", " ENCORE_NAMES_32
        "}, "
        "a, b, 1, 1, 1, 0, 0;\n}"
        : ENCORE_SUMS_16(0), ENCORE_SUMS_16(16), ENCORE_SUMS_16(32)
        : "r"(a), "r"(b), "n"(kRowLayout), "C"(kWgmmaType<T>));
  } else if constexpr (kRows == 112) {
    asm volatile(
        "{\n.reg .b64 a, b;\nmov.b64 a, {%56, %58};\nmov.b64 b, {%57, "
        "%58};\nwgmma.mma_async.sync.aligned.m64n112k16.f32%59 {" ENCORE_NAMES_0
        ", " ENCORE_NAMES_16 ", " ENCORE_NAMES_32 ", " ENCORE_NAMES_48_TO_55
        "}, "
        "a, b, 1, 1, 1, 0, 0;\n}"
        : ENCORE_SUMS_16(0), ENCORE_SUMS_16(16), ENCORE_SUMS_16(32), ENCORE_SUMS_8(48)
        : "r"(a), "r"(b), "n"(kRowLayout), "C"(kWgmmaType<T>));
  } else if constexpr (kRows == 128) {
    asm volatile(
        "{\n.reg .b64 a, b;\nmov.b64 a, {%64, %66};\nmov.b64 b, {%65, "
        "%66};\nwgmma.mma_async.sync.aligned.m64n128k16.f32%67 {" ENCORE_NAMES_0
        ", " ENCORE_NAMES_16 ", " ENCORE_NAMES_32 ", " ENCORE_NAMES_48
        "}, "
        "a, b, 1, 1, 1, 0, 0;\n}"
        : ENCORE_SUMS_16(0), ENCORE_SUMS_16(16), ENCORE_SUMS_16(32), ENCORE_SUMS_16(48)
        : "r"(a), "r"(b), "n"(kRowLayout), "C"(kWgmmaType<T>));
  } else {
    static_assert(kRows == 0, "no such product");
  }
}

#undef ENCORE_SUMS_16
#undef ENCORE_SUMS_8
#undef ENCORE_NAMES_0
#undef ENCORE_NAMES_16
#undef ENCORE_NAMES_32
#undef ENCORE_NAMES_48
#undef ENCORE_NAMES_16_TO_23
#undef ENCORE_NAMES_32_TO_39
#undef ENCORE_NAMES_48_TO_55

}  // namespace encore::cuda
