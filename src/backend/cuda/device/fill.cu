// Writes patterns and random numbers: no op's kernel, but what tests, padding and synthetic weights
// need.
#include <algorithm>

#include "backend/cuda/device/stream.h"
#include "backend/cuda/fp8.h"
#include "backend/random.h"

namespace encore::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 2048;  // then each thread takes several elements

__global__ void fill_kernel(uint32_t* data, uint32_t pattern, int64_t count) {
  begin_kernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    data[i] = pattern;
  }
}

// Element i is number i % 4 of random block i / 4.
template <typename T>
__global__ void fill_random_kernel(T* data, int64_t count, uint64_t seed, float stddev) {
  begin_kernel();
  const int64_t num_blocks = (count + 3) / 4;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t block = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       block < num_blocks; block += step) {
    const random::NormalBlock normal = random::fill_block(seed, static_cast<uint64_t>(block));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t element = 4 * block + i;
      if (element < count) data[element] = from_float<T>(normal.number[i] * stddev);
    }
  }
}

Grid grid_for(int64_t items) {
  return {.blocks = static_cast<unsigned>(std::min(div_up(items, kThreads), kMaxBlocks)),
          .threads = kThreads};
}

}  // namespace

void launch_fill(Stream& stream, void* device, uint32_t pattern, int64_t bytes) {
  launch(stream, grid_for(bytes / 4), fill_kernel, static_cast<uint32_t*>(device), pattern,
         bytes / 4);
}

void launch_fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev) {
  const int64_t count = tensor.shape.num_elements();
  visit_stored(tensor.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(stream, grid_for(div_up(count, 4)), fill_random_kernel<T>, tensor.as<T>(), count, seed,
           stddev);
  });
}

}  // namespace encore::cuda
