// Reads mapped files into memory before their bytes are used, because page faults that follow each
// other leave a disk idle most of the time.
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

// Reads ahead of a reader of mapped files. Threads: one thread calls; threads of the object read.
// Lifetime: the mappings must outlive it.
class ReadAhead {
 public:
  using Bytes = std::span<const std::byte>;
  // The distance by which it reads ahead of the bytes that were used. Units: bytes.
  static constexpr int64_t kWindow = int64_t{256} << 20;
  static constexpr int64_t kBlock = int64_t{4} << 20;

  // Brings bytes of a mapped file into memory. It reports no errors; the code that uses the bytes
  // finds them.
  static void populate(Bytes bytes);

  // Starts to read. `ranges` are in the order in which they will be used.
  explicit ReadAhead(const std::vector<Bytes>& ranges, std::function<void(Bytes)> read = populate);
  // Stops. Blocks whose reading has not begun are left out.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Tells that the first `bytes` bytes of the ranges, counted together, have been used.
  void used(int64_t bytes);

 private:
  struct Block {
    Bytes bytes;
    int64_t first = 0;  // bytes in front of the block in all ranges together
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
