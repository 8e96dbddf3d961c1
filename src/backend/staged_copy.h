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

// Ordinary host memory, for more than one wants to pin. Errors: kMemory with the figures, also when
// the machine would plainly not have the memory once it is touched.
Memory allocate_pageable(int64_t bytes);

// Copies through two pinned buffers: the host fills or empties one, with several threads, while the
// device copies the other. Small copies share a buffer. Buffers are pinned when they are needed, the
// first a small one, or by pin(). Threads: one calls. Capture: no. Errors: kMemory where one cannot be
// pinned.
class StagedCopy {
 public:
  // Writes bytes [first, first + bytes) of what is to be copied; `first` is a multiple of 64.
  // Called by several threads at once, for different bytes; does not throw.
  using Write = std::function<void(std::byte* to, int64_t first, int64_t bytes)>;

  // `most_threads`: that fill or empty a buffer.
  explicit StagedCopy(Device& device, int most_threads = 8);

  // Pins both buffers now. The driver takes half a millisecond a megabyte for it, during which a GPU's launches
  // wait, so whoever copies beside steps pins first.
  void pin();
  // `write` is called before this returns, the device has the bytes after finish().
  void to_device(void* device, int64_t bytes, const Write& write);
  void to_device(void* device, const void* host, int64_t bytes);
  // `host` has the bytes after finish().
  void to_host(void* host, const void* device, int64_t bytes);
  // Waits for all copies, and for what else was enqueued on the stream.
  void finish();

  [[nodiscard]] Stream& stream() { return *stream_; }

 private:
  struct Arrival {  // what lies in a buffer and belongs elsewhere on the host
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

  // Room in a buffer that the device is done with, `bytes` of it or what there is.
  std::span<std::byte> take(int64_t bytes);
  void empty(Buffer& buffer);

  Device& device_;
  cpu::Pool threads_;
  std::unique_ptr<Stream> stream_;
  Buffer buffers_[2];
  int current_ = 0;
};

}  // namespace encore
