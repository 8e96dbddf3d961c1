#include "model/read_ahead.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace encore::model {
namespace {

// Stands for a disk. Its addresses are never dereferenced.
class Disk {
 public:
  std::function<void(ReadAhead::Bytes)> read() {
    return [this](ReadAhead::Bytes bytes) {
      const std::lock_guard lock(mutex_);
      reads_.emplace_back(bytes.data() - base(), bytes.size());
      bytes_ += static_cast<int64_t>(bytes.size());
      changed_.notify_all();
    };
  }
  static ReadAhead::Bytes range(int64_t first, int64_t count) {
    return {base() + first, static_cast<size_t>(count)};
  }
  void wait_for(int64_t bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return bytes_ >= bytes; });
  }
  int64_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }
  std::vector<std::pair<int64_t, int64_t>> sorted_reads() {
    const std::lock_guard lock(mutex_);
    std::sort(reads_.begin(), reads_.end());
    return reads_;
  }

 private:
  // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing is there
  static const std::byte* base() { return reinterpret_cast<const std::byte*>(uintptr_t{1} << 40); }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<int64_t, int64_t>> reads_;
  int64_t bytes_ = 0;
};

TEST(ReadAhead, ReadsEveryByteOnce) {
  Disk disk;
  constexpr int64_t kLong = 3 * ReadAhead::kBlock + 5;
  ReadAhead ahead({disk.range(100, 7), disk.range(1000, kLong), {}}, disk.read());
  disk.wait_for(kLong + 7);
  const auto reads = disk.sorted_reads();
  ASSERT_EQ(reads.size(), 5U);
  EXPECT_EQ(reads[0], (std::pair<int64_t, int64_t>{100, 7}));
  int64_t next = 1000;
  for (size_t i = 1; i < reads.size(); ++i) {
    EXPECT_EQ(reads[i].first, next);
    next += reads[i].second;
  }
  EXPECT_EQ(next, 1000 + kLong);
}

TEST(ReadAhead, IsAheadByNoMoreThanItsWindow) {
  Disk disk;
  constexpr int64_t kAll = 3 * ReadAhead::kWindow;
  ReadAhead ahead({disk.range(0, kAll)}, disk.read());
  disk.wait_for(ReadAhead::kWindow);
  EXPECT_LE(disk.bytes(), ReadAhead::kWindow);
  ahead.used(ReadAhead::kWindow / 2);
  disk.wait_for(ReadAhead::kWindow * 3 / 2);
  EXPECT_LE(disk.bytes(), ReadAhead::kWindow * 3 / 2);
  ahead.used(kAll);
  disk.wait_for(kAll);
}

TEST(ReadAhead, EndsWithoutReadingTheRest) {
  Disk disk;
  {
    ReadAhead ahead({disk.range(0, 3 * ReadAhead::kWindow)}, disk.read());
    disk.wait_for(ReadAhead::kBlock);
  }
  EXPECT_LE(disk.bytes(), ReadAhead::kWindow);
}

}  // namespace
}  // namespace encore::model
