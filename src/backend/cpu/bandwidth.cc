// How fast the CPU device reads memory: all its threads add up one large buffer.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "backend/cpu/device.h"
#include "backend/cpu/memory.h"

namespace encore::cpu {
namespace {

constexpr int64_t kBufferBytes = int64_t{1} << 30;
constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int kRepeats = 5;

uint64_t sum(const uint64_t* words, int64_t count) {
  uint64_t total = 0;
  for (int64_t i = 0; i < count; ++i)
    total += words[i];
  return total;
}

}  // namespace

double CpuDevice::read_bandwidth() {
  const int64_t wanted = std::min(kBufferBytes, host_memory().free_bytes / 4);
  const int64_t pieces = std::max<int64_t>(1, wanted / kPieceBytes);
  const Memory buffer = allocate(pieces * kPieceBytes);
  pool_.parallel_for(pieces, pool_.grain(pieces), [&](int64_t first, int64_t last) {
    std::memset(buffer.data() + first * kPieceBytes, 1, (last - first) * kPieceBytes);
  });
  double best_seconds = 0;
  std::atomic<uint64_t> total = 0;  // keeps the reads
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    pool_.parallel_for(pieces, pool_.grain(pieces), [&](int64_t first, int64_t last) {
      const auto* words = reinterpret_cast<const uint64_t*>(buffer.data() + first * kPieceBytes);
      total += sum(words, (last - first) * kPieceBytes / static_cast<int64_t>(sizeof(uint64_t)));
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best_seconds = i == 0 ? elapsed.count() : std::min(best_seconds, elapsed.count());
  }
  ENCORE_CHECK(total != 0);
  return static_cast<double>(pieces * kPieceBytes) / best_seconds;
}

}  // namespace encore::cpu
