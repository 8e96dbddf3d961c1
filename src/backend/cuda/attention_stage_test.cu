#include "backend/cuda/attention_stage_test.h"

#include "backend/cuda/attention_stage.cuh"
#include "backend/cuda/memory_order.cuh"

namespace encore::cuda {
namespace {

using decode::AttentionStageArgs;

constexpr int kSenders = 64;  // threads behind attention's
constexpr int kBarrier = 5;

template <typename T, int C>
__global__ void __launch_bounds__(decode::kThreads + kSenders, 1)
    send_and_attend(const __grid_constant__ AttentionStageArgs<T> args, uint32_t* x_words,
                    int num_columns, const uint32_t* launches) {
  extern __shared__ __align__(kTileAlignment) uint8_t shared[];
  begin_kernel();
  const uint32_t tag = gemv::tag_of(*launches);
  const int sender = static_cast<int>(threadIdx.x) - decode::kThreads;
  if (sender < 0) {
    decode::attend_stage<C, kBarrier>(args, tag, shared, [] {});
    return;
  }
  // The first block's attention asks before the last block's senders start.
  const auto num_blocks = static_cast<int>(gridDim.x);
  const int first = (num_blocks - 1 - static_cast<int>(blockIdx.x)) * kSenders + sender;
  for (int column = first; column < num_columns; column += num_blocks * kSenders)
    st_relaxed<Scope::kDevice>(x_words + column, gemv::make_word(args.x[column], tag));
}

template <typename T, int C>
BoundLaunch bind_of(const KernelArgs& args, const StageTestMemory& memory, int num_blocks) {
  auto stage = decode::attention_stage_args<T>(args, num_blocks);
  stage.x = memory.x.as<const T>();
  stage.x_words = memory.x_words;
  stage.out_words = memory.out_words;
  stage.parts = memory.parts;
  stage.stores_out = true;
  const auto sizes = decode::attention_stage_sizes(args, num_blocks);
  const auto kernel = send_and_attend<T, C>;
  allow_shared_memory(kernel, sizes.shared_bytes);
  const Grid grid{.blocks = static_cast<unsigned>(num_blocks),
                  .threads = decode::kThreads + kSenders,
                  .shared_bytes = static_cast<size_t>(sizes.shared_bytes)};
  const auto num_columns = static_cast<int>(memory.x.row_elements());
  return [=](Stream& stream, const StepShape& /*step*/) {
    launch(stream, grid, kernel, stage, memory.x_words, num_columns, memory.launches);
  };
}

__global__ void make_evict_first_kernel(uint64_t* made) {
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(*made));
}

__global__ void count_wrong_quotients_kernel(uint32_t* wrong) {
  const auto number = static_cast<int>(blockIdx.x);
  const int divisor = number < 2048 ? number + 1 : (number - 2048) * 8191 + 2049;
  uint32_t count = 0;
  for (int i = threadIdx.x; i <= decode::kMostDivided; i += static_cast<int>(blockDim.x))
    count += decode::divide(i, divisor) == i / divisor ? 0 : 1;
  if (count > 0) atomicAdd(wrong, count);
}

}  // namespace

void count_wrong_quotients(Stream& stream, uint32_t* wrong) {
  constexpr unsigned kDivisors = 2048 + 255;
  launch(stream, {.blocks = kDivisors, .threads = 256, .overlap = false},
         count_wrong_quotients_kernel, wrong);
}

uint64_t evict_first() {
  return kEvictFirst;
}

void make_evict_first(Stream& stream, uint64_t* made) {
  launch(stream, Grid{.blocks = 1, .threads = 1}, make_evict_first_kernel, made);
}

StageTestSizes stage_sizes(const KernelArgs& args, int num_blocks) {
  const auto sizes = decode::attention_stage_sizes(args, num_blocks);
  return {sizes.num_blocks, sizes.num_parts};
}

bool can_be_stage(const KernelArgs& args, const TensorView& x) {
  return decode::accepts_attention_stage(fused_attention_decode_kernel(), args) &&
         decode::are_parts_of(x, args);
}

BoundLaunch bind_stage(const KernelArgs& args, const StageTestMemory& memory, int num_blocks) {
  return args.inputs[6].shape[3] == 64 ? bind_of<__nv_bfloat16, 64>(args, memory, num_blocks)
                                       : bind_of<__nv_bfloat16, 128>(args, memory, num_blocks);
}

}  // namespace encore::cuda
