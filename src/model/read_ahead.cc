#include "model/read_ahead.h"

#include <algorithm>
#include <unistd.h>

#include <sys/mman.h>

namespace encore::model {
namespace {

constexpr int kThreads = 4;  // number of blocks that are read at a time

}  // namespace

void ReadAhead::populate(Bytes bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size());
#ifdef MADV_POPULATE_READ
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a page begins before the bytes do
  (void)::madvise(reinterpret_cast<void*>(first), end - first, MADV_POPULATE_READ);
#else
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  (void)::madvise(reinterpret_cast<void*>(first), end - first, MADV_WILLNEED);
#endif
}

ReadAhead::ReadAhead(const std::vector<Bytes>& ranges, std::function<void(Bytes)> read)
    : read_(std::move(read)) {
  int64_t first = 0;
  for (Bytes range : ranges) {
    while (!range.empty()) {
      const size_t count = std::min<size_t>(range.size(), kBlock);
      blocks_.push_back({range.first(count), first});
      range = range.subspan(count);
      first += static_cast<int64_t>(count);
    }
  }
  const auto num_threads = std::min<size_t>(blocks_.size(), kThreads);
  for (size_t i = 0; i < num_threads; ++i)
    threads_.emplace_back([this] { run(); });
}

ReadAhead::~ReadAhead() {
  const std::lock_guard lock(mutex_);
  is_over_ = true;
  changed_.notify_all();
}

void ReadAhead::used(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ = bytes;
  changed_.notify_all();
}

void ReadAhead::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] {
      return is_over_ || next_ == blocks_.size() || blocks_[next_].first < used_ + kWindow;
    });
    if (is_over_ || next_ == blocks_.size()) return;
    const Block block = blocks_[next_++];
    lock.unlock();
    read_(block.bytes);
    lock.lock();
  }
}

}  // namespace encore::model
