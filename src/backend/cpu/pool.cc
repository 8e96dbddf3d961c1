#include "backend/cpu/pool.h"

#include <algorithm>
#include <sched.h>
#include <system_error>

#include "base/log.h"
#include "base/rounding.h"

namespace encore::cpu {
namespace {

// How often an idle worker polls before it sleeps, which takes about 30 microseconds. That is
// longer than the serial work between two launches of a step, and far shorter than the time between
// steps of an idle engine.
constexpr int kSpins = 1000;
constexpr int kYields = 20;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

int num_usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Pool::Pool(int num_threads) {
  workers_.reserve(static_cast<size_t>(std::max(0, num_threads - 1)));
  try {
    for (int i = 1; i < num_threads; ++i)
      workers_.emplace_back([this] { work(); });
  } catch (const std::system_error& error) {
    log::warning("going on with {} threads instead of {}: {}", this->num_threads(), num_threads,
                 error.what());
  }
}

Pool::~Pool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_)
    worker.join();
}

int64_t Pool::grain(int64_t count, int64_t multiple) const {
  const int64_t pieces = num_threads() * int64_t{4};
  return std::max(multiple, round_up(div_up(count, pieces), multiple));
}

void Pool::parallel_for(int64_t count, int64_t grain,
                        const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  if (workers_.empty() || count <= grain) return body(0, count);

  const std::lock_guard one_at_a_time(callers_);
  const Loop loop{&body, count, grain};
  bool anyone_sleeping = false;
  {
    const std::lock_guard lock(mutex_);
    loop_ = loop;
    next_.store(0, std::memory_order_relaxed);
    open_ = true;
    generation_.fetch_add(1, std::memory_order_release);
    anyone_sleeping = num_sleeping_ > 0;
  }
  if (anyone_sleeping) wake_.notify_all();
  run_pieces(loop);
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  for (int spins = 0; num_inside_.load(std::memory_order_acquire) > 0; ++spins) {
    if (spins < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
}

void Pool::run_pieces(const Loop& loop) {
  for (;;) {
    const int64_t first = next_.fetch_add(loop.grain, std::memory_order_relaxed);
    if (first >= loop.count) return;
    (*loop.body)(first, std::min(first + loop.grain, loop.count));
  }
}

bool Pool::join_loop(uint64_t& seen, Loop& loop) {
  const std::lock_guard lock(mutex_);
  seen = generation_.load(std::memory_order_relaxed);
  if (!open_) return false;
  loop = loop_;
  num_inside_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Pool::wait_for_work(uint64_t seen) {
  for (int i = 0; i < kSpins + kYields; ++i) {
    if (generation_.load(std::memory_order_acquire) != seen || stop_) return;
    if (i < kSpins) {
      pause();
    } else {
      std::this_thread::yield();
    }
  }
  std::unique_lock lock(mutex_);
  ++num_sleeping_;
  wake_.wait(lock, [&] { return stop_ || generation_.load(std::memory_order_relaxed) != seen; });
  --num_sleeping_;
}

void Pool::work() {
  uint64_t seen = 0;
  while (!stop_) {
    wait_for_work(seen);
    Loop loop;
    if (!join_loop(seen, loop)) continue;
    run_pieces(loop);
    num_inside_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace encore::cpu
