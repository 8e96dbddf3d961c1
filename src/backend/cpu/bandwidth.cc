// Measures how fast the CPU device reads memory (all its threads add up one large buffer), and how
// fast it multiplies.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "backend/cpu/device.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/simd.h"

namespace encore::cpu {
namespace {

constexpr int64_t kBufferBytes = int64_t{1} << 30;
// Bytes per thread: several times a core's share of the caches.
constexpr int64_t kThreadBytes = int64_t{1} << 27;
constexpr int64_t kPieceBytes = int64_t{1} << 16;
constexpr int64_t kRepeats = 5;
constexpr int64_t kMostRepeats = 50;

uint64_t sum(const uint64_t* words, int64_t count) {
  uint64_t total = 0;
  for (int64_t i = 0; i < count; ++i)
    total += words[i];
  return total;
}

}  // namespace

double CpuDevice::read_bandwidth() {
  return read_bandwidth(pool_.num_threads() * kThreadBytes);
}

double CpuDevice::read_bandwidth(int64_t bytes) {
  const int64_t wanted =
      std::min({std::max(bytes, kPieceBytes), kBufferBytes, host_memory().free_bytes / 4});
  const int64_t pieces = wanted / kPieceBytes;
  const Memory buffer = allocate(pieces * kPieceBytes);
  pool_.parallel_for(pieces, pool_.grain(pieces), [&](int64_t first, int64_t last) {
    std::memset(buffer.data() + first * kPieceBytes, 1, (last - first) * kPieceBytes);
  });
  double best_seconds = 0;
  std::atomic<uint64_t> total = 0;  // keeps the compiler from removing the reads
  const int64_t repeats = std::clamp<int64_t>(kBufferBytes / wanted, kRepeats, kMostRepeats);
  for (int64_t i = 0; i < repeats; ++i) {
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

double CpuDevice::flops_per_s() {
  // The 8 rows of x and the 8 rows of w, of 768 floats each, take 48 KiB together, which the caches
  // of a core hold.
  constexpr int64_t kRows = 8;
  constexpr int64_t kColumns = 768;
  constexpr int kProducts = 400;
  constexpr double kFlops = 2.0 * kRows * kRows * kColumns;
  const std::vector<float> numbers(2 * kRows * kColumns, 1.0F);
  const int64_t threads = pool_.num_threads();
  double best_seconds = 0;
  for (int64_t i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    pool_.parallel_for(threads, 1, [&](int64_t /*first*/, int64_t /*last*/) {
      std::array<float, kRows * kRows> products{};
      for (int product = 0; product < kProducts; ++product) {
        simd().dot_products({.x = numbers.data(),
                             .x_stride = kColumns,
                             .num_x = kRows,
                             .w = numbers.data() + kRows * kColumns,
                             .w_dtype = DType::kF32,
                             .w_stride = kColumns,
                             .num_w = kRows,
                             .n = kColumns,
                             .y = products.data(),
                             .y_stride = kRows});
      }
    });
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best_seconds = i == 0 ? elapsed.count() : std::min(best_seconds, elapsed.count());
  }
  return static_cast<double>(threads) * kProducts * kFlops / best_seconds;
}

}  // namespace encore::cpu
