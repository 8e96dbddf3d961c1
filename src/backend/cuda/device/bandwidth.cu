// Measures the rate of reading memory by streaming one large buffer through registers. Every
// benchmark that reads weights is compared with this rate.
#include <algorithm>
#include <memory>

#include "backend/cuda/device/device.h"
#include "backend/cuda/launch.h"

namespace encore::cuda {
namespace {

constexpr int64_t kMaxBufferBytes = int64_t{4} << 30;
constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 4;  // all resident at once
constexpr int kLoadsInFlight = 8;            // loads of 16 bytes that each thread keeps in flight
constexpr int kRepeats = 5;

// Combines all words that it reads, so that the compiler cannot drop a load. It writes the result
// only if that equals `impossible`, a value that never occurs.
__global__ void read_kernel(const uint4* data, int64_t count, uint32_t impossible, uint32_t* out) {
  const int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  uint32_t total = 0;
  int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + (kLoadsInFlight - 1) * threads < count; i += kLoadsInFlight * threads) {
    uint4 loaded[kLoadsInFlight];
#pragma unroll
    for (int k = 0; k < kLoadsInFlight; ++k)
      loaded[k] = __ldcs(data + i + k * threads);
#pragma unroll
    for (int k = 0; k < kLoadsInFlight; ++k) {
      total |= loaded[k].x | loaded[k].y | loaded[k].z | loaded[k].w;
    }
  }
  for (; i < count; i += threads)
    total |= data[i].x | data[i].y | data[i].z | data[i].w;
  if (total == impossible) *out = total;
}

}  // namespace

double CudaDevice::read_bandwidth() {
  const int64_t bytes =
      std::max<int64_t>(1 << 20, std::min(kMaxBufferBytes, info().free_bytes / 8)) / 256 * 256;
  const Memory buffer = allocate(bytes);
  const std::unique_ptr<Stream> stream = create_stream();
  const std::unique_ptr<Event> start = create_event();
  const std::unique_ptr<Event> end = create_event();
  stream->fill(buffer.data(), 0x01010101U, bytes);

  const Grid grid{
      .blocks = static_cast<unsigned>(chip_.num_multiprocessors * kBlocksPerMultiprocessor),
      .threads = kThreads,
      .overlap = false};
  double best_ms = 0;
  for (int i = 0; i <= kRepeats; ++i) {  // the first round only warms up
    stream->record(*start);
    launch(*stream, grid, read_kernel, reinterpret_cast<const uint4*>(buffer.data()),
           bytes / static_cast<int64_t>(sizeof(uint4)), 0xffffffffU,
           reinterpret_cast<uint32_t*>(buffer.data()));
    stream->record(*end);
    stream->synchronize();
    const double ms = end->milliseconds_since(*start);
    if (i > 0) best_ms = best_ms == 0 ? ms : std::min(best_ms, ms);
  }
  return static_cast<double>(bytes) / (best_ms / 1e3);
}

}  // namespace encore::cuda
