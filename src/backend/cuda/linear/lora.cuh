// Functions with which kernels of products add the adapters' part (LoRA): the product of h, which
// lora_shrink has computed, with the rows of b.
#pragma once

#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/lora_blocks.h"

namespace encore::cuda {

inline constexpr int kMaxLoraBlocks = 8;  // the largest number of products that one was merged of

// The operands of the adapters' part of a product: b [S, O, rank] of S adapter slots, h [R, N], and
// the adapter slot of each row (-1: the row has no adapter). Units: strides in elements.
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

// Reads the adapter slot of a row from memory at `address`. Before wait_for_inputs(), memory may
// still hold the slots of another step. The value is then only a guess: data may be fetched ahead
// by it, but it must be read again.
__device__ __forceinline__ int load_slot(const int32_t* address) {
  int slot;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(slot) : "l"(address) : "memory");
  return slot;
}
// Reads the adapter slot of a row before wait_for_inputs(), as a guess. Returns -1 if the value
// cannot be an adapter slot.
__device__ __forceinline__ int guess_slot(const int32_t* address, int num_slots) {
  const int slot = load_slot(address);
  return slot < num_slots ? max(slot, -1) : -1;
}

// Returns which of the products that were merged into this one an output belongs to.
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
// Returns the `rank` numbers of a row's h that belong to an output: those of its product among the
// merged ones.
template <typename T>
__device__ __forceinline__ const float* lora_h(const LoraArgs<T>& args, int row, int output) {
  return args.h + row * args.h_stride + lora_block_of(args, output) * args.rank;
}

// Multiplies a pack of b by as many numbers of h, element by element, and adds the products to
// `sum` one after the other.
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
// Returns the sum that the adapter in adapter slot `slot` adds to an output of a row.
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
