// Reads files that are mapped into memory before their bytes are used: page faults, one after the
// other, leave a disk idle most of the time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace encore::model {

// Threads: one calls; some of its own read. Lifetime: the mappings outlive it.
class ReadAhead {
 public:
  using Bytes = std::span<const std::byte>;
  // The distance to which it reads ahead of what was used. Units: bytes.
  static constexpr int64_t kWindow = int64_t{256} << 20;
  static constexpr int64_t kBlock = int64_t{4} << 20;

  // Brings bytes of a mapped file into memory. A file that cannot be read is found out by whoever
  // uses the bytes.
  static void populate(Bytes bytes);

  // `ranges`: in the order in which they will be used.
  explicit ReadAhead(const std::vector<Bytes>& ranges, std::function<void(Bytes)> read = populate);
  // Leaves out ranges that have not begun.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // The first `bytes` of the ranges have been used.
  void used(int64_t bytes);

 private:
  struct Block {
    Bytes bytes;
    int64_t first = 0;  // in the ranges
  };
  void run();

  std::function<void(Bytes)> read_;
  std::vector<Block> blocks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_ = 0;
  int64_t used_ = 0;
  bool is_over_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace encore::model
