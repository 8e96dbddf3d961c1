#include "backend/cpu/memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <unistd.h>

#include <sys/mman.h>

#include "backend/cpu/stream.h"
#include "backend/fault.h"
#include "base/rounding.h"

namespace encore::cpu {
namespace {

constexpr int64_t kAlignment = 64;
// Allocations of at least kLarge bytes lie on huge pages where the system has them. Weights are
// read front to back at each step, and address translation with small pages would cost a fifth of
// the bandwidth at which they are read.
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kLarge = 2 * kHugePage;

// Returns the number that a control group's file holds, or nothing when there is no file or it says
// "max" (no limit).
std::optional<int64_t> read_number(const char* path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

[[noreturn]] void fail_out_of_memory(const char* what, int64_t bytes) {
  const HostMemory memory = host_memory();
  fail(ErrorKind::kMemory, "{} {:.1f} MB of host memory: {:.1f} MB of {:.1f} MB are free", what,
       static_cast<double>(bytes) / 1e6, static_cast<double>(memory.free_bytes) / 1e6,
       static_cast<double>(memory.total_bytes) / 1e6);
}

// Returns whether there is clearly less memory than `bytes`. The system grants memory that it does
// not have, and kills the process on first touch, so such requests are refused in advance.
bool is_plainly_too_much(int64_t bytes) {
  constexpr int64_t kWorthAsking = int64_t{64} << 20;
  return bytes > kWorthAsking && bytes > host_memory().free_bytes;
}

class Range final : public AddressRange {
 public:
  explicit Range(int64_t bytes)
      : granularity_(sysconf(_SC_PAGESIZE)),
        bytes_(std::max(granularity_, round_up(bytes, granularity_))),
        alignment_(bytes_ >= kLarge ? kHugePage : granularity_) {
    mapping_ = mmap(nullptr, mapping_bytes(), PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping_ == MAP_FAILED) fail_out_of_memory("cannot reserve addresses for", bytes_);
    const auto address = reinterpret_cast<intptr_t>(mapping_);
    data_ = static_cast<std::byte*>(mapping_) + (round_up(address, alignment_) - address);
    madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
  }
  ~Range() override { munmap(mapping_, mapping_bytes()); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  [[nodiscard]] std::byte* data() const override { return data_; }
  [[nodiscard]] int64_t bytes() const override { return bytes_; }
  [[nodiscard]] int64_t granularity() const override { return granularity_; }
  [[nodiscard]] int64_t mapped_bytes() const override { return mapped_bytes_; }

  void map(int64_t bytes) override {
    refuse_while_recording("maps memory");
    fault::checkpoint("map");
    const int64_t wanted = round_up(bytes, granularity_);
    if (wanted > bytes_) {
      fail(ErrorKind::kMemory, "cannot map {} bytes: the range has {} bytes of addresses", wanted,
           bytes_);
    }
    if (wanted <= mapped_bytes_) return;
    const int64_t more = wanted - mapped_bytes_;
    if (is_plainly_too_much(more) ||
        mprotect(data() + mapped_bytes_, static_cast<size_t>(more), PROT_READ | PROT_WRITE) != 0) {
      fail_out_of_memory("cannot map", more);
    }
    mapped_bytes_ = wanted;
  }

  void unmap() override {
    refuse_while_recording("unmaps memory");
    if (mapped_bytes_ == 0) return;
    // Puts a fresh mapping in place of the old one: its memory is released, and its addresses stay
    // reserved.
    void* fresh = mmap(data_, static_cast<size_t>(mapped_bytes_), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (fresh == MAP_FAILED) fail_out_of_memory("cannot unmap", mapped_bytes_);
    // The advice to use huge pages belonged to the old mapping, so the fresh one gets it again.
    madvise(data_, static_cast<size_t>(mapped_bytes_), MADV_HUGEPAGE);
    mapped_bytes_ = 0;
  }

 private:
  // Returns the size of the mapping, with room for alignment.
  [[nodiscard]] size_t mapping_bytes() const {
    return static_cast<size_t>(bytes_ + alignment_ - granularity_);
  }

  int64_t granularity_;
  int64_t bytes_;
  int64_t alignment_;
  int64_t mapped_bytes_ = 0;
  void* mapping_ = nullptr;
  std::byte* data_ = nullptr;
};

}  // namespace

HostMemory host_memory() {
  HostMemory memory;
  memory.total_bytes = sysconf(_SC_PHYS_PAGES) * int64_t{sysconf(_SC_PAGESIZE)};
  std::ifstream info("/proc/meminfo");
  for (std::string key, unit; info >> key;) {
    int64_t kilobytes = 0;
    if (!(info >> kilobytes)) break;
    if (key == "MemAvailable:") memory.free_bytes = kilobytes * 1024;
    std::getline(info, unit);
  }
  if (const auto limit = read_number("/sys/fs/cgroup/memory.max")) {
    const int64_t used = read_number("/sys/fs/cgroup/memory.current").value_or(0);
    memory.total_bytes = std::min(memory.total_bytes, *limit);
    memory.free_bytes = std::min(memory.free_bytes, std::max<int64_t>(0, *limit - used));
  }
  return memory;
}

Memory allocate(int64_t bytes) {
  if (bytes < 0) fail(ErrorKind::kMemory, "cannot allocate {} bytes", bytes);
  void* data = nullptr;
  if (!is_plainly_too_much(bytes)) {
    const int64_t alignment = bytes >= kLarge ? kHugePage : kAlignment;
    const auto rounded = static_cast<size_t>(round_up(std::max(bytes, alignment), alignment));
    data = std::aligned_alloc(static_cast<size_t>(alignment), rounded);
    if (data != nullptr && bytes >= kLarge) madvise(data, rounded, MADV_HUGEPAGE);
  }
  if (data == nullptr) fail_out_of_memory("cannot allocate", bytes);
  return {data, bytes, [](void* pointer) { std::free(pointer); }};
}

std::unique_ptr<AddressRange> reserve(int64_t bytes) {
  if (bytes < 0) fail(ErrorKind::kMemory, "cannot reserve {} bytes", bytes);
  return std::make_unique<Range>(bytes);
}

}  // namespace encore::cpu
