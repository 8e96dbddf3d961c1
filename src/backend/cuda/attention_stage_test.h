// Kernels for tests of attention: a persistent one of two small stages, and small ones that check
// what it is made of.
#pragma once

#include "backend/device.h"

namespace encore::cuda {

// What such a kernel is bound to besides the launch that its stage stands for.
struct StageTestMemory {
  TensorView x;                        // the row that q, k and v are parts of
  uint32_t* x_words = nullptr;         // as many
  uint32_t* out_words = nullptr;       // of the output
  uint64_t* parts = nullptr;           // stage_sizes().num_parts, zero
  const uint32_t* launches = nullptr;  // launches before this one; the words' tag follows
};

// As attention_stage.cuh has them.
struct StageTestSizes {
  int num_blocks = 0;
  int64_t num_parts = 0;
};
StageTestSizes stage_sizes(const KernelArgs& args, int num_blocks);
bool can_be_stage(const KernelArgs& args, const TensorView& x);

// Sends x as words, a little by each block, and attends, in blocks that have more threads than
// attention uses and must all fit on the device at the same time. bf16.
BoundLaunch bind_stage(const KernelArgs& args, const StageTestMemory& memory, int num_blocks);

// attention_tile.cuh's kEvictFirst, and what should be the same, written to `made` on the device.
uint64_t evict_first();
void make_evict_first(Stream& stream, uint64_t* made);

// Adds to `wrong` how many quotients of attention_work.cuh's divide() are not exact: of all numbers
// up to kMostDivided, by 1 to 2048 and by some larger ones.
void count_wrong_quotients(Stream& stream, uint32_t* wrong);

}  // namespace encore::cuda
