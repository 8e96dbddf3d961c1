// Defines the CPU's streams, recordings and events.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/queue.h"
#include "backend/cpu/tracer.h"
#include "backend/device.h"

namespace encore::cpu {

// Hands one unit of work to a CPU stream. The bound launches of CPU kernels do their work through
// it. `kernel` is the name that Recording::nodes() shows. Errors: those of `work`, when it runs at
// once.
void enqueue(Stream& stream, std::string_view kernel, std::function<void()> work);

// Throws kCompile with "op 'x' <did> while it is recorded" when the calling thread is recording on
// a CPU stream.
void refuse_while_recording(std::string_view did);

class CpuRecording final : public Recording {
 public:
  // Creates a recording. `again` belongs to a loop: it says after each iteration whether there is
  // another one.
  explicit CpuRecording(std::vector<Entry> entries, const int32_t* again = nullptr)
      : entries_(std::move(entries)), again_(again) {}
  [[nodiscard]] int num_nodes() const override;
  [[nodiscard]] std::vector<RecordedNode> nodes() const override;
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] const int32_t* again() const { return again_; }

 private:
  std::vector<Entry> entries_;
  const int32_t* again_;
};

class CpuEvent final : public Event {
 public:
  void synchronize() override;
  [[nodiscard]] bool done() const override;
  // Returns the time since `start`. Errors: kDevice when the device has not reached one of the two
  // events.
  [[nodiscard]] double milliseconds_since(const Event& start) const override;

  void set_now() { *time_ = std::chrono::steady_clock::now(); }
  // Returns the work that sets the event's time when `queue` runs it.
  [[nodiscard]] std::function<void()> reached_in(const std::shared_ptr<ShuffledQueue>& queue);
  // Runs the work that lies in front of the event in its queue.
  void look() const;

 private:
  using Time = std::optional<std::chrono::steady_clock::time_point>;
  // Shared with the work that sets the time.
  std::shared_ptr<Time> time_ = std::make_shared<Time>();
  std::weak_ptr<ShuffledQueue> queue_;  // the queue in which the event was last recorded
};

// Runs each launch at once, or keeps it for a recording. With a shuffle seed, it queues launches
// instead. Synchronizing, copies, fills and waiting for an event run everything that is queued;
// replays and the recording of events only add to the queue.
class CpuStream final : public Stream {
 public:
  // Creates a stream. `tracer` points to where the stream finds the running tracer, and is null
  // where no tracer ever runs.
  explicit CpuStream(std::optional<uint64_t> shuffle_seed,
                     const CpuTracer::Running* tracer = nullptr);
  ~CpuStream() override;

  void launch(const LaunchAttributes& attributes, const BoundLaunch& bound,
              const StepLengths& lengths) override;
  void copy_to_device(void* device, const void* host, int64_t bytes) override;
  void copy_to_host(void* host, const void* device, int64_t bytes) override;
  void fill(void* device, uint32_t pattern, int64_t bytes) override;
  void begin_recording() override;
  void begin_loop_recording(const int32_t* again) override;
  std::unique_ptr<Recording> end_recording(const Recording* like) override;
  void abandon_recording() noexcept override;
  void replay(const Recording& recording) override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  void synchronize() override;
  void check() override { look(); }

  // Adds one unit of work to the launch in progress, or to a launch of its own.
  void enqueue(Task task);
  // Adds a copy or a fill, which waits for all earlier work and which all later work waits for.
  void enqueue_barrier(Task task);
  // Returns a name for messages of the op that is running: "op 'x'", or "the code before the first
  // launch".
  [[nodiscard]] std::string at_work() const;

 private:
  void commit(Entry entry);
  void replay_once(const CpuRecording& recording);
  void run(const Task& task, std::string_view op) const;
  void look();

  const CpuTracer::Running* tracer_;
  std::shared_ptr<ShuffledQueue> queue_;  // shared with the events that were recorded in it
  bool recording_ = false;
  std::vector<Entry> recorded_;
  const int32_t* recorded_again_ = nullptr;
  std::optional<Entry> launching_;
  std::string label_;  // of the launch in progress or, while recording, of the latest launch
};

}  // namespace encore::cpu
