// A CPU device whose streams run beside the host, as a GPU's streams do. Tests use it to see what a
// host does while a step is in flight, and which memory it may not touch meanwhile.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cpu/device.h"
#include "backend/cpu/stream.h"

namespace encore::engine::testing {

// Marks a point in the work of an AsyncStream. Threads: any.
class AsyncEvent final : public Event {
 public:
  void synchronize() override { is_done_.wait(false); }
  [[nodiscard]] bool done() const override { return is_done_; }
  [[nodiscard]] double milliseconds_since(const Event& start) const override {
    const auto& began = static_cast<const AsyncEvent&>(start);
    return std::chrono::duration<double, std::milli>(at_ - began.at_).count();
  }

  void expect() { is_done_ = false; }
  void happen() {
    at_ = std::chrono::steady_clock::now();
    is_done_ = true;
    is_done_.notify_all();
  }

 private:
  std::atomic<bool> is_done_ = true;
  std::chrono::steady_clock::time_point at_;
};

// Hands its work to a thread, which gives it to a stream of the CPU device. A copy is done when the
// call returns, and a recording is complete when its call returns. Threads: one at a time.
class AsyncStream final : public Stream {
 public:
  using BeforeLaunch = std::function<void(std::string_view label)>;

  AsyncStream(std::unique_ptr<Stream> stream, BeforeLaunch before)
      : stream_(std::move(stream)), before_(std::move(before)), thread_([this] { run(); }) {}
  ~AsyncStream() override {
    enqueue(nullptr);
    thread_.join();
  }
  AsyncStream(const AsyncStream&) = delete;
  AsyncStream& operator=(const AsyncStream&) = delete;

  void launch(const LaunchAttributes& attributes, const BoundLaunch& bound,
              const StepLengths& lengths) override {
    if (is_recording_) return record_launch(attributes, bound, lengths);
    enqueue([this, label = std::string(attributes.label), id = attributes.id, bound, lengths] {
      if (before_) before_(label);
      stream_->launch({.label = label, .id = id}, bound, lengths);
    });
  }
  void replay(const Recording& recording) override {
    enqueue([this, &recording] { stream_->replay(recording); });
  }
  void copy_to_device(void* device, const void* host, int64_t bytes) override {
    finish().copy_to_device(device, host, bytes);
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    finish().copy_to_host(host, device, bytes);
  }
  void fill(void* device, uint32_t pattern, int64_t bytes) override {
    finish().fill(device, pattern, bytes);
  }

  void begin_recording() override {
    finish().begin_recording();
    is_recording_ = true;
  }
  void begin_loop_recording(const int32_t* again) override {
    finish().begin_loop_recording(again);
    is_recording_ = true;
  }
  std::unique_ptr<Recording> end_recording(const Recording* like) override {
    is_recording_ = false;
    return stream_->end_recording(like);
  }
  void abandon_recording() noexcept override {
    is_recording_ = false;
    stream_->abandon_recording();
  }

  void record(Event& event) override {
    auto& recorded = static_cast<AsyncEvent&>(event);
    recorded.expect();
    enqueue([&recorded] { recorded.happen(); });
  }
  void wait(const Event& event) override {
    enqueue([&event] { const_cast<Event&>(event).synchronize(); });
  }
  void synchronize() override { finish().synchronize(); }
  void check() override {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

  // Waits until all enqueued work has run, and returns the stream of the CPU device.
  Stream& finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_pending_ == 0; });
    if (failure_) std::rethrow_exception(failure_);
    return *stream_;
  }

 private:
  // Records a launch so that each of its runs in a replay calls `before_`, too.
  void record_launch(const LaunchAttributes& attributes, const BoundLaunch& bound,
                     const StepLengths& lengths) {
    const auto announced = [&](Stream& stream, const StepLengths& those) {
      if (before_) {
        cpu::enqueue(stream, "announce",
                     [this, label = std::string(attributes.label)] { before_(label); });
      }
      bound(stream, those);
    };
    stream_->launch(attributes, announced, lengths);
  }
  // Hands work to the thread. Empty work ends the thread.
  void enqueue(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    ++num_pending_;
    changed_.notify_all();
  }
  void run() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !queue_.empty(); });
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      if (!work) return;
      const bool has_failed = failure_ != nullptr;
      lock.unlock();
      std::exception_ptr failure;
      try {
        if (!has_failed) work();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (failure) failure_ = failure;
      --num_pending_;
      changed_.notify_all();
    }
  }

  std::unique_ptr<Stream> stream_;
  BeforeLaunch before_;
  bool is_recording_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  int64_t num_pending_ = 0;  // enqueued work, including the work that runs now
  std::exception_ptr failure_;
  std::thread thread_;
};

// A CPU device with asynchronous streams. `before` is called on a stream's thread with the label of
// each launch before the launch runs, also in replays.
class AsyncDevice final : public cpu::CpuDevice {
 public:
  explicit AsyncDevice(AsyncStream::BeforeLaunch before = {})
      : CpuDevice({.num_threads = 1}), before_(std::move(before)) {}

  Memory allocate(int64_t bytes) override {
    Memory memory = CpuDevice::allocate(bytes);
    void* const data = memory.data();
    // The memory has one owner. It lies behind a shared_ptr because a function must be copyable,
    // and Memory is not.
    const auto kept = std::make_shared<Memory>(std::move(memory));
    return {data, bytes, [this, kept](void*) {
              ++num_released_;
              num_released_.notify_all();
              *kept = Memory();
            }};
  }
  // Returns how many times memory was given back.
  [[nodiscard]] const std::atomic<int>& num_released() const { return num_released_; }
  std::unique_ptr<Stream> create_stream() override {
    return std::make_unique<AsyncStream>(CpuDevice::create_stream(), before_);
  }
  std::unique_ptr<Event> create_event() override { return std::make_unique<AsyncEvent>(); }
  void fill_random(Stream& stream, const TensorView& tensor, uint64_t seed, float stddev,
                   const MatrixPlace& at) override {
    CpuDevice::fill_random(static_cast<AsyncStream&>(stream).finish(), tensor, seed, stddev, at);
  }

 private:
  AsyncStream::BeforeLaunch before_;
  std::atomic<int> num_released_ = 0;
};

}  // namespace encore::engine::testing
