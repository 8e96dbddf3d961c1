// Copies of tiles to shared memory, 16 bytes at a time, which run beside the thread that starts them.
#pragma once

#include <cstdint>

namespace encore::cuda {

// Starts a copy of 16 bytes to shared memory; writes zeros, and reads nothing, when not `valid`.
__device__ __forceinline__ void copy_async(uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
// The policy that createpolicy.fractional.L2::evict_first makes of 1.0. The compiler would move the
// instruction's result to other registers before each copy, which it does not do with a constant.
inline constexpr uint64_t kEvictFirst = 0x12f0000000000000;
// Copies memory that is read only once: the L2 cache should drop it before anything else.
__device__ __forceinline__ void copy_async_once(uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared),
               "l"(global), "r"(valid ? 16 : 0), "l"(kEvictFirst)
               : "memory");
}
// Closes a group of copies of this thread.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `kPending` groups of this thread are under way. Other threads' copies are
// visible only after a barrier.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Byte offset of 16-byte piece `piece` of row `row` in a tile with rows of C 16-bit elements,
// permuted so that eight rows of one piece lie in different banks.
template <int C>
__device__ __forceinline__ uint32_t tile_offset(int row, int piece) {
  static_assert(C == 32 || C == 48 || C == 64 || C == 96 || C == 128 || C == 256);
  // Rows of 64, 128 or 256 elements start in the same bank; rows of 32 and 96 alternate between
  // two, rows of 48 between four.
  const int permuted = C == 48              ? piece ^ ((row >> 2) & 1)
                       : C == 32 || C == 96 ? piece ^ ((row >> 1) & 3)
                                            : piece ^ (row & 7);
  return static_cast<uint32_t>((row * (C / 8) + permuted) * 16);
}

}  // namespace encore::cuda
