// Copies tiles to shared memory, 16 bytes at a time. The copies run while the thread that starts
// them goes on.
#pragma once

#include <cstdint>

namespace encore::cuda {

// Starts a copy of 16 bytes to shared memory. Where `valid` is false, it writes zeros and reads
// nothing.
__device__ __forceinline__ void copy_async(uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
// The L2 policy that createpolicy.fractional.L2::evict_first makes for the fraction 1.0. With the
// instruction, the compiler would move its result to other registers before each copy; with a
// constant it does not.
inline constexpr uint64_t kEvictFirst = 0x12f0000000000000;
// Copies 16 bytes that are read only once to shared memory. The L2 cache drops them before anything
// else.
__device__ __forceinline__ void copy_async_once(uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared),
               "l"(global), "r"(valid ? 16 : 0), "l"(kEvictFirst)
               : "memory");
}
// Closes this thread's current group of copies.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `kPending` of this thread's groups of copies are under way. Copies of other
// threads are visible only after a barrier.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Returns the offset in bytes of the 16-byte piece `piece` of row `row` in a tile whose rows have C
// elements of 16 bits. The pieces are permuted so that the same piece of eight rows lies in
// different banks.
template <int C>
__device__ __forceinline__ uint32_t tile_offset(int row, int piece) {
  static_assert(C == 32 || C == 48 || C == 64 || C == 96 || C == 128 || C == 256);
  // Rows of 64, 128 or 256 elements all start in the same bank of shared memory. Rows of 32 and 96
  // elements start in two banks by turns, and rows of 48 elements in four.
  const int permuted = C == 48              ? piece ^ ((row >> 2) & 1)
                       : C == 32 || C == 96 ? piece ^ ((row >> 1) & 3)
                                            : piece ^ (row & 7);
  return static_cast<uint32_t>((row * (C / 8) + permuted) * 16);
}

}  // namespace encore::cuda
