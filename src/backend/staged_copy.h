// Copies between ordinary host memory and a device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/cpu/pool.h"
#include "backend/device.h"

namespace encore {

// Allocates ordinary host memory, for sizes that should not be pinned. Errors: kMemory with the
// figures, also when the machine clearly has too little free memory to back it.
Memory allocate_pageable(int64_t bytes);

// Copies through two pinned buffers: the host fills or empties one buffer, with several threads,
// while the device copies the other. Small copies share a buffer. Buffers are pinned at first use,
// at first only a small one, or by pin(). Threads: one calls it. Capture: no. Errors: kMemory where
// a buffer cannot be pinned.
class StagedCopy {
 public:
  // A function that writes bytes [first, first + bytes) of the data to be copied to `to`. `first`
  // is a multiple of 64. Several threads call it at once, for different bytes. It does not throw.
  using Write = std::function<void(std::byte* to, int64_t first, int64_t bytes)>;

  // `most_threads` is the most threads that fill or empty a buffer together.
  explicit StagedCopy(Device& device, int most_threads = 8);

  // Pins both buffers now. Pinning takes the driver half a millisecond a megabyte, during which
  // launches on a GPU wait. So code that copies while steps run calls this first.
  void pin();
  // Copies `bytes` bytes to the device memory `device`. The bytes are the ones that `write` makes,
  // or that lie at `host`. `write` is called before this returns. The device has the bytes after
  // finish().
  void to_device(void* device, int64_t bytes, const Write& write);
  void to_device(void* device, const void* host, int64_t bytes);
  // Copies bytes from the device to `host`, which has them after finish().
  void to_host(void* host, const void* device, int64_t bytes);
  // Waits for all copies, and for all other work on the stream.
  void finish();

  [[nodiscard]] Stream& stream() { return *stream_; }

 private:
  struct Arrival {  // bytes in a buffer that are to be copied elsewhere on the host
    void* host;
    const std::byte* staged;
    int64_t bytes;
  };
  struct Buffer {
    Memory memory;
    int64_t used = 0;
    std::vector<Arrival> arrivals;
    std::unique_ptr<Event> copied;
  };

  // Returns room in a pinned buffer that the device no longer uses: `bytes` bytes, or fewer where
  // the buffer has less room.
  std::span<std::byte> take(int64_t bytes);
  void empty(Buffer& buffer);

  Device& device_;
  cpu::Pool threads_;
  std::unique_ptr<Stream> stream_;
  Buffer buffers_[2];
  int current_ = 0;
};

}  // namespace encore
