// Defines a pool of threads that run one parallel loop at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace encore::cpu {

// Returns the number of processors on which this process may run. In a container, that is less than
// the machine has.
int num_usable_processors();

// A fixed set of threads, including the thread that calls parallel_for. The set is smaller where
// the system refuses threads. Idle workers spin briefly, then sleep. Threads: any may call
// parallel_for; concurrent calls take turns.
class Pool {
 public:
  explicit Pool(int num_threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  [[nodiscard]] int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(first, last) for pieces of at most `grain` indices that together cover [0, count)
  // once. It is not fixed which thread runs a piece, so results are the same for every number of
  // threads only if one index computes each of them completely. `body` must not throw and must not
  // call parallel_for.
  void parallel_for(int64_t count, int64_t grain,
                    const std::function<void(int64_t first, int64_t last)>& body);

  // Returns a grain for parallel_for that gives every thread about four pieces. The grain is a
  // multiple of `multiple`.
  [[nodiscard]] int64_t grain(int64_t count, int64_t multiple = 1) const;

 private:
  struct Loop {
    const std::function<void(int64_t, int64_t)>* body = nullptr;
    int64_t count = 0;
    int64_t grain = 1;
  };

  void work();
  bool join_loop(uint64_t& seen, Loop& loop);
  void run_pieces(const Loop& loop);
  void wait_for_work(uint64_t seen);

  std::vector<std::thread> workers_;
  std::mutex callers_;  // held by the thread whose loop runs

  // Invariant: a worker enters the loop only while `open_` is true, under mutex_. So a worker that
  // wakes up late neither delays the caller nor sees a loop that has ended.
  std::mutex mutex_;
  std::condition_variable wake_;
  Loop loop_;
  bool open_ = false;
  int num_sleeping_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> generation_{0};
  std::atomic<int64_t> next_{0};
  std::atomic<int> num_inside_{0};
};

}  // namespace encore::cpu
