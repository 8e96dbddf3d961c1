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

void CpuDevice::fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev) {
  ENCORE_CHECK(tensor.is_dense() && (is_float(tensor.dtype) || tensor.dtype == DType::kFP8),
               "fill_random needs a dense float tensor");
  constexpr int64_t kBlocks = 256;  // of four numbers
  const auto run = [this, tensor, seed, stddev] {
    const int64_t count = tensor.shape.num_elements();
    const int64_t pieces = div_up(count, 4 * kBlocks);
    pool_.parallel_for(pieces, 16, [&](int64_t first, int64_t last) {
      std::array<float, 4 * kBlocks> numbers;
      for (int64_t piece = first; piece < last; ++piece) {
        simd().normals(seed, static_cast<uint64_t>(piece * kBlocks), kBlocks, numbers.data());
        for (float& number : numbers)
          number *= stddev;
        const int64_t offset = piece * 4 * kBlocks;
        simd().store(numbers.data(), std::min(4 * kBlocks, count - offset), tensor.dtype,
                     tensor.as<std::byte>() + offset * size_of(tensor.dtype));
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
