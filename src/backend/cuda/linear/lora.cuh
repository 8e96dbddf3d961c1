// Functions with which kernels of products add the adapters' part (LoRA): the product of h, which
// lora_shrink has computed, with the rows of b.
#pragma once

#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/lora_blocks.h"

namespace encore::cuda {

inline constexpr int kMaxLoraBlocks = 8;  // the largest number of products that one was merged of

// The operands of the adapters' part: b [S,O,rank], h [R,N], and the slot of each row in b (-1:
// none). Units: strides in elements.
template <typename T>
struct LoraArgs {
  const float* h;
  int64_t h_stride;
  const T* b;
  int64_t slot_stride;
  const int32_t* adapters;
  int num_slots;
  int rank;
  int block_ends[kMaxLoraBlocks];
};

// Returns whether kernels can read b and h in pieces of 16 bytes.
inline bool has_packed_lora(const TensorView& h, const TensorView& b, const ir::Attrs& attrs) {
  const auto num_blocks = std::ssize(lora_block_ends(attrs, b.shape[1]));
  return num_blocks <= kMaxLoraBlocks && b.shape[2] * size_of(b.dtype) % 16 == 0 && is_aligned(b) &&
         is_aligned(h) && b.shape[2] % 4 == 0;
}

template <typename T>
LoraArgs<T> lora_args(const TensorView& h, const TensorView& b, const TensorView& adapters,
                      const ir::Attrs& attrs) {
  const std::vector<int64_t> ends = lora_block_ends(attrs, b.shape[1]);
  if (std::ssize(ends) > kMaxLoraBlocks) {
    fail(ErrorKind::kCompile, "a product with adapters merged of {} parts, and kernels take {}",
         ends.size(), kMaxLoraBlocks);
  }
  LoraArgs<T> args{};
  args.h = h.as<const float>();
  args.h_stride = h.row_stride;
  args.b = b.as<const T>();
  args.slot_stride = b.row_stride;
  args.adapters = adapters.as<const int32_t>();
  args.num_slots = static_cast<int>(b.shape[0]);
  args.rank = static_cast<int>(b.shape[2]);
  std::ranges::fill(args.block_ends, static_cast<int>(b.shape[1]));
  std::ranges::copy(ends, args.block_ends);
  return args;
}

#ifdef __CUDACC__

// Reads the slot at `address` from memory. Before wait_for_inputs() it may still be the slot of
// another step. Then it is only a guess: good for fetching data ahead, but it must be read again.
__device__ __forceinline__ int load_slot(const int32_t* address) {
  int slot;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(slot) : "l"(address) : "memory");
  return slot;
}
// Reads the slot of a row as a guess. Returns -1 if the value cannot be a slot.
__device__ __forceinline__ int guess_slot(const int32_t* address, int num_slots) {
  const int slot = load_slot(address);
  return slot < num_slots ? max(slot, -1) : -1;
}

// Returns the index of the merged product to which an output belongs.
template <typename T>
__device__ __forceinline__ int lora_block_of(const LoraArgs<T>& args, int output) {
  int block = 0;
  while (block + 1 < kMaxLoraBlocks && output >= args.block_ends[block])
    ++block;
  return block;
}
template <typename T>
const __device__ __forceinline__ T* lora_row(const LoraArgs<T>& args, int slot, int output) {
  return args.b + slot * args.slot_stride + static_cast<int64_t>(output) * args.rank;
}
// Returns the part of a row's h that belongs to an output's block.
template <typename T>
__device__ __forceinline__ const float* lora_h(const LoraArgs<T>& args, int row, int output) {
  return args.h + row * args.h_stride + lora_block_of(args, output) * args.rank;
}

// Adds the products of a pack of b with as many numbers of h to `sum`, one after the other.
template <typename T>
__device__ __forceinline__ void add_lora_pack(const Pack<T>& pack, const float* h, float& sum) {
  constexpr int kSize = Pack<T>::kSize;
  float weights[kSize];
  unpack(pack, weights);
#pragma unroll
  for (int i = 0; i < kSize; i += 4) {
    const float4 values = *reinterpret_cast<const float4*>(h + i);
    sum = __fmaf_rn(values.x, weights[i], sum);
    sum = __fmaf_rn(values.y, weights[i + 1], sum);
    sum = __fmaf_rn(values.z, weights[i + 2], sum);
    sum = __fmaf_rn(values.w, weights[i + 3], sum);
  }
}
// Returns the sum that the adapter in `slot` adds to an output of a row.
template <typename T>
__device__ __forceinline__ float lora_sum(const LoraArgs<T>& args, int slot, int row, int output) {
  const T* b = lora_row(args, slot, output);
  const float* h = lora_h(args, row, output);
  float sum = 0;
#pragma unroll 2
  for (int k = 0; k < args.rank; k += Pack<T>::kSize)
    add_lora_pack<T>(load_pack(b + k), h + k, sum);
  return sum;
}

// Fetches the cache line at an address into the L2 cache.
__device__ __forceinline__ void prefetch_to_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

#endif  // __CUDACC__

}  // namespace encore::cuda
