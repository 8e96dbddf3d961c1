#include "backend/cpu/device.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

#include "backend/cpu/kernels.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/simd.h"
#include "backend/cpu/stream.h"
#include "backend/fault.h"
#include "backend/random.h"
#include "base/rounding.h"

namespace encore {
namespace cpu {
namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace

CpuDevice::CpuDevice(const CpuOptions& options, Rank rank,
                     std::shared_ptr<Communicator> communicator)
    : options_(options),
      rank_(rank),
      communicator_(std::move(communicator)),
      pool_(options.num_threads > 0 ? options.num_threads : num_usable_processors()),
      kernels_(cpu_kernels()) {}

DeviceInfo CpuDevice::info() const {
  const HostMemory memory = host_memory();
  return {fmt::format("CPU, {}, {} threads", processor_name(), pool_.num_threads()),
          fmt::format("vector instructions: {}", simd().name), memory.total_bytes / rank_.size,
          memory.free_bytes / rank_.size};
}

Memory CpuDevice::allocate(int64_t bytes) {
  refuse_while_recording("allocates memory");
  fault::checkpoint("allocate");
  Memory memory;
  run_traced(&tracer_, TraceKind::kAllocateCall, "", "allocate",
             [&] { memory = cpu::allocate(bytes); });
  return memory;
}

Memory CpuDevice::allocate_host(int64_t bytes) {
  return allocate(bytes);
}

std::unique_ptr<AddressRange> CpuDevice::reserve(int64_t bytes) {
  refuse_while_recording("reserves addresses");
  fault::checkpoint("reserve");
  return cpu::reserve(bytes);
}

std::unique_ptr<Stream> CpuDevice::create_stream() {
  return std::make_unique<CpuStream>(options_.shuffle_seed, &tracer_);
}

std::unique_ptr<Event> CpuDevice::create_event() {
  return std::make_unique<CpuEvent>();
}

std::unique_ptr<Tracer> CpuDevice::create_tracer(TraceDetail detail) {
  return std::make_unique<CpuTracer>(tracer_, detail);
}

void CpuDevice::fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev,
                            const MatrixPlace& at) {
  ENCORE_CHECK(tensor.is_dense() && (is_float(tensor.dtype) || tensor.dtype == DType::kFP8),
               "fill_random needs a dense float tensor");
  const auto run = [this, tensor, seed, stddev, at] {
    constexpr int64_t kBlocks = 256;  // blocks of four numbers that are made at a time
    const Shape& shape = tensor.shape;
    const int64_t columns = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
    if (columns == 0) return;
    const int64_t first_block = at.column / 4;
    const int64_t row_blocks = div_up(at.column + columns, 4) - first_block;
    const int64_t row_pieces = div_up(row_blocks, kBlocks);
    pool_.parallel_for(
        shape.num_elements() / columns * row_pieces, 16, [&](int64_t first, int64_t last) {
          std::array<float, 4 * kBlocks> numbers;
          for (int64_t i = first; i < last; ++i) {
            const int64_t row = i / row_pieces;
            const int64_t block = i % row_pieces * kBlocks;
            const int64_t count = std::min(kBlocks, row_blocks - block);
            simd().normals(seed, random::matrix_block(at.row + row, first_block + block), count,
                           numbers.data());
            for (float& number : numbers)
              number *= stddev;
            // The first block may begin before the part, and the last block may end behind it.
            const int64_t begin = 4 * (first_block + block) - at.column;
            const int64_t own = std::max<int64_t>(0, begin);
            simd().store(numbers.data() + (own - begin), std::min(begin + 4 * count, columns) - own,
                         tensor.dtype,
                         tensor.as<std::byte>() + (row * columns + own) * size_of(tensor.dtype));
          }
        });
  };
  static_cast<CpuStream&>(stream).enqueue_barrier({{"kernel", "fill_random", "fill_random"}, run});
}

}  // namespace cpu

std::unique_ptr<Device> create_cpu_device(const CpuOptions& options) {
  const int size = options.num_ranks;
  if (size <= 1) return std::make_unique<cpu::CpuDevice>(options);
  CpuOptions own = options;
  const int num_threads =
      options.num_threads > 0 ? options.num_threads : cpu::num_usable_processors();
  own.num_threads = std::max(1, num_threads / size);
  const auto communicator = std::make_shared<Communicator>(size, options.rank_timeout);
  auto device = std::make_unique<cpu::CpuDevice>(own, Rank{0, size}, communicator);
  for (int index = 1; index < size; ++index) {
    if (own.shuffle_seed) ++*own.shuffle_seed;
    device->add_peer(std::make_shared<cpu::CpuDevice>(own, Rank{index, size}, communicator));
  }
  return device;
}

}  // namespace encore
