#include "backend/staged_copy.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/memory.h"
#include "backend/fault.h"
#include "base/rounding.h"

namespace encore {
namespace {

// The size of a pinned buffer. The device copies it in a fraction of a millisecond, which is long
// enough to hide the fixed cost of a copy. Pinning takes the driver half a millisecond a megabyte,
// so two buffers of this size are pinned quickly. Small copies use one smaller buffer.
constexpr int64_t kBufferBytes = int64_t{8} << 20;
constexpr int64_t kFirstBufferBytes = int64_t{1} << 20;
constexpr int64_t kStagedAlignment = 64;
static_assert(kBufferBytes % kStagedAlignment == 0 && kFirstBufferBytes % kStagedAlignment == 0);

// The bytes that a thread copies at a time, which are enough to be worth waking the thread. One
// thread copies 10 GB a second out of the page cache, and a device can take five times as much.
constexpr int64_t kGrain = int64_t{256} << 10;
static_assert(kGrain % kStagedAlignment == 0);

}  // namespace

Memory allocate_pageable(int64_t bytes) {
  fault::checkpoint("allocate_pageable");
  return cpu::allocate(bytes);
}

StagedCopy::StagedCopy(Device& device, int most_threads)
    : device_(device),
      threads_(std::min(most_threads, cpu::num_usable_processors())),
      stream_(device.create_stream()) {
  for (Buffer& buffer : buffers_)
    buffer.copied = device.create_event();
}

void StagedCopy::pin() {
  for (Buffer& buffer : buffers_) {
    ENCORE_CHECK(buffer.used == 0, "buffers are pinned before they are used");
    buffer.memory = device_.allocate_host(kBufferBytes);
  }
}

void StagedCopy::empty(Buffer& buffer) {
  for (const Arrival& arrival : buffer.arrivals) {
    threads_.parallel_for(arrival.bytes, kGrain, [&](int64_t first, int64_t last) {
      std::memcpy(static_cast<std::byte*>(arrival.host) + first, arrival.staged + first,
                  static_cast<size_t>(last - first));
    });
  }
  buffer.arrivals.clear();
  buffer.used = 0;
}

std::span<std::byte> StagedCopy::take(int64_t bytes) {
  if (buffers_[current_].used == buffers_[current_].memory.bytes()) {  // full, or not pinned yet
    const bool is_first = buffers_[current_].used == 0;
    stream_->record(*buffers_[current_].copied);
    current_ = 1 - current_;
    Buffer& next = buffers_[current_];
    if (next.used > 0) {
      next.copied->synchronize();
      empty(next);
    }
    const int64_t wanted = is_first ? kFirstBufferBytes : kBufferBytes;
    if (next.memory.bytes() < wanted) next.memory = device_.allocate_host(wanted);
  }
  Buffer& buffer = buffers_[current_];
  const int64_t taken = std::min(bytes, buffer.memory.bytes() - buffer.used);
  std::byte* room = buffer.memory.data() + buffer.used;
  buffer.used += round_up(taken, kStagedAlignment);
  return {room, static_cast<size_t>(taken)};
}

void StagedCopy::to_device(void* device, int64_t bytes, const Write& write) {
  for (int64_t done = 0; done < bytes;) {
    const std::span<std::byte> room = take(bytes - done);
    const auto count = static_cast<int64_t>(room.size());
    threads_.parallel_for(count, kGrain, [&](int64_t first, int64_t last) {
      write(room.data() + first, done + first, last - first);
    });
    stream_->copy_to_device(static_cast<std::byte*>(device) + done, room.data(), count);
    done += count;
  }
}

void StagedCopy::to_device(void* device, const void* host, int64_t bytes) {
  to_device(device, bytes, [&](std::byte* to, int64_t first, int64_t count) {
    std::memcpy(to, static_cast<const std::byte*>(host) + first, static_cast<size_t>(count));
  });
}

void StagedCopy::to_host(void* host, const void* device, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    const std::span<std::byte> room = take(bytes - done);
    const auto count = static_cast<int64_t>(room.size());
    stream_->copy_to_host(room.data(), static_cast<const std::byte*>(device) + done, count);
    buffers_[current_].arrivals.push_back(
        {static_cast<std::byte*>(host) + done, room.data(), count});
    done += count;
  }
}

void StagedCopy::finish() {
  stream_->synchronize();
  for (Buffer& buffer : buffers_)
    empty(buffer);
}

}  // namespace encore
