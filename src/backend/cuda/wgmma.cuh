// Wraps products on the tensor cores of a warpgroup. The second operand is in shared memory; the
// first is in shared memory or in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_fp16.h>

namespace encore::cuda {

// Returns the low word of the descriptor of an operand in shared memory. Two words describe rows of
// 64 columns of 16 bits to the tensor cores, which lie from `address` on as copy_box() lays them
// out. Only the low word depends on the address: adding kNextColumns to it goes 16 columns to the
// right, and kNextRow goes one row down.
__device__ __forceinline__ uint32_t describe_rows(uint32_t address) {
  constexpr uint32_t kUnused = 1U << 16U;
  return kUnused | ((address & 0x3ffffU) / 16);
}
// The high word of the descriptor of an operand in shared memory. It says that groups of 8 rows are
// 1024 bytes apart, with their 16-byte pieces permuted within 128 bytes.
constexpr uint32_t kRowLayout = 1U << 30U | 1024 / 16;
constexpr uint32_t kNextColumns = 16 * 2 / 16;
constexpr uint32_t kNextRow = 128 / 16;

// Orders this warpgroup's ordinary writes to registers and shared memory before the products that
// use them. It must be called before the first such product.
__device__ __forceinline__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `kPending` of the committed groups of products are under way.
template <int kPending>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of `sums` in front of the wait for their products, which is
// above this call.
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

// These macros list the operands of an instruction, because inline assembly takes neither arrays
// nor loops. Each lists the given number of sums behind the first, with a comma before each.
#define ENCORE_EACH_4(f) f(1) f(2) f(3)
#define ENCORE_EACH_8(f) ENCORE_EACH_4(f) f(4) f(5) f(6) f(7)
#define ENCORE_EACH_12(f) ENCORE_EACH_8(f) f(8) f(9) f(10) f(11)
#define ENCORE_EACH_16(f) ENCORE_EACH_12(f) f(12) f(13) f(14) f(15)
#define ENCORE_EACH_20(f) ENCORE_EACH_16(f) f(16) f(17) f(18) f(19)
#define ENCORE_EACH_24(f) ENCORE_EACH_20(f) f(20) f(21) f(22) f(23)
#define ENCORE_EACH_28(f) ENCORE_EACH_24(f) f(24) f(25) f(26) f(27)
#define ENCORE_EACH_32(f) ENCORE_EACH_28(f) f(28) f(29) f(30) f(31)
#define ENCORE_EACH_36(f) ENCORE_EACH_32(f) f(32) f(33) f(34) f(35)
#define ENCORE_EACH_40(f) ENCORE_EACH_36(f) f(36) f(37) f(38) f(39)
#define ENCORE_EACH_44(f) ENCORE_EACH_40(f) f(40) f(41) f(42) f(43)
#define ENCORE_EACH_48(f) ENCORE_EACH_44(f) f(44) f(45) f(46) f(47)
#define ENCORE_EACH_52(f) ENCORE_EACH_48(f) f(48) f(49) f(50) f(51)
#define ENCORE_EACH_56(f) ENCORE_EACH_52(f) f(52) f(53) f(54) f(55)
#define ENCORE_EACH_60(f) ENCORE_EACH_56(f) f(56) f(57) f(58) f(59)
#define ENCORE_EACH_64(f) ENCORE_EACH_60(f) f(60) f(61) f(62) f(63)
#define ENCORE_EACH_68(f) ENCORE_EACH_64(f) f(64) f(65) f(66) f(67)
#define ENCORE_EACH_72(f) ENCORE_EACH_68(f) f(68) f(69) f(70) f(71)
#define ENCORE_EACH_76(f) ENCORE_EACH_72(f) f(72) f(73) f(74) f(75)
#define ENCORE_EACH_80(f) ENCORE_EACH_76(f) f(76) f(77) f(78) f(79)
#define ENCORE_EACH_84(f) ENCORE_EACH_80(f) f(80) f(81) f(82) f(83)
#define ENCORE_EACH_88(f) ENCORE_EACH_84(f) f(84) f(85) f(86) f(87)
#define ENCORE_EACH_92(f) ENCORE_EACH_88(f) f(88) f(89) f(90) f(91)
#define ENCORE_EACH_96(f) ENCORE_EACH_92(f) f(92) f(93) f(94) f(95)
#define ENCORE_EACH_100(f) ENCORE_EACH_96(f) f(96) f(97) f(98) f(99)
#define ENCORE_EACH_104(f) ENCORE_EACH_100(f) f(100) f(101) f(102) f(103)
#define ENCORE_EACH_108(f) ENCORE_EACH_104(f) f(104) f(105) f(106) f(107)
#define ENCORE_EACH_112(f) ENCORE_EACH_108(f) f(108) f(109) f(110) f(111)
#define ENCORE_EACH_116(f) ENCORE_EACH_112(f) f(112) f(113) f(114) f(115)
#define ENCORE_EACH_120(f) ENCORE_EACH_116(f) f(116) f(117) f(118) f(119)
#define ENCORE_EACH_124(f) ENCORE_EACH_120(f) f(120) f(121) f(122) f(123)
#define ENCORE_EACH_128(f) ENCORE_EACH_124(f) f(124) f(125) f(126) f(127)
#define ENCORE_SUM(i) , "+f"(sums[i])
#define ENCORE_NAME(i) ", %" #i
// Expands to the instruction that multiplies, if the product's second operand has `rows` rows.
// There are `count` sums; the parameters behind `count` are the numbers of the operands that follow
// the sums.
#define ENCORE_PRODUCT(rows, count, second, layout, type, old)                                \
  if constexpr (kRows == rows) {                                                              \
    asm volatile("{\n.reg .pred adds;\n.reg .b64 a, b;\nsetp.ne.u32 adds, %" #old             \
                 ", 0;\nmov.b64 a, {%" #count ", %" #layout "};\nmov.b64 b, {%" #second       \
                 ", %" #layout "};\nwgmma.mma_async.sync.aligned.m64n" #rows "k16.f32%" #type \
                 " {%0" ENCORE_EACH_##count(ENCORE_NAME) "}, a, b, adds, 1, 1, 0, 0;\n}"      \
                 : "+f"(sums[0])ENCORE_EACH_##count(ENCORE_SUM)                               \
                 : "r"(a), "r"(b), "n"(kRowLayout), "C"(kWgmmaType<T>), "r"(adds));           \
  }

// Starts sums [64, kRows] += a [64, 16] b [kRows, 16]^T; where `adds` is 0, it sets the sums
// instead. In lane l of the warpgroup's warp w, sums[4 j + 2 h + i] belongs to row 16 w + 8 h + l /
// 4 and column 8 j + 2 (l % 4) + i.
template <typename T, int kRows>
__device__ __forceinline__ void start_product(float (&sums)[kRows / 2], uint32_t a, uint32_t b,
                                              uint32_t adds) {
  static_assert(kRows > 0 && kRows <= 256 && kRows % (kRows <= 64 ? 16 : 8) == 0,
                "no such product");
  ENCORE_PRODUCT(16, 8, 9, 10, 11, 12);
  ENCORE_PRODUCT(32, 16, 17, 18, 19, 20);
  ENCORE_PRODUCT(48, 24, 25, 26, 27, 28);
  ENCORE_PRODUCT(64, 32, 33, 34, 35, 36);
  ENCORE_PRODUCT(72, 36, 37, 38, 39, 40);
  ENCORE_PRODUCT(80, 40, 41, 42, 43, 44);
  ENCORE_PRODUCT(88, 44, 45, 46, 47, 48);
  ENCORE_PRODUCT(96, 48, 49, 50, 51, 52);
  ENCORE_PRODUCT(104, 52, 53, 54, 55, 56);
  ENCORE_PRODUCT(112, 56, 57, 58, 59, 60);
  ENCORE_PRODUCT(120, 60, 61, 62, 63, 64);
  ENCORE_PRODUCT(128, 64, 65, 66, 67, 68);
  ENCORE_PRODUCT(136, 68, 69, 70, 71, 72);
  ENCORE_PRODUCT(144, 72, 73, 74, 75, 76);
  ENCORE_PRODUCT(152, 76, 77, 78, 79, 80);
  ENCORE_PRODUCT(160, 80, 81, 82, 83, 84);
  ENCORE_PRODUCT(168, 84, 85, 86, 87, 88);
  ENCORE_PRODUCT(176, 88, 89, 90, 91, 92);
  ENCORE_PRODUCT(184, 92, 93, 94, 95, 96);
  ENCORE_PRODUCT(192, 96, 97, 98, 99, 100);
  ENCORE_PRODUCT(200, 100, 101, 102, 103, 104);
  ENCORE_PRODUCT(208, 104, 105, 106, 107, 108);
  ENCORE_PRODUCT(216, 108, 109, 110, 111, 112);
  ENCORE_PRODUCT(224, 112, 113, 114, 115, 116);
  ENCORE_PRODUCT(232, 116, 117, 118, 119, 120);
  ENCORE_PRODUCT(240, 120, 121, 122, 123, 124);
  ENCORE_PRODUCT(248, 124, 125, 126, 127, 128);
  ENCORE_PRODUCT(256, 128, 129, 130, 131, 132);
}

// Expands to the instruction of ENCORE_PRODUCT, with the first operand in registers instead of
// shared memory.
#define ENCORE_REGISTER_PRODUCT(rows, count, a0, a1, a2, a3, second, layout, type, old)            \
  if constexpr (kRows == rows) {                                                                   \
    asm volatile("{\n.reg .pred adds;\n.reg .b64 b;\nsetp.ne.u32 adds, %" #old                     \
                 ", 0;\nmov.b64 b, {%" #second ", %" #layout                                       \
                 "};\nwgmma.mma_async.sync.aligned.m64n" #rows "k16.f32%" #type                    \
                 " {%0" ENCORE_EACH_##count(ENCORE_NAME) "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 \
                                                         "}, b, adds, 1, 1, 0;\n}"                 \
                 : "+f"(sums[0])ENCORE_EACH_##count(ENCORE_SUM)                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(kRowLayout),            \
                   "C"(kWgmmaType<T>), "r"(adds));                                                 \
  }

// Starts sums [64, kRows] += a [64, 16] b [kRows, 16]^T, as the function above, with `a` in
// registers. Each warp holds its 16 rows as the first operand of mma.cuh.
template <typename T, int kRows>
__device__ __forceinline__ void start_product(float (&sums)[kRows / 2], const uint32_t (&a)[4],
                                              uint32_t b, uint32_t adds) {
  static_assert(kRows % 16 == 0 && kRows <= 64, "no such product");
  ENCORE_REGISTER_PRODUCT(16, 8, 8, 9, 10, 11, 12, 13, 14, 15);
  ENCORE_REGISTER_PRODUCT(32, 16, 16, 17, 18, 19, 20, 21, 22, 23);
  ENCORE_REGISTER_PRODUCT(48, 24, 24, 25, 26, 27, 28, 29, 30, 31);
  ENCORE_REGISTER_PRODUCT(64, 32, 32, 33, 34, 35, 36, 37, 38, 39);
}

// Expands to the instruction of ENCORE_PRODUCT for 8-bit operands.
#define ENCORE_FP8_PRODUCT(rows, count, second, layout, old)                            \
  if constexpr (kRows == rows) {                                                        \
    asm volatile("{\n.reg .pred adds;\n.reg .b64 a, b;\nsetp.ne.u32 adds, %" #old       \
                 ", 0;\nmov.b64 a, {%" #count ", %" #layout "};\nmov.b64 b, {%" #second \
                 ", %" #layout "};\nwgmma.mma_async.sync.aligned.m64n" #rows            \
                 "k32.f32.e4m3.e4m3"                                                    \
                 " {%0" ENCORE_EACH_##count(ENCORE_NAME) "}, a, b, adds, 1, 1;\n}"      \
                 : "+f"(sums[0])ENCORE_EACH_##count(ENCORE_SUM)                         \
                 : "r"(a), "r"(b), "n"(kRowLayout), "r"(adds));                         \
  }

// Starts sums [64, kRows] += a [64, 32] b [kRows, 32]^T for e4m3 numbers. Their rows lie in boxes
// of 128 columns, just as rows of 16-bit elements lie in boxes of 64 columns, and kNextColumns goes
// 32 columns to the right. The tensor cores keep some 14 bits of a sum.
template <int kRows>
__device__ __forceinline__ void start_fp8_product(float (&sums)[kRows / 2], uint32_t a, uint32_t b,
                                                  uint32_t adds) {
  static_assert(kRows % 16 == 0 && kRows <= 256, "no such product");
  ENCORE_FP8_PRODUCT(16, 8, 9, 10, 11);
  ENCORE_FP8_PRODUCT(32, 16, 17, 18, 19);
  ENCORE_FP8_PRODUCT(48, 24, 25, 26, 27);
  ENCORE_FP8_PRODUCT(64, 32, 33, 34, 35);
  ENCORE_FP8_PRODUCT(80, 40, 41, 42, 43);
  ENCORE_FP8_PRODUCT(96, 48, 49, 50, 51);
  ENCORE_FP8_PRODUCT(112, 56, 57, 58, 59);
  ENCORE_FP8_PRODUCT(128, 64, 65, 66, 67);
  ENCORE_FP8_PRODUCT(144, 72, 73, 74, 75);
  ENCORE_FP8_PRODUCT(160, 80, 81, 82, 83);
  ENCORE_FP8_PRODUCT(176, 88, 89, 90, 91);
  ENCORE_FP8_PRODUCT(192, 96, 97, 98, 99);
  ENCORE_FP8_PRODUCT(208, 104, 105, 106, 107);
  ENCORE_FP8_PRODUCT(224, 112, 113, 114, 115);
  ENCORE_FP8_PRODUCT(240, 120, 121, 122, 123);
  ENCORE_FP8_PRODUCT(256, 128, 129, 130, 131);
}

// Returns the low word of the descriptor of an operand whose rows are summed over, in shared memory
// in boxes of 64 columns that lie `bytes` apart.
__device__ __forceinline__ uint32_t describe_summed_rows(uint32_t address, uint32_t bytes) {
  return bytes / 16 << 16U | (address & 0x3ffffU) / 16;
}

#define ENCORE_WEIGHTED(columns, count, a0, a1, a2, a3, b, layout, type)                           \
  if constexpr (kColumns == columns) {                                                             \
    asm volatile("{\n.reg .pred adds;\n.reg .b64 b;\nsetp.ne.u32 adds, 1, 0;\nmov.b64 b, {%" #b    \
                 ", %" #layout "};\nwgmma.mma_async.sync.aligned.m64n" #columns "k16.f32%" #type   \
                 " {%0" ENCORE_EACH_##count(ENCORE_NAME) "}, {%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 \
                                                         "}, b, adds, 1, 1, 1;\n}"                 \
                 : "+f"(sums[0])ENCORE_EACH_##count(ENCORE_SUM)                                    \
                 : "r"(weights[0]), "r"(weights[1]), "r"(weights[2]), "r"(weights[3]), "r"(rows),  \
                   "n"(kRowLayout), "C"(kWgmmaType<T>));                                           \
  }

// Starts sums [64, kColumns] += weights [64, 16] rows [16, kColumns]. Each warp holds its 16 rows
// of the weights as the first operand of mma.cuh. describe_summed_rows() describes `rows`, and the
// sums lie as in start_product().
template <typename T, int kColumns>
__device__ __forceinline__ void start_weighted_sum(float (&sums)[kColumns / 2],
                                                   const uint32_t (&weights)[4], uint32_t rows) {
  static_assert(kColumns == 64 || kColumns == 96 || kColumns == 128 || kColumns == 256);
  ENCORE_WEIGHTED(64, 32, 32, 33, 34, 35, 36, 37, 38);
  ENCORE_WEIGHTED(96, 48, 48, 49, 50, 51, 52, 53, 54);
  ENCORE_WEIGHTED(128, 64, 64, 65, 66, 67, 68, 69, 70);
  ENCORE_WEIGHTED(256, 128, 128, 129, 130, 131, 132, 133, 134);
}

#undef ENCORE_WEIGHTED
#undef ENCORE_FP8_PRODUCT
#undef ENCORE_REGISTER_PRODUCT
#undef ENCORE_PRODUCT
#undef ENCORE_SUM
#undef ENCORE_NAME
#undef ENCORE_EACH_4
#undef ENCORE_EACH_8
#undef ENCORE_EACH_12
#undef ENCORE_EACH_16
#undef ENCORE_EACH_20
#undef ENCORE_EACH_24
#undef ENCORE_EACH_28
#undef ENCORE_EACH_32
#undef ENCORE_EACH_36
#undef ENCORE_EACH_40
#undef ENCORE_EACH_44
#undef ENCORE_EACH_48
#undef ENCORE_EACH_52
#undef ENCORE_EACH_56
#undef ENCORE_EACH_60
#undef ENCORE_EACH_64
#undef ENCORE_EACH_68
#undef ENCORE_EACH_72
#undef ENCORE_EACH_76
#undef ENCORE_EACH_80
#undef ENCORE_EACH_84
#undef ENCORE_EACH_88
#undef ENCORE_EACH_92
#undef ENCORE_EACH_96
#undef ENCORE_EACH_100
#undef ENCORE_EACH_104
#undef ENCORE_EACH_108
#undef ENCORE_EACH_112
#undef ENCORE_EACH_116
#undef ENCORE_EACH_120
#undef ENCORE_EACH_124
#undef ENCORE_EACH_128

}  // namespace encore::cuda
