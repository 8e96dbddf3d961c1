#include "backend/cuda/rows/step_start_test.h"

#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

constexpr int kMostWaits = 20'000;
constexpr unsigned kWaitNanoseconds = 1'000;

__global__ void write_late_kernel(ReadAhead words) {
  allow_next_kernel();
  const volatile int* const began = words.began;
  for (int i = 0; i < kMostWaits && *began == 0; ++i)
    __nanosleep(kWaitNanoseconds);
  *words.value = 1.0F;
}

__global__ void read_ahead_kernel(ReadAhead words) {
  *words.seen = __ldcg(words.value);
  __threadfence();
  atomicExch(words.began, 1);
  wait_for_inputs();
}

}  // namespace

void write_late(Stream& stream, const ReadAhead& words) {
  launch(stream, {.blocks = 1, .threads = 1, .overlap = false}, write_late_kernel, words);
}

void read_ahead(Stream& stream, const ReadAhead& words) {
  launch(stream, {.blocks = 1, .threads = 1}, read_ahead_kernel, words);
}

}  // namespace encore::cuda
