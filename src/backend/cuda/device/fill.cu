// Kernels that fill memory with patterns and random numbers. No op uses them; tests, padding and
// synthetic weights do.
#include <algorithm>

#include "backend/cuda/device/stream.h"
#include "backend/cuda/fp8.h"
#include "backend/random.h"

namespace encore::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 2048;  // for more elements, each thread takes several

__global__ void fill_kernel(uint32_t* data, uint32_t pattern, int64_t count) {
  begin_kernel();
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    data[i] = pattern;
  }
}

// The part of a matrix that is filled with random numbers.
struct MatrixPart {
  int64_t rows;
  int64_t columns;
  MatrixPlace at;
};

// A thread fills four neighbouring elements of a row with the four numbers that one call of
// random::fill_block() gives. The first and the last four of a row may reach beyond the part to
// fill; elements outside of it are not written.
template <typename T>
__global__ void fill_random_kernel(T* data, MatrixPart part, uint64_t seed, float stddev) {
  begin_kernel();
  const int64_t first_block = part.at.column / 4;
  const int64_t row_blocks = (part.at.column + part.columns + 3) / 4 - first_block;
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < part.rows * row_blocks; i += step) {
    const int64_t row = i / row_blocks;
    const int64_t block = first_block + i % row_blocks;
    const random::NormalBlock normal =
        random::fill_block(seed, random::matrix_block(part.at.row + row, block));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t column = 4 * block + j - part.at.column;
      if (column >= 0 && column < part.columns)
        data[row * part.columns + column] = from_float<T>(normal.number[j] * stddev);
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

void launch_fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev,
                        const MatrixPlace& at) {
  const Shape& shape = tensor.shape;
  const int64_t columns = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  const MatrixPart part{shape.num_elements() / std::max<int64_t>(1, columns), columns, at};
  visit_stored(tensor.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(stream, grid_for(part.rows * (div_up(columns, 4) + 1)), fill_random_kernel<T>,
           tensor.as<T>(), part, seed, stddev);
  });
}

}  // namespace encore::cuda
